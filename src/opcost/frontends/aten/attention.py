"""Scaled dot-product attention by every kernel the dispatcher can pick, its gradients, and layers that contain it.

The whole square of queries and keys is counted unless the kernel says that it is causal, which is handed on; a sparse
block mask (`flex_attention`) is in data and is not seen. Sequences packed one after another (`cum_seq_q`) are taken
as equally long, since only their number is in the shapes.
"""

from __future__ import annotations

from math import prod
from typing import Any

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Tensor, Translation, means, on

_CAUSAL_MASKS = (1, 2)
"""`custom_mask_type` of the efficient kernels: causal from the top left, or from the bottom right."""


@on(
    "scaled_dot_product_attention", "_scaled_dot_product_attention_math", "_scaled_dot_product_attention_math_for_mps",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)  # fmt: skip
def _forward(call: Call) -> Translation:
    return Translation("attention", _causal(call), (*call.tensors("query", "key", "value"), *_mask(call)))


@on(
    "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_fused_attention_overrideable_backward",
)  # fmt: skip
def _backward(call: Call) -> Translation:
    attrs: dict[str, Attr] = {"grad": True, "products": 5, **_causal(call)}
    return Translation(
        "attention", attrs, (*call.tensors("grad_out", "grad_out_", "query", "key", "value"), *_mask(call))
    )


def _causal(call: Call) -> dict[str, Attr]:
    return {"causal": True} if call["is_causal"] else {}


def _mask(call: Call) -> tuple[Tensor, ...]:
    # the overrideable kernels hand an empty tensor to their gradient where there was no mask
    return tuple(mask for mask in call.tensors("attn_mask", "attn_bias", "bias") if mask.numel())


@on(
    "_flash_attention_forward", "_flash_attention_forward_no_dropout_inplace", "_efficient_attention_forward",
    "torch_attn::_varlen_attn", "torch_attn::_varlen_attn_out",
)  # fmt: skip
def _below(call: Call) -> Translation:
    return Translation("attention", heads_last(call), (*call.tensors("query", "key", "value"), *_mask(call)))


@on("_flash_attention_backward", "_efficient_attention_backward", "torch_attn::_varlen_attn_backward")
def _below_backward(call: Call) -> Translation:
    attrs: dict[str, Attr] = {"grad": True, "products": 5, **heads_last(call)}
    return Translation(
        "attention", attrs, (*call.tensors("grad_out", "grad_out_", "query", "key", "value"), *_mask(call))
    )


@on("_cudnn_attention_forward")
def _cudnn(call: Call) -> Translation:
    packed = call.get("cum_seq_q") is not None
    return Translation(
        "attention",
        heads_last(call) if packed else _causal(call),
        (*call.tensors("query", "key", "value"), *_mask(call)),
    )


@on("_cudnn_attention_backward")
def _cudnn_backward(call: Call) -> Translation:
    packed = call["cum_seq_q"].numel() > 0
    layout = heads_last(call) if packed else _causal(call)
    return Translation(
        "attention",
        {"grad": True, "products": 5, **layout},
        (*call.tensors("grad_out", "query", "key", "value"), *_mask(call)),
    )


def heads_last(call: Call) -> dict[str, Any]:
    """The kernels below the public function take (batch, length, heads, features), or packed (length, heads, features)."""
    attrs: dict[str, Attr] = {"heads_last": True}
    starts = call.get("cum_seq_q", "cu_seq_q", "cu_seqlens_q")
    if starts is not None and starts.numel() > 1:
        attrs["sequences"] = starts.numel() - 1
    if call.get("is_causal", "causal") or call.get("custom_mask_type") in _CAUSAL_MASKS:
        attrs["causal"] = True
    return attrs


def _layer_macs(query: Tensor, key: Tensor, embed_dim: int) -> int:
    """Projections of query, key and value, the two attention products, and the output projection."""
    batch, length, features = query.shape
    source = key.shape[1]
    projections = (length + 2 * source) * features * embed_dim + length * embed_dim * embed_dim
    return int(batch * (projections + 2 * length * source * embed_dim))


@on("_native_multi_head_attention", "_triton_multi_head_attention")
def _multi_head(call: Call) -> Translation:
    """A whole attention layer: one product in our eyes, with the MACs of all its parts."""
    macs = _layer_macs(call["query"], call["key"], call["embed_dim"])
    return Translation("matmul", {"depth": call["embed_dim"], "macs": macs, "bias": True})


@on("_transformer_encoder_layer_fwd")
def _encoder_layer(call: Call) -> Translation:
    """A whole encoder layer: attention layer and both products of the feed-forward part."""
    source: Tensor = call["src"]
    hidden = call["ffn_weight_1"].shape[0]
    macs = _layer_macs(source, source, call["embed_dim"]) + 2 * source.numel() * hidden
    return Translation("matmul", {"depth": call["embed_dim"], "macs": macs, "bias": True})


# It has three results, so it is not among the operators of a fixed meaning, which make one like their input
on("_transform_bias_rescale_qkv")(lambda call: Translation("elementwise", {"fn": "addcmul"}))


# -- recurrent layers and cells. Sizes come from the input and the states, so packed weights need not be opened
#
# The fused cells get their gates ready-made: their matrix products are operators of their own, so they are elementwise here.

MOST_LAYERS = 4096  # A file may state any number; each layer is written out

_MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")  # The `mode` number of the cuDNN, MIOpen and oneDNN operators


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
    steps = prod(x.shape[:-1])
    return means("recurrent", ins, cell=cell, steps=steps, layers=sizes, bias=bias or None, grad=grad or None)


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
        call, "lstm", x=call["input"], hidden=cell_state.shape[-1], output=hidden_state.shape[-1],
        layers=call["num_layers"], directions=2 if call["bidirectional"] else 1, bias=bool(call["has_biases"]),
        ins=_input_first(call, "input"), grad=True,
    )  # fmt: skip


@on("_cudnn_rnn", "_cudnn_rnn_backward", "miopen_rnn", "miopen_rnn_backward")
def _device_stack(call: Call) -> Translation:
    """With a bias every layer and direction has four tensors, five with a projection; the stride tells."""
    hidden = call["hidden_size"]
    projected = call.get("proj_size") or 0
    return layer(
        call, _MODES[call["mode"]], x=call["input"], hidden=hidden, output=projected or hidden,
        layers=call["num_layers"], directions=2 if call["bidirectional"] else 1, bias=call["weight_stride0"] >= 4,
        grad=call.base.endswith("_backward"),
    )  # fmt: skip


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
