"""What views of a tensor look like: shapes and strides that follow from the arguments, for programs that give nothing else."""

from collections.abc import Sequence
from math import prod
from typing import Any

from opcost.core.shapes import diagonal, expanded, slice_length
from opcost.frontends.aten.call import AtenCall, AtenTable
from opcost.frontends.aten.results import Results, axis_of
from opcost.frontends.aten.tensor import AtenTensor, Described, NotKnown, look, row_major, seen_as, type_name

MOST_PIECES = 1 << 14  # Tensors that one operator makes

VIEWS: AtenTable[Results] = AtenTable()  # By the name of an operator of aten


def _seen(x: AtenTensor, wanted: Sequence[int]) -> Described:
    """The same elements in another shape, whose one open extent follows from their number."""
    shape = list(wanted)
    if shape.count(-1) == 1:
        rest = -prod(shape)
        shape[shape.index(-1)] = x.numel() // rest if rest else 0
    if min(shape, default=0) < 0:
        raise ValueError(f"no tensor has the shape {shape}")
    if prod(shape) != x.numel():
        raise ValueError(f"{x.numel()} elements do not fit {shape}")
    return look(x, shape, seen_as(x, shape) or row_major(shape))


def _view(call: AtenCall, self: AtenTensor) -> Described:
    wanted = call.get("size", "shape")
    if not isinstance(wanted, (list, tuple)):  # another element type of the same width
        return Described(tuple(self.shape), self.stride(), str(call.get("dtype")), self.device)
    return _seen(self, wanted)


def _flatten(self: AtenTensor, start_dim: int, end_dim: int) -> Described:
    if not self.dim():
        return _seen(self, (1,))
    first, last = axis_of(self, start_dim), axis_of(self, end_dim)
    return _seen(self, (*self.shape[:first], -1, *self.shape[last + 1 :])) if self.numel() else _same(self)


def _unflatten(self: AtenTensor, dim: int, sizes: Sequence[int]) -> Described:
    axis = axis_of(self, dim)
    return _seen(self, (*self.shape[:axis], *sizes, *self.shape[axis + 1 :]))


def _picked(x: AtenTensor, axes: Sequence[int]) -> Described:
    """These axes in this order, without the others."""
    return look(x, [x.shape[axis] for axis in axes], [x.stride()[axis] for axis in axes])


def _permute(self: AtenTensor, dims: Sequence[int]) -> Described:
    order = [axis_of(self, axis) for axis in dims]
    if sorted(order) != list(range(self.dim())):
        raise ValueError(f"{tuple(order)} are not the axes of {self.dim()}")
    return _picked(self, order)


def _listed(x: AtenTensor, dims: Any) -> list[int]:
    return [axis_of(x, dim) for dim in (dims if isinstance(dims, (list, tuple)) else [dims])]


def _movedim(self: AtenTensor, source: Any, destination: Any) -> Described:
    froms, tos = _listed(self, source), _listed(self, destination)
    order = [axis for axis in range(self.dim()) if axis not in froms]
    for to, axis in sorted(zip(tos, froms, strict=True)):
        order.insert(to, axis)
    return _permute(self, order)


def _transpose(self: AtenTensor, first: int, second: int) -> Described:
    order = list(range(self.dim()))
    if order:
        a, b = axis_of(self, first), axis_of(self, second)
        order[a], order[b] = order[b], order[a]
    return _picked(self, order)


def _unsqueeze(self: AtenTensor, dim: int) -> Described:
    axis = dim % (self.dim() + 1)
    shape, strides = tuple(self.shape), tuple(self.stride())
    stride = shape[axis] * strides[axis] if axis < self.dim() else 1
    return look(self, (*shape[:axis], 1, *shape[axis:]), (*strides[:axis], stride, *strides[axis:]))


def _squeeze(self: AtenTensor, dim: Any = None) -> Described:
    given = range(self.dim()) if dim is None else _listed(self, dim)
    return _picked(self, [axis for axis in range(self.dim()) if axis not in given or self.shape[axis] != 1])


def _cut(x: AtenTensor, dim: int, length: int, step: int = 1) -> Described:
    axis, shape, strides = axis_of(x, dim), list(x.shape), list(x.stride())
    shape[axis], strides[axis] = length, strides[axis] * step
    return look(x, shape, strides)


