"""How tensors lie in memory: row by row, seen with other extents, or not without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opcost.frontends.aten.tensor import Tensor


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor that lies row by row."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def is_contiguous(tensor: Tensor) -> bool:
    """Whether a tensor lies row by row; axes of one element lie anyhow."""
    rows = row_major(tensor.shape)
    return not tensor.numel() or all(
        extent == 1 or have == want for extent, have, want in zip(tensor.shape, tensor.stride(), rows, strict=True)
    )


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
