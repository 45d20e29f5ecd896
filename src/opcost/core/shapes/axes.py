"""The axes of one shape: named, put in order, taken away, added, stretched; and shapes stretched to each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from opcost.core.shapes.extents import Dims, Extent, Mismatch, product, text, times


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """An axis counted from the front."""
    if not -rank <= axis < rank:
        raise Mismatch(f"{what} {axis} is not one of the {rank} axes")
    return axis % rank


def axes_of(axes: Iterable[int] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front; all of them where none are named."""
    return tuple(range(rank)) if axes is None else tuple([axis_of(axis, rank) for axis in axes])


def replaced(shape: Sequence[Extent], axis: int, *extents: Extent) -> Dims:
    """The shape with another extent along one axis, or with several axes in its place, or without it."""
    return (*shape[:axis], *extents, *shape[axis + 1 :])


def inserted(shape: Sequence[Extent], axis: int, extent: Extent = 1) -> Dims:
    """The shape with one axis more, which in the result is `axis`."""
    place = axis_of(axis, len(shape) + 1)
    return (*shape[:place], extent, *shape[place:])


def squeezed(shape: Sequence[Extent], axes: Iterable[int]) -> Dims:
    """The shape without axes of extent 1."""
    gone = axes_of(axes, len(shape))
    for axis in gone:
        if shape[axis] not in (1, None):
            raise Mismatch(f"axis {axis} of {text(tuple(shape))} is not of extent 1")
    return reduced(shape, gone)


def reduced(shape: Sequence[Extent], axes: Iterable[int] | None = None, *, keepdims: bool = False) -> Dims:
    """What a reduction over these axes, or over all, leaves."""
    gone = axes_of(axes, len(shape))
    if keepdims:
        return tuple([1 if axis in gone else extent for axis, extent in enumerate(shape)])
    return tuple([extent for axis, extent in enumerate(shape) if axis not in gone])


def permuted(shape: Sequence[Extent], order: Sequence[int]) -> Dims:
    """The axes in another order; an empty order turns them round."""
    rank = len(shape)
    places = axes_of(order, rank) or tuple(reversed(range(rank)))
    if len(places) != rank or len(set(places)) != rank:
        raise Mismatch(f"the axes {tuple(order)} do not fit {rank} axes")
    return tuple([shape[axis] for axis in places])


def swapped(shape: Sequence[Extent], first: int, second: int) -> Dims:
    """Two axes exchanged."""
    found = list(shape)
    a, b = axis_of(first, len(found)), axis_of(second, len(found))
    found[a], found[b] = found[b], found[a]
    return tuple(found)


def flattened(shape: Sequence[Extent], axis: int = 1) -> Dims:
    """A matrix: all axes before `axis` in one, and all from it on in another."""
    return (product(shape[:axis]), product(shape[axis:]))


def filled(shape: Sequence[Extent], elements: Extent) -> Dims:
    """The shape with its one unknown extent worked out from the number of elements."""
    if elements is None or list(shape).count(None) != 1:
        return tuple(shape)
    rest = product([extent for extent in shape if extent is not None]) or 0
    if elements % rest if rest else elements:
        raise Mismatch(f"{elements} elements do not divide into {rest}")
    return tuple([(elements // rest if rest else 0) if extent is None else extent for extent in shape])


def reshaped(shape: Sequence[Extent], target: Sequence[Extent], *, zero_copies: bool = False) -> Dims:
    """The same elements in another shape, of which -1 leaves one extent open and, if so said, 0 copies one."""
    if any(extent is not None and extent < -1 for extent in target) or list(target).count(-1) > 1:
        raise Mismatch(
            f"{tuple(target)} cannot be a new shape: it leaves more than one extent open, or has a negative one"
        )
    if zero_copies and 0 in target[len(shape) :]:
        raise Mismatch(f"{text(tuple(shape))} has too few axes for the new shape {tuple(target)}")
    found = [shape[axis] if zero_copies and extent == 0 else extent for axis, extent in enumerate(target)]
    elements = product(shape)
    if -1 in found:
        place = found.index(-1)
        found[place] = None
        return filled(found, elements) if found.count(None) == 1 else tuple(found)
    wanted = product(found)
    if elements is not None and wanted is not None and elements != wanted:
        raise Mismatch(f"{text(tuple(shape))} has {elements} elements, the new shape {text(tuple(found))} has {wanted}")
    return tuple(found)


@overload
def broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]: ...
@overload
def broadcast(shapes: Sequence[Sequence[Extent]]) -> Dims: ...
def broadcast(shapes: Sequence[Sequence[Extent]]) -> Dims:
    """The shape to which all of these stretch, aligned at their last axes; an unknown extent stretches to any."""
    found: Dims = tuple(shapes[0]) if shapes else ()
    for shape in shapes[1:]:
        if shape == found:
            continue
        long, short = (found, shape) if len(found) > len(shape) else (shape, found)
        wide = list(long)
        offset = len(long) - len(short)
        for axis, extent in enumerate(short, offset):
            have = wide[axis]
            if have == 1 or (have is None and extent != 1):
                wide[axis] = extent
            elif extent not in (1, None, have):
                raise Mismatch(f"{' and '.join(text(tuple(each)) for each in shapes)} do not broadcast")
        found = tuple(wide)
    return found


def expanded(shape: Sequence[Extent], target: Sequence[Extent]) -> Dims:
    """A shape stretched to another one, and no further."""
    added = len(target) - len(shape)
    pairs = list(zip(shape, target[max(added, 0) :], strict=False))
    if added < 0 or any(None not in (have, want) and have not in (1, want) for have, want in pairs):
        raise Mismatch(f"{text(tuple(shape))} cannot be stretched to {text(tuple(target))}")
    return (*target[:added], *[have if want is None and have != 1 else want for have, want in pairs])


def tiled(shape: Sequence[Extent], times_each: Sequence[int]) -> Dims:
    """The whole tensor so many times along each axis, aligned at the last."""
    rank = max(len(shape), len(times_each))
    whole, many = (*(1,) * (rank - len(shape)), *shape), (*(1,) * (rank - len(times_each)), *times_each)
    return tuple([times(extent, count) for extent, count in zip(whole, many, strict=True)])


def repeated(shape: Sequence[Extent], count: int, axis: int | None) -> Dims:
    """Every element so many times along an axis, or all elements in a row."""
    if axis is None:
        return (times(product(shape), count),)
    along = axis_of(axis, len(shape))
    return replaced(shape, along, times(shape[along], count))
