"""Ctrl-C and other signals, delivered at the right moment: not while something is half done.

    with defer_signals():       # from here on a signal is only remembered
        ...                     # turn switches, replace functions
        with allow_signals():   # here it is delivered as always, once
            ...                 # the long part, the user's own code
        ...                     # restore everything
                                # and here the remembered one is delivered

A `finally` alone is not enough: an exception between two lines of it leaves the rest undone. Python runs handlers of
signals in the main thread only; in other threads both blocks do nothing.

Python discards what a handler raises while `__del__` or the callback of a weak reference runs, and others may catch it. So a
signal is remembered in the former, and an interrupt that has not ended the block is raised again: at the next operator
(`raise_pending`), or at the end of the block.
"""

import _signal  # type: ignore[import-not-found]
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal

_Handler = Callable[[int, "FrameType | None"], Any]

SIGNALS = tuple(map(int, signal.valid_signals()))

_DISCARDING = ("weakref.py", "_weakrefset.py")
"""Files whose functions Python calls when something dies, and whose exceptions it discards."""

pending: dict[int, BaseException | None] = {}  # signals that have ended nothing so far, with what their handlers raised


def handlers() -> dict[int, Any]:
    """The handler of each signal."""
    return {number: _signal.getsignal(number) for number in SIGNALS}


class _Gate:
    """The handler that is called before the user's own."""

    __slots__ = ("behind", "raised", "state")

    def __init__(self, behind: dict[int, _Handler]) -> None:
        self.behind = behind
        self.state: Literal["closed", "open", "ended"] = "closed"
        """`ended`: a handler has raised, so what runs now restores things, and a second signal must not disturb that."""
        self.raised = 0  # the identity of what a handler raised last; itself it would keep tensors alive

    def __call__(self, number: int, frame: FrameType | None) -> None:
        at = frame
        while at is not None:  # whether Python will discard what is raised here
            if at.f_code.co_name in ("__del__", "_freed") or at.f_code.co_filename.endswith(_DISCARDING):
                break
            at = at.f_back
        if self.state != "open" or at is not None:
            pending.setdefault(number, None)
        else:
            self.call(number, frame)

    def call(self, number: int, frame: FrameType | None = None) -> None:
        """Call the user's own handler."""
        was, self.state = self.state, "ended"
        try:
            self.behind[number](number, frame)
        except BaseException as exc:
            self.raised = id(exc)
            if not isinstance(exc, Exception):  # an exception that a model may catch is raised once
                pending[number] = exc
            raise
        self.state = was  # a handler that returns has ended nothing

    def deliver(self) -> None:
        """Deliver what came while the gate was closed, and once more what was discarded."""
        while pending:
            number, raised = list(pending.items())[0]  # noqa: RUF015 - whole at once: a signal may add one meanwhile
            if raised is not None:
                raise raised
            del pending[number]
            self.call(number)

    def deliver_at_last(self) -> None:
        """The same when the gate is removed; what one handler raises does not keep another from being called."""
        while pending:
            number, raised = pending.popitem()
            try:
                if raised is not None:
                    raise raised
                self.behind[number](number, None)
            finally:
                self.deliver_at_last()


_gates: list[_Gate] = []  # the gate, where it is installed


def _gate() -> _Gate | None:
    """The gate, where it is installed and this is the thread that receives signals."""
    return _gates[0] if _gates and threading.current_thread() is threading.main_thread() else None


def raise_pending() -> None:
    """Raise what was discarded, unless it is being handled right now; called where `pending` is not empty."""
    gate = _gate()
    if gate is None or gate.state == "closed":
        return
    handled = sys.exc_info()[1]
    while handled is not None and gate.state == "ended":
        if id(handled) == gate.raised:
            return
        handled = handled.__context__
    gate.state = "open"
    gate.deliver()


def is_delivered(exc: BaseException) -> bool:
    """Whether an exception is that of a signal handler, not of the code that it interrupted."""
    return bool(_gates) and _gates[0].raised == id(exc)


def _forget(exc: BaseException | None) -> None:
    """What ends the block need not be raised again."""
    for number, raised in list(pending.items()):  # whole at once: a signal may add one meanwhile
        if raised is not None and raised is exc:
            del pending[number]


class defer_signals:  # noqa: N801 - used as a word, like the context managers of contextlib
    """Remember signals instead of delivering them; they are delivered when the outermost of these blocks has been left."""

    __slots__ = ("_gate", "_outermost", "_was")

    def __enter__(self) -> None:
        self._outermost = False
        self._gate = _gate()
        if self._gate is not None:
            self._was = self._gate.state
            self._gate.state = "closed"
        elif threading.current_thread() is threading.main_thread():
            found = handlers()
            self._gate = _Gate({number: handler for number, handler in found.items() if callable(handler)})
            self._outermost = True
            pending.clear()
            try:
                _gates.append(self._gate)
                for number in self._gate.behind:
                    _signal.signal(number, self._gate)
            except BaseException:  # of a handler that was not replaced yet
                self._remove()
                raise

    def __exit__(self, _: object, exc: BaseException | None, __: object) -> None:
        gate = self._gate
        if gate is None:
            return
        _forget(exc)
        if self._outermost:
            self._remove()
            gate.deliver_at_last()
        else:
            gate.state = self._was
            if self._was == "open":
                gate.deliver()

    def _remove(self) -> None:
        try:
            self._restore_handlers()
        except BaseException:  # of a handler that is restored already
            self._restore_handlers()
            raise

    def _restore_handlers(self) -> None:
        assert self._gate is not None
        _gates.clear()
        for number, handler in self._gate.behind.items():
            if _signal.getsignal(number) is not handler:
                _signal.signal(number, handler)


class allow_signals:  # noqa: N801 - as above
    """Deliver signals again inside a block that defers them."""

    __slots__ = ("_gate",)

    def __enter__(self) -> None:
        self._gate = _gate()
        if self._gate is not None:
            self._gate.deliver()
            self._gate.state = "open"

    def __exit__(self, _: object, exc: BaseException | None, __: object) -> None:
        gate = self._gate
        if gate is None:
            return
        gate.state = "closed"
        _forget(exc)
        if exc is None or any(raised is not None for raised in list(pending.values())):
            gate.deliver()
            gate.state = "closed"


@contextmanager
def garbage_collector_paused() -> Iterator[None]:
    """No collection while many objects are made that all stay: it would walk them again and again and free nothing."""
    if not gc.isenabled():
        yield
        return
    with defer_signals():
        gc.disable()
        try:
            with allow_signals():
                yield
        finally:
            gc.enable()
