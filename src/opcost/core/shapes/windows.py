"""Windows that sweep along an axis: of convolutions and pools, the other way round, and of adaptive pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from opcost.core.shapes.extents import Extent, Mismatch

Last: TypeAlias = Literal["whole", "begun", "any"]
"""Which window may be the last: one that lies inside with all its elements; one that begins inside (the ceil mode of PyTorch,
of ONNX, and of Caffe where it pads); or one that begins behind the end (MXNet's `full`, Caffe without padding)."""


def windows(
    extent: Extent,
    size: Extent,
    *,
    stride: int = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    last: Last = "whole",
) -> Extent:
    """How many windows fit along an axis that is padded before and behind."""
    if stride < 1 or dilation < 1:
        raise Mismatch(f"its stride is {stride}" if stride < 1 else f"its dilation is {dilation}")
    if extent is None or size is None:
        return None
    span = dilation * (size - 1) + 1
    room = extent + sum(padding) - span
    if room < 0:
        width = " and ".join(map(str, dict.fromkeys(padding)))
        raise Mismatch(f"a kernel that reaches {span} does not fit {extent} padded by {width}")
    if last == "whole":
        return room // stride + 1
    steps = -(-room // stride)
    return steps if last == "begun" and steps * stride >= extent + padding[0] else steps + 1


def same_windows(extent: Extent, stride: int) -> Extent:
    """How many windows there are where an axis is padded so that only the stride shortens it (SAME)."""
    return None if extent is None else -(-extent // stride)


def same_padding(extent: int, size: int, *, stride: int = 1, dilation: int = 1, upper: bool = True) -> tuple[int, int]:
    """What SAME pads before and behind; an odd one out goes behind (SAME_UPPER) or before (SAME_LOWER)."""
    needed = (-(-extent // stride) - 1) * stride + dilation * (size - 1) + 1
    added = max(needed - extent, 0)
    return (added // 2, added - added // 2) if upper else (added - added // 2, added // 2)


def spread(
    extent: Extent,
    size: Extent,
    *,
    stride: int = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    extra: int = 0,
) -> Extent:
    """What a transposed convolution makes of an axis: the smallest from which such windows make it, and `extra` more."""
    if extent is None or size is None:
        return None
    grown = (extent - 1) * stride + dilation * (size - 1) + 1 - sum(padding) + extra
    if grown < 1:
        raise Mismatch(f"nothing is left of {extent} after removing the padding")
    return grown


def adaptive_windows(source: Sequence[Extent], target: Sequence[Extent]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Size and stride of windows that share out each axis; an axis that is unknown or has no result is left out."""
    pairs = [(before, after) for before, after in zip(source, target, strict=True) if before is not None and after]
    return tuple([-(-before // after) for before, after in pairs]), tuple([before // after for before, after in pairs])
