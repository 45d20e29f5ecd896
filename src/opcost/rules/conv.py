"""Convolutions of any rank, grouped, dilated, transposed, and their gradients."""

from __future__ import annotations

from math import prod

from opcost.core.cost import Cost
from opcost.core.graph import TensorSpec
from opcost.errors import RuleError
from opcost.rules.attr import flag, parts
from opcost.rules.elementwise import fused_flops
from opcost.rules.registry import OpView

GRADIENTS = ("input", "weight", "bias")


def conv(op: OpView) -> Cost:
    """y.numel × (in channels / groups) × prod(kernel) MACs.

    Transposed: x.numel × (out channels / groups) × prod(kernel), since there each input element meets the kernel.
    Positions in the padding count. A bias adds y.numel FLOPs; a fused activation adds its own.
    Gradient: each of the input's and the weight's gradient pairs the same elements as the forward pass and so has its
    MACs once; the bias' gradient adds up grad_y: grad_y.numel FLOPs.
    """
    if op.get("grads") is not None:
        return _gradient(op)
    x, weight, *bias = op.ins
    y = op.outs[0]
    return op.cost(
        macs=_pairs(op, small=x, large=y, weight=weight),
        flops=(y.numel * parts(y) if bias else 0) + fused_flops(op),
    )


def _gradient(op: OpView) -> Cost:
    grads = op.get("grads")
    if not isinstance(grads, tuple) or not set(grads) <= set(GRADIENTS):
        raise RuleError(f"a convolution's grads are names among {', '.join(GRADIENTS)}, not {grads!r}")
    grad_y, x, weight = op.ins[:3]
    macs = _pairs(op, small=x, large=grad_y, weight=weight)
    times = ("input" in grads) + ("weight" in grads)
    read = op.bytes_in
    if times < 2:
        read = grad_y.nbytes + ("input" in grads) * weight.nbytes + ("weight" in grads) * x.nbytes
    return op.cost(
        macs=times * macs,
        flops=grad_y.numel * parts(grad_y) if "bias" in grads else 0,
        bytes_read=read,
    )


def _pairs(op: OpView, *, small: TensorSpec, large: TensorSpec, weight: TensorSpec) -> int:
    """Products of an element with a weight, seen from the side whose every element meets a whole kernel."""
    side = small if flag(op, "transposed") else large
    return side.numel * prod(weight.dims[1:])


RULES = {"conv": conv}
