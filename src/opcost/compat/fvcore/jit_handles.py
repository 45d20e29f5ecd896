"""How fvcore prices an operator: one flop for each multiply-add, and its own constants for norms, pooling and resizing.

A contraction takes its number from the rows of the report, which are right also where broadcasting, many operands or a fused
kernel hide the products from the shapes of the arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

from opcost.compat._operators.node import Value

Handle: TypeAlias = Callable[[list[Any], list[Any]], "Counter[str] | float"]

AFFINE_NORM_FLOPS, PLAIN_NORM_FLOPS = 5, 4
"""Per element, where the statistics are computed."""
AFFINE_SCALE_FLOPS, PLAIN_SCALE_FLOPS = 2, 1
"""Per element, where the statistics are stored (batch norm in use)."""
BILINEAR_FLOPS = 4


def macs(inputs: list[Value], outputs: list[Value]) -> int:
    return outputs[0].node().macs


def conv_macs(inputs: list[Value], outputs: list[Value]) -> Counter[str]:
    return Counter({"conv": macs(inputs, outputs)})


def norm(weight: int) -> Handle:
    """A norm that computes its statistics; `weight` is the position of the affine weight among the arguments."""

    def flops(inputs: list[Value], outputs: list[Value]) -> int:
        return inputs[0].numel * (AFFINE_NORM_FLOPS if inputs[weight].isCompleteTensor() else PLAIN_NORM_FLOPS)

    return flops


def batch_norm(inputs: list[Value], outputs: list[Value]) -> int:
    affine = inputs[1].isCompleteTensor()
    if inputs[5].toIValue():
        return inputs[0].numel * (AFFINE_NORM_FLOPS if affine else PLAIN_NORM_FLOPS)
    return inputs[0].numel * (AFFINE_SCALE_FLOPS if affine else PLAIN_SCALE_FLOPS)


def per_input(inputs: list[Value], outputs: list[Value]) -> int:
    return inputs[0].numel


def per_output(times: int) -> Handle:
    def flops(inputs: list[Value], outputs: list[Value]) -> int:
        return times * outputs[0].numel

    return flops


FLOP_HANDLES: dict[str, Handle] = {
    "aten::addmm": macs,
    "aten::bmm": macs,
    "aten::_convolution": conv_macs,
    "aten::einsum": macs,
    "aten::matmul": macs,
    "aten::mm": macs,
    "aten::linear": macs,
    "aten::batch_norm": batch_norm,
    "aten::group_norm": norm(2),
    "aten::layer_norm": norm(2),
    "aten::instance_norm": norm(1),
    "aten::upsample_nearest2d": per_output(1),
    "aten::upsample_bilinear2d": per_output(BILINEAR_FLOPS),
    "aten::adaptive_avg_pool2d": per_input,
    "aten::grid_sampler": per_output(BILINEAR_FLOPS),
}


def elements(inputs: list[Value], outputs: list[Value]) -> int:
    return outputs[0].numel


def conv_elements(inputs: list[Value], outputs: list[Value]) -> Counter[str]:
    return Counter({"conv": outputs[0].numel})


def product_elements(inputs: list[Value], outputs: list[Value]) -> int:
    """What every product inside an operator writes: an attention writes its scores, then its output."""
    written = 0
    for row in outputs[0].node().rows:
        if row.cost is None or not row.cost.macs:
            continue
        written += row.outs[0].numel * row.op.repeat
        if row.op.kind == "attention":
            q, _, v = row.ins[:3]
            written += row.cost.macs // (q.dims[-1] + v.dims[-1]) * row.op.repeat
    return written


ACTIVATION_HANDLES: dict[str, Handle] = {
    "aten::_convolution": conv_elements,
    "aten::addmm": elements,
    "aten::bmm": elements,
    "aten::einsum": elements,
    "aten::matmul": elements,
    "aten::linear": elements,
}
