"""Notes every call of an operator while a model is counted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from opcost.compat._operators.autograd_functions import listening_to_apply
from opcost.compat._operators.python_functions import unasked
from opcost.compat._operators.schema import in_schema_order
from opcost.compat._operators.spelling import as_traced, operator_name
from opcost.compat._recording import current_recorder
from opcost.core.graph import TensorSpec
from opcost.frontends.torch.recording.recorder import Recorder

if TYPE_CHECKING:
    from typing_extensions import Self

PYTHON_OPERATOR = "prim::PythonOp."
"""In front of the name of a function with a backward of its own."""


class Called(NamedTuple):
    """One call, and the recorded operators that it became: those from `first` to before `end`."""

    kind: str
    arguments: tuple[object, ...]
    results: tuple[object, ...]
    module: str
    first: int
    end: int
    inside: tuple[Called, ...] = ()
    """What a function with a backward of its own calls."""


class Listener(TorchFunctionMode):  # type: ignore[misc]
    """Notes every function of torch that makes a tensor while a recorder is at work."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Called] = []
        self.touched: set[str] = set()
        """The modules in which anything at all was asked of torch."""
        self._recorder: Recorder | None = None
        self._inside: set[FunctionType] = set()
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        super().__enter__()
        if not self._inside:
            self._undo.enter_context(listening_to_apply(self._apply))
        return self

    def __exit__(self, *exception: object) -> None:
        if not self._inside:
            self._undo.close()
        super().__exit__(*exception)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recorder = current_recorder()
        if recorder is None:
            return func(*args, **kwargs)
        self._follow(recorder)
        self.touched.add(recorder.where())
        name = operator_name(func)
        if isinstance(func, FunctionType):
            if func not in self._inside:
                return self._listen_inside(func, args, kwargs)
            # A function that replaced torch's calls the original, which is two frames up and names its replacement.
            name = operator_name(getattr(torch.ops.aten, sys._getframe(2).f_code.co_name, None))  # noqa: SLF001
        if name is None:
            return func(*args, **kwargs)
        return self._note(name, recorder, func, args, kwargs)

    def _follow(self, recorder: Recorder) -> None:
        """A new recorder is a new run; what was noted of an unfinished one is void."""
        if recorder is not self._recorder:
            self._recorder = recorder
            self.calls.clear()
            self.touched.clear()

    def _listen_inside(self, func: FunctionType, args: Any, kwargs: Mapping[str, Any]) -> Any:
        self._inside.add(func)
        try:
            with self:
                return unasked(func)(*args, **kwargs)
        finally:
            self._inside.discard(func)

    def _apply(self, cls: type, apply: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """A function with a backward of its own; the calls inside it are kept with it."""
        recorder = current_recorder()
        if recorder is None:
            return apply(*args, **kwargs)
        self._follow(recorder)
        given = tuple(item for item in described(recorder, args) if isinstance(item, TensorSpec))
        outer, self.calls = self.calls, []
        first = len(recorder.ops)
        try:
            result = apply(*args, **kwargs)
        finally:
            inside, self.calls = self.calls, outer
        results = described(recorder, result if isinstance(result, (tuple, list)) else (result,))
        place = (recorder.where(), first, len(recorder.ops))
        self.calls.append(Called(f"{PYTHON_OPERATOR}{cls.__name__}", given, results, *place, tuple(inside)))
        return result

    def _note(self, name: str, recorder: Recorder, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        given = described(recorder, args)  # before the call, which may change its arguments
        named = dict(zip(kwargs, described(recorder, kwargs.values()), strict=True))
        first = len(recorder.ops)
        result = func(*args, **kwargs)
        results = described(recorder, result if isinstance(result, (tuple, list)) else (result,))
        end = len(recorder.ops)
        if end > first or any(isinstance(item, TensorSpec) for item in results):
            name, arguments = as_traced(name, in_schema_order(name, given, named))
            self.calls.append(Called(f"aten::{name}", arguments, results, recorder.where(), first, end))
        return result


def described(recorder: Recorder, arguments: Any) -> tuple[object, ...]:
    """Arguments with shape and type in the place of every tensor."""
    return tuple(
        recorder.spec(argument)
        if isinstance(argument, torch.Tensor)
        else described(recorder, argument)
        if type(argument) in (list, tuple)
        else argument
        for argument in arguments
    )
