"""Scaled dot-product attention by every kernel the dispatcher can pick, its gradients, and layers that contain it.

The whole square of queries and keys is counted unless the kernel says that it is causal, which is handed on. Sequences packed
one after another (`cum_seq_q`) are taken as equally long, since only their number is in the shapes.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from opcost.frontends.aten.call import AtenCall, Translation, means, rows
from opcost.frontends.aten.results import OUTPUTS, RESERVED, like, made, only, with_last
from opcost.frontends.aten.tensor import AtenTensor, Described, type_name

_CAUSAL_MASKS = (1, 2)
"""`custom_mask_type` of the efficient kernels: causal from the top left, or from the bottom right."""


def _attention(call: AtenCall, attrs: dict[str, Any]) -> Translation:
    """The kernels' common arguments; with a gradient of the result it is the gradient, which has five products."""
    grads = call.tensors("grad_out", "grad_out_")
    # the overrideable kernels hand an empty tensor to their gradient where there was no mask
    masks = [mask for mask in call.tensors("attn_mask", "attn_bias", "bias") if mask.numel()]
    ins = (grads, call.tensors("query", "key", "value"), masks)
    return means("attention", ins, grad=True if grads else None, products=5 if grads else None, **attrs)


def _causal(call: AtenCall) -> dict[str, Any]:
    return {"causal": True} if call["is_causal"] else {}


def heads_last(call: AtenCall) -> dict[str, Any]:
    """The kernels below the public function take (batch, length, heads, features), or packed (length, heads, features)."""
    attrs: dict[str, Any] = {"heads_last": True}
    starts = call.get("cum_seq_q", "cu_seq_q", "cu_seqlens_q")
    if starts is not None and starts.numel() > 1:
        attrs["sequences"] = starts.numel() - 1
    if call.get("is_causal", "causal") or call.get("custom_mask_type") in _CAUSAL_MASKS:
        attrs["causal"] = True
    return attrs


def _layer(query: AtenTensor, key: AtenTensor, embed_dim: int, more: int = 0) -> Translation:
    """A whole attention layer as one product, with the MACs of all its parts and `more`.

    The parts are projections of query, key and value, the two attention products, and the output projection.
    """
    batch, length, features = query.shape
    source = key.shape[1]
    projections = (length + 2 * source) * features * embed_dim + length * embed_dim * embed_dim
    macs = int(batch * (projections + 2 * length * source * embed_dim)) + more
    return means("matmul", depth=embed_dim, macs=macs, bias=True)


rows(
    {
        "scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps "
        "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
        "_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_flash_attention_backward "
        "_scaled_dot_product_flash_attention_for_cpu_backward "
        "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward "
        "_scaled_dot_product_fused_attention_overrideable_backward": lambda call: _attention(call, _causal(call)),
        "_flash_attention_forward _flash_attention_forward_no_dropout_inplace _efficient_attention_forward "
        "_flash_attention_backward _efficient_attention_backward torch_attn::_varlen_attn torch_attn::_varlen_attn_out "
        "torch_attn::_varlen_attn_backward": lambda call: _attention(call, heads_last(call)),
        "_cudnn_attention_forward":
            lambda call, cum_seq_q: _attention(call, _causal(call) if cum_seq_q is None else heads_last(call)),
        "_cudnn_attention_backward":
            lambda call, cum_seq_q: _attention(call, heads_last(call) if cum_seq_q.numel() else _causal(call)),
        "_native_multi_head_attention _triton_multi_head_attention": _layer,
        # a whole encoder layer: attention layer and both products of the feed-forward part
        "_transformer_encoder_layer_fwd": lambda src, ffn_weight_1, embed_dim: _layer(
            src, src, embed_dim, more=2 * src.numel() * ffn_weight_1.shape[0],
        ),
        # it has three results, so it is not among the operators of a fixed meaning, which make one like their input
        "_transform_bias_rescale_qkv": lambda: means("elementwise", fn="addcmul"),
    }
)  # fmt: skip


# -- recurrent layers and cells. Sizes come from the input and the states, so packed weights need not be opened
#
# The fused cells get their gates ready-made: their matrix products are operators of their own, so they are elementwise here.

MOST_LAYERS = 4096  # A file may state any number; each layer is written out

_MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")  # The `mode` number of the cuDNN, MIOpen and oneDNN operators


def _layers(
    call: AtenCall, cell: str, x: AtenTensor, hidden: int, output: int, *, bias: bool, layers: int = 1,
    bidirectional: Any = False,
) -> Translation:  # fmt: skip
    """A stack of layers over all steps of `x`, whose last extent is the input size; the input comes first."""
    if layers > MOST_LAYERS:
        raise ValueError(f"a stack of {layers} layers")
    directions = 2 if bidirectional else 1
    sizes = tuple(
        (x.shape[-1] if depth == 0 else output * directions, hidden, output)
        for depth in range(layers)
        for _ in range(directions)
    )
    ins, grad = None, call.base.endswith("_backward")
    if call.base == "lstm_mps_backward":
        ins = call.tensors("input", *(name for name in call.args if name != "input"))
    steps = prod(x.shape[:-1])
    return means("recurrent", ins, cell=cell, steps=steps, layers=sizes, bias=bias or None, grad=grad or None)


def _stack(call: AtenCall, hx: Any, num_layers: int, has_biases: Any, bidirectional: Any) -> Translation:
    hidden_state, *cell_state = hx if isinstance(hx, (list, tuple)) else (hx,)
    output = hidden_state.shape[-1]
    return _layers(
        call, call.base.removeprefix("quantized_").removeprefix("_").partition("_mps")[0], call.get("input", "data"),
        cell_state[0].shape[-1] if cell_state else output, output,
        bias=bool(has_biases), layers=num_layers, bidirectional=bidirectional,
    )  # fmt: skip


def _device_stack(call: AtenCall, input: AtenTensor, hidden_size: int, mode: int, proj_size: int = 0) -> Translation:
    """With a bias every layer and direction has four tensors, five with a projection; the stride tells."""
    return _layers(
        call, _MODES[mode], input, hidden_size, proj_size or hidden_size,
        bias=call["weight_stride0"] >= 4, layers=call["num_layers"], bidirectional=call["bidirectional"],
    )  # fmt: skip


def _cell(call: AtenCall, input: AtenTensor, hx: Any) -> Translation:
    width = (hx[0] if isinstance(hx, (list, tuple)) else hx).shape[-1]
    cell = call.base.removeprefix("quantized_").removesuffix("_dynamic").removesuffix("_cell")
    return _layers(call, cell, input, width, width, bias=call.get("b_ih", "bias_ih") is not None)


def _gates(call: AtenCall, cell: str, state: AtenTensor) -> Translation:
    grad = "_grad" if call.base.endswith(("_backward", "_backward_impl")) else ""
    return means("elementwise", fn=f"{cell}_cell{grad}", elements=state.numel())


rows(
    {
        "lstm gru rnn_tanh rnn_relu quantized_lstm quantized_gru _lstm_mps lstm_mps_backward": _stack,
        "_cudnn_rnn _cudnn_rnn_backward miopen_rnn miopen_rnn_backward": _device_stack,
        # one layer in one direction, whatever `num_layers` and `bidirectional` say of the whole
        "mkldnn_rnn_layer mkldnn_rnn_layer_backward": lambda call, input, hidden_size, mode, has_biases: _layers(
            call, _MODES[mode], input, hidden_size, hidden_size, bias=bool(has_biases),
        ),
        "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell quantized_lstm_cell quantized_gru_cell quantized_rnn_relu_cell "
        "quantized_rnn_tanh_cell quantized::quantized_lstm_cell_dynamic quantized::quantized_gru_cell_dynamic "
        "quantized::quantized_rnn_relu_cell_dynamic quantized::quantized_rnn_tanh_cell_dynamic": _cell,
        "_thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward _thnn_fused_lstm_cell_backward_impl "
        "_thnn_differentiable_lstm_cell_backward": lambda call, cx: _gates(call, "lstm", cx),
        "_thnn_fused_gru_cell _thnn_fused_gru_cell_backward _thnn_differentiable_gru_cell_backward":
            lambda call: _gates(call, "gru", call.get("hx", "grad_hy")),
    }
)  # fmt: skip


# -- results: the values, and what each kernel keeps for its gradient


