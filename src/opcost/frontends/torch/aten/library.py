"""Operators that well-known libraries register beside PyTorch's own."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.torch.aten.call import Call, Translation, on
from opcost.frontends.torch.aten.contraction import product


@on("transformers::grouped_mm_fallback")
def _grouped_mm(call: Call) -> Translation:
    """Each row meets the matrix of its own group."""
    return product(call, "input", "weight")


@on("torch_nn::_linear_cross_entropy_batch_chunked", "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def _linear_cross_entropy(call: Call) -> Translation:
    """The logits are one product; where a scalar is asked for, both gradients are worked out in the same pass."""
    in_this_pass = not call.base.endswith("_no_reduction")
    gradients = bool(call["compute_input_grad"]) + bool(call["compute_linear_weight_grad"]) if in_this_pass else 0
    return _logits(call, 1 + gradients)


@on("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction_backward")
def _linear_cross_entropy_backward(call: Call) -> Translation:
    """The logits are worked out again, then the gradients."""
    return _logits(call, 1 + bool(call["compute_input_grad"]) + bool(call["compute_linear_weight_grad"]))


def _logits(call: Call, products: int) -> Translation:
    features = call["input"].shape[-1]
    macs = products * call["input"].numel() * call["linear_weight"].shape[0]
    return Translation("matmul", {"depth": features, "macs": macs})


@on("flash_attn::_flash_attn_forward", "flash_attn::_flash_attn_varlen_forward")
def _flash(call: Call) -> Translation:
    return Translation("attention", _packing(call), call.tensors("q", "k", "v"))


@on("flash_attn::_flash_attn_backward", "flash_attn::_flash_attn_varlen_backward")
def _flash_backward(call: Call) -> Translation:
    attrs: dict[str, Attr] = {"grad": True, "products": 5, **_packing(call)}
    outs = call.tensors("dq", "dk", "dv") or None
    return Translation("attention", attrs, call.tensors("dout", "q", "k", "v"), outs)


def _packing(call: Call) -> dict[str, Attr]:
    attrs: dict[str, Attr] = {"heads_last": True}
    starts = call.get("cu_seqlens_q")
    if starts is not None:
        attrs["sequences"] = starts.numel() - 1
    if call["causal"]:
        attrs["causal"] = True
    return attrs
