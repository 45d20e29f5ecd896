"""What the table of operators may read of a tensor: a live one, one that a file describes and one of a trace are alike."""

from abc import ABC
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from opcost.core.graph import BITS, COMPLEX, Attr


class NotKnown(Exception):
    """Something was read that the source of a call does not give; the call has no cost then."""


class AtenTensor(ABC):
    """Shape, strides, element type, place, layout, and whether it takes gradients. Data is never read."""

    shape: Sequence[int]
    dtype: Any
    device: Any
    layout: Any
    requires_grad: bool

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return prod(self.shape)

    def stride(self) -> tuple[int, ...]:
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class Described(AtenTensor):
    """A tensor of which only the description is there."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str = "cpu"
    layout: str = "strided"
    requires_grad: bool = field(default=False, kw_only=True)
    value: int = field(default=-1, kw_only=True)  # Its number in the graph that is made, once it has one

    def stride(self) -> tuple[int, ...]:
        return self.strides


def type_name(tensor: AtenTensor) -> str:
    """The element type in our words."""
    return str(tensor.dtype).removeprefix("torch.")


def layout_name(tensor: AtenTensor) -> str:
    """`strided`, or how only some of the elements are stored."""
    return str(tensor.layout).removeprefix("torch.")


def look(x: AtenTensor, shape: Sequence[int], strides: Sequence[int]) -> Described:
    """Another look at memory."""
    return Described(tuple(shape), tuple(strides), type_name(x), x.device, requires_grad=x.requires_grad)


class Unplaced(Described):
    """A tensor whose strides are unknown."""

    __slots__ = ()

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        super().__init__(shape, (), dtype)

    def stride(self) -> tuple[int, ...]:
        raise NotKnown("strides")


# -- strides: how tensors are laid out in memory, and which other shapes they can have without a copy


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def is_contiguous(tensor: AtenTensor, axes: Sequence[int] | None = None) -> bool:
    """Whether a tensor is row-major, its axes taken in this order; axes of one element do not matter."""
    shape, strides = tuple(tensor.shape), tensor.stride()
    if axes is not None:
        shape, strides = (tuple(sizes[axis] for axis in axes) for sizes in (shape, strides))
    return not tensor.numel() or all(
        extent == 1 or have == want for extent, have, want in zip(shape, strides, row_major(shape), strict=True)
    )


def tells_strides(tensor: AtenTensor) -> bool:
    """Whether the strides are known; old traces do not have them, and the cost of most operators does not need them."""
    try:
        tensor.stride()
    except NotKnown:
        return False
    return True


def has_channels_last(tensor: AtenTensor) -> bool:
    """Whether the channels of an image lie side by side, and its places not."""
    rank = tensor.dim()
    return (
        rank in (4, 5)
        and tells_strides(tensor)
        and not is_contiguous(tensor)
        and is_contiguous(tensor, (0, *range(2, rank), 1))
    )


def asks_for_channels_last(tensor: AtenTensor) -> bool:
    """Whether PyTorch runs a convolution of this tensor with channels last: by its strides, even those of axes of one element."""
    rank = tensor.dim()
    if rank not in (4, 5) or 0 in tensor.shape:
        return False
    shape, strides = tuple(tensor.shape), tensor.stride()
    least = 0
    for axis in (1, *range(rank - 1, 1, -1), 0):
        if strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * shape[axis]
    return strides[1] != 0


def lie_alike(tensors: Sequence[AtenTensor]) -> bool:
    """Whether all tensors lie row by row, or all with channels last, so that one kernel can copy them together."""
    filled = [tensor for tensor in tensors if tensor.numel() and tells_strides(tensor)]
    return all(map(is_contiguous, filled)) or all(map(has_channels_last, filled))


def layout(tensors: Iterable[AtenTensor], result: AtenTensor) -> dict[str, Attr]:
    """How tensors of as many elements lie beside what is made of them: alike, with gaps between rows, or turned round."""
    found: dict[str, Attr] = {}
    try:
        there = result.stride()
        for tensor in tensors:
            here = tensor.stride()
            if here != there and tensor.shape == result.shape:
                axes = [axis for axis, extent in enumerate(result.shape) if extent > 1]
                if [here[axis] for axis in axes] != [there[axis] for axis in axes]:
                    found["strided"] = True
                    if here[min(axes, key=there.__getitem__)] > 1:
                        found["turned"] = True
    except (NotKnown, RuntimeError):  # one that is stored sparsely has none
        return {}
    return found


def is_expanded(tensor: AtenTensor, result: AtenTensor) -> bool:
    """Whether the same elements are read again and again along some axis, and all in the order in which they are written."""
    if tensor.shape != result.shape or not tells_strides(tensor) or not tells_strides(result):
        return False
    here, there = tensor.stride(), result.stride()
    axes = [axis for axis, extent in enumerate(tensor.shape) if extent > 1]
    moving = [axis for axis in axes if here[axis]]
    return len(moving) < len(axes) and sorted(moving, key=here.__getitem__) == sorted(moving, key=there.__getitem__)


def seen_as(tensor: AtenTensor, shape: Sequence[int]) -> tuple[int, ...] | None:
    """The strides with which the same memory has another shape; None if it must be copied."""
    if not tensor.numel() or not tensor.dim():
        return row_major(shape) if tensor.numel() == prod(shape) else None
    strides = [0] * len(shape)
    at = len(shape) - 1
    base = tensor.stride()[-1]
    whole = seen = 1
    for axis in range(tensor.dim() - 1, -1, -1):
        whole *= tensor.shape[axis]
        ends = axis == 0 or (tensor.shape[axis - 1] != 1 and tensor.stride()[axis - 1] != whole * base)
        if not ends:
            continue
        while at >= 0 and (seen < whole or shape[at] == 1):
            strides[at] = seen * base
            seen *= shape[at]
            at -= 1
        if seen != whole:
            return None
        if axis:
            base = tensor.stride()[axis - 1]
            whole = seen = 1
    return tuple(strides) if at < 0 else None


# -- type promotion: the element type of what tensors and numbers of several types make together, as PyTorch decides it.

_BOOL, _INTEGER, _REAL, _COMPLEX = range(4)
_NUMBERS = ((bool, "bool"), (int, "int64"), (float, "float32"), (complex, "complex64"))
"""The type that a number brings with it where no tensor is of its category."""


def promoted(*operands: AtenTensor | complex | None) -> str:
    """The common type: tensors with axes decide, then those without, then numbers, each only by a higher category."""
    ranks: list[list[str]] = [[], [], []]
    for operand in operands:
        if isinstance(operand, AtenTensor):
            ranks[0 if operand.dim() else 1].append(type_name(operand))
        elif operand is not None:
            ranks[2].append(next(dtype for kind, dtype in _NUMBERS if isinstance(operand, kind)))
    found = ""
    for types in ranks:
        for dtype in types:
            if not found or types is ranks[0] or (types is ranks[1] and not ranks[0]):
                found = _common(found, dtype) if found else dtype
            elif _category(dtype) > _category(found):
                found = complex_of(found) if dtype in COMPLEX and not is_integer(found) else dtype
    return found


def floating(dtype: str) -> str:
    """The type of a function's values that are no integers."""
    return dtype if _category(dtype) >= _REAL else "float32"


