"""The operators of a model as its author called them: `linear` and `softmax`, not the `addmm`, `t` and `view` they become.

opcost records where the dispatcher has already taken composite operators apart. The peers count calls, as torch's jit tracer
sees them, so the calls are noted while opcost counts, each with the rows of the report that it became.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

from opcost.compat._recording import count_a_run, current_recorder
from opcost.core.graph import TensorSpec
from opcost.core.option import Mode
from opcost.core.report import Report, Row
from opcost.errors import OpcostError
from opcost.frontends.torch.recording.recorder import DatalessRecorder

if TYPE_CHECKING:
    from typing_extensions import Self

# -- one call, as a peer's handle receives it -------------------------------------------------------------------------
# A handle written for fvcore reads shapes with `value.type().sizes()`, constants with `value.toIValue()`, and the tensors of
# a list with `value.node().inputs()`; the method names are therefore those of `torch._C.Value` and `torch._C.Node`.


@dataclass(frozen=True, slots=True, eq=False)
class OperatorValue:
    """One argument or result of an operator: a tensor's shape and type, a constant, or a list of either."""

    _content: Any
    _made_by: OperatorCall | None = None

    def isCompleteTensor(self) -> bool:
        return isinstance(self._content, TensorSpec) and self._content.known

    def type(self) -> OperatorValue:
        """A tensor itself, which has the methods of its type too: `sizes` and the following."""
        if not isinstance(self._content, TensorSpec):
            raise OpcostError(f"the value {self._content!r} of an operator is no tensor and has no sizes")
        return self

    def sizes(self) -> list[int]:
        return list(self._content.dims)

    def dim(self) -> int:
        return len(self._content.dims)

    def dtype(self) -> torch.dtype:
        return getattr(torch, self._content.dtype)  # type: ignore[no-any-return]

    def kind(self) -> str:
        return "TensorType"

    def toIValue(self) -> object:
        """The constant; None for a tensor, as in the jit."""
        return None if _has_tensors(self._content) else self._content

    def node(self) -> OperatorCall:
        """The operator that made a result; for a list, the operator whose inputs are its items."""
        if self._made_by is not None:
            return self._made_by
        if isinstance(self._content, (list, tuple)):
            return OperatorCall("prim::ListConstruct", tuple(self._content), (self._content,))
        raise OpcostError("the operator that made this argument is not kept; only results and lists have a node")

    @property
    def numel(self) -> int:
        """Elements of a tensor; 0 for anything else."""
        return self._content.numel if isinstance(self._content, TensorSpec) else 0


