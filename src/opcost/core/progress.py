"""A progress line on stderr for work that takes more than a moment."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from math import inf
from typing import NamedTuple

from opcost.core.escaping import printable

PATIENCE_S = 2.0  # work that is done sooner says nothing

What = str | Callable[[], str]  # what is being done: a text, or a function that is called at each update
Share = Callable[[], "tuple[float, float] | None"]
"""How much of it is done, and of how much; None where that is not known. It is called at each update."""


class _ProgressItem(NamedTuple):
    what: What | None  # none: the same as the enclosing work
    share: Share | None
    began: float


class _ProgressLine:
    """The progress line: the text of the innermost work, and how much of the whole is done."""

    def __init__(self) -> None:
        self.works: list[_ProgressItem] = []

    def __str__(self) -> str:
        now = time.monotonic()
        done, began = self._done()
        if not done:
            return f"{self.words()} ... {now - self.works[0].began:.0f} s"
        left = (now - began) * (1 - done) / done
        return f"{self.words()}: {done:.0%}, about {_rough(left)} left"

    def words(self) -> str:
        what = next(work.what for work in reversed(self.works) if work.what is not None)
        return printable(what if isinstance(what, str) else what())

    def stopped(self) -> str:
        """What is interrupted now, in words."""
        return f"{self.words()} was stopped after {_rough(time.monotonic() - self.works[0].began)}"

    def _done(self) -> tuple[float, float]:
        """The share of the outermost work that has one, to which inner ones add, and when it began."""
        done = began = 0.0
        for work in reversed(self.works):
            try:
                known = work.share() if work.share is not None else None
            except (ValueError, RuntimeError):  # a file that was closed meanwhile
                known = None
            if known is not None and known[1] > 0:
                done, began = min((known[0] + done) / known[1], 1.0), work.began
        return done, began


def _rough(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


class ProgressThread(threading.Thread):
    """A thread that only writes progress, and changes nothing."""


def is_only_thread() -> bool:
    """Whether this is the only thread of the process, but for those that write progress."""
    writers = sum(isinstance(thread, ProgressThread) for thread in threading.enumerate())
    return threading.active_count() - writers == 1


_line: ContextVar[_ProgressLine | None] = ContextVar("opcost-progress", default=None)
_lines: list[_ProgressLine] = []  # the same for other threads, the outermost first
stopping = threading.Event()  # set by Ctrl-C; work that begins or ends raises the exception again, should it get lost


def stopped() -> str | None:
    """What Ctrl-C stops now, in words; the progress line ends."""
    stopping.set()
    return _lines[0].stopped() if _lines else None


def _go_on() -> None:
    if stopping.is_set():
        raise KeyboardInterrupt


@contextmanager
def working(what: What, *, share: Share | None = None, quiet: bool = False) -> Iterator[None]:
    """Show `what`, the share that is done and an estimate of the rest, once it takes long and stderr is a terminal.

    Work inside other work uses the same line, and is as quiet as that. An interrupt says what it stopped.
    """
    outer = _line.get()
    if outer is not None:
        with _inside(outer, what, share):
            yield
        return
    line = _ProgressLine()
    token = _line.set(line)
    _lines.append(line)
    try:
        with _inside(line, what, share), _shown(line, quiet=quiet):
            yield
    finally:
        _lines.remove(line)
        _line.reset(token)


@contextmanager
def sharing(share: Share) -> Iterator[None]:
    """Give the share that is done of the current work; without a progress line this does nothing."""
    line = _line.get()
    with nullcontext() if line is None else _inside(line, None, share):
        yield


class Rounds:
    """The share of work in rounds of about `usual` steps, counted by `step` and `next`; a longer round stays at its last step."""

    def __init__(self, usual: int) -> None:
        self.rounds: int | None = None  # how many there are; None while unknown, and then there is no share
        self._usual = usual
        self._over = self._steps = 0

    def step(self) -> None:
        """One more step of this round is done."""
        self._steps += 1

    def next(self) -> None:
        """This round is over."""
        self._over, self._steps = self._over + 1, 0

    def share(self) -> tuple[float, float]:
        """For `working` and `sharing`."""
        if self.rounds is None:
            return 0, inf
        return self._over * self._usual + min(self._steps, self._usual - 1), self.rounds * self._usual


@contextmanager
def _inside(line: _ProgressLine, what: What | None, share: Share | None) -> Iterator[None]:
    _go_on()
    line.works.append(_ProgressItem(what, share, time.monotonic()))
    try:
        yield
        _go_on()  # raise a Ctrl-C that was lost inside
    except KeyboardInterrupt as exc:
        exc.args = exc.args or (line.stopped(),)
        raise
    finally:
        line.works.pop()


@contextmanager
def _shown(line: _ProgressLine, *, quiet: bool) -> Iterator[None]:
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def update() -> None:
        pause = PATIENCE_S
        while not done.wait(pause):
            pause = 0.5
            if stopping.is_set():
                return
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()
        if pause != PATIENCE_S:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    writer = ProgressThread(target=update, name="opcost-progress", daemon=True)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()
