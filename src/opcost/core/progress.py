"""A sign of life on stderr for work that takes more than a moment."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opcost.core.harmless import printable

PATIENCE_S = 2.0
"""Work that is done sooner says nothing."""

What = str | Callable[[], str]
"""What is being done: in words, or asked again each time it is shown."""


class _Line:
    """What the one line says now."""

    def __init__(self, what: What) -> None:
        self.what = what
        self.started = time.monotonic()

    def __str__(self) -> str:
        what = self.what if isinstance(self.what, str) else self.what()
        return f"{printable(what)} … {time.monotonic() - self.started:.0f} s"


class _Teller(threading.Thread):
    """The thread that shows the line."""


def alone() -> bool:
    """Whether nobody else is at work in this process: no thread lives but this one and the one that shows the line."""
    tellers = sum(isinstance(thread, _Teller) for thread in threading.enumerate())
    return threading.active_count() - tellers == 1


_line: ContextVar[_Line | None] = ContextVar("opcost-progress", default=None)


@contextmanager
def working(what: What, *, quiet: bool = False) -> Iterator[None]:
    """Show `what` and the seconds it has taken, once it takes long and somebody is looking.

    Work inside other work says what it is in the same line, and is as quiet as that.
    """
    outer = _line.get()
    if outer is not None:
        before, outer.what = outer.what, what
        try:
            yield
        finally:
            outer.what = before
        return
    line = _Line(what)
    token = _line.set(line)
    try:
        with _shown(line, quiet=quiet):
            yield
    finally:
        _line.reset(token)


@contextmanager
def _shown(line: _Line, *, quiet: bool) -> Iterator[None]:
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def tell() -> None:
        pause = PATIENCE_S
        while not done.wait(pause):
            pause = 0.5
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()
        if pause != PATIENCE_S:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    teller = _Teller(target=tell, name="opcost-progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
