"""Tracebacks of errors that leave opcost: they show the user's lines and none of opcost's, unless OPCOST_DEBUG is set.

In a script, a notebook and pytest the first line is then the user's own: the call of opcost, and above it, where the model
raised, the line of its forward.
"""

import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, TypeVar

from opcost.errors import OpcostError

Function = TypeVar("Function", bound=Callable[..., Any])

keep_whole: ContextVar[bool] = ContextVar("keep_whole", default=False)  # as --debug of the command line does

_OWN = str(Path(__file__).parents[1]) + os.sep
_CALLING = (__file__, str(Path(__file__).with_name("option.py")))  # where arguments meet a public function
_PYTHON = (str(Path(os.__file__).parent) + os.sep, "<frozen ")
_INSTALLED = "-packages" + os.sep  # site-packages, dist-packages: below Python's own library, and no part of it


def trims_traceback(function: Function) -> Function:
    """A public function, whose errors leave without opcost's frames; a bug of opcost keeps its traceback."""

    @wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        __tracebackhide__ = True  # Python 3.10 keeps this frame; pytest and IPython do not show it
        try:
            return function(*args, **keywords)
        except (OpcostError, TypeError) as exc:
            head = exc.__traceback__
            if head is not None and _is_for_users(exc) and not (keep_whole.get() or os.environ.get("OPCOST_DEBUG")):
                _trim(exc)
                head.tb_next = exc.__traceback__  # what Python 3.10 raises again
            raise  # adds no frame to the traceback

    return called  # type: ignore[return-value]


class TrimsTracebacks:
    """A class whose public methods trim the tracebacks of their errors."""

    __slots__ = ()

    def __init_subclass__(cls, **further: Any) -> None:
        super().__init_subclass__(**further)
        if "__dataclass_fields__" in vars(cls):  # the copy with slots, which `dataclass` makes of the class
            return
        for name, found in list(vars(cls).items()):
            if isinstance(found, FunctionType) and (name == "__init__" or not name.startswith("_")):
                setattr(cls, name, trims_traceback(found))


def raised_outside(exc: BaseException | None) -> bool:
    """Whether an exception passed through code that is neither opcost's nor called by it in a library."""
    return exc is not None and _outside(exc.__traceback__) is not None


def _is_for_users(exc: BaseException) -> bool:
    """Whether the error was raised on purpose, or by Python because the arguments do not fit the function."""
    if isinstance(exc, OpcostError):
        return True
    at = exc.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and at.tb_frame.f_code.co_filename in _CALLING


def _trim(exc: BaseException) -> None:
    """Leave the user's lines in the tracebacks of an error and its causes; a cause without any is no longer shown."""
    exc.__traceback__ = _outside(exc.__traceback__)
    cause = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    if cause is None:
        return
    if cause.__traceback__ is None or raised_outside(cause):
        _trim(cause)
    else:
        exc.__cause__ = None  # it remains as `__context__`


def _outside(traceback: TracebackType | None) -> TracebackType | None:
    """The frames that are neither opcost's nor those of libraries that it called."""
    kept = []
    inside = False
    torch = str(Path(getattr(sys.modules.get("torch"), "__file__", None) or __file__).parent) + os.sep
    while traceback is not None:
        frame = traceback.tb_frame
        file = str(frame.f_globals.get("__file__") or frame.f_code.co_filename)  # the code of a dataclass has no file
        # `Module._call_impl` and `contextlib`, between opcost and a model, are opcost's matter too.
        is_library = file.startswith(torch) or (file.startswith(_PYTHON) and _INSTALLED not in file)
        inside = file.startswith(_OWN) or (inside and is_library)
        if not inside:
            kept.append(traceback)
        traceback = traceback.tb_next
    found = None
    for each in reversed(kept):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return found
