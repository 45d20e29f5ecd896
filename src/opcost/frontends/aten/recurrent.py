"""Recurrent layers and cells. Sizes come from the input and the states, so packed weights need not be opened.

The fused cells get their gates ready-made: their matrix products are operators of their own, so they are elementwise here.
"""

from __future__ import annotations

from math import prod

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, on
from opcost.frontends.aten.tensor import Tensor

MOST_LAYERS = 4096
"""A file may state any number; each layer is written out."""

_MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
"""The `mode` number of the cuDNN, MIOpen and oneDNN operators."""


def layer(
    call: Call,
    cell: str,
    *,
    x: Tensor,
    hidden: int,
    output: int,
    layers: int = 1,
    directions: int = 1,
    bias: bool,
    ins: tuple[Tensor, ...] | None = None,
    grad: bool = False,
) -> Translation:
    """A stack of layers over all steps of `x`, whose last extent is the input size."""
    if layers > MOST_LAYERS:
        raise ValueError(f"a stack of {layers} layers")
    sizes = tuple(
        (x.shape[-1] if depth == 0 else output * directions, hidden, output)
        for depth in range(layers)
        for _ in range(directions)
    )
    attrs: dict[str, Attr] = {"cell": cell, "steps": prod(x.shape[:-1]), "layers": sizes}
    if bias:
        attrs["bias"] = True
    if grad:
        attrs["grad"] = True
    return Translation("recurrent", attrs, ins)


@on("lstm", "gru", "rnn_tanh", "rnn_relu", "quantized_lstm", "quantized_gru", "_lstm_mps")
def _stack(call: Call) -> Translation:
    x = call.get("input", "data")
    states = call["hx"]
    hidden_state, *cell_state = states if isinstance(states, (list, tuple)) else (states,)
    output = hidden_state.shape[-1]
    return layer(
        call,
        call.base.removeprefix("quantized_").removeprefix("_").removesuffix("_mps"),
        x=x,
        hidden=cell_state[0].shape[-1] if cell_state else output,
        output=output,
        layers=call["num_layers"],
        directions=2 if call["bidirectional"] else 1,
        bias=bool(call["has_biases"]),
    )


@on("lstm_mps_backward")
def _lstm_mps_backward(call: Call) -> Translation:
    hidden_state, cell_state = call["hx"]
    return layer(
        call,
        "lstm",
        x=call["input"],
        hidden=cell_state.shape[-1],
        output=hidden_state.shape[-1],
        layers=call["num_layers"],
        directions=2 if call["bidirectional"] else 1,
        bias=bool(call["has_biases"]),
        ins=_input_first(call, "input"),
        grad=True,
    )


@on("_cudnn_rnn", "_cudnn_rnn_backward", "miopen_rnn", "miopen_rnn_backward")
def _device_stack(call: Call) -> Translation:
    """With a bias every layer and direction has four tensors, five with a projection; the stride tells."""
    hidden = call["hidden_size"]
    projected = call.get("proj_size") or 0
    return layer(
        call,
        _MODES[call["mode"]],
        x=call["input"],
        hidden=hidden,
        output=projected or hidden,
        layers=call["num_layers"],
        directions=2 if call["bidirectional"] else 1,
        bias=call["weight_stride0"] >= 4,
        grad=call.base.endswith("_backward"),
    )


@on("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward")
def _one_layer(call: Call) -> Translation:
    """One layer in one direction, whatever `num_layers` and `bidirectional` say of the whole."""
    return layer(
        call,
        _MODES[call["mode"]],
        x=call["input"],
        hidden=call["hidden_size"],
        output=call["hidden_size"],
        bias=bool(call["has_biases"]),
        grad=call.base.endswith("_backward"),
    )


@on(
    "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "quantized_lstm_cell", "quantized_gru_cell", "quantized_rnn_relu_cell", "quantized_rnn_tanh_cell",
    "quantized::quantized_lstm_cell_dynamic", "quantized::quantized_gru_cell_dynamic",
    "quantized::quantized_rnn_relu_cell_dynamic", "quantized::quantized_rnn_tanh_cell_dynamic",
)  # fmt: skip
def _cell(call: Call) -> Translation:
    states = call["hx"]
    state = states[0] if isinstance(states, (list, tuple)) else states
    return layer(
        call,
        call.base.removeprefix("quantized_").removesuffix("_dynamic").removesuffix("_cell"),
        x=call["input"],
        hidden=state.shape[-1],
        output=state.shape[-1],
        bias=call.get("b_ih", "bias_ih") is not None,
    )


def _input_first(call: Call, name: str) -> tuple[Tensor, ...]:
    return call.tensors(name, *(other for other in call.args if other != name))


@on("_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward", "_thnn_fused_lstm_cell_backward_impl",
    "_thnn_differentiable_lstm_cell_backward")  # fmt: skip
def _lstm_gates(call: Call) -> Translation:
    return _gates(call, "lstm", call["cx"])


@on("_thnn_fused_gru_cell", "_thnn_fused_gru_cell_backward", "_thnn_differentiable_gru_cell_backward")
def _gru_gates(call: Call) -> Translation:
    return _gates(call, "gru", call.get("hx", "grad_hy"))


def _gates(call: Call, cell: str, state: Tensor) -> Translation:
    grad = call.base.endswith(("_backward", "_backward_impl"))
    return Translation(
        "elementwise", {"fn": f"{cell}_cell_grad" if grad else f"{cell}_cell", "elements": state.numel()}
    )
