"""What torchstat says of one call of a layer: MAdd, Flops, bytes read and written.

Its MAdd counts multiplications and additions apart, with one addition less than products in a sum; its Flops count a
multiply-accumulate once. Both follow from an operator's cost, whatever the operator is. The layers below differ by
convention, and keep torchstat's own formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opcost.compat._layers.calls import LayerCall
    from opcost.core.report import Row

_SUMS_OF_PRODUCTS = frozenset({"conv", "matmul", "bilinear", "einsum"})


@dataclass(frozen=True, slots=True)
class LayerCost:
    """Operations and bytes; a value that adds."""

    madd: int = 0
    flops: int = 0
    read: int = 0
    written: int = 0

    def __add__(self, other: LayerCost) -> LayerCost:
        return LayerCost(
            self.madd + other.madd, self.flops + other.flops, self.read + other.read, self.written + other.written
        )


def cost_of_call(call: LayerCall) -> LayerCost:
    """The cost of a layer's own operators, by torchstat's formula where it has one that fits."""
    general = cost_of_rows(call.rows)
    if not call.rows or not call.inputs or not call.outputs:
        return general
    module = call.module
    x, y = call.inputs[0], call.outputs[0]
    if isinstance(module, nn.Linear):
        # The addition of the bias is left out.
        return LayerCost(2 * call.macs - y.numel, call.macs, general.read, general.written)
    if isinstance(module, nn.BatchNorm2d):
        # Mean, deviation, scale and shift; Flops has the first two folded into the others.
        channels = 2 * module.num_features * x.nbytes // x.numel
        return LayerCost(4 * x.numel, (2 if module.affine else 1) * x.numel, x.nbytes + channels, y.nbytes)
    if isinstance(module, (nn.MaxPool2d, nn.AvgPool2d)):
        window = _window(module)
        madd = (window if isinstance(module, nn.AvgPool2d) else window - 1) * y.numel
        return LayerCost(madd, x.numel, x.nbytes, y.nbytes)
    if isinstance(module, nn.Softmax):
        rows = x.numel // x.dims[module.dim] if module.dim is not None else 1
        return LayerCost(3 * x.numel - rows, general.flops, general.read, general.written)
    if isinstance(module, (nn.ReLU, nn.ReLU6)):
        return LayerCost(x.numel, x.numel, general.read, general.written)
    if isinstance(module, (nn.PReLU, nn.ELU, nn.LeakyReLU)):
        return LayerCost(general.madd, x.numel, general.read, general.written)
    return general


def cost_of_rows(rows: Iterable[Row]) -> LayerCost:
    """The cost of any operators."""
    total = LayerCost()
    for row in rows:
        if row.cost is None:
            continue
        saved = row.outs[0].numel if row.op.kind in _SUMS_OF_PRODUCTS and row.cost.macs else 0
        once = LayerCost(
            row.cost.flops - saved, row.cost.flops - row.cost.macs, row.cost.bytes_read, row.cost.bytes_written
        )
        for _ in range(row.op.repeat):
            total += once
    return total


def _window(module: nn.Module) -> int:
    size = module.kernel_size
    return prod(size) if isinstance(size, (tuple, list)) else size * size
