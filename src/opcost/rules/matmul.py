"""Matrix products, also ragged and sparse ones, the bilinear form, and operators with a formula of their author's."""

from __future__ import annotations

from opcost.core.cost import FLOPS_PER_MAC, Cost
from opcost.rules.attr import flag, integer, parts
from opcost.rules.elementwise import fused_flops
from opcost.rules.registry import OpView


def matmul(op: OpView) -> Cost:
    """y.numel × depth MACs.

    `depth` is the number of products summed into one element of y. A ragged grouped product whose groups share the
    depth has y.numel × depth / groups. Sparse operands bring their exact number. Something added (a bias, the first
    operand of addmm) costs y.numel FLOPs; a fused activation adds its own.
    """
    y = op.outs[0]
    exact = op.get("macs") is not None
    macs = integer(op, "macs") if exact else y.numel * integer(op, "depth") // integer(op, "groups", 1)
    return op.cost(macs=macs, flops=(y.numel * parts(y) if flag(op, "bias") else 0) + fused_flops(op))


def bilinear(op: OpView) -> Cost:
    """y.numel × in1 × in2 MACs.

    y_o = Σ_j (Σ_i x1_i W_oij) x2_j: the inner sum contracts the weight, in1 × in2 MACs for each output element, as
    the usual count of a bilinear form has it. The outer sum, in2 multiplications and additions, stands in the FLOPs:
    2 × y.numel × in2. A bias adds y.numel FLOPs.
    """
    _, _, weight, *bias = op.ins
    _, in1, in2 = weight.dims
    y = op.outs[0]
    outer = 8 * y.numel * in2 if parts(y) == 2 else 2 * y.numel * in2
    return op.cost(macs=y.numel * in1 * in2, flops=outer + (y.numel * parts(y) if bias else 0))


def custom(op: OpView) -> Cost:
    """flops / 2 MACs.

    `flops` is what a formula gives that was registered with torch.utils.flop_counter, where a multiply-accumulate is two FLOPs.
    """
    flops = integer(op, "flops")
    return Cost(flops // FLOPS_PER_MAC, flops, op.bytes_in, op.bytes_out)


RULES = {"matmul": matmul, "bilinear": bilinear, "custom": custom}
