"""What one call of a MegEngine layer costs in MegEngine's own convention, faults of its counter left out."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import megengine.module as M
import megengine.module.qat as Q
import megengine.module.quantized as Z

from opcost.compat.megengine import convention

Shape = tuple[int, ...]


class Line(NamedTuple):
    """One line of the table: a layer, named relative to the module that was called, and its cost."""

    suffix: str
    class_name: str
    flops: int


_NORMS = (M.batchnorm._BatchNorm, M.LayerNorm, M.GroupNorm, M.InstanceNorm, M.GeneralNorm)
_TRANSPOSED = (M.ConvTranspose2d, M.ConvTranspose3d)


def lines(module: M.Module, x: Shape, y: Shape) -> Iterator[Line]:
    """The lines of a call from x to y: one for a layer, two for a fused one, none for anything else."""
    name = type(module).__name__
    if isinstance(module, M.conv._ConvNd):
        yield Line("", name, _convolution(module, x, y))
    elif isinstance(module, M.Linear):
        yield Line("", name, _linear(module, y))
    elif isinstance(module, Z.Linear):
        out_features, in_features = module.weight.shape
        yield Line("", name, convention.linear(y, in_features, out_features, bias=module.bias is not None))
    elif isinstance(module, M.BatchMatMulActivation):
        yield Line("", name, prod(y) * (module.weight.shape[-1] + (module.bias is not None)))
    elif isinstance(module, _NORMS):
        yield Line("", name, convention.NORM * prod(x))
    elif isinstance(module, M.pooling._PoolNd):
        size = module.kernel_size
        yield Line("", name, prod(y) * (prod(size) if isinstance(size, (tuple, list)) else size * size))
    elif isinstance(module, M.adaptive_pooling._AdaptivePoolNd):
        yield Line("", name, convention.adaptive_pool(x, y, axes=2))
    elif isinstance(module, (M.rnn.RNNBase, M.rnn.RNNCellBase)):
        yield Line("", name, _recurrent(module, x))
    elif is_fused(module):
        yield from _fused(module, x, y)


def is_fused(module: M.Module) -> bool:
    """Whether a module computes a layer and a batch norm in one, without calling either of them."""
    return isinstance(module, Q.QATModule) and _folded(module) is not None and hasattr(module, "bn")


def _folded(module: M.Module) -> M.Module | None:
    for attribute in ("conv", "conv_transpose2d", "linear"):
        layer = getattr(module, attribute, None)
        if isinstance(layer, (M.conv._ConvNd, M.Linear)):
            return layer
    return None


def _fused(module: M.Module, x: Shape, y: Shape) -> Iterator[Line]:
    """Counted as the layer and the norm that it was made from, as in the net before quantization."""
    layer = _folded(module)
    place = next(name for name, child in module.named_children() if child is layer)
    cost = _linear(layer, y) if isinstance(layer, M.Linear) else _convolution(layer, x, y)
    yield Line(place, type(layer).__name__, cost)
    yield Line("bn", type(module.bn).__name__, convention.NORM * prod(y))


def _convolution(module: Any, x: Shape, y: Shape) -> int:
    bias = module.bias is not None
    kernel = module.kernel_size if isinstance(module.kernel_size, (tuple, list)) else (module.kernel_size,)
    if isinstance(module, _TRANSPOSED):
        return convention.transposed(x, y, module.out_channels, module.groups, kernel, bias=bias)
    return convention.convolution(y, module.in_channels, module.groups, kernel, bias=bias)


def _linear(module: Any, y: Shape) -> int:
    return convention.linear(y, module.in_features, module.out_features, bias=module.bias is not None)


def _recurrent(module: Any, x: Shape) -> int:
    gates = 4 if isinstance(module, (M.LSTM, M.LSTMCell)) else 1
    cell = "lstm" if gates == 4 else "rnn_tanh"
    steps = prod(x) // module.input_size
    hidden = module.hidden_size
    if isinstance(module, M.rnn.RNNCellBase):
        return convention.recurrent(cell, steps, [(module.input_size, hidden, hidden)], bias=bool(module.bias))
    output = module.proj_size or hidden
    layers = []
    for level in range(module.num_layers):
        size = module.input_size if level == 0 else output * module.num_directions
        layers += [(size, hidden, output)] * module.num_directions
    return convention.recurrent(cell, steps, layers, bias=bool(module.bias))
