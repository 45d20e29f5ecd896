"""Which gradients the running autograd node is asked for, where its operator computes all of them in one."""

from __future__ import annotations

import torch

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call

_INPUT, _STATE = 0, 5
"""Places of the input and of the first state among what oneDNN's layer is differentiated by."""


def unasked_of_layer(call: Call) -> dict[str, Attr]:
    """What a recurrent layer of oneDNN need not be differentiated by: an input or a first state that requires no gradient."""
    node = torch._C._current_autograd_node()
    if call.base != "mkldnn_rnn_layer_backward" or node is None:
        return {}
    followed = [function is not None for function, _ in node.next_functions]
    unasked: dict[str, Attr] = {}
    if not followed[_INPUT]:
        unasked["constant_input"] = True
    if not followed[_STATE]:
        unasked["constant_states"] = call["hx_"].numel() // call["hidden_size"]
    return unasked
