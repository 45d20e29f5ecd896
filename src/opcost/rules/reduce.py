"""Reductions along axes, and running reductions."""

from __future__ import annotations

from opcost.core.cost import Cost
from opcost.rules.attr import choose, flag, parts, text
from opcost.rules.registry import OpView

FLOPS_PER_INPUT: dict[str, int] = {
    "sum": 1, "mean": 1, "prod": 1, "trace": 1,
    "max": 1, "min": 1, "argmax": 1, "argmin": 1, "any": 1, "all": 1,
    "cumsum": 1, "cumprod": 1, "cummax": 1, "cummin": 1,
    "minmax": 2,  # two comparisons
    "nansum": 2, "nanmean": 2,  # check, add
    "count_nonzero": 2,  # compare, add
    "equal": 2,  # compare, combine
    "norm": 2,  # power or absolute value, add or compare
    "dot": 2,  # multiply, add
    "dist": 3,  # subtract, power, add
    "hash": 1,
    "var": 4, "std": 4, "var_mean": 4, "std_mean": 4,  # mean: add; then subtract, square, add
    "logsumexp": 4, "logcumsumexp": 4,  # compare, subtract, exp, add
    "histogram": 3,  # subtract, divide, add to the bin
}  # fmt: skip
"""FLOPs for each input element."""

FLOPS_PER_OUTPUT: dict[str, int] = {
    "mean": 1, "nanmean": 1,  # divide
    "norm": 1, "dist": 1,  # root
    "var": 2, "var_mean": 2,  # divide for the mean, divide for the variance
    "std": 3, "std_mean": 3,  # and the root
    "logsumexp": 2, "logcumsumexp": 2,  # log, add the maximum
}  # fmt: skip
"""FLOPs for each output element, where something is left to do after the reduction."""


def reduce(op: OpView) -> Cost:
    """x.numel × FLOPS_PER_INPUT[fn] + y.numel × FLOPS_PER_OUTPUT[fn] FLOPs.

    Sum, product, maximum, any and their running forms: 1 for each input. Mean also divides once for each output.
    Variance: 4 (mean: add; subtract, square, add) and two divisions; norm: 2 and a root; logsumexp: 4 and 2. A list
    operator (`each`) reduces every input to an output of its own. An answer that is no tensor costs its inputs only.
    """
    per_input = choose(op, FLOPS_PER_INPUT)
    per_output = FLOPS_PER_OUTPUT.get(text(op, "fn"), 0)
    reductions = len(op.ins) if flag(op, "each") else 1
    flops = sum(x.numel * per_input * parts(x) for x in op.ins[:reductions])
    flops += sum(y.numel * per_output * parts(y) for y in op.outs[:reductions])
    return op.cost(flops=flops)


RULES = {"reduce": reduce}
