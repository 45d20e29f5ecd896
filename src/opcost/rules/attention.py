"""Scaled dot-product attention as one fused operator, forward and backward."""

from __future__ import annotations

from math import prod

from opcost.core.cost import Cost
from opcost.core.graph import TensorSpec
from opcost.rules.attr import flag, integer
from opcost.rules.norm import SOFTMAX_FLOPS
from opcost.rules.registry import OpView

SCALE_FLOPS = 1
MASK_FLOPS = 1
SCORE_GRADIENT_FLOPS = 3
"""dS = P × (dP - delta) × scale: subtract, multiply, scale."""
RECOMPUTE_FLOPS = 3
"""P again from the stored log-sum-exp: scale, subtract, exp."""
DELTA_FLOPS = 2
"""delta = Σ grad_y × y along the features: multiply, add, for each element of grad_y."""


def attention(op: OpView) -> Cost:
    """prod(batch) × L × S × (E + Ev) MACs.

    L queries meet S keys of E features (scores) and S values of Ev features (output); `batch` is that of q, so
    grouped keys and values count once for every query head. Softmax and scaling add 6 FLOPs for each score, a mask
    one more. Causal: the whole square, or with the convention `half` only Σ_i min(i + 1, S) pairs, aligned top left.
    Sequences packed along the length are taken as equally long.
    Gradient: dV and dP have Ev, dQ and dK have E MACs for each pair; a kernel with 5 products also computes the
    scores again.
    """
    return _gradient(op) if flag(op, "grad") else _forward(op)


def _forward(op: OpView) -> Cost:
    q, k, v, *mask = op.ins
    scores = _scores(op, q, k)
    per_score = SCALE_FLOPS + SOFTMAX_FLOPS + (MASK_FLOPS if mask else 0)
    return op.cost(macs=scores * (q.dims[-1] + v.dims[-1]), flops=scores * per_score)


def _gradient(op: OpView) -> Cost:
    grad_y, q, k, v = op.ins[:4]
    recomputed = integer(op, "products", 5) == 5
    scores = _scores(op, q, k)
    features = (3 if recomputed else 2) * q.dims[-1] + 2 * v.dims[-1]
    per_score = SCORE_GRADIENT_FLOPS + (RECOMPUTE_FLOPS if recomputed else 0)
    return op.cost(macs=scores * features, flops=scores * per_score + grad_y.numel * DELTA_FLOPS)


def _scores(op: OpView, q: TensorSpec, k: TensorSpec) -> int:
    """Query-key pairs that are computed, over the whole batch."""
    along = -3 if flag(op, "heads_last") else -2
    sequences = integer(op, "sequences", 1)
    length, source = q.dims[along] // sequences, k.dims[along] // sequences
    pairs = length * source
    if flag(op, "causal") and op.convention.causal == "half":
        square = min(length, source)
        pairs = square * (square + 1) // 2 + (length - square) * source
    batch = prod(q.dims[:-1]) // q.dims[along] * sequences if q.dims[along] else 0
    return batch * pairs


RULES = {"attention": attention}
