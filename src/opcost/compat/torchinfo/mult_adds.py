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

if TYPE_CHECKING:
    from opcost.compat._layers import LayerCall
    from opcost.compat._parameters import ModuleParameter

_ADDS_A_BIAS = (_ConvNd, nn.Linear, nn.Bilinear)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def own_mult_adds(
    call: LayerCall, own_parameters: Sequence[ModuleParameter], output_size: Sequence[Any], *, is_leaf: bool
) -> int:
    """Mult-adds of the operators that run in the layer's own forward."""
    module = call.module
    macs = call.macs
    if macs:
        return _unpruned(macs, own_parameters) + _bias_additions(call, own_parameters)
    if is_leaf and output_size and not isinstance(module, nn.EmbeddingBag):
        return int(output_size[0]) * sum(p.numel for p in own_parameters if p.name in {"weight", "bias"})
    return 0


def _unpruned(macs: int, parameters: Sequence[ModuleParameter]) -> int:
    """The share of the multiply-accumulates that meets a weight which pruning left."""
    weights = [p for p in parameters if p.name == "weight"]
    if len(weights) != 1 or weights[0].numel == (dense := prod(weights[0].shape)):
        return macs
    return macs * weights[0].numel // dense


def _bias_additions(call: LayerCall, parameters: Sequence[ModuleParameter]) -> int:
    module = call.module
    biases = sum(p.numel for p in parameters if p.name.startswith("bias"))
    if not biases:
        return 0
    if isinstance(module, _ADDS_A_BIAS):
        return call.first_output_numel
    if isinstance(module, _RECURRENT):
        # Every weight is used once per step and sample, and so is every bias element.
        weights = sum(p.numel for p in parameters if p.name.startswith("weight"))
        return biases * (call.macs // weights)
    return 0
