"""torchinfo's "mult-adds" of one call of a layer.

Its convention, kept where it says what the layer does: every weight and every bias element counts once each time it is
used, so a bias addition counts like a multiply-accumulate; parameters of layers without a contraction (norms, PReLU, the
table of an Embedding) count once per sample. Everything else is the true number of multiply-accumulates.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.modules.conv import _ConvNd

from opcost.compat._layers.recurrent import RECURRENT, steps

if TYPE_CHECKING:
    from opcost.compat._layers.calls import LayerCall
    from opcost.compat._layers.parameters import ModuleParameter

_ADDS_A_BIAS = (_ConvNd, nn.Linear, nn.Bilinear)


def own_mult_adds(
    call: LayerCall, own_parameters: Sequence[ModuleParameter], output_size: Sequence[Any], *, is_leaf: bool
) -> int:
    """Mult-adds of the operators that run in the layer's own forward."""
    module = call.module
    macs = call.macs
    if macs:
        return _unpruned(macs, own_parameters, "weight") + _bias_additions(call, own_parameters)
    if is_leaf and output_size and not isinstance(module, nn.EmbeddingBag):
        return int(output_size[0]) * sum(p.numel for p in own_parameters if p.name in {"weight", "bias"})
    return 0


def _unpruned(count: int, parameters: Sequence[ModuleParameter], name: str) -> int:
    """The share of a count that falls on the elements which pruning left."""
    found = [p for p in parameters if p.name == name]
    if len(found) != 1 or found[0].numel == (dense := prod(found[0].shape)):
        return count
    return count * found[0].numel // dense


def _bias_additions(call: LayerCall, parameters: Sequence[ModuleParameter]) -> int:
    biases = sum(p.numel for p in parameters if p.name.startswith("bias"))
    if isinstance(call.module, RECURRENT):
        return biases * steps(call) if biases else 0
    if isinstance(call.module, _ADDS_A_BIAS) and biases:
        return _unpruned(call.outputs[0].numel, parameters, "bias")
    return 0
