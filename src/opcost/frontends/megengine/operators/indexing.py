"""Parts of tensors: slices, elements picked by index, and the same written to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from opcost.core.shapes import (
    Extent,
    Mismatch,
    Shape,
    axis_of,
    broadcast,
    diagonal,
    product,
    reduced,
    slice_length,
    total,
)
from opcost.frontends.megengine.node import Meaning, Node, Rule, Translator, means, same


class Index(NamedTuple):
    """What is done to one axis; the numbers are positions of inputs, None where the file gives none."""

    axis: int
    begin: int | None
    end: int | None
    step: int | None
    picks: int | None


def indices(node: Node, first: int, rank: int) -> Iterator[Index]:
    """The axes that are indexed, in the order of the file; their numbers come as inputs from `first` on."""
    items = node.op.get("items")
    at = first
    for item in items if isinstance(items, tuple) else ():
        if not isinstance(item, tuple):
            continue
        axis, *present = item
        places: list[int | None] = []
        for given in present:
            places.append(at if given else None)
            at += 1 if given else 0
        if at > len(node.shapes):
            raise Mismatch(f"it has {len(node.shapes)} inputs and needs {at}")
        yield Index(axis_of(axis if isinstance(axis, int) else 0, rank), places[0], places[1], places[2], places[3])


def _sliced(node: Node, extent: Extent, found: Index) -> Extent:
    """How many elements a slice takes from an axis."""
    numbers: list[int | None] = []
    for place in (found.begin, found.end, found.step):
        if place is None:
            numbers.append(None)
            continue
        value = node.value(place)
        if not value:
            return None
        numbers.append(int(value[0]))
    return slice_length(extent, *numbers)


def _part_shapes(node: Node) -> list[Shape]:
    """Slices shorten an axis, a number removes it; the last axis stays, since MegEngine has no tensor without axes."""
    dims: list[Extent] = list(node.dims(0))
    removed = []
    for found in indices(node, 1, len(dims)):
        if found.picks is not None:
            removed.append(found.axis)
        else:
            dims[found.axis] = _sliced(node, dims[found.axis], found)
    left = [extent for axis, extent in enumerate(dims) if axis not in removed]
    return [tuple(left) or (1,)]


def _picked_shapes(node: Node) -> list[Shape]:
    """Axes with an index tensor are replaced by its axes, where they stand if they are neighbours, else in front."""
    dims: list[Extent] = list(node.dims(0))
    picked: dict[int, int] = {}
    for found in indices(node, 1, len(dims)):
        if found.picks is not None:
            picked[found.axis] = found.picks
        else:
            dims[found.axis] = _sliced(node, dims[found.axis], found)
    if not picked:
        return [tuple(dims)]
    shape = broadcast([node.dims(place) for place in picked.values()])
    axes = sorted(picked)
    neighbours = axes == list(range(axes[0], axes[-1] + 1))
    at = axes[0] if neighbours else 0
    rest = [extent for axis, extent in enumerate(dims) if axis not in picked]
    return [(*rest[:at], *shape, *rest[at:])]


def _mesh_shapes(node: Node) -> list[Shape]:
    """Every axis with an index keeps its place and takes the length of its own index."""
    dims: list[Extent] = list(node.dims(0))
    for found in indices(node, 1, len(dims)):
        if found.picks is None:
            dims[found.axis] = _sliced(node, dims[found.axis], found)
        else:
            index = node.dims(found.picks)
            dims[found.axis] = index[-1] if index else 1
    return [tuple(dims)]


def _put(fn: str) -> Translator:
    """Only what is put moves; the order of the inputs is x, indices, source."""

    def meaning(node: Node) -> Meaning:
        source = node.shapes[1] if len(node.shapes) > 1 else None
        elements = None if source is None else product(source)
        return Meaning("scatter", {"fn": fn} if elements is None else {"fn": fn, "elements": elements})

    return meaning


def _diagonal(node: Node) -> list[Shape]:
    """A vector becomes a matrix, a matrix gives its diagonal."""
    dims, offset = node.ranked(0, 1, 2), node.whole("k")
    if len(dims) == 1:
        side = total((dims[0], abs(offset)))
        return [(side, side)]
    return [(diagonal(dims[0], dims[1], offset),)]


_PICK = means("gather")

RULES = {
    "Subtensor": Rule(_part_shapes, means("view")),
    "SetSubtensor": Rule(same, _put("copy")),
    "IncrSubtensor": Rule(same, _put("add")),
    "IndexingMultiAxisVec": Rule(_picked_shapes, _PICK),
    "IndexingSetMultiAxisVec": Rule(same, _put("copy")),
    "IndexingIncrMultiAxisVec": Rule(same, _put("add")),
    "MeshIndexing": Rule(_mesh_shapes, _PICK),
    "BatchedMeshIndexing": Rule(_mesh_shapes, _PICK),
    "SetMeshIndexing": Rule(same, _put("copy")),
    "BatchedSetMeshIndexing": Rule(same, _put("copy")),
    "IncrMeshIndexing": Rule(same, _put("add")),
    "BatchedIncrMeshIndexing": Rule(same, _put("add")),
    "IndexingOneHot": Rule(lambda node: [reduced(node.dims(0), [node.whole("axis")], keepdims=True)], _PICK),
    "IndexingSetOneHot": Rule(same, lambda node: Meaning("scatter", inputs=(0, 1, 2))),
    "IndexingRemap": Rule(lambda node: [node.dims(1)[:-1]], _PICK),
    "Diag": Rule(_diagonal, _PICK),
}