def real_of(dtype: str) -> str:
    """The type of one part of a complex number; others stay what they are."""
    return f"float{BITS[dtype] // 2}" if dtype in COMPLEX else dtype


def complex_of(dtype: str) -> str:
    """The complex type whose parts hold this type; no parts are as coarse as those of `bfloat16`."""
    parts = "float32" if dtype == "bfloat16" else floating(dtype)
    return dtype if dtype in COMPLEX else f"complex{2 * BITS[parts]}"


def summed(dtype: str) -> str:
    """The type of a sum: integers are added up in the largest type."""
    return "int64" if _category(dtype) <= _INTEGER else dtype


def is_integer(dtype: str) -> bool:
    """Whether no value of this type has a fraction; truths have none."""
    return _category(dtype) <= _INTEGER


def _category(dtype: str) -> int:
    if dtype == "bool":
        return _BOOL
    if dtype in COMPLEX:
        return _COMPLEX
    return _INTEGER if dtype.startswith(("int", "uint")) else _REAL


def _common(a: str, b: str) -> str:
    """The smallest type that holds both."""
    high = max(a, b, key=lambda dtype: (_category(dtype), BITS[dtype]))
    low = b if high == a else a
    if high in COMPLEX and _category(low) == _REAL:
        return max(complex_of(low), high, key=BITS.__getitem__)
    return {frozenset({"float16", "bfloat16"}): "float32", frozenset({"uint8", "int8"}): "int16"}.get(
        frozenset({a, b}), high
    )
