"""How many steps a recurrent layer or cell took: time steps times batch, or the sum over a packed batch."""

from __future__ import annotations

from torch import nn

from opcost.compat._layers.calls import LayerCall

RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def gates(module: nn.Module) -> int:
    if isinstance(module, (nn.LSTM, nn.LSTMCell)):
        return 4
    return 3 if isinstance(module, (nn.GRU, nn.GRUCell)) else 1


def cells(module: nn.Module) -> int:
    """Layers times directions."""
    return getattr(module, "num_layers", 1) * (2 if getattr(module, "bidirectional", False) else 1)


def steps(call: LayerCall) -> int:
    """Each step uses every weight once, so the multiply-accumulates tell how many there were."""
    module = call.module
    hidden, state = module.hidden_size, getattr(module, "proj_size", 0) or module.hidden_size
    directions = 2 if getattr(module, "bidirectional", False) else 1
    weights = 0
    for layer in range(getattr(module, "num_layers", 1)):
        size = module.input_size if layer == 0 else state * directions
        weights += directions * gates(module) * hidden * (size + state)
        weights += directions * hidden * state if state != hidden else 0
    return call.macs // weights
