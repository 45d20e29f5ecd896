"""Normalizations and softmax. Outputs after the first, such as mean and deviation, are kept for a backward pass."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.core.shapes import Mismatch, Shape
from opcost.frontends.megengine.node import Meaning, Node, Rule, Translator, alike, means, same


def _batch_shapes(node: Node) -> list[Shape]:
    """Statistics first, the result last; in use there are no running statistics."""
    x, scale = node.dims(0), node.dims(1)
    statistics: list[Shape] = [scale] * (4 if len(node.op.outputs) == 6 else 2)
    return [*statistics, (0,), x]


def _batch_dtypes(node: Node) -> list[str]:
    count = len(node.op.outputs)
    return [*([node.dtypes[1]] * (count - 2)), "uint8", node.dtypes[0]]


def _batch_meaning(node: Node) -> Meaning:
    attrs: dict[str, Attr] = {"fn": "batch", "affine": 2, "training": node.word("fwd_mode") == "TRAINING"}
    return Meaning("norm", attrs, outputs=(len(node.op.outputs) - 1,))


def _kept(node: Node, kept: Shape) -> list[Shape]:
    return [node.dims(0), kept, kept]


def _layer_shapes(node: Node) -> list[Shape]:
    x = node.dims(0)
    normalized = node.whole("normalized_dim")
    if normalized > len(x):
        raise Mismatch(f"{normalized} axes cannot be normalized where there are {len(x)}")
    return _kept(node, x[: len(x) - normalized])


def _general_shapes(node: Node) -> list[Shape]:
    x = node.dims(0)
    return _kept(node, (*x[: node.whole("axis_start")], *x[node.whole("axis_end") :]))


def _kept_dtypes(node: Node) -> list[str]:
    return [node.dtypes[0], "float32", "float32"]


def _affine(fn: str) -> Translator:
    return lambda node: Meaning("norm", {"fn": fn, "affine": 2 if node.flag("affine") else 0}, outputs=(0,))


RULES = {
    "BatchNorm": Rule(_batch_shapes, _batch_meaning, _batch_dtypes),
    "LayerNorm": Rule(_layer_shapes, _affine("layer"), _kept_dtypes),
    "GeneralNorm": Rule(_general_shapes, _affine("layer"), _kept_dtypes),
    "GroupNorm": Rule(lambda node: _kept(node, (node.dims(0)[0], node.whole("group"))), _affine("group"), _kept_dtypes),
    "InstanceNorm": Rule(lambda node: _kept(node, node.dims(0)[:2]), _affine("instance"), _kept_dtypes),
    "LRN": Rule(same, lambda node: Meaning("norm", {"fn": "local_response", "window": node.whole("n")})),
    "Softmax": Rule(same, means("softmax")),
    "SoftmaxBackward": Rule(alike(0), means("softmax", grad=True)),
}
