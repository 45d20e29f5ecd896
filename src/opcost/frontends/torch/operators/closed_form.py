"""Outputs of the commonest operators by the table of `frontends.aten.outputs`: PyTorch's meta kernels take up to milliseconds.

Those in Python also import its decompositions first, a second of a fresh process. Only plain calls are answered (mostly
row-major floats that agree in type), every other is left to PyTorch; a test compares the two over many shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import torch

from opcost.frontends import aten
from opcost.frontends.aten.call import Described, OperatorTable, Tensor, row_major
from opcost.frontends.aten.outputs import outputs_of
from opcost.frontends.aten.outputs.table import Results, made, made_by
from opcost.frontends.aten.schema import Schema, parse

Tensor.register(torch.Tensor)
_FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.float64})
_FULL_FLOATS = frozenset({torch.float32, torch.float64})
_ROWS = torch.contiguous_format
_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def overloads(names: str) -> list[Any]:
    """Operators of aten by their names, with `.overload` where that is not the default one."""
    split = (name.partition(".") for name in names.split())
    return [getattr(getattr(torch.ops.aten, base), overload or "default") for base, _, overload in split]


@cache
def plan_of(func: Any) -> tuple[Schema | None, aten.Plan]:
    """The schema of an overload and how it is translated; a higher-order operator has no schema."""
    if (written := getattr(func, "_schema", None)) is None:
        return None, aten.plan_without_schema(f"higher_order::{func.name()}")
    schema = parse(str(written))
    return schema, aten.plan_of(schema)


def closed_form(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What `func` makes, as meta tensors, or NotImplemented."""
    form = _FORMS.get(func)
    if form is None or (kwargs and func not in _KEYWORDS_IRRELEVANT) or (layout := form(args)) is None:
        return NotImplemented
    schema, plan = plan_of(func)
    assert schema is not None
    call = plan.call(args, kwargs, ())
    try:
        found = made_by(_RESULTS, call) or outputs_of(schema, plan, call)
    except ValueError:  # shapes that do not fit: PyTorch says so in its own words
        return NotImplemented
    results = tuple(_meta(out, layout) if isinstance(out, Described) else out for out in found)
    return results[0] if len(schema.returns) == 1 else results


def _meta(out: Described, layout: torch.memory_format) -> torch.Tensor:
    return torch.empty(out.shape, dtype=getattr(torch, out.dtype), device="meta", memory_format=layout)


# -- which calls are plain: each function gives the memory format of the results; None: the call is left to PyTorch

Form = Callable[[Any], "torch.memory_format | None"]


def _rows_if(plain: bool) -> torch.memory_format | None:  # noqa: FBT001
    return _ROWS if plain else None


def _plain(*tensors: torch.Tensor) -> bool:
    """Row-major floats of one type."""
    return _of_one_type(*tensors) and all(t.is_contiguous() for t in tensors)


def _of_one_type(*tensors: torch.Tensor) -> bool:
    dtype = tensors[0].dtype
    return dtype in _FLOATS and all(t.dtype is dtype for t in tensors)


def _elementwise(args: Any) -> torch.memory_format | None:
    """Tensors of one shape that lie as rows do, though there may be gaps between them: what is made of them has none.

    Of several shapes all must be row-major. `torch.add(1, x, alpha=2)` comes with its number as it is.
    """
    if not isinstance(args[0], torch.Tensor) or any(type(each) is complex for each in args):
        return None
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    if any(t.shape != tensors[0].shape for t in tensors):
        return _rows_if(_plain(*tensors) and all(t.dim() for t in tensors))
    falling = (all(outer > inner > 0 for outer, inner in pairwise(t.stride())) or t.is_contiguous() for t in tensors)
    return _rows_if(_of_one_type(*tensors) and all(falling))


def _in_place(args: Any) -> torch.memory_format | None:
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    fit = all(t.shape == tensors[0].shape for t in tensors) and not any(type(each) is complex for each in args)
    return _rows_if(fit and _of_one_type(*tensors))


def _product(args: Any, rank: int) -> torch.memory_format | None:
    """Matrices or batches of them; what `addmm` adds is a vector, or has the result's shape."""
    *added, a, b = args
    if not a.dim() == b.dim() == rank or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return None
    shapes = ((b.shape[1],), (a.shape[0], b.shape[1]))
    return _rows_if(_of_one_type(a, b, *added) and all(tuple(each.shape) in shapes for each in added))


def _grouped_mm(args: Any) -> torch.memory_format | None:
    """PyTorch's own kernel insists on bfloat16, which the model's other kernels do not need."""
    a, b, *offsets = args
    unknown = a.dim() == b.dim() == 2 and not (offsets and offsets[0] is not None)
    return _rows_if(a.dtype is b.dtype and a.shape[-1] == b.shape[-2] and not unknown)


