"""Outputs of the commonest operators without PyTorch's meta kernels, which take up to milliseconds.

Those in Python also import its decompositions first, a second of a fresh process. Only plain calls are answered (mostly
row-major floats that agree in type), every other is left to PyTorch; a test compares the two over many shapes.
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import torch

from opcost.frontends.aten.results import outputs_of
from opcost.frontends.aten.schema import Plan, parse, plan_without_schema
from opcost.frontends.aten.schema import plan_of as plan_of_schema
from opcost.frontends.aten.tensor import AtenTensor, row_major

AtenTensor.register(torch.Tensor)
_FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.float64})
_ROWS = torch.contiguous_format
_TABLE = object()
_SAME_MEMORY = frozenset({"_c10d_functional::_wrap_tensor_autograd", "_c10d_functional::wait_tensor"})
"""What makes of a tensor that a collective fills one that waits when it is used, and what waits; schemas do not say so."""
_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def overloads(names: str) -> list[Any]:
    """Operators of aten by their names, with `.overload` where that is not the default one."""
    split = (name.partition(".") for name in names.split())
    return [getattr(getattr(torch.ops.aten, base), overload or "default") for base, _, overload in split]


@cache
def plan_of(func: Any) -> Plan:
    """How an overload is translated; a higher-order operator has no schema."""
    if (written := getattr(func, "_schema", None)) is None:
        return plan_without_schema(f"higher_order::{func.name()}")
    return plan_of_schema(parse(str(written)))


def closed_form(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What `func` makes, as meta tensors, or NotImplemented."""
    if func.name() in _SAME_MEMORY:
        return args[0].detach()
    form = _FORMS.get(func)
    if form is None or (kwargs and func not in _KEYWORDS_IRRELEVANT):
        return NotImplemented
    found = form(args)
    if found is not _TABLE:
        return found
    plan = plan_of(func)
    try:
        outs = outputs_of(plan, plan.call(plan.named(args, kwargs)))
    except ValueError:  # shapes that do not fit: PyTorch says so in its own words
        return NotImplemented
    made = tuple([_empty(out.shape, getattr(torch, out.dtype)) for out in outs])
    return made if len(made) > 1 else made[0]


def _empty(shape: Any, dtype: torch.dtype, layout: torch.memory_format = _ROWS) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta", memory_format=layout)


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, row_major(x.shape), dtype=x.dtype, device="meta")


# -- what plain calls make: tensors, or _TABLE where the table of `frontends.aten.results` describes the row-major one

Form = Callable[[Any], Any]


def _plain(*tensors: torch.Tensor) -> bool:
    """Row-major floats of one type."""
    return _of_one_type(*tensors) and all(t.is_contiguous() for t in tensors)


def _of_one_type(*tensors: torch.Tensor) -> bool:
    dtype = tensors[0].dtype
    return dtype in _FLOATS and all(t.dtype is dtype for t in tensors)


def _elementwise(args: Any) -> Any:
    """Tensors of one shape that lie as rows do, though there may be gaps between them: what is made of them has none.

    Of several shapes all must be row-major. `torch.add(1, x, alpha=2)` comes with its number as it is.
    """
    x = args[0]
    if not isinstance(x, torch.Tensor) or any(type(each) is complex for each in args):
        return NotImplemented
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    if any(t.shape != x.shape for t in tensors):
        return _TABLE if _plain(*tensors) and all(t.dim() for t in tensors) else NotImplemented
    falling = (t.is_contiguous() or all(outer > inner > 0 for outer, inner in pairwise(t.stride())) for t in tensors)
    return _like(x) if _of_one_type(*tensors) and all(falling) else NotImplemented


def _in_place(args: Any) -> Any:
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    fit = all(t.shape == tensors[0].shape for t in tensors) and not any(type(each) is complex for each in args)
    return tensors[0] if fit and _of_one_type(*tensors) else NotImplemented


