"""Outputs of the commonest operators worked out by hand, because PyTorch's own meta kernels take up to milliseconds.

Those in Python also import its decompositions first, a second of a fresh process. Each function answers only the plain case
(row-major floats that agree in type) and leaves every other to PyTorch; a test compares the two over many shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch

from opcost.core.shapes import Mismatch, broadcast
from opcost.frontends.aten.call import row_major

_aten = torch.ops.aten
_META = torch.device("meta")
_FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.float64})
_FULL_FLOATS = frozenset({torch.float32, torch.float64})
Form = Callable[[Any], Any]


def closed_form(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What `func` makes, as meta tensors, or NotImplemented."""
    form = _FORMS.get(func)
    if form is None or (kwargs and func not in _KEYWORDS_IRRELEVANT):
        return NotImplemented
    return form(args)


def _new(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    shape = tuple(shape)
    return torch.empty_strided(shape, row_major(shape), dtype=dtype, device=_META)


def _plain(*tensors: torch.Tensor) -> bool:
    """Row-major floats of one type."""
    dtype = tensors[0].dtype
    return dtype in _FLOATS and all(t.dtype is dtype and t.is_contiguous() for t in tensors)


def _in_rows(*tensors: torch.Tensor) -> bool:
    """Floats of one type that lie as rows do, though there may be gaps between them: what is made of them has none."""
    dtype = tensors[0].dtype
    return dtype in _FLOATS and all(t.dtype is dtype and (t.is_contiguous() or _falls(t.stride())) for t in tensors)


def _falls(strides: tuple[int, ...]) -> bool:
    return all(outer > inner > 0 for outer, inner in pairwise(strides))


def _unary(args: Any) -> Any:
    x = args[0]
    if not _in_rows(x) or any(type(a) is complex or isinstance(a, torch.Tensor) for a in args[1:]):
        return NotImplemented
    return _new(x.shape, x.dtype)


def _unary_in_place(args: Any) -> Any:
    x = args[0]
    if x.dtype not in _FLOATS or any(type(a) is complex or isinstance(a, torch.Tensor) for a in args[1:]):
        return NotImplemented
    return x


def _binary(args: Any) -> Any:
    a, b = args[0], args[1]
    if not isinstance(b, torch.Tensor):
        return _unary(args)
    if not isinstance(a, torch.Tensor):  # torch.add(1, x, alpha=2) comes with its number as it is
        return NotImplemented
    if a.shape == b.shape:
        return _new(a.shape, a.dtype) if _in_rows(a, b) else NotImplemented
    if not _plain(a, b):
        return NotImplemented
    try:
        shape = broadcast((a.shape, b.shape))
    except Mismatch:
        return NotImplemented
    return _new(shape, a.dtype) if a.shape and b.shape else NotImplemented


def _binary_in_place(args: Any) -> Any:
    a, b = args[0], args[1]
    if not isinstance(b, torch.Tensor):
        return _unary_in_place(args)
    return a if a.shape == b.shape and a.dtype is b.dtype and a.dtype in _FLOATS else NotImplemented


def _mm(args: Any) -> Any:
    a, b = args
    if a.dtype is not b.dtype or a.dtype not in _FLOATS or a.shape[1] != b.shape[0]:
        return NotImplemented
    return _new((a.shape[0], b.shape[1]), a.dtype)


def _addmm(args: Any) -> Any:
    bias, a, b = args
    columns = b.shape[1]
    if bias.dtype is not a.dtype or tuple(bias.shape) not in ((columns,), (a.shape[0], columns)):
        return NotImplemented
    return _mm((a, b))


def _bmm(args: Any) -> Any:
    a, b = args
    if a.dtype is not b.dtype or a.dtype not in _FLOATS or a.shape[2] != b.shape[1] or a.shape[0] != b.shape[0]:
        return NotImplemented
    return _new((a.shape[0], a.shape[1], b.shape[2]), a.dtype)


def _grouped_mm(args: Any) -> Any:
    """PyTorch's own kernel insists on bfloat16, which the model's other kernels do not need."""
    a, b = args[0], args[1]
    if a.dtype is not b.dtype or a.shape[-1] != b.shape[-2]:
        return NotImplemented
    if a.dim() == 2 and b.dim() == 3:
        return _new((a.shape[0], b.shape[2]), a.dtype)
    if a.dim() == 3 and b.dim() == 2:
        return _new((a.shape[1], b.shape[1]), a.dtype)
    if a.dim() == 3 and b.dim() == 3:
        return _new((a.shape[0], a.shape[1], b.shape[2]), a.dtype)
    offsets = args[2] if len(args) > 2 else None
    return NotImplemented if offsets is None else _new((offsets.shape[0], a.shape[0], b.shape[1]), a.dtype)


def _convolution(args: Any) -> Any:
    x, weight, bias, stride, padding, dilation, transposed, more, groups = args
    rank = x.dim() - 2
    last = _has_channels_last(x, weight)
    if rank < 1 or weight.dim() != x.dim() or not (last or _plain(x, weight)) or (transposed and not last):
        return NotImplemented
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if (
        x.shape[1] != (weight.shape[0] if transposed else weight.shape[1] * groups)
        or weight.shape[0] % groups
        or 0 in x.shape
    ):
        return NotImplemented
    if bias is not None and (bias.dtype is not x.dtype or tuple(bias.shape) != (channels,)):
        return NotImplemented
    shape = [x.shape[0], channels]
    for i in range(rank):
        step, pad, spread, rest = (v[i] if len(v) > 1 else v[0] for v in (stride, padding, dilation, more))
        reach = spread * (weight.shape[2 + i] - 1) + 1 - 2 * pad
        extent = (x.shape[2 + i] - 1) * step + reach + rest if transposed else (x.shape[2 + i] - reach) // step + 1
        if extent < 1:
            return NotImplemented
        shape.append(extent)
    if last:
        return torch.empty(shape, dtype=x.dtype, device=_META, memory_format=_CHANNELS_LAST[rank])
    if _is_channels_last(x, shape[1]):
        return NotImplemented
    return _new(shape, x.dtype)


_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def _has_channels_last(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether the channels of an image or its weight lie side by side, and then those of the result too.

    So they do on processors and GPUs alike; PyTorch's own meta kernel lays the result out by rows.
    """
    return (
        x.dim() - 2 in _CHANNELS_LAST
        and x.dtype in _FLOATS
        and weight.dtype is x.dtype
        and x.dim() == weight.dim()
        and any(map(_lies_last, (x, weight)))
    )


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


def _is_channels_last(x: torch.Tensor, channels: int) -> bool:
    """Shapes for which a row-major tensor also counts as channels last, so that the result's strides are ambiguous."""
    return channels == 1 or (x.dim() == 4 and (x.shape[1] == 1 or x.shape[2:] == (1, 1)))


def _batch_norm(args: Any) -> Any:
    x, _, _, _, _, training = args[:6]
    if not x.is_contiguous() or x.dtype not in _FULL_FLOATS or x.dim() < 2:
        return NotImplemented
    kept = (x.shape[1],) if training else (0,)
    return _new(x.shape, x.dtype), _new(kept, x.dtype), _new(kept, x.dtype)


def _layer_norm(args: Any) -> Any:
    x, normalized = args[0], args[1]
    if (
        not x.is_contiguous()
        or x.dtype not in _FULL_FLOATS
        or tuple(x.shape[x.dim() - len(normalized) :]) != tuple(normalized)
    ):
        return NotImplemented
    kept = (*x.shape[: x.dim() - len(normalized)], *[1] * len(normalized))
    return _new(x.shape, x.dtype), _new(kept, x.dtype), _new(kept, x.dtype)


def _softmax(args: Any) -> Any:
    x, _, to_float = args
    return _new(x.shape, x.dtype) if _plain(x) and not to_float else NotImplemented


def _embedding(args: Any) -> Any:
    table, indices = args[0], args[1]
    if indices.dtype not in (torch.int64, torch.int32) or table.dim() != 2:
        return NotImplemented
    return _new((*indices.shape, table.shape[1]), table.dtype)


def _reduce(args: Any) -> Any:
    x = args[0]
    dims = args[1] if len(args) > 1 else None
    keep = args[2] if len(args) > 2 else False
    if not dims or not _plain(x):
        return NotImplemented
    rank = x.dim()
    gone = {d % rank for d in dims}
    return _new([1 if i in gone else n for i, n in enumerate(x.shape) if keep or i not in gone], x.dtype)


def _cat(args: Any) -> Any:
    parts = args[0]
    first = parts[0]
    if not _plain(*parts) or any(p.dim() != first.dim() or p.numel() == 0 for p in parts):
        return NotImplemented
    axis = (args[1] if len(args) > 1 else 0) % first.dim()
    shape = list(first.shape)
    for part in parts[1:]:
        if any(n != m for i, (n, m) in enumerate(zip(part.shape, first.shape, strict=True)) if i != axis):
            return NotImplemented
        shape[axis] += part.shape[axis]
    return _new(shape, first.dtype)


def _clone(args: Any) -> Any:
    x = args[0]
    return _new(x.shape, x.dtype) if x.is_contiguous() else NotImplemented


def _roll(args: Any) -> Any:
    x = args[0]
    return _new(x.shape, x.dtype) if _plain(x) else NotImplemented


def _overloads(form: Form, *names: str) -> dict[Any, Form]:
    found = {}
    for name in names:
        packet, _, overload = name.partition(".")
        found[getattr(getattr(_aten, packet), overload or "default")] = form
    return found


def _int4pack_mm(args: Any) -> Any:
    """PyTorch's own meta kernel asks for a device that only its fake tensors have. The tiles are eight rows high."""
    x, w = args[0], args[1]
    return _new((x.shape[0], w.shape[0] * 8), x.dtype) if w.dim() == 4 else NotImplemented


_FORMS: dict[Any, Form] = {
    **_overloads(
        _unary, "relu", "gelu", "silu", "sigmoid", "tanh", "neg", "rsqrt", "sqrt", "exp", "log", "cos", "sin", "erf", "abs",
        "reciprocal", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu", "elu", "softplus", "clamp", "clamp_min",
        "pow.Tensor_Scalar", "mul.Scalar", "add.Scalar", "sub.Scalar", "div.Scalar",
    ),
    **_overloads(
        _unary_in_place, "relu_", "gelu_", "silu_", "sigmoid_", "tanh_", "hardswish_", "hardsigmoid_", "hardtanh_",
        "leaky_relu_", "elu_", "mul_.Scalar", "add_.Scalar",
    ),
    **_overloads(_binary, "add.Tensor", "mul.Tensor", "sub.Tensor", "div.Tensor"),
    **_overloads(_binary_in_place, "add_.Tensor", "mul_.Tensor", "sub_.Tensor", "div_.Tensor"),
    **_overloads(_mm, "mm"),
    **_overloads(_int4pack_mm, "_weight_int4pack_mm"),
    **_overloads(_addmm, "addmm"),
    **_overloads(_bmm, "bmm"),
    **_overloads(_grouped_mm, "_grouped_mm"),
    **_overloads(_convolution, "convolution"),
    **_overloads(_batch_norm, "native_batch_norm"),
    **_overloads(_layer_norm, "native_layer_norm"),
    **_overloads(_softmax, "_softmax", "_log_softmax"),
    **_overloads(_embedding, "embedding"),
    **_overloads(_reduce, "mean.dim", "sum.dim_IntList"),
    **_overloads(_cat, "cat"),
    **_overloads(_clone, "clone"),
    **_overloads(_roll, "roll"),
}  # fmt: skip
_KEYWORDS_IRRELEVANT = frozenset({_aten._grouped_mm.default, _aten.gelu.default, _aten.gelu_.default, _aten.add.Tensor})
"""Operators whose keyword arguments (an offset table, a flavour, a factor) do not change the outputs."""