def _grouped_result(self: Any, mat2: Any, offs: Any) -> Described:
    """Rows, columns or the depth are divided among groups; three axes each are a batch."""
    groups = self.shape[:-2] if mat2.dim() == 3 else ()
    if self.dim() == mat2.dim() == 2:
        groups = (offs.shape[0],)
    return made((*groups, self.shape[-2], mat2.shape[-1]), self)


def _convolution(args: Any) -> torch.memory_format | None:
    """The channels of the result lie side by side where those of an image or its weight do.

    So they do on processors and GPUs alike; PyTorch's own meta kernel lays the result out by rows.
    """
    x, weight, bias, *_, transposed, _, groups = args
    rank = x.dim() - 2
    if rank < 1 or weight.dim() != x.dim() or not _of_one_type(x, weight) or 0 in x.shape:
        return None
    last = rank in _CHANNELS_LAST and any(map(_lies_last, (x, weight)))
    if not last and (transposed or not _plain(x, weight)):
        return None
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if x.shape[1] != (weight.shape[0] if transposed else weight.shape[1] * groups) or weight.shape[0] % groups:
        return None
    if bias is not None and (bias.dtype is not x.dtype or tuple(bias.shape) != (channels,)):
        return None
    if last:
        return _CHANNELS_LAST[rank]
    # Shapes for which a row-major tensor also counts as channels last, so that the result's strides are ambiguous
    return _rows_if(channels != 1 and not (rank == 2 and (x.shape[1] == 1 or x.shape[2:] == (1, 1))))


def _lies_last(tensor: torch.Tensor) -> bool:
    """Whether strides grow from the channels over the places to the images; those of axes of one element tell too."""
    shape, strides = tensor.shape, tensor.stride()
    if strides == row_major(shape) or 0 in shape or not strides[1]:
        return False
    least = 0
    for axis in (1, *range(tensor.dim() - 1, 1, -1), 0):
        if strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * shape[axis]
    return True


def _norm(args: Any) -> torch.memory_format | None:
    x = args[0]
    return _rows_if(x.is_contiguous() and x.dtype in _FULL_FLOATS)


def _layer_norm(args: Any) -> torch.memory_format | None:
    x, normalized = args[0], tuple(args[1])
    return _norm(args) if tuple(x.shape[x.dim() - len(normalized) :]) == normalized else None


def _cat(args: Any) -> torch.memory_format | None:
    parts = args[0]
    return _rows_if(_plain(*parts) and all(p.dim() == parts[0].dim() and p.numel() for p in parts))


_NAMED: dict[str, Form] = {
    "relu gelu silu sigmoid tanh neg rsqrt sqrt exp log cos sin erf abs reciprocal hardswish hardsigmoid hardtanh "
    "leaky_relu elu softplus clamp clamp_min pow.Tensor_Scalar mul.Scalar add.Scalar sub.Scalar div.Scalar add.Tensor "
    "mul.Tensor sub.Tensor div.Tensor": _elementwise,
    "relu_ gelu_ silu_ sigmoid_ tanh_ hardswish_ hardsigmoid_ hardtanh_ leaky_relu_ elu_ mul_.Scalar add_.Scalar "
    "add_.Tensor mul_.Tensor sub_.Tensor div_.Tensor": _in_place,
    "mm addmm": lambda args: _product(args, 2),
    "bmm": lambda args: _product(args, 3),
    "_grouped_mm": _grouped_mm,
    "_weight_int4pack_mm": lambda args: _rows_if(args[1].dim() == 4),
    "convolution": _convolution,
    "native_batch_norm": lambda args: _norm(args) if args[0].dim() > 1 else None,
    "native_layer_norm": _layer_norm,
    "_softmax _log_softmax": lambda args: _rows_if(_plain(args[0]) and not args[2]),
    "mean.dim sum.dim_IntList": lambda args: _rows_if(len(args) > 1 and bool(args[1]) and _plain(args[0])),
    "embedding": lambda args: _rows_if(args[1].dtype in (torch.int64, torch.int32) and args[0].dim() == 2),
    "cat": _cat,
    "clone": lambda args: _rows_if(args[0].is_contiguous()),
    "roll": lambda args: _rows_if(_plain(args[0])),
}
_FORMS: dict[Any, Form] = {overload: form for names, form in _NAMED.items() for overload in overloads(names)}
_KEYWORDS_IRRELEVANT = frozenset(overloads("_grouped_mm gelu gelu_ add.Tensor"))
"""Operators whose keyword arguments (an offset table, a flavour, a factor) do not change the outputs."""
_RESULTS: OperatorTable[Results] = OperatorTable()  # Of operators whose results no trace has needed
_RESULTS.rows(
    {
        "_grouped_mm": _grouped_result,
        # PyTorch's own meta kernel asks for a device that only its fake tensors have. The tiles are eight rows high
        "_weight_int4pack_mm": lambda self, mat2: made((self.shape[0], mat2.shape[0] * 8), self),
    }
)
