"""Einstein summation with any number of operands."""

from __future__ import annotations

from math import prod

from opcost.core.cost import Cost
from opcost.core.graph import TensorSpec
from opcost.errors import RuleError
from opcost.rules.attr import parts, text
from opcost.rules.registry import OpView


def einsum(op: OpView) -> Cost:
    """Σ over pairs of operands, left to right, of prod(extents of the pair's labels) MACs.

    A label that stands in one operand only and is needed neither by a later operand nor by the output is summed away
    first: one FLOP for each element. A pair that shares no summed label is an elementwise product: FLOPs, not MACs.
    A single operand is summed or permuted and has no MACs. A repeated label takes the diagonal, which is free.
    """
    inputs, output = _parse(text(op, "equation"), op.ins)
    extents = _extents(inputs, op.ins)
    scale = parts(op.outs[0])

    def size(labels: frozenset[str]) -> int:
        return prod(extents[label] for label in labels)

    macs = flops = 0
    left = frozenset(inputs[0])
    for index, labels in enumerate(inputs[1:], start=1):
        needed = frozenset(output).union(*inputs[index + 1 :])
        right = frozenset(labels)
        for alone, other in ((left, right), (right, left)):
            if alone - other - needed:
                flops += scale * size(alone)
        both, kept = left & right, (left | right) & needed
        pair = kept | both
        if both - needed:
            macs += size(pair)
        else:
            flops += size(pair) * (6 if scale == 2 else 1)
        left = kept
    if left - frozenset(output):
        flops += scale * size(left)
    return op.cost(macs=macs, flops=flops)


def _parse(equation: str, operands: tuple[TensorSpec, ...]) -> tuple[list[str], str]:
    left, arrow, output = equation.partition("->")
    inputs = left.split(",")
    ranks = [len(spec.dims) for spec in operands]
    if not arrow or [len(labels) for labels in inputs] != ranks or not set(output) <= set("".join(inputs)):
        raise RuleError(
            f"the equation {equation!r} does not fit operands of rank {', '.join(map(str, ranks))}",
            hint="an equation has an explicit output, one letter for each axis, no spaces and no ellipsis",
        )
    return inputs, output


def _extents(inputs: list[str], operands: tuple[TensorSpec, ...]) -> dict[str, int]:
    """The extent of each label; an axis of extent 1 is broadcast."""
    extents: dict[str, int] = {}
    for labels, spec in zip(inputs, operands, strict=True):
        for label, extent in zip(labels, spec.dims, strict=True):
            known = extents.setdefault(label, extent)
            if known != extent and 1 not in (known, extent):
                raise RuleError(f"the label {label!r} stands for {known} and for {extent}")
            if known == 1:
                extents[label] = extent
    return extents


RULES = {"einsum": einsum}
