"""Reductions, running sums and the places of extrema."""

from __future__ import annotations

from opcost.core.shapes import Shape, reduced
from opcost.frontends.megengine.node import Meaning, Node, Rule, means, same
from opcost.frontends.megengine.params import NO_AXIS

_FUNCTIONS = {"SUM": "sum", "SUM_SQR": "dot", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "MEAN": "mean"}
_RESULTS = {"FLOAT_O32xC32": "float32", "FLOAT_O16xC32": "float16", "QUINT_I8xO32": "qint32", "QINT_I8xO32": "qint32"}


def _shapes(node: Node) -> list[Shape]:
    """One axis to extent 1, or all axes to the shape that a second input names."""
    axis = node.whole("axis")
    if axis == NO_AXIS or len(node.shapes) > 1:
        return [node.target(1)] if len(node.shapes) > 1 else [(1,)]
    return _along(node)


def _meaning(node: Node) -> Meaning:
    fn = _FUNCTIONS.get(node.word("mode"))
    return Meaning("reduce", {"fn": fn}, (0,)) if fn else Meaning("unknown")


def _along(node: Node) -> list[Shape]:
    """One axis to extent 1."""
    return [reduced(node.dims(0), [node.whole("axis")], keepdims=True)]


def _places(node: Node) -> list[str]:
    return ["int32"]


RULES = {
    "Reduce": Rule(_shapes, _meaning, lambda node: [_RESULTS.get(node.word("data_type"), node.dtypes[0])]),
    "Argmax": Rule(_along, means("reduce", fn="argmax"), _places),
    "Argmin": Rule(_along, means("reduce", fn="argmin"), _places),
    "Cumsum": Rule(same, means("reduce", fn="cumsum")),
}
