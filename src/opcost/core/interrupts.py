"""Ctrl-C at the right moment: held back while something is half done, let through where nothing is lost by it.

    with held_back():           # from here on an interrupt is only remembered
        ...                     # turn switches, replace functions
        with let_through():     # here it strikes as always, once
            ...                 # the long part, the user's own code
        ...                     # put everything back
                                # and here the remembered one is delivered

A `finally` alone is not enough: an interrupt that strikes between two lines of it leaves the rest undone. Python delivers
interrupts to the main thread only; in other threads both blocks do nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_Handler = Callable[[int, "FrameType | None"], Any]


class _Gate:
    """The handler that stands before the user's own."""

    __slots__ = ("_behind", "_waiting", "is_open")

    def __init__(self, behind: _Handler) -> None:
        self._behind = behind
        self._waiting = False
        self.is_open = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.is_open:
            self._waiting = True
            return
        self.is_open = False  # what the interrupt ends is now to be put back, and a second one must not disturb that
        self._behind(number, frame)
        self.is_open = True  # a handler that returns has ended nothing

    def deliver(self) -> None:
        """Let the interrupt strike that came while the gate was closed."""
        if self._waiting:
            self._waiting = False
            was_open, self.is_open = self.is_open, False
            self._behind(signal.SIGINT, None)
            self.is_open = was_open


def _gate() -> _Gate | None:
    """The gate, where it stands and this is the thread that interrupts strike."""
    if threading.current_thread() is not threading.main_thread():
        return None
    handler = signal.getsignal(signal.SIGINT)
    return handler if isinstance(handler, _Gate) else None


class held_back:  # noqa: N801 - used as a word, like the context managers of contextlib
    """Remember an interrupt instead of striking; it is delivered when the outermost of these blocks has been left."""

    __slots__ = ("_behind", "_gate", "_was_open")

    def __enter__(self) -> None:
        self._behind: Any = None
        self._gate = _gate()
        if self._gate is not None:
            self._was_open = self._gate.is_open
            self._gate.is_open = False
        elif threading.current_thread() is threading.main_thread():
            behind = signal.getsignal(signal.SIGINT)
            if callable(behind):  # else interrupts are ignored, or not Python's matter
                self._gate = _Gate(behind)
                self._behind = behind
                signal.signal(signal.SIGINT, self._gate)

    def __exit__(self, *_: object) -> None:
        if self._gate is None:
            return
        if self._behind is None:
            self._gate.is_open = self._was_open
            if not self._was_open:
                return
        else:
            signal.signal(signal.SIGINT, self._behind)
        self._gate.deliver()


class let_through:  # noqa: N801 - as above
    """Let interrupts strike again inside a block that holds them back."""

    __slots__ = ("_gate",)

    def __enter__(self) -> None:
        self._gate = _gate()
        if self._gate is not None:
            self._gate.deliver()
            self._gate.is_open = True

    def __exit__(self, *_: object) -> None:
        if self._gate is not None:
            self._gate.is_open = False
