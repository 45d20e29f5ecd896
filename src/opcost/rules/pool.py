"""Pooling over windows, fixed or adaptive."""

from __future__ import annotations

from opcost.core.cost import Cost
from opcost.rules.attr import choose, flag, integer
from opcost.rules.registry import OpView

WINDOW_FLOPS: dict[str, tuple[int, int]] = {
    # for each element of the window, and once for each output
    "max": (1, 0), "adaptive_max": (1, 0),  # a comparison each, the first with minus infinity
    "avg": (1, 0), "adaptive_avg": (1, 0),  # window - 1 additions and a division
    "lp": (2, 1),  # power, add; root
    "unpool": (0, 0),  # puts values at stored places
}  # fmt: skip

GRADIENT_FLOPS: dict[str, tuple[int, int]] = {
    # for each element of the window, and once for each element of grad_y
    "max": (0, 1), "adaptive_max": (0, 1),  # added at the stored place
    "avg": (1, 1), "adaptive_avg": (1, 1),  # divided once, added at every place of the window
    "lp": (3, 1),  # power, multiply, add; multiply
    "unpool": (0, 0),  # picks values at stored places
}  # fmt: skip


def pool(op: OpView) -> Cost:
    """y.numel × window FLOPs.

    max compares window elements, avg adds window - 1 and divides once; lp: 2 × window + 1; unpooling computes nothing.
    Gradient: max adds each element of grad_y once; avg divides it once and adds it to window places; lp: 3 × window + 1.
    """
    grad = flag(op, "grad")
    per_window, once = choose(op, GRADIENT_FLOPS if grad else WINDOW_FLOPS)
    elements = op.ins[0].numel if grad else op.outs[0].numel
    window = integer(op, "window") if per_window else 0
    return op.cost(flops=elements * (per_window * window + once))


RULES = {"pool": pool}