def _product(args: Any, rank: int) -> Any:
    """Matrices or batches of them; what `addmm` adds is a vector, or has the result's shape."""
    *added, a, b = args
    if not a.dim() == b.dim() == rank or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return NotImplemented
    shape = (*a.shape[:-1], b.shape[-1])
    fit = all(tuple(each.shape) in (shape, shape[1:]) for each in added)
    return _TABLE if fit and _of_one_type(a, b, *added) else NotImplemented


def _grouped_mm(args: Any) -> Any:
    """Rows, columns or the depth are divided among groups; three axes each are a batch.

    PyTorch's own kernel insists on bfloat16, which the model's other kernels do not need.
    """
    a, b, *offsets = args
    groups = a.shape[:-2] if b.dim() == 3 else ()
    if a.dim() == b.dim() == 2:
        groups = offsets[0].shape if offsets and offsets[0] is not None else None
    if a.dtype is not b.dtype or a.shape[-1] != b.shape[-2] or groups is None:
        return NotImplemented
    return _empty((*groups, a.shape[-2], b.shape[-1]), a.dtype)


def _int4pack_mm(args: Any) -> Any:
    """PyTorch's own meta kernel asks for a device that only its fake tensors have. The tiles are eight rows high."""
    x, w = args[0], args[1]
    return _empty((x.shape[0], w.shape[0] * 8), x.dtype) if w.dim() == 4 else NotImplemented


