"""Operators that well-known libraries register beside PyTorch's own."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.aten.attention import heads_last
from opcost.frontends.aten.call import Call, Translation, on
from opcost.frontends.aten.contraction import product


@on("transformers::grouped_mm_fallback")
def _grouped_mm(call: Call) -> Translation:
    """Each row meets the matrix of its own group."""
    return product(call, "input", "weight")


@on("torch_nn::_linear_cross_entropy_batch_chunked")
def _linear_cross_entropy(call: Call) -> Translation:
    """The logits are one product; the gradients asked for are worked out in the same pass."""
    return _logits(call, 1 + bool(call["compute_input_grad"]) + bool(call["compute_linear_weight_grad"]))


@on("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def _linear_cross_entropy_each(call: Call) -> Translation:
    return _logits(call, 1)


def _logits(call: Call, products: int) -> Translation:
    features = call["input"].shape[-1]
    macs = products * call["input"].numel() * call["linear_weight"].shape[0]
    return Translation("matmul", {"depth": features, "macs": macs})


@on("symm_mem::fused_all_gather_matmul", "symm_mem::fused_all_gather_scaled_matmul")
def _gathered_matmul(call: Call) -> Translation:
    """Rows are gathered from all ranks, then multiplied with each of several matrices."""
    macs = sum(out.numel() * b.shape[0] for out, b in zip(call.outs[-len(call["Bs"]) :], call["Bs"], strict=True))
    return Translation("matmul", {"depth": call["A"].shape[-1], "macs": macs})


@on("symm_mem::fused_matmul_reduce_scatter", "symm_mem::fused_scaled_matmul_reduce_scatter")
def _scattered_matmul(call: Call) -> Translation:
    """The whole product is worked out here, its sum over the ranks is left in parts."""
    a, b = call["A"], call["B"]
    return product(call, "A", "B", macs=a.numel() * b.shape[-1])


@on("flash_attn::_flash_attn_forward", "flash_attn::_flash_attn_varlen_forward")
def _flash(call: Call) -> Translation:
    return Translation("attention", heads_last(call), call.tensors("q", "k", "v"))


@on("flash_attn::_flash_attn_backward", "flash_attn::_flash_attn_varlen_backward")
def _flash_backward(call: Call) -> Translation:
    attrs: dict[str, Attr] = {"grad": True, "products": 5, **heads_last(call)}
    outs = call.tensors("dq", "dk", "dv") or None
    return Translation("attention", attrs, call.tensors("dout", "q", "k", "v"), outs)


@on("fsdp::all_gather_copy_in")
def _gather_copy_in(call: Call) -> Translation:
    """The shards of this rank are put into their place in the memory that the gathered ones will fill."""
    shards = call.tensors("all_gather_inputs")
    attrs: dict[str, Attr] = {"fn": "copy", "overwrites": True, "elements": sum(shard.numel() for shard in shards)}
    return Translation("scatter", attrs, (call["all_gather_output"], *shards))


@on("fsdp::split_with_sizes_copy", "fsdp::chunk_cat")
def _gather_copy_out(call: Call) -> Translation:
    return Translation("copy", {}, call.tensors("all_gather_output", "tensors"), call.tensors("out"))
