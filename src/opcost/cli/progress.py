"""A sign of life on stderr for work that takes more than a moment."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from opcost.core.harmless import printable

PATIENCE_S = 2.0
"""Work that is done sooner says nothing."""


@contextmanager
def working(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show `what` and the seconds it has taken, once it takes long and somebody is looking."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    what = printable(what)
    started = time.monotonic()
    done = threading.Event()

    def tell() -> None:
        pause = PATIENCE_S
        while not done.wait(pause):
            pause = 0.5
            sys.stderr.write(f"\r{what} … {time.monotonic() - started:.0f} s\x1b[K")
            sys.stderr.flush()
        if pause != PATIENCE_S:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    teller = threading.Thread(target=tell, name="opcost-progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
