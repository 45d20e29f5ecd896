"""Outputs of common operators by hand, where PyTorch's own meta kernels take up to milliseconds, refuse, or lay out otherwise.

Each function answers only the plain case (row-major floats that agree in type) and leaves every other to PyTorch, which also says
what is wrong with it; a test compares the two over many shapes. They are there for speed: without them a count of ResNet-18 takes
42 % longer. `aten.outputs` says the same of described tensors.
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


def closed_form(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What `func` makes, as meta tensors, or NotImplemented."""
    form = _FORMS.get(func)
    if form is None or (kwargs and func not in _KEYWORDS_IRRELEVANT):
        return NotImplemented
    return form(*args)


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
    return dtype in _FLOATS and all(
        t.dtype is dtype and (t.is_contiguous() or all(outer > inner > 0 for outer, inner in pairwise(t.stride())))
        for t in tensors
    )


def _unary(x: torch.Tensor, *settings: Any) -> Any:
    if not _in_rows(x) or any(type(a) is complex or isinstance(a, torch.Tensor) for a in settings):
        return NotImplemented
    return _new(x.shape, x.dtype)


def _unary_in_place(x: torch.Tensor, *settings: Any) -> Any:
    other = any(type(a) is complex or isinstance(a, torch.Tensor) for a in settings)
    return x if x.dtype in _FLOATS and not other else NotImplemented


def _binary(a: Any, b: Any, *settings: Any) -> Any:
    if not isinstance(b, torch.Tensor):
        return _unary(a, b, *settings)
    if not isinstance(a, torch.Tensor):  # torch.add(1, x, alpha=2) comes with its number as it is
        return NotImplemented
    if a.shape == b.shape:
        return _new(a.shape, a.dtype) if _in_rows(a, b) else NotImplemented
    if not _plain(a, b) or not a.shape or not b.shape:
        return NotImplemented
    try:
        return _new(broadcast((a.shape, b.shape)), a.dtype)
    except Mismatch:
        return NotImplemented


def _binary_in_place(a: torch.Tensor, b: Any, *settings: Any) -> Any:
    if not isinstance(b, torch.Tensor):
        return _unary_in_place(a, b, *settings)
    return a if a.shape == b.shape and a.dtype is b.dtype and a.dtype in _FLOATS else NotImplemented


