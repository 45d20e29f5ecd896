"""Interpolation on a regular grid, and sampling at computed positions."""

from __future__ import annotations

from opcost.core.cost import Cost
from opcost.core.dtype import nbytes
from opcost.rules.attr import choose, flag, integer, rest_bytes, text
from opcost.rules.registry import OpView

FLOPS_PER_OUTPUT: dict[str, int] = {
    # A step along one axis with weights known for each position: two products, one addition.
    "nearest": 0,
    "linear": 3,
    "bilinear": 3 * 3,  # two steps along one axis, one along the other
    "trilinear": 7 * 3,
    "bicubic": 5 * 7,  # five steps over four elements: four products, three additions
}

GRADIENT_FLOPS: dict[str, int] = {
    # Each element of grad_y is added to every source element: one product (none for nearest) and one addition each.
    "nearest": 1,
    "linear": 2 * 2,
    "bilinear": 2 * 4,
    "trilinear": 2 * 8,
    "bicubic": 2 * 16,
}

FLOPS_PER_TAP = 2
"""Multiply by the weight, add."""


def resize(op: OpView) -> Cost:
    """y.numel × FLOPS_PER_OUTPUT[fn] FLOPs.

    nearest 0, linear 3, bilinear 9, trilinear 21, bicubic 35, separable steps of products and additions; positions
    and weights are worked out once per axis and left out. area is the mean of its window: x.numel + y.numel. An
    antialiased filter of `taps` source elements: 2 × taps. Gradient: a product and an addition for each source element.
    """
    grad = flag(op, "grad")
    x, y = op.ins[0], op.outs[0]
    elements = x.numel if grad else y.numel
    if op.get("taps") is not None:
        return op.cost(flops=elements * integer(op, "taps") * FLOPS_PER_TAP)
    if text(op, "fn") == "area":
        return op.cost(flops=x.numel + y.numel)
    return op.cost(flops=elements * choose(op, GRADIENT_FLOPS if grad else FLOPS_PER_OUTPUT))


def sample(op: OpView) -> Cost:
    """y.numel × taps × 2 FLOPs.

    Each of the `taps` source elements (4 unless told) is multiplied by its weight and added; positions, shared by all
    channels, are left out. Of x only what is sampled is read, at most all of it. Gradient: twice as much, for x and
    for the positions.
    """
    taps = integer(op, "taps", 4)
    if flag(op, "grad"):
        return op.cost(flops=op.ins[0].numel * taps * FLOPS_PER_TAP * 2)
    x, y = op.ins[0], op.outs[0]
    touched = min(nbytes(y.numel * taps, x.dtype), x.nbytes)
    return op.cost(flops=y.numel * taps * FLOPS_PER_TAP, bytes_read=touched + rest_bytes(op))


RULES = {"resize": resize, "sample": sample}
