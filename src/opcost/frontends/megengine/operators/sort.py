"""Sorting, selecting, and operators whose number of results depends on data."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.core.shapes import Mismatch, Shape
from opcost.frontends.megengine.node import Meaning, Node, Rule, means


def _pair(node: Node) -> list[str]:
    return [node.dtypes[0], "int32"][: len(node.op.outputs)]


def _sort_shapes(node: Node) -> list[Shape]:
    x = node.ranked(0, 2)
    return [x, x]


def _sorted(node: Node) -> Meaning:
    length = node.dims(0)[-1]
    return Meaning("sort", {"length": 1 if length is None else length})


def _top_shapes(node: Node) -> list[Shape]:
    """The best of each row; a negative number asks for the largest."""
    rows, length = node.ranked(0, 2)
    if node.word("mode") == "KTH_ONLY":
        return [(rows,)]
    numbers = node.value(1)
    kept = None if numbers is None or length is None else min(abs(int(numbers[0])), length)
    return [(rows, kept), (rows, kept)]


def _top(node: Node) -> Meaning:
    length = node.dims(0)[-1]
    attrs: dict[str, Attr] = {"length": 1 if length is None else length}
    numbers = node.value(1)
    if numbers is not None:
        attrs["selected"] = abs(int(numbers[0]))
    return Meaning("sort", attrs, (0,))


def _taken(node: Node) -> list[Shape]:
    """How many elements pass the condition, only data tells."""
    return [(None,), (None,)]


def _kept_boxes(node: Node) -> list[Shape]:
    """Boxes (batch, count, 4): the places of those that are kept, up to a maximum, and their number."""
    batch = node.ranked(0, 3)[0]
    return [(batch, node.whole("max_output")), (batch,)]


def _suppression(node: Node) -> Meaning:
    raise Mismatch("how many pairs of boxes are compared depends on data")


RULES = {
    "Argsort": Rule(_sort_shapes, _sorted, _pair),
    "TopK": Rule(_top_shapes, _top, _pair),
    "CondTake": Rule(_taken, means("gather"), _pair),
    "NonZero": Rule(lambda node: [(len(node.dims(0)), None)], means("gather"), lambda node: ["int32"]),
    "NMSKeepMGB": Rule(_kept_boxes, _suppression, lambda node: ["int32", "int32"]),
}
