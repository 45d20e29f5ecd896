"""Fourier transforms, sorting and searching, and pairwise distances."""

from __future__ import annotations

from math import log2

from opcost.core.cost import Cost
from opcost.rules.attr import flag, integer, integers
from opcost.rules.registry import OpView


def fft(op: OpView) -> Cost:
    """5 × numel × Σ log2(length), and half of it for real data, FLOPs.

    The customary count of a complex transform of length N is 5 N log2 N, for every length; `numel` are the elements
    that are transformed (of the real side where one side is real), so each axis has numel / N transforms.
    """
    lengths = integers(op, "lengths")
    levels = sum(log2(length) for length in lengths if length > 1)
    if flag(op, "real"):
        elements = max(op.ins[0].numel, op.outs[0].numel)
        return op.cost(flops=round(5 * elements * levels / 2))
    return op.cost(flops=round(5 * op.outs[0].numel * levels))


def sort(op: OpView) -> Cost:
    """x.numel × ceil(log2(length)) FLOPs.

    Comparisons of a merge sort, or of a binary search for each of x in `length` sorted elements; keeping only the k
    best costs ceil(log2(k)), at least 1, for each element.
    """
    comparisons = _ceil_log2(integer(op, "length"))
    if op.get("selected") is not None:
        comparisons = min(comparisons, max(1, _ceil_log2(integer(op, "selected"))))
    return op.cost(flops=op.ins[0].numel * comparisons)


def _ceil_log2(number: int) -> int:
    return max(number - 1, 0).bit_length()


def distance(op: OpView) -> Cost:
    """y.numel × (3 × features + 1) FLOPs.

    For each feature subtract, square or take the absolute value, add; then one root, also where a framework chooses to
    work it out by a matrix product. Gradient: for each feature subtract, divide, multiply, add.
    """
    if flag(op, "grad"):
        return op.cost(flops=op.ins[0].numel * 4 * op.ins[1].dims[-1])
    return op.cost(flops=op.outs[0].numel * (3 * op.ins[0].dims[-1] + 1))


RULES = {"fft": fft, "sort": sort, "distance": distance}
