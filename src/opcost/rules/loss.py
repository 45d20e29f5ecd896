"""Losses that a framework computes in one operator."""

from __future__ import annotations

from opcost.core.cost import Cost
from opcost.rules.attr import choose, flag, text
from opcost.rules.registry import OpView

LOSSES: dict[str, tuple[int, int]] = {
    # FLOPs for each element before they are added up, and for each element of the gradient
    "mse": (2, 3),  # subtract, square; subtract, two products
    "l1": (2, 3),  # subtract, absolute; subtract, sign, multiply
    "smooth_l1": (6, 5),  # subtract, absolute, compare, square, scale, select; 5 of them for its slope
    "huber": (6, 5),  # the same
    "bce": (8, 5),  # two logarithms, two differences, two products, add, negate; the five of its slope
    "bce_with_logits": (8, 6),  # logsigmoid (6), multiply, subtract; sigmoid (4), subtract, multiply
    "kl_div": (3, 2),  # log, subtract, multiply; negate, multiply
    "soft_margin": (4, 6),  # multiply, negate, exp, log1p; multiply, exp, add, divide, two products
    "multi_margin": (3, 3),  # subtract, add, max; compare, select, multiply
    "multilabel_margin": (3, 3),  # the same for each pair of classes
    "hinge": (3, 3),  # subtract or multiply, add, max; compare, select, multiply
    "poisson_nll": (3, 3),  # exp, multiply, subtract; exp, subtract, multiply
    "nll": (2, 1),  # for each target: negate, multiply by its class weight; multiply
    "cross_entropy": (5, 7),  # log_softmax; softmax (5), subtract the target, multiply
    "ctc": (12, 24),  # for each time step and state: max (2), subtract (3), exp (3), add (2), log, add the input;
    # the same from the end, and to join the two
}

BY_TARGET = ("nll",)


def loss(op: OpView) -> Cost:
    """Elements × LOSSES[fn], and one more where they are added up, FLOPs.

    Elements are those of the input; for nll those of the target, whose class alone is looked up; for ctc time steps ×
    (2 × target length + 1) states; for multilabel_margin all pairs of classes, whichever are targets. mse and l1: 2,
    smooth_l1 and huber: 6, bce: 8, cross_entropy: 5.
    """
    grad = flag(op, "grad")
    fn = text(op, "fn")
    forward, backward = choose(op, LOSSES)
    elements = _elements(op, fn, first=1 if grad else 0)
    if grad:
        return op.cost(flops=elements * backward)
    reduced = 1 if op.outs[0].numel < elements else 0
    return op.cost(flops=elements * (forward + reduced))


def _elements(op: OpView, fn: str, *, first: int) -> int:
    x, target = op.ins[first], op.ins[first + 1]
    if fn in BY_TARGET:
        return target.numel
    if fn == "ctc":
        steps, *batch, _ = x.dims
        return steps * (2 * target.numel + (batch[0] if batch else 1))
    if fn == "multilabel_margin":
        return x.numel * (x.dims[-1] if x.dims else 1)
    return x.numel


RULES = {"loss": loss}
