"""Extents that may be unknown, alone and as shapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Extent: TypeAlias = "int | None"
Dims: TypeAlias = "tuple[Extent, ...]"
Shape: TypeAlias = "Dims | None"
"""None stands for an extent, or a whole shape, that is not known."""


class Mismatch(ValueError):
    """Shapes do not fit each other, or what is done with them."""


class Unknown(Exception):
    """A shape or a number is asked for that follows from an unknown one."""


def text(shape: Shape) -> str:
    """A shape as a reader knows it: 1x3x?x?."""
    if shape is None:
        return "an unknown shape"
    return "x".join("?" if extent is None else str(extent) for extent in shape) or "a scalar"


def complete(shape: Shape) -> bool:
    """Whether every extent is known."""
    return shape is not None and None not in shape


def known(shape: Shape) -> tuple[int, ...]:
    """The extents of a shape that must all be known."""
    if shape is None or None in shape:
        raise Unknown
    return shape  # type: ignore[return-value]


def merge(first: Shape, second: Shape) -> Shape:
    """What two accounts of one shape say together; `first` itself where the second adds nothing."""
    if second is None or first is second or first == second:
        return first
    if first is None:
        return second
    if len(first) != len(second) or any(
        a != b and a is not None and b is not None for a, b in zip(first, second, strict=True)
    ):
        raise Mismatch(f"{text(first)} and {text(second)} cannot be the same shape")
    merged = tuple([b if a is None else a for a, b in zip(first, second, strict=True)])
    return first if merged == first else merged


def product(extents: Iterable[Extent]) -> Extent:
    """The number of elements, where it is known; an axis without elements decides alone."""
    found, certain = 1, True
    for extent in extents:
        if extent is None:
            certain = False
        else:
            found *= extent
    return found if certain or found == 0 else None


def times(extent: Extent, factor: Extent) -> Extent:
    """An extent so many times."""
    return None if extent is None or factor is None else extent * factor


def total(extents: Iterable[Extent]) -> Extent:
    """The sum of extents, where it is known."""
    found = 0
    for extent in extents:
        if extent is None:
            return None
        found += extent
    return found


def divided(extent: Extent, parts: int, what: str = "elements", among: str = "parts") -> Extent:
    """An extent shared out evenly."""
    if extent is None:
        return None
    if extent % parts:
        raise Mismatch(f"{extent} {what} cannot be divided among {parts} {among}")
    return extent // parts
