"""The operators of a model as its author called them: `linear` and `softmax`, not the `addmm`, `t` and `view` they become.

opcost records where the dispatcher has already taken composite operators apart. The peers speak of the calls, as torch's
jit tracer sees them, so the calls are noted while opcost counts, each with the rows that it became.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from opcost.api import count
from opcost.compat._node import Node
from opcost.compat._rows import nodes_of_rows
from opcost.compat._schema import in_schema_order
from opcost.core.graph import TensorSpec
from opcost.core.report import Report
from opcost.frontends.options import Mode
from opcost.frontends.torch.recording.recorder import Recorder

_CONVOLUTIONS = {
    f"conv{transposed}{n}d": bool(transposed) for transposed in ("", "_transpose") for n in (1, 2, 3)
}  # fmt: skip
_OPENED = frozenset({"lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"})
"""The tracer does not note these, but what they call."""
_RENAMED = {"zero_": "zeros_like", "fill_": "full_like"}
"""The tracer's own renames."""
_ATTRIBUTES = {"T": "numpy_T", "mT": "mT", "H": "matrix_H", "mH": "mH", "real": "real", "imag": "imag"}
"""Attributes of a tensor that are operators."""


class Trace(NamedTuple):
    """One count with the operators as called; `touched` are the modules in which anything at all was asked of torch."""

    report: Report
    nodes: tuple[Node, ...]
    touched: frozenset[str]


class _Called(NamedTuple):
    name: str
    arguments: tuple[object, ...]
    results: tuple[object, ...]
    module: str
    first: int
    end: int


def trace(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, mode: Mode | None = None
) -> Trace:
    """Count a model and note the operators as it calls them."""
    with _Listener() as listener:
        report = count(model, args, kwargs=kwargs, mode=mode)
    return Trace(report, tuple(_nodes(report, listener.calls)), frozenset(listener.touched))


def _nodes(report: Report, calls: list[_Called]) -> Iterator[Node]:
    """Calls and rows in the order in which they ran; a row that belongs to no call speaks for itself."""
    rows = report.rows
    made_by: dict[int, str] = {}
    done = 0
    for call in calls:
        yield from nodes_of_rows(rows[done : call.first], made_by)
        yield Node(f"aten::{call.name}", call.arguments, call.results, call.module, rows[call.first : call.end])
        done = call.end
    yield from nodes_of_rows(rows[done:], made_by)


class _Listener(TorchFunctionMode):  # type: ignore[misc]
    """Notes every torch function that makes a tensor while a recorder is at work."""

    def __init__(self) -> None:
        super().__init__()
        self._recorder: Recorder | None = None
        self.calls: list[_Called] = []
        self.touched: set[str] = set()
        self._inside: set[Any] = set()
        self._bodies: dict[Any, Callable[..., Any]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recorder = _recorder()
        if recorder is None:
            return func(*args, **kwargs)
        if recorder is not self._recorder:  # a run without data that could not go on is begun again with data
            self._recorder = recorder
            self.calls.clear()
            self.touched.clear()
        self.touched.add(recorder.where())
        if isinstance(func, FunctionType) and func not in self._inside:
            return self._listen_inside(func, args, kwargs)
        name = _operator_name(func)
        if name is None or name in _OPENED:
            return func(*args, **kwargs)
        described = _described(recorder, args)
        named = dict(zip(kwargs, _described(recorder, kwargs.values()), strict=True))
        first = len(recorder.ops)
        result = func(*args, **kwargs)
        results = _described(recorder, result if isinstance(result, (tuple, list)) else (result,))
        end = len(recorder.ops)
        if end > first or any(isinstance(item, TensorSpec) for item in results):
            name, arguments = _as_traced(name, in_schema_order(name, described, named))
            self.calls.append(_Called(name, arguments, results, recorder.where(), first, end))
        return result

    def _listen_inside(self, func: FunctionType, args: Any, kwargs: dict[str, Any]) -> Any:
        """A function written in Python is no operator; the ones that it calls are."""
        body = self._bodies.get(func)
        if body is None:
            body = self._bodies[func] = _body(func)
        self._inside.add(func)
        try:
            with self:
                return body(*args, **kwargs)
        finally:
            self._inside.discard(func)


def _recorder() -> Recorder | None:
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, Recorder):
            return mode
    return None


def _described(recorder: Recorder, arguments: Any) -> tuple[object, ...]:
    """Arguments with shape and type in the place of every tensor."""
    return tuple(
        recorder.spec(argument)
        if isinstance(argument, torch.Tensor)
        else _described(recorder, argument)
        if type(argument) in (list, tuple)
        else argument
        for argument in arguments
    )


def _as_traced(name: str, arguments: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
    """The name and arguments under which the tracer notes a call: every convolution is one operator there."""
    switches = (False, False, True, True)  # benchmark, deterministic, cuDNN, TF32
    if name == "convolution":
        return "_convolution", (*arguments, *switches)
    transposed = _CONVOLUTIONS.get(name)
    if transposed is None:
        return _RENAMED.get(name, name), arguments
    if transposed:
        x, weight, bias, stride, padding, output_padding, groups, dilation = arguments
    else:
        x, weight, bias, stride, padding, dilation, groups = arguments
        output_padding = 0
    return "_convolution", (x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *switches)


@cache
def _operator_name(func: Any) -> str | None:
    """The name of the operator behind a function; None for what is no operator (indexing, attributes, sizes)."""
    if isinstance(func, (OpOverload, OpOverloadPacket)):
        library, _, name = str(func).removesuffix(f".{getattr(func, '_overloadname', '')}").partition(".")
        return name if library == "aten" else None
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return _ATTRIBUTES.get(getattr(func.__self__, "__name__", ""))
    # Indexing is several operators, or none; they speak for themselves.
    return name if name not in ("", "__getitem__") and hasattr(torch.ops.aten, name) else None


def _never(*_: object) -> bool:
    return False


def _body(func: FunctionType) -> Callable[..., Any]:
    """A function written in Python without the question at its start whether somebody overrides it.

    The answer would be yes, always: the listener itself does, and would be handed the same function for ever.
    """
    names = dict(func.__globals__)
    for question in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
        if question in names:
            names[question] = _never
    body = FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
    body.__kwdefaults__ = func.__kwdefaults__
    return body
