"""Tensors made from nothing: constants, ranges, random numbers."""

from __future__ import annotations

from opcost.core.shapes import Shape, product
from opcost.frontends.megengine.node import Meaning, Node, Rule, means, same


def _filled(node: Node) -> list[Shape]:
    """The shape comes as the first input."""
    return [node.target(0)]


def _declared(node: Node) -> list[str]:
    return [node.word("dtype") or "float32"]


def _range_shapes(node: Node) -> list[Shape]:
    """From, to, and how many."""
    numbers = node.value(2)
    return [(int(numbers[0]) if numbers else None,)]


def _matrix_shapes(node: Node) -> list[Shape]:
    target = node.target(0)
    return [target * 2 if len(target) == 1 else target]


def _made(node: Node) -> Meaning:
    return Meaning("create", inputs=())


def _drawn(node: Node) -> Meaning:
    return Meaning("random", inputs=())


def _with_mask(node: Node) -> list[Shape]:
    """The result, and a mask with a byte for each element."""
    return [node.dims(0), (product(node.dims(0)),)]


def _multinomial_shapes(node: Node) -> list[Shape]:
    return [(*node.dims(0)[:-1], node.whole("num_samples"))]


def _shuffled(node: Node) -> list[Shape]:
    dims = node.dims(0)
    return [dims, (dims[0],)]


RULES = {
    "Alloc": Rule(_filled, _made, _declared),
    "Eye": Rule(_matrix_shapes, _made, _declared),
    "Linspace": Rule(_range_shapes, _made, lambda node: ["float32"]),
    "UniformRNG": Rule(_filled, _drawn, _declared),
    "GaussianRNG": Rule(_filled, _drawn, _declared),
    "PermutationRNG": Rule(_filled, _drawn, _declared),
    "GammaRNG": Rule(same, means("random")),
    "BetaRNG": Rule(same, means("random")),
    "PoissonRNG": Rule(same, means("random")),
    "ExponentialRNG": Rule(same, means("random")),
    "MultinomialRNG": Rule(_multinomial_shapes, means("random"), lambda node: ["int32"]),
    "ShuffleRNG": Rule(_shuffled, means("gather"), lambda node: [node.dtypes[0], "int32"]),
    "Dropout": Rule(
        _with_mask,
        lambda node: Meaning("random", {"fn": "dropout"}, outputs=(0,)),
        lambda node: [node.dtypes[0], "uint8"],
    ),
}