def _addmm(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
    fits = a.shape[1] == b.shape[0] and tuple(bias.shape) in ((b.shape[1],), (a.shape[0], b.shape[1]))
    if not fits or not a.dtype is b.dtype is bias.dtype or a.dtype not in _FLOATS:
        return NotImplemented
    return _new((a.shape[0], b.shape[1]), a.dtype)


def _batch_norm(x: torch.Tensor, *settings: Any) -> Any:
    if not x.is_contiguous() or x.dtype not in _FULL_FLOATS or x.dim() < 2:
        return NotImplemented
    kept = (x.shape[1],) if settings[4] else (0,)  # only training works statistics out
    return _new(x.shape, x.dtype), _new(kept, x.dtype), _new(kept, x.dtype)


def _layer_norm(x: torch.Tensor, normalized: Sequence[int], *settings: Any) -> Any:
    rest = x.dim() - len(normalized)
    if not x.is_contiguous() or x.dtype not in _FULL_FLOATS or tuple(x.shape[rest:]) != tuple(normalized):
        return NotImplemented
    kept = (*x.shape[:rest], *[1] * len(normalized))
    return _new(x.shape, x.dtype), _new(kept, x.dtype), _new(kept, x.dtype)


def _reduce(x: torch.Tensor, dims: Any = None, keep: bool = False) -> Any:  # noqa: FBT001, FBT002 - as the operator
    if not dims or not _plain(x):
        return NotImplemented
    gone = {dim % x.dim() for dim in dims}
    return _new([1 if i in gone else n for i, n in enumerate(x.shape) if keep or i not in gone], x.dtype)


def _roll(x: torch.Tensor, *settings: Any) -> Any:
    return _new(x.shape, x.dtype) if _plain(x) else NotImplemented


# -- what PyTorch's own meta kernels refuse, or lay out otherwise than its other kernels

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    *more: Any,
) -> Any:
    """Where the channels of an image or its weight lie side by side, those of the result do too, on processors and GPUs alike."""
    floats = x.dtype in _FLOATS and weight.dtype is x.dtype and x.dim() == weight.dim() > 2 and 0 not in x.shape
    if floats and x.dim() in _CHANNELS_LAST and any(map(_lies_last, (x, weight))):
        shape = _aten.convolution.default(x, weight, bias, stride, padding, dilation, *more).shape
        return torch.empty(shape, dtype=x.dtype, device=_META, memory_format=_CHANNELS_LAST[x.dim()])
    transposed, _, groups = more
    channels, inner, *kernel = weight.shape
    fits = (
        x.shape[1] == inner * groups
        and not channels % groups
        and tuple(bias.shape if bias is not None else (channels,)) == (channels,)
    )
    # A row-major tensor of one channel, or of one place, counts as channels last too: the strides of the result are ambiguous.
    ambiguous = channels == 1 or (x.dim() == 4 and (x.shape[1] == 1 or x.shape[2:] == (1, 1)))
    if not floats or transposed or ambiguous or not fits or not _plain(x, weight, *([] if bias is None else [bias])):
        return NotImplemented
    settings = [v if len(v) > 1 else [v[0]] * len(kernel) for v in (stride, padding, dilation)]
    sizes = zip(x.shape[2:], kernel, *settings, strict=True)
    extents = [(n + 2 * pad - spread * (k - 1) - 1) // step + 1 for n, k, step, pad, spread in sizes]
    return _new((x.shape[0], channels, *extents), x.dtype) if min(extents) > 0 else NotImplemented


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


def _grouped_mm(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor | None = None, *settings: Any) -> Any:
    """PyTorch's own kernel insists on bfloat16, which the model's other kernels do not need."""
    if a.dtype is not b.dtype or a.shape[-1] != b.shape[-2]:
        return NotImplemented
    leading: Sequence[int] = ()
    if a.dim() == b.dim():
        if a.dim() == 2 and offsets is None:
            return NotImplemented
        leading = offsets.shape if a.dim() == 2 and offsets is not None else a.shape[:1]
    return _new((*leading, a.shape[-2], b.shape[-1]), a.dtype)


def _int4pack_mm(x: torch.Tensor, w: torch.Tensor, *settings: Any) -> Any:
    """PyTorch's own meta kernel asks for a device that only its fake tensors have. The tiles are eight rows high."""
    return _new((x.shape[0], w.shape[0] * 8), x.dtype) if w.dim() == 4 else NotImplemented


def _overloads(names: str) -> list[Any]:
    found = (name.partition(".") for name in names.split())
    return [getattr(getattr(_aten, packet), overload or "default") for packet, _, overload in found]


_NAMES: dict[Callable[..., Any], str] = {
    _unary: "relu gelu silu sigmoid tanh neg rsqrt sqrt exp log cos sin erf abs reciprocal hardswish hardsigmoid hardtanh "
    "leaky_relu elu softplus clamp clamp_min pow.Tensor_Scalar mul.Scalar add.Scalar sub.Scalar div.Scalar",
    _unary_in_place: "relu_ gelu_ silu_ sigmoid_ tanh_ hardswish_ hardsigmoid_ hardtanh_ leaky_relu_ elu_ mul_.Scalar "
    "add_.Scalar",
    _binary: "add.Tensor mul.Tensor sub.Tensor div.Tensor",
    _binary_in_place: "add_.Tensor mul_.Tensor sub_.Tensor div_.Tensor",
    _addmm: "addmm",
    _batch_norm: "native_batch_norm",
    _layer_norm: "native_layer_norm",
    _reduce: "mean.dim sum.dim_IntList",
    _roll: "roll",
    _convolution: "convolution",
    _grouped_mm: "_grouped_mm",
    _int4pack_mm: "_weight_int4pack_mm",
}
_FORMS = {func: form for form, names in _NAMES.items() for func in _overloads(names)}
_KEYWORDS_IRRELEVANT = frozenset({_aten._grouped_mm.default, _aten.gelu.default, _aten.gelu_.default, _aten.add.Tensor})
"""Operators whose keyword arguments (an offset table, a flavour, a factor) do not change the outputs."""
