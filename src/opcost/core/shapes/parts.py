"""Shapes joined to one, and parts taken from one."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.core.shapes.axes import axis_of, inserted, replaced
from opcost.core.shapes.extents import Dims, Extent, Mismatch, Shape, merge, text, total


def concat(shapes: Sequence[Sequence[Extent]], axis: int) -> Dims:
    """Joined along one axis, which adds up; the others are the same."""
    if not shapes:
        raise Mismatch("there is nothing to join")
    first = tuple(shapes[0])
    along = axis_of(axis, len(first))
    common: Shape = None
    for shape in shapes:
        if len(shape) != len(first):
            raise Mismatch(f"{text(first)} and {text(tuple(shape))} cannot be joined")
        common = merge(common, replaced(shape, along, None))
    return replaced(common or (), along, total(shape[along] for shape in shapes))


def stack(shapes: Sequence[Sequence[Extent]], axis: int) -> Dims:
    """Joined along a new axis; all must be the same."""
    return concat([inserted(shape, axis) for shape in shapes], axis)


def even_parts(extent: Extent, count: int) -> list[Extent]:
    """The lengths of so many parts of almost equal length, the longer ones first."""
    if extent is None:
        return [None] * count
    short, longer = divmod(extent, count)
    return [short + (index < longer) for index in range(count)]


def slice_length(extent: Extent, begin: int | None, end: int | None, step: int | None = None) -> Extent:
    """How many elements a slice takes from an axis, by Python's rules, which all frameworks share."""
    if step == 0:
        raise Mismatch("a slice has the step 0")
    return None if extent is None else len(range(*slice(begin, end, step).indices(extent)))


def padded(shape: Sequence[Extent], widths: Sequence[Sequence[int]]) -> Dims:
    """More elements before and behind each axis; a negative number takes some away."""
    if len(widths) != len(shape):
        raise Mismatch(f"widths for {len(widths)} axes do not fit {text(tuple(shape))}")
    return tuple([total((extent, *width)) for extent, width in zip(shape, widths, strict=True)])


def gathered(shape: Sequence[Extent], indices: Sequence[Extent], axis: int) -> Dims:
    """Elements picked along an axis, in whose place the axes of the indices stand."""
    return replaced(shape, axis_of(axis, len(shape)), *indices)


def diagonal(rows: Extent, columns: Extent, offset: int = 0) -> Extent:
    """The length of a diagonal of a matrix, so many columns to the right of the main one."""
    if rows is None or columns is None:
        return None
    return max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
