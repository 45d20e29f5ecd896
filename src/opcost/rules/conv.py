"""Convolutions of any rank, grouped, dilated, transposed, and their gradients."""

from __future__ import annotations

from math import prod

from opcost.core.cost import Cost
from opcost.core.graph import TensorSpec
from opcost.rules.attr import flag, integer, parts, texts
from opcost.rules.elementwise import fused_flops
from opcost.rules.registry import OpView


def conv(op: OpView) -> Cost:
    """y.numel × (in channels / groups) × prod(kernel) MACs.

    Transposed: x.numel × (out channels / groups) × prod(kernel), since there each input element meets the kernel.
    Positions in the padding count. A weight that is packed out of sight brings the exact number with it. A bias adds
    y.numel FLOPs; a fused activation adds its own.
    Gradient: each of the input's and the weight's gradient pairs the same elements as the forward pass and so has its
    MACs once; the bias' gradient adds up grad_y: grad_y.numel FLOPs.
    Sampled (deformable): each element under the kernel is made from `sampled` source elements first, a product and an
    addition each, twice as much in the gradient, for x and for the positions.
    """
    if op.get("grads") is not None:
        return _gradient(op)
    y = op.outs[0]
    if op.get("macs") is not None:
        bias_flops = y.numel if flag(op, "bias") else 0
        return op.cost(macs=integer(op, "macs"), flops=bias_flops + fused_flops(op))
    x, weight, *others = op.ins
    biased = flag(op, "bias", default=bool(others))
    return op.cost(
        macs=_pairs(op, small=x, large=y, weight=weight),
        flops=(y.numel * parts(y) if biased else 0) + fused_flops(op) + _sampling(op, x=x, y=y, weight=weight),
    )


def _gradient(op: OpView) -> Cost:
    grads = texts(op, "grads")
    grad_y, x, weight = op.ins[:3]
    macs = _pairs(op, small=x, large=grad_y, weight=weight)
    times = ("input" in grads) + ("weight" in grads)
    read = op.bytes_in
    if times < 2:
        read = grad_y.nbytes + ("input" in grads) * weight.nbytes + ("weight" in grads) * x.nbytes
    return op.cost(
        macs=times * macs,
        flops=(grad_y.numel * parts(grad_y) if "bias" in grads else 0)
        + 2 * _sampling(op, x=x, y=grad_y, weight=weight),
        bytes_read=read,
    )


def _pairs(op: OpView, *, small: TensorSpec, large: TensorSpec, weight: TensorSpec) -> int:
    """Products of an element with a weight, seen from the side whose every element meets a whole kernel."""
    side = small if flag(op, "transposed") else large
    return side.numel * prod(weight.dims[2 if flag(op, "grouped") else 1 :])


def _sampling(op: OpView, *, x: TensorSpec, y: TensorSpec, weight: TensorSpec) -> int:
    """FLOPs of the samples that a deformable convolution takes: one for each channel of x and each kernel position."""
    sampled = integer(op, "sampled", 0)
    if not sampled:
        return 0
    kernel = weight.dims[3 if flag(op, "grouped") else 2 :]
    channels = -1 - len(kernel)
    positions = prod(y.dims[channels + 1 :]) * prod(y.dims[:channels])
    return positions * x.dims[channels] * prod(kernel) * sampled * 2


RULES = {"conv": conv}
