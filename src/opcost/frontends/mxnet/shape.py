"""Shapes that may be known in part: what two of them say together, and the arithmetic of unknown extents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Extent: TypeAlias = "int | None"
Shape: TypeAlias = "tuple[Extent, ...] | None"
"""None stands for an extent, or a whole shape, that is not known."""


class Mismatch(Exception):
    """Two shapes that must be the same are not, or a shape does not suit its operator."""


class Undetermined(Exception):
    """A number was asked for that depends on an unknown extent."""


def merge(known: Shape, seen: Shape) -> Shape:
    """What both shapes say together; `known` itself where `seen` adds nothing."""
    if seen is None or known is seen or known == seen:
        return known
    if known is None:
        return seen
    if len(known) != len(seen):
        raise Mismatch(f"{show(known)} and {show(seen)} cannot be the same shape")
    merged = tuple([b if a is None else a for a, b in zip(known, seen, strict=True)])
    for a, b in zip(merged, seen, strict=True):
        if b is not None and a != b:
            raise Mismatch(f"{show(known)} and {show(seen)} cannot be the same shape")
    return known if merged == known else merged


def complete(shape: Shape) -> bool:
    """Whether every extent is known."""
    return shape is not None and None not in shape


def dims(shape: Shape) -> tuple[int, ...]:
    """The extents of a shape that must be known."""
    if shape is None or None in shape:
        raise Undetermined
    return shape  # type: ignore[return-value]


def product(extents: Iterable[Extent]) -> Extent:
    """The number of elements, where it is known."""
    found = 1
    for extent in extents:
        if extent is None:
            return None
        found *= extent
    return found


def total(extents: Iterable[Extent]) -> Extent:
    """The sum of extents, where it is known."""
    found = 0
    for extent in extents:
        if extent is None:
            return None
        found += extent
    return found


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """An axis counted from the front."""
    if not -rank <= axis < rank:
        raise Mismatch(f"{what} {axis} is not one of the {rank} axes")
    return axis % rank


def replaced(shape: Sequence[Extent], axis: int, extent: Extent) -> tuple[Extent, ...]:
    """The shape with another extent along one axis."""
    return (*shape[:axis], extent, *shape[axis + 1 :])


def without(shape: Sequence[Extent], axis: int) -> tuple[Extent, ...]:
    """The shape without one axis."""
    return (*shape[:axis], *shape[axis + 1 :])


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape to which all of these stretch, aligned at their last axes; None where one is not known."""
    if any(shape is None for shape in shapes):
        return None
    first = shapes[0]
    if all(shape == first for shape in shapes[1:]):
        return first
    rank = max(len(shape) for shape in shapes if shape is not None)
    columns = zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes if shape is not None), strict=True)
    return tuple([_stretched(column, shapes) for column in columns])


def _stretched(extents: Sequence[Extent], shapes: Sequence[Shape]) -> Extent:
    wide = {extent for extent in extents if extent is not None and extent != 1}
    if len(wide) > 1:
        raise Mismatch(f"{' and '.join(map(show, shapes))} do not broadcast")
    if wide:
        return wide.pop()
    return None if None in extents else 1


def show(shape: Shape) -> str:
    """A shape as a reader knows it: 1x3x?x?."""
    if shape is None:
        return "an unknown shape"
    return "x".join("?" if extent is None else str(extent) for extent in shape) or "a scalar"
