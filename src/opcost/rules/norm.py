"""Normalizations and softmax."""

from __future__ import annotations

from typing import NamedTuple

from opcost.core.cost import Cost
from opcost.rules.attr import choose, flag, integer, text
from opcost.rules.registry import OpView

SOFTMAX_FLOPS = 5
"""Compare for the maximum, subtract, exp, add to the sum, divide; log_softmax subtracts the logarithm of the sum."""
SOFTMAX_GRADIENT_FLOPS = 4
"""y × (g - Σ g y): multiply, add, subtract, multiply; log_softmax, g - exp(y) Σ g: add, exp, multiply, subtract."""

LOCAL_RESPONSE_WINDOW = 5


class Norm(NamedTuple):
    """FLOPs for each element of x."""

    statistics: int
    apply: int
    backward: int
    affine_backward: int
    """Sums for the gradients of weight and bias that the backward pass does not need for itself."""


_MOMENTS = 4  # mean: add; variance: subtract, square, add
_CENTRED = 10  # x̂ (2), Σ g, Σ g x̂ (1 + 2), (g w - mean - x̂ mean) × rstd (5)

NORMS = {
    "batch": Norm(_MOMENTS, 2, _CENTRED, 0),  # its sums run over the same axes as those of weight and bias
    "instance": Norm(_MOMENTS, 2, _CENTRED, 3),
    "layer": Norm(_MOMENTS, 2, _CENTRED, 3),  # x: subtract, multiply; weight: multiply, add; bias: add
    "group": Norm(_MOMENTS, 2, _CENTRED, 3),
    "rms": Norm(2, 1, 7, 2),  # square, add; multiply; x̂, Σ g w x̂ (3), (g w - x̂ mean) × rstd (3)
    "weight": Norm(2, 1, 5, 0),  # square, add; multiply by g / |v|; Σ g v (2), subtract, two products
    "lp": Norm(2, 1, 5, 0),  # power, add; divide
}

FIXED_STATISTICS_BACKWARD = 6
"""Batch norm with stored statistics: x̂ (2), Σ g, Σ g x̂ (1 + 2) for weight and bias, g × (w rstd)."""


def norm(op: OpView) -> Cost:
    """x.numel × (statistics + apply + affine) FLOPs.

    Statistics: mean 1, variance 3, where they are computed (batch norm: in training only); rms: 2. Apply: subtract
    and multiply, rms: multiply. Affine: one each for weight and bias. So batch norm costs 4 in use and 8 in training,
    layer norm 8, rms norm 4. Weight norm: 3. Local response norm: window + 5. What is done once per channel or row
    (rsqrt, running statistics) is left out. Gradients have the constants written in the rule's table.
    """
    x = op.ins[0]
    fn = text(op, "fn")
    grad = flag(op, "grad")
    if fn == "local_response":
        # square, window sum, multiply, add, power, divide; backward repeats it and has as much of its own
        per_element = (integer(op, "window", LOCAL_RESPONSE_WINDOW) + 5) * (2 if grad else 1)
        return op.cost(flops=x.numel * per_element)
    constants = choose(op, NORMS)
    fitted = flag(op, "training", default=fn != "batch")
    affine = _affine(op, fn, grad=grad)
    if grad:
        per_element = constants.backward + (constants.affine_backward if affine else 0)
        if fn == "batch" and not fitted:
            per_element = FIXED_STATISTICS_BACKWARD
    else:
        per_element = (constants.statistics if fitted else 0) + constants.apply + affine
    return op.cost(flops=x.numel * per_element)


def _affine(op: OpView, fn: str, *, grad: bool) -> int:
    """How many of weight and bias are applied: told by the front end, or the one or two inputs after x."""
    if fn in ("weight", "lp"):
        return 0
    if op.get("affine") is not None:
        return integer(op, "affine")
    return min(len(op.ins) - (2 if grad else 1), 2)


def softmax(op: OpView) -> Cost:
    """5 × x.numel FLOPs.

    Compare for the maximum, subtract, exp, add, divide; the same number for log_softmax. Gradient: 4 × x.numel.
    """
    per_element = SOFTMAX_GRADIENT_FLOPS if flag(op, "grad") else SOFTMAX_FLOPS
    return op.cost(flops=op.outs[0].numel * per_element)


RULES = {"norm": norm, "softmax": softmax}
