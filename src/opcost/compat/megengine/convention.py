"""What a layer costs in MegEngine's `module_stats`: multiply-adds and biases, 7 for each element that is normalized."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from opcost.core.kinds import CONTRACTIONS
from opcost.core.report import Row
from opcost.rules.recurrent import BIASES, CELLS

NORM = 7
"""For each element of a normalized input, with weights or without."""


def convolution(out: Sequence[int], in_channels: int, groups: int, kernel: Iterable[int], *, bias: bool) -> int:
    return prod(out) * (in_channels // groups * prod(kernel) + bias)


def transposed(
    x: Sequence[int], out: Sequence[int], out_channels: int, groups: int, kernel: Iterable[int], *, bias: bool
) -> int:
    return prod(x) * (out_channels // groups) * prod(kernel) + prod(out) * bias


def linear(out: Sequence[int], in_features: int, out_features: int, *, bias: bool) -> int:
    """The bias counts once, however many rows there are."""
    return prod(out) * in_features + out_features * bias


def adaptive_pool(x: Sequence[int], out: Sequence[int], axes: int) -> int:
    """Every element of a window once; the windows are as large as they have to be to cover the input."""
    return prod(out) * prod(-(-n // m) for n, m in zip(x[-axes:], out[-axes:], strict=True) if m)


def recurrent(cell: str, steps: int, layers: Iterable[tuple[int, int, int]], *, bias: bool) -> int:
    """Steps (times batch) through layers of (input, hidden, output) sizes, with two biases for each gate."""
    gates = CELLS[cell].gates
    per_step = 0
    for size, hidden, output in layers:
        per_step += gates * hidden * (size + output) + (hidden * output if output != hidden else 0)
        per_step += BIASES * gates * hidden * bias
    return steps * per_step


def of_row(row: Row) -> int:
    """A recorded operator: its multiply-adds and its bias; what has no multiply-adds is free."""
    if row.op.kind not in CONTRACTIONS or row.cost is None:
        return 0
    attrs, once = row.op.attrs, row.cost.macs
    match row.op.kind:
        case "conv" if len(row.ins) > 2 or attrs.get("bias"):
            once += row.outs[0].numel
        case "matmul" if attrs.get("bias"):
            once += row.outs[0].dims[-1]
        case "recurrent" if attrs.get("bias"):
            gates = CELLS[str(attrs["cell"])].gates
            steps, layers = attrs["steps"], attrs["layers"]
            assert isinstance(steps, int)
            assert isinstance(layers, tuple)
            once += steps * sum(BIASES * gates * layer[1] for layer in layers)  # type: ignore[index,operator,misc]
    return once * row.op.repeat