def _flash(query: AtenTensor, sums: tuple[int, ...], return_debug_mask: Any) -> tuple[Described | AtenTensor, ...]:
    """Logarithms of the sums, the state of the random numbers, and two tensors without elements."""
    if return_debug_mask:
        raise ValueError("the mask for debugging has a size of the kernel's choice")
    return made(sums, "float32"), made((2,), "uint64"), made((), "uint64"), made((0,), query)


def _other_kernel(
    query: AtenTensor, value: AtenTensor, sums: tuple[int, ...], packed: Any = None
) -> tuple[Described | AtenTensor, ...]:
    """Values, logarithms of the sums, and two numbers that are the state of the random numbers."""
    if packed is not None:  # padded as their longest needs it, which is unknown
        raise ValueError("sequences are packed")
    return with_last(query, value.shape[-1]), made(sums, "float32"), made((), "int64"), made((), "int64")


def _blocks(length: int, compute_log_sumexp: Any) -> int:
    """The efficient kernel keeps the logarithms of its sums for blocks of 32 rows."""
    return -(-length // 32) * 32 if compute_log_sumexp else 0


def _cudnn(
    query: AtenTensor, value: AtenTensor, return_debug_mask: Any, cum_seq_q: AtenTensor | None = None
) -> tuple[Described | AtenTensor, ...]:
    if return_debug_mask and cum_seq_q is None:
        raise ValueError("the mask for debugging has a size of the kernel's choice")
    batch, heads, length, _ = query.shape
    return _other_kernel(query, value, (batch, heads, length, 1), cum_seq_q)


def _recurrent(x: AtenTensor, states: Sequence[AtenTensor | None], bidirectional: Any) -> list[Described]:
    """What every step gives out, and the last states."""
    width = states[0].shape[-1] * (2 if bidirectional else 1)  # type: ignore[union-attr]
    return [with_last(x, width), *(made((0,), x) if state is None else like(state) for state in states)]


OUTPUTS.rows(
    {
        "scaled_dot_product_attention": lambda query, value: with_last(query, value.shape[-1]),
        "_scaled_dot_product_flash_attention_for_cpu": lambda query, value: (
            with_last(query, value.shape[-1]),
            made(query.shape[:-1], "float64" if type_name(query) == "float64" else "float32"),
        ),
        "_scaled_dot_product_flash_attention": lambda query, value, return_debug_mask:
            (with_last(query, value.shape[-1]), *_flash(query, query.shape[:-1], return_debug_mask)),
        # heads behind the length; packed sequences keep their sums by head
        "_flash_attention_forward": lambda query, return_debug_mask: (
            like(query), *_flash(query, (*query.shape[:-3], query.shape[-2], query.shape[-3]), return_debug_mask),
        ),
        "_scaled_dot_product_efficient_attention": lambda query, value, compute_log_sumexp: _other_kernel(
            query, value, (*query.shape[:2], _blocks(query.shape[2], compute_log_sumexp)),
        ),
        "_efficient_attention_forward": lambda query, value, compute_log_sumexp, cu_seqlens_q: _other_kernel(
            query, value, (query.shape[0], query.shape[2], _blocks(query.shape[1], compute_log_sumexp)), cu_seqlens_q,
        ),
        "_scaled_dot_product_cudnn_attention _cudnn_attention_forward": _cudnn,
        # the gradient of the mask too, where it is requested
        "_scaled_dot_product_efficient_attention_backward": lambda query, key, value, attn_bias, grad_input_mask:
            [like(x) for x in only((query, key, value, attn_bias), grad_input_mask)],
        "lstm gru rnn_tanh rnn_relu": lambda call, hx, bidirectional: _recurrent(
            call.get("input", "data"), tuple(hx) if isinstance(hx, list) else (hx,), bidirectional,
        ),
        "_cudnn_rnn":
            lambda input, hx, cx, bidirectional: [*_recurrent(input, (hx, cx), bidirectional), made(*RESERVED)],
        "mkldnn_rnn_layer": lambda input, hx_, cx_, hidden_size:
            (with_last(input, hidden_size), like(hx_), like(cx_), made(*RESERVED)),
        "lstm_cell": lambda hx: [like(state) for state in hx],
        "_thnn_fused_gru_cell": lambda hx: (like(hx), made((hx.shape[0], 5 * hx.shape[1]), hx)),
    }
)  # fmt: skip
