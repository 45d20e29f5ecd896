"""Scaled dot-product attention by every kernel the dispatcher can pick, its gradients, and layers that contain it.

The whole square of queries and keys is counted unless the kernel says that it is causal, which is handed on; a sparse
block mask (`flex_attention`) lies in data and is not seen. Sequences packed one after another (`cum_seq_q`) are taken
as equally long, since only their number stands in the shapes.
"""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, on
from opcost.frontends.aten.tensor import Tensor

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


def heads_last(call: Call) -> dict[str, Attr]:
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


@on("_transform_bias_rescale_qkv")
def _bias_rescale(call: Call) -> Translation:
    """It has three results, so it does not stand among the operators of a fixed meaning, which make one like their input."""
    return Translation("elementwise", {"fn": "addcmul"})