def _slice(self: AtenTensor, dim: int, start: int | None, end: int | None, step: int) -> Described:
    length = slice_length(self.shape[axis_of(self, dim)], start, end, step)
    return _cut(self, dim, length, step)  # type: ignore[arg-type]


def _without(x: AtenTensor, dim: int) -> Described:
    gone = axis_of(x, dim)
    return _picked(x, [axis for axis in range(x.dim()) if axis != gone])


def _expand(x: AtenTensor, wanted: Sequence[int]) -> Described:
    added = len(wanted) - x.dim()
    own = [n if extent == -1 else extent for n, extent in zip(x.shape, wanted[added:], strict=True)]
    shape: Any = expanded(x.shape, [*wanted[:added], *own])
    strides = [step if n == m else 0 for n, m, step in zip(x.shape, own, x.stride(), strict=True)]
    return look(x, shape, [0] * added + strides)


def _pieces(call: AtenCall, self: AtenTensor, dim: int) -> Results:
    extent = self.shape[axis_of(self, dim)]
    pieces: Any = call.get("chunks", "split_size", "split_sizes", "sections", "indices")
    if "chunk" in call.base:
        pieces = max(-(-extent // pieces), 1)
    if call.base == "tensor_split":
        raise NotKnown("pieces of tensor_split")
    if isinstance(pieces, int):
        if pieces * MOST_PIECES < extent:
            raise NotKnown("more pieces than are listed")
        pieces = [min(pieces, extent - at) for at in range(0, max(extent, 1), pieces)]
    return [_cut(self, dim, size) for size in pieces]


def _unbind(self: AtenTensor, dim: int) -> Results:
    count = self.shape[axis_of(self, dim)]
    if count > MOST_PIECES:
        raise NotKnown("more pieces than are listed")
    return [_without(self, dim) for _ in range(count)]


def _unfold(self: AtenTensor, dimension: int, size: int, step: int) -> Described:
    axis = axis_of(self, dimension)
    found = _cut(self, axis, (self.shape[axis] - size) // step + 1, step)
    return look(self, (*found.shape, size), (*found.strides, self.stride()[axis]))


def _diagonal(self: AtenTensor, offset: int, dim1: int, dim2: int) -> Described:
    a, b = axis_of(self, dim1), axis_of(self, dim2)
    length: Any = diagonal(self.shape[a], self.shape[b], offset)
    kept = _picked(self, [axis for axis in range(self.dim()) if axis not in (a, b)])
    return look(self, (*kept.shape, length), (*kept.strides, self.stride()[a] + self.stride()[b]))


def _same(self: AtenTensor) -> Described:
    return look(self, self.shape, self.stride())


def _to(self: AtenTensor, other: Any = None, dtype: str | None = None) -> Described:
    """Another element type is a copy, the same one the tensor itself."""
    dtype = type_name(other) if isinstance(other, AtenTensor) else dtype or type_name(self)
    return Described(tuple(self.shape), self.stride(), dtype, self.device)


VIEWS.rows(
    {
        "view reshape _unsafe_view _reshape_alias view_copy": _view,
        "view_as reshape_as": lambda self, other: _seen(self, other.shape),
        "flatten": _flatten,
        "unflatten": _unflatten,
        "permute": _permute,
        "movedim moveaxis": _movedim,
        "numpy_T": lambda self: _permute(self, range(self.dim())[::-1]),
        "t t_ mT adjoint": lambda self: _transpose(self, *((-2, -1) if self.dim() > 1 else (0, 0))),
        "transpose transpose_ swapaxes swapdims": lambda call, self: _transpose(
            self, call.get("dim0", "axis0"), call.get("dim1", "axis1"),
        ),
        "unsqueeze unsqueeze_": _unsqueeze,
        "squeeze squeeze_": _squeeze,
        "slice": _slice,
        "narrow": lambda self, dim, length: _cut(self, dim, length),
        "select": lambda self, dim: _without(self, dim),
        "expand broadcast_to": lambda self, size: _expand(self, size),
        "expand_as": lambda self, other: _expand(self, other.shape),
        "chunk split split_with_sizes tensor_split unsafe_chunk unsafe_split": _pieces,
        "unbind": _unbind,
        "unfold": _unfold,
        "diagonal": _diagonal,
        "detach detach_ alias data resolve_conj resolve_neg requires_grad_ lift_fresh conj": _same,
        "contiguous": lambda self: look(self, self.shape, row_major(self.shape)),
        "to type_as _to_copy float cpu cuda": _to,
    }
)  # fmt: skip
