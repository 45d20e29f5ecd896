"""How tensors lie in memory: row by row, seen with other extents, or not without a copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from opcost.core.graph import Attr
from opcost.frontends.aten.call import NotKnown, Tensor


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor that lies row by row."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def is_contiguous(tensor: Tensor, axes: Sequence[int] | None = None) -> bool:
    """Whether a tensor lies row by row, its axes taken in this order; axes of one element lie anyhow."""
    shape, strides = tuple(tensor.shape), tensor.stride()
    if axes is not None:
        shape, strides = (tuple(sizes[axis] for axis in axes) for sizes in (shape, strides))
    return not tensor.numel() or all(
        extent == 1 or have == want for extent, have, want in zip(shape, strides, row_major(shape), strict=True)
    )


def tells_strides(tensor: Tensor) -> bool:
    """Whether it is known how a tensor lies; old traces do not tell, and the price of most operators does not ask."""
    try:
        tensor.stride()
    except NotKnown:
        return False
    return True


def has_channels_last(tensor: Tensor) -> bool:
    """Whether the channels of an image lie side by side, and its places not."""
    rank = tensor.dim()
    return (
        rank in (4, 5)
        and tells_strides(tensor)
        and not is_contiguous(tensor)
        and is_contiguous(tensor, (0, *range(2, rank), 1))
    )


def lie_alike(tensors: Sequence[Tensor]) -> bool:
    """Whether all tensors lie row by row, or all with channels last, so that one kernel can copy them together."""
    held = [tensor for tensor in tensors if tensor.numel() and tells_strides(tensor)]
    return all(map(is_contiguous, held)) or all(map(has_channels_last, held))


def layout(tensors: Iterable[Tensor], result: Tensor) -> dict[str, Attr]:
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


def seen_as(tensor: Tensor, shape: Sequence[int]) -> tuple[int, ...] | None:
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
