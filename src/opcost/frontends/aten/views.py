"""What views of a tensor look like: shapes and strides, worked out from the arguments, for programs that give nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from opcost.frontends.aten.call import Call, Described, NotKnown, Tensor, row_major, seen_as, type_name
from opcost.frontends.aten.composite.products import look
from opcost.frontends.aten.outputs.table import axis_of

MOST_PIECES = 1 << 14  # Tensors that one operator makes

View: TypeAlias = "Callable[[Call], Sequence[Tensor]]"
VIEWS: dict[str, View] = {}


def on(*names: str) -> Callable[[View], View]:
    """Register what these operators of aten look at."""

    def register(view: View) -> View:
        VIEWS.update(dict.fromkeys(names, view))
        return view

    return register


def views_of(call: Call) -> tuple[Tensor, ...]:
    """The results of a call that makes views; `NotKnown` where it is unknown."""
    view = VIEWS.get(call.base)
    if view is None:
        raise NotKnown(f"views of {call.name}")
    return tuple(view(call))


def _with(x: Tensor, shape: Sequence[int], strides: Sequence[int]) -> Described:
    return look(x, shape, strides)


def _filled(x: Tensor, wanted: Sequence[int]) -> list[int]:
    """A shape whose one open extent is worked out."""
    shape = list(wanted)
    if shape.count(-1) == 1:
        rest = 1
        for extent in shape:
            rest *= extent if extent != -1 else 1
        shape[shape.index(-1)] = x.numel() // rest if rest else 0
    return shape


def _seen(x: Tensor, wanted: Sequence[int]) -> tuple[Described]:
    shape = _filled(x, wanted)
    count = 1
    for extent in shape:
        if extent < 0:
            raise ValueError(f"no tensor has the shape {shape}")
        count *= extent
    if count != x.numel():
        raise ValueError(f"{x.numel()} elements do not fit {shape}")
    return (_with(x, shape, seen_as(x, shape) or row_major(shape)),)


@on("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy")
def _view(call: Call) -> Sequence[Tensor]:
    x, wanted = call["self"], call.get("size", "shape")
    if not isinstance(wanted, (list, tuple)):  # another element type of the same width
        return (Described(tuple(x.shape), x.stride(), str(call.get("dtype")), x.device),)
    return _seen(x, wanted)


on("view_as", "reshape_as")(lambda call: _seen(call["self"], call["other"].shape))


@on("flatten")
def _flatten(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    if not x.dim():
        return _seen(x, (1,))
    first, last = axis_of(x, call["start_dim"]), axis_of(x, call["end_dim"])
    return _seen(x, (*x.shape[:first], -1, *x.shape[last + 1 :])) if x.numel() else (_with(x, x.shape, x.stride()),)


@on("unflatten")
def _unflatten(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    axis = axis_of(x, call["dim"])
    return _seen(x, (*x.shape[:axis], *call["sizes"], *x.shape[axis + 1 :]))


def _ordered(x: Tensor, order: Sequence[int]) -> tuple[Described]:
    if sorted(order) != list(range(x.dim())):
        raise ValueError(f"{tuple(order)} are not the axes of {x.dim()}")
    return (_with(x, [x.shape[axis] for axis in order], [x.stride()[axis] for axis in order]),)


@on("permute", "movedim", "moveaxis")
def _permute(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    if call.base == "permute":
        return _ordered(x, [axis_of(x, axis) for axis in call["dims"]])
    froms, tos = (
        [axis_of(x, a) for a in (v if isinstance(v, (list, tuple)) else [v])]
        for v in (call["source"], call["destination"])
    )
    order = [axis for axis in range(x.dim()) if axis not in froms]
    for to, axis in sorted(zip(tos, froms, strict=True)):
        order.insert(to, axis)
    return _ordered(x, order)


@on("transpose", "transpose_", "swapaxes", "swapdims", "t", "t_", "numpy_T", "mT", "adjoint")
def _transpose(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    order = list(range(x.dim()))
    if call.base == "numpy_T":
        return _ordered(x, order[::-1])
    pair = [call.get(name) for name in ("dim0", "axis0")], [call.get(name) for name in ("dim1", "axis1")]
    a, b = (next((axis for axis in axes if axis is not None), None) for axes in pair)
    if a is None or b is None:
        a, b = (-2, -1) if x.dim() > 1 else (0, 0)
    if x.dim():
        one, other = axis_of(x, a), axis_of(x, b)
        order[one], order[other] = order[other], order[one]
    return _ordered(x, order)


@on("unsqueeze", "unsqueeze_")
def _unsqueeze(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    rank = x.dim() + 1
    axis = call["dim"] % rank
    stride = x.shape[axis] * x.stride()[axis] if axis < x.dim() else 1
    return (_with(x, (*x.shape[:axis], 1, *x.shape[axis:]), (*x.stride()[:axis], stride, *x.stride()[axis:])),)


@on("squeeze", "squeeze_")
def _squeeze(call: Call) -> Sequence[Tensor]:
    x, dim = call["self"], call.get("dim")
    given = (
        range(x.dim())
        if dim is None
        else [axis_of(x, axis) for axis in (dim if isinstance(dim, (list, tuple)) else [dim])]
    )
    kept = [axis for axis in range(x.dim()) if axis not in given or x.shape[axis] != 1]
    return (_with(x, [x.shape[axis] for axis in kept], [x.stride()[axis] for axis in kept]),)


def _cut(x: Tensor, axis: int, length: int, step: int = 1) -> Described:
    return _with(
        x,
        [length if at == axis else n for at, n in enumerate(x.shape)],
        [s * step if at == axis else s for at, s in enumerate(x.stride())],
    )


@on("slice", "narrow")
def _slice(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    axis = axis_of(x, call["dim"])
    if call.base == "narrow":
        return (_cut(x, axis, call["length"]),)
    step = call["step"]
    return (_cut(x, axis, len(range(x.shape[axis])[slice(call.get("start"), call.get("end"), step)]), step),)


@on("select")
def _select(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    axis = axis_of(x, call["dim"])
    return (_with(x, (*x.shape[:axis], *x.shape[axis + 1 :]), (*x.stride()[:axis], *x.stride()[axis + 1 :])),)


@on("expand", "expand_as", "broadcast_to")
def _expand(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    wanted = call["other"].shape if call.base == "expand_as" else call["size"]
    added = len(wanted) - x.dim()
    shape, strides = list(wanted), [0] * len(wanted)
    for place, (n, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        wanted_extent = shape[added + place]
        if wanted_extent not in (-1, n) and n != 1:
            raise ValueError(f"{tuple(x.shape)} cannot be stretched to {tuple(wanted)}")
        strides[added + place] = stride if wanted_extent in (-1, n) else 0
        shape[added + place] = n if wanted_extent == -1 else wanted_extent
    return (_with(x, shape, strides),)


@on("chunk", "split", "split_with_sizes", "tensor_split", "unsafe_chunk", "unsafe_split")
def _pieces(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    axis = axis_of(x, call["dim"])
    extent = x.shape[axis]
    pieces: Any = call.get("chunks", "split_size", "split_sizes", "sections", "indices")
    if "chunk" in call.base:
        pieces = max(-(-extent // pieces), 1)
    if call.base == "tensor_split":
        raise NotKnown("pieces of tensor_split")
    if isinstance(pieces, int) and pieces * MOST_PIECES < extent:
        raise NotKnown("more pieces than are listed")
    sizes = (
        pieces
        if isinstance(pieces, (list, tuple))
        else [min(pieces, extent - at) for at in range(0, max(extent, 1), pieces)]
    )
    return [_cut(x, axis, size) for size in sizes]


@on("unbind")
def _unbind(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    axis = axis_of(x, call["dim"])
    if x.shape[axis] > MOST_PIECES:
        raise NotKnown("more pieces than are listed")
    one = (*x.shape[:axis], *x.shape[axis + 1 :]), (*x.stride()[:axis], *x.stride()[axis + 1 :])
    return [_with(x, *one) for _ in range(x.shape[axis])]


@on("unfold")
def _unfold(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    axis, size, step = axis_of(x, call["dimension"]), call["size"], call["step"]
    found = _cut(x, axis, (x.shape[axis] - size) // step + 1, step)
    return (_with(x, (*found.shape, size), (*found.strides, x.stride()[axis])),)


@on("diagonal")
def _diagonal(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    a, b, offset = axis_of(x, call["dim1"]), axis_of(x, call["dim2"]), call["offset"]
    length = max(min(x.shape[a] + min(offset, 0), x.shape[b] - max(offset, 0)), 0)
    kept = [axis for axis in range(x.dim()) if axis not in (a, b)]
    strides = [x.stride()[axis] for axis in kept]
    return (_with(x, [*(x.shape[axis] for axis in kept), length], [*strides, x.stride()[a] + x.stride()[b]]),)


@on(
    "detach",
    "detach_",
    "alias",
    "contiguous",
    "data",
    "resolve_conj",
    "resolve_neg",
    "requires_grad_",
    "lift_fresh",
    "conj",
)
def _same(call: Call) -> Sequence[Tensor]:
    x = call["self"]
    return (_with(x, x.shape, x.stride() if call.base != "contiguous" else row_major(x.shape)),)


@on("to", "type_as", "_to_copy", "float", "cpu", "cuda")
def _to(call: Call) -> Sequence[Tensor]:
    """Another element type is a copy, the same one the tensor itself."""
    x, other = call["self"], call.get("other")
    dtype = type_name(other) if isinstance(other, Tensor) else call.get("dtype") or type_name(x)
    return (Described(tuple(x.shape), x.stride(), dtype, x.device),)
