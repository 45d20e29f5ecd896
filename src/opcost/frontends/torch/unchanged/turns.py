"""Some switches that a count turns are global to the process, so counts of several threads take turns."""

from __future__ import annotations

from threading import RLock

from opcost.core.interrupts import allow_signals


class _Turns:
    """A lock that can be interrupted while one waits for it."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        while not self._lock.acquire(timeout=0.05):
            with allow_signals():
                pass

    def __exit__(self, *_: object) -> None:
        self._lock.release()


one_at_a_time = _Turns()