def _convolution(args: Any) -> Any:
    """The channels of the result lie side by side where those of an image or its weight do.

    So they do on processors and GPUs alike; PyTorch's own meta kernel lays the result out by rows.
    """
    x, weight, bias, *settings, transposed, more, groups = args
    rank = x.dim() - 2
    if rank < 1 or weight.dim() != x.dim() or not _of_one_type(x, weight) or 0 in x.shape:
        return NotImplemented
    last = rank in _CHANNELS_LAST and any(map(_lies_last, (x, weight)))
    if not last and (transposed or not _plain(x, weight)):
        return NotImplemented
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if x.shape[1] != (weight.shape[0] if transposed else weight.shape[1] * groups) or weight.shape[0] % groups:
        return NotImplemented
    if bias is not None and (bias.dtype is not x.dtype or tuple(bias.shape) != (channels,)):
        return NotImplemented
    # Shapes for which a row-major tensor also counts as channels last, so that the result's strides are ambiguous
    if not last and (channels == 1 or (rank == 2 and (x.shape[1] == 1 or x.shape[2:] == (1, 1)))):
        return NotImplemented
    shape = [x.shape[0], channels]
    for i, (n, k) in enumerate(zip(x.shape[2:], weight.shape[2:], strict=True)):
        stride, pad, dilation, rest = (v[i] if len(v) > 1 else v[0] for v in (*settings, more))
        reach = dilation * (k - 1) + 1 - 2 * pad
        shape.append((n - 1) * stride + reach + rest if transposed else (n - reach) // stride + 1)
    return _empty(shape, x.dtype, _CHANNELS_LAST[rank] if last else _ROWS) if min(shape[2:]) > 0 else NotImplemented


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


def _layer_norm(args: Any) -> Any:
    x, normalized = args[0], tuple(args[1])
    return _TABLE if _plain(x) and tuple(x.shape[x.dim() - len(normalized) :]) == normalized else NotImplemented


def _batch_norm(args: Any) -> Any:
    """Of half-precision numbers too, of which PyTorch's meta kernel goes through its decomposition for milliseconds."""
    return _TABLE if args[0].dim() > 1 and _plain(args[0]) else NotImplemented


def _embedding(args: Any) -> Any:
    table, indices = args[0], args[1]
    return _TABLE if indices.dtype in (torch.int64, torch.int32) and table.dim() == 2 else NotImplemented


def _norm_backward(args: Any, weight: torch.Tensor | None) -> Any:
    """Gradients of the input, the weight and the bias, which is as the weight."""
    grad, x, *_, wanted = args
    plain = weight is not None and all(wanted) and _plain(grad, x) and _plain(weight)
    return (_like(x), _like(weight), _like(weight)) if plain else NotImplemented


def _each(args: Any) -> Any:
    """An operator on each tensor of a list, with others of the same shape and type."""
    lists = [each for each in args if isinstance(each, (list, tuple)) and each and isinstance(each[0], torch.Tensor)]
    if any(type(each) is complex for each in args) or not all(
        _alike(*tensors) for tensors in zip(*lists, strict=False)
    ):
        return NotImplemented
    return [_like(x) for x in args[0]]


def _each_in_place(args: Any) -> Any:
    return None if _each(args) is not NotImplemented else NotImplemented


def _alike(*tensors: torch.Tensor) -> bool:
    return all(t.shape == tensors[0].shape for t in tensors) and _plain(*tensors)


def _reduce(args: Any) -> Any:
    return _TABLE if len(args) > 1 and args[1] and _plain(args[0]) else NotImplemented


def _cat(args: Any) -> Any:
    parts = args[0]
    plain = _plain(*parts) and all(p.dim() == parts[0].dim() and p.numel() for p in parts)
    return _TABLE if plain else NotImplemented


_NAMED: dict[str, Form] = {
    "relu gelu silu sigmoid tanh neg rsqrt sqrt exp log cos sin erf abs reciprocal hardswish hardsigmoid hardtanh "
    "leaky_relu elu softplus clamp clamp_min pow.Tensor_Scalar mul.Scalar add.Scalar sub.Scalar div.Scalar add.Tensor "
    "mul.Tensor sub.Tensor div.Tensor threshold_backward gelu_backward": _elementwise,
    "relu_ gelu_ silu_ sigmoid_ tanh_ hardswish_ hardsigmoid_ hardtanh_ leaky_relu_ elu_ mul_.Scalar add_.Scalar "
    "add_.Tensor mul_.Tensor sub_.Tensor div_.Tensor": _in_place,
    "mm addmm": lambda args: _product(args, 2),
    "bmm": lambda args: _product(args, 3),
    "_grouped_mm": _grouped_mm,
    "_weight_int4pack_mm": _int4pack_mm,
    "convolution": _convolution,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": lambda args: _norm_backward(args, args[2]),
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": lambda args: _norm_backward(args, args[5]),
    "_softmax _log_softmax": lambda args: _like(args[0]) if _plain(args[0]) and not args[2] else NotImplemented,
    "mean.dim sum.dim_IntList": _reduce,
    "embedding": _embedding,
    "cat": _cat,
    "clone": lambda args: _like(args[0]) if args[0].is_contiguous() else NotImplemented,
    "roll": lambda args: _like(args[0]) if _plain(args[0]) else NotImplemented,
}
_UPDATES: dict[str, Form] = {
    "_foreach_sqrt _foreach_mul.Scalar _foreach_add.Scalar _foreach_neg": _each,
    "_foreach_sqrt_ _foreach_neg_ _foreach_lerp_.Scalar _foreach_add_.Scalar _foreach_add_.List _foreach_mul_.Scalar "
    "_foreach_mul_.List _foreach_div_.Scalar _foreach_div_.ScalarList _foreach_div_.List _foreach_maximum_.List "
    "_foreach_addcmul_.Scalar _foreach_addcmul_.ScalarList _foreach_addcdiv_.Scalar _foreach_addcdiv_.ScalarList": _each_in_place,
}
"""Operators on all parameters at once, of which PyTorch's meta kernels go through each."""
_FORMS: dict[Any, Form] = {
    overload: form for names, form in (_NAMED | _UPDATES).items() for overload in overloads(names)
}
_KEYWORDS_IRRELEVANT = frozenset(overloads(f"_grouped_mm gelu gelu_ gelu_backward add.Tensor {' '.join(_UPDATES)}"))
"""Operators whose keyword arguments (an offset table, a flavour, a factor) do not change the outputs."""