@dataclass(frozen=True, slots=True, eq=False)
class OperatorCall:
    """One operator as the author of the model called it, with the rows of the report that it became."""

    _kind: str
    arguments: tuple[object, ...]
    results: tuple[object, ...]
    module: str = ""
    first: int = 0
    end: int = 0  # The recorded operators that it became are those from `first` to before `end`
    inside: tuple[OperatorCall, ...] = ()  # The operators that a function with a backward of its own calls
    rows: tuple[Row, ...] = field(default=(), repr=False)

    def kind(self) -> str:
        return self._kind

    def inputs(self) -> list[OperatorValue]:
        return [OperatorValue(content) for content in self.arguments]

    def outputs(self) -> list[OperatorValue]:
        return [OperatorValue(content, self) for content in self.results]

    @property
    def name(self) -> str:
        """The operator's name without its library."""
        return self._kind.rpartition("::")[2]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of everything that ran for this operator."""
        return sum(row.cost.macs * row.op.repeat for row in self.rows if row.cost is not None)


# -- counting with the calls ------------------------------------------------------------------------------------------


class CallTrace(NamedTuple):
    """One count with the operators as called; `touched` are the modules in which any function of torch was called."""

    report: Report
    calls: tuple[OperatorCall, ...]
    touched: frozenset[str]


def trace(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, mode: Mode | None = None,
    warn: bool = True,
) -> CallTrace:  # fmt: skip
    """Count a model and note the operators as it calls them."""
    with OperatorRecorder() as recorded:
        report = count_a_run(model, args, kwargs, mode=mode, warn=warn)
    return CallTrace(report, tuple(with_rows(report, recorded.calls)), frozenset(recorded.touched))


def with_rows(report: Report, calls: Iterable[OperatorCall]) -> Iterator[OperatorCall]:
    """Calls in the order in which they ran, with their rows; a row that belongs to no call becomes one of its own."""
    rows, made_by = report.rows, dict[int, str]()

    def between(first: int, end: int, calls: Iterable[OperatorCall]) -> Iterator[OperatorCall]:
        for call in calls:
            yield from _calls_of_rows(rows[first : call.first], made_by)
            is_custom = call.kind().startswith(_CUSTOM)
            inside = between(call.first, call.end, call.inside) if is_custom else ()
            yield replace(call, rows=tuple(rows[call.first : call.end]), inside=tuple(inside))
            first = call.end
        yield from _calls_of_rows(rows[first:end], made_by)

    return between(0, len(rows), calls)


class OperatorRecorder(TorchFunctionMode):  # type: ignore[misc]
    """Notes every function of torch that makes a tensor while a recorder is at work."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[OperatorCall] = []
        self.touched: set[str] = set()
        self._recorder: DatalessRecorder | None = None
        self._inside: set[FunctionType] = set()
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        super().__enter__()
        if not self._inside:
            plain, here = vars(Function)["apply"], threading.get_ident()

            def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
                """Of a function with a backward of its own; no mode of torch sees it."""
                bound = plain.__get__(None, cls)
                return (
                    self._apply(cls, bound, args, kwargs) if threading.get_ident() == here else bound(*args, **kwargs)
                )

            Function.apply = classmethod(apply)  # type: ignore[method-assign,assignment]
            self._undo.callback(setattr, Function, "apply", plain)
        return self

    def __exit__(self, *exception: object) -> None:
        if not self._inside:
            self._undo.close()
        super().__exit__(*exception)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recorder = self._current_run()
        if recorder is None:
            return func(*args, **kwargs)
        self.touched.add(recorder.where())
        name = _operator_name(func)
        if isinstance(func, FunctionType):
            if func not in self._inside:
                self._inside.add(func)
                try:
                    with self:
                        return _without_override_check(func)(*args, **kwargs)
                finally:
                    self._inside.discard(func)
            # A function that replaced torch's calls the original, which is two frames up and names its replacement.
            name = _operator_name(getattr(torch.ops.aten, sys._getframe(2).f_code.co_name, None))  # noqa: SLF001
        if name is None:
            return func(*args, **kwargs)
        given = _described(recorder, args)  # before the call, which may change its arguments
        named = dict(zip(kwargs, _described(recorder, kwargs.values()), strict=True))
        first = len(recorder.ops)
        result = func(*args, **kwargs)
        results = _results(recorder, result)
        end = len(recorder.ops)
        if end > first or any(isinstance(item, TensorSpec) for item in results):
            name, arguments = _as_traced(name, given, named)
            self.calls.append(OperatorCall(f"aten::{name}", arguments, results, recorder.where(), first, end))
        return result

    def _current_run(self) -> DatalessRecorder | None:
        """The current recorder. A new one is a new run, which voids the notes of an unfinished one."""
        recorder = current_recorder()
        if recorder is not None and recorder is not self._recorder:
            self._recorder = recorder
            self.calls.clear()
            self.touched.clear()
        return recorder

    def _apply(self, cls: type, apply: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Run a function with a backward of its own; the calls inside it are kept with it."""
        recorder = self._current_run()
        if recorder is None:
            return apply(*args, **kwargs)
        given = tuple(item for item in _described(recorder, args) if isinstance(item, TensorSpec))
        outer, self.calls = self.calls, []
        first = len(recorder.ops)
        try:
            result = apply(*args, **kwargs)
        finally:
            inside, self.calls = tuple(self.calls), outer
        span = (recorder.where(), first, len(recorder.ops))
        kind = f"{_CUSTOM}{cls.__name__}"
        self.calls.append(OperatorCall(kind, given, _results(recorder, result), *span, inside))
        return result


def _described(recorder: DatalessRecorder, arguments: Any) -> tuple[object, ...]:
    """Arguments with shape and type in the place of every tensor."""
    found: list[object] = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            found.append(recorder.spec(argument))
        else:
            found.append(_described(recorder, argument) if type(argument) in (list, tuple) else argument)
    return tuple(found)


def _results(recorder: DatalessRecorder, result: Any) -> tuple[object, ...]:
    return _described(recorder, result if isinstance(result, (tuple, list)) else (result,))


def _without_override_check(function: FunctionType) -> Callable[..., Any]:
    """A twin of a function of torch that is written in Python (`F.relu`), in which no mode intercepts its first lines.

    Such a function is no operator but calls some. It begins with a check whether a tensor subclass or a mode overrides it:

        if has_torch_function_unary(input):
            return handle_torch_function(relu, (input,), input, inplace=inplace)

    A mode that is to see the operators further down must stay active while the function runs; then the check succeeds again,
    and the mode receives the same call for ever. The twin has the same code and a check that fails.
    """
    checks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    names = {**function.__globals__, **{name: lambda *_: False for name in checks if name in function.__globals__}}
    twin = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


_CUSTOM = "prim::PythonOp."
"""torch's tracer notes a call of `class Scan(torch.autograd.Function)` as one operator, `prim::PythonOp.Scan`."""

# -- names and arguments as the jit tracer writes them ----------------------------------------------------------------

_CONVOLUTIONS = {f"conv{transposed}{n}d": bool(transposed) for transposed in ("", "_transpose") for n in (1, 2, 3)}
_OPENED = frozenset({"lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"})
"""The tracer does not note these, but what they call."""
_RENAMED = {"zero_": "zeros_like", "fill_": "full_like"}
_ATTRIBUTES = {"T": "numpy_T", "mT": "mT", "H": "matrix_H", "mH": "mH", "real": "real", "imag": "imag"}
"""Attributes of a tensor that are operators."""
_SWITCHES = (False, False, True, True)  # The last arguments of every convolution: benchmark, deterministic, cuDNN, TF32


@cache
def _operator_name(func: Any) -> str | None:
    """The name of the operator behind a function; None for what the tracer does not note (indexing, attributes, sizes)."""
    if isinstance(func, (OpOverload, OpOverloadPacket)):
        library, _, name = str(func).removesuffix(f".{getattr(func, '_overloadname', '')}").partition(".")
        return name if library == "aten" and name not in _OPENED else None
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return _ATTRIBUTES.get(getattr(func.__self__, "__name__", ""))
    # Indexing is several operators, or none; they are noted by themselves. The namespace has an `__eq__` too.
    is_operator = isinstance(getattr(torch.ops.aten, name, None), OpOverloadPacket)
    return name if is_operator and name != "__getitem__" and name not in _OPENED else None


def _as_traced(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[str, tuple[object, ...]]:
    """The name and arguments under which a call is noted: by position, with defaults; every convolution is one operator.

    Calls that fit no overload (sizes given one by one) keep their order.
    """
    arguments = (*args, *kwargs.values())
    for schema in _schemas(name):
        rest = schema[len(args) :]
        if (
            len(args) <= len(schema)
            and kwargs.keys() <= {each.name for each in rest}
            and all(each.name in kwargs or each.has_default_value() for each in rest)
            and all(
                not each.kwarg_only and _fits(given, str(each.type)) for each, given in zip(schema, args, strict=False)
            )
        ):
            arguments = (*args, *(kwargs.get(each.name, each.default_value) for each in rest))
            break
    if name == "convolution":
        return "_convolution", (*arguments, *_SWITCHES)
    transposed = _CONVOLUTIONS.get(name)
    if transposed is None:
        return _RENAMED.get(name, name), arguments
    if transposed:
        x, weight, bias, stride, padding, output_padding, groups, dilation = arguments
    else:
        x, weight, bias, stride, padding, dilation, groups = arguments
        output_padding = 0
    return "_convolution", (x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *_SWITCHES)


@cache
def _schemas(name: str) -> list[list[Any]]:
    """The arguments of every overload of an operator."""
    packet = getattr(torch.ops.aten, name, None)
    overloads = packet.overloads() if packet is not None else ()
    return [getattr(packet, each)._schema.arguments for each in overloads]  # noqa: SLF001 - torch has no public way to it


def _has_tensors(argument: object) -> bool:
    items = argument if isinstance(argument, (list, tuple)) else (argument,)
    return any(isinstance(item, TensorSpec) for item in items)


def _fits(argument: object, kind: str) -> bool:
    """Whether an argument can be given where a schema has this type."""
    if isinstance(argument, TensorSpec):
        return kind in ("Tensor", "Optional[Tensor]")
    if isinstance(argument, (list, tuple)):
        return "List[" in kind and ("Tensor]" in kind if _has_tensors(argument) else "Tensor" not in kind)
    if argument is None:
        return kind.startswith("Optional[")
    return "Tensor" not in kind and isinstance(argument, str) == (kind in ("str", "Optional[str]"))


# -- rows without a call: inside scripted modules and recurrent cells -------------------------------------------------

_CALLS = {
    "adaptive_avg_pool2d": "_adaptive_avg_pool2d", "adaptive_avg_pool3d": "_adaptive_avg_pool3d", "rms_norm": "_fused_rms_norm",
    "batch_norm": "_native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm native_batch_norm",
    "scaled_dot_product_attention": "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention "
    "_scaled_dot_product_fused_attention_overrideable",
    "log_softmax": "_log_softmax", "prelu": "_prelu_kernel", "softmax": "_softmax", "to": "_to_copy", "view": "_unsafe_view",
    "detach": "alias", "contiguous": "clone", "_convolution": "convolution", "grid_sampler": "grid_sampler_2d grid_sampler_3d",
    "index_put_": "index_put", "max_pool2d": "max_pool2d_with_indices", "max_pool3d": "max_pool3d_with_indices",
    "dropout": "native_dropout", "group_norm": "native_group_norm", "layer_norm": "native_layer_norm",
    "unsafe_chunk": "unsafe_split",
}  # fmt: skip
"""Calls, and the operators of the dispatcher that each becomes."""
_CALLED = {operator: call for call, operators in _CALLS.items() for operator in operators.split()}


def _calls_of_rows(rows: Iterable[Row], made_by: dict[int, str]) -> Iterator[OperatorCall]:
    """A call for each row; `made_by` keeps which operator made a value."""
    for row in rows:
        library, _, raw = row.op.raw.partition("::")
        kind = f"{library}::{_CALLED.get(raw, raw)}"
        if raw in ("addmm", "mm") and made_by.get(row.op.inputs[1]) in ("aten::t", "aten::transpose"):
            kind = "aten::linear"
        for value in row.op.outputs:
            made_by[value] = row.op.raw
        yield OperatorCall(kind, _arguments(kind, row), row.outs, row.op.module, rows=(row,))


def _arguments(kind: str, row: Row) -> tuple[object, ...]:
    """The tensors at the positions where handles look for them; constants that the row does not keep are None."""
    ins = row.ins
    if kind == "aten::linear":
        x, transposed, *bias = ins
        return (x, TensorSpec(transposed.dims[::-1], transposed.dtype), *(bias or (None,)))
    if row.op.kind == "matmul" and len(ins) == 3:
        return (ins[2], ins[0], ins[1])
    if kind == "aten::_convolution":
        x, weight, *bias = ins
        return (x, weight, *(bias or (None,)), None, None, None, bool(row.op.attrs.get("transposed")), *[None] * 6)
    if row.op.kind == "norm":
        affine: Any = row.op.attrs.get("affine", 0)
        scale, shift, *_ = (*ins[1 : 1 + affine], None, None)
        if kind == "aten::batch_norm":
            return (ins[0], scale, shift, None, None, bool(row.op.attrs.get("training")), None, None, None)
        return (ins[0], None, scale, shift)
    return ins


# -- what peers count for operators without products ------------------------------------------------------------------


POOLINGS = " ".join(
    f"{adaptive}{kind}_pool{n}d" for adaptive in ("", "adaptive_") for kind in ("avg", "max") for n in (1, 2, 3)
)
RESIZINGS = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d "
    "upsample_trilinear3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa"
)
_NORMS = {"batch_norm": 1, "instance_norm": 1, "layer_norm": 2, "group_norm": 2}
"""The position of a norm's weight among its arguments."""


def by_name(table: Mapping[int, str]) -> dict[str, int]:
    """The costs of operators, of a table that has the names for each cost."""
    return {name: cost for cost, names in table.items() for name in names.split()}


class ElementCosts:
    """A peer's tables: what operators cost for each element of their first argument, or of their first result.

    A norm has two costs, with a weight and without; and others, where they differ, for stored statistics (batch norm in use).
    """

    def __init__(
        self, read: Mapping[int, str], made: Mapping[int, str], norm: tuple[int, int], stored: tuple[int, int] | None = None
    ) -> None:  # fmt: skip
        self._read, self._made = by_name(read), by_name(made)
        self._norm, self._stored = norm, stored or norm

    def of(self, call: OperatorCall) -> int | None:
        """The cost of a call; None where the tables have no entry."""
        name, inputs = call.name, call.inputs()
        if name in self._read:
            return self._read[name] * inputs[0].numel
        if name in self._made:
            return self._made[name] * call.outputs()[0].numel
        if name not in _NORMS:
            return None
        affine, plain = self._stored if name == "batch_norm" and not inputs[5].toIValue() else self._norm
        return inputs[0].numel * (affine if inputs[_NORMS[name]].isCompleteTensor() else plain)
