"""Operators that well-known libraries register: general ones, and fused operators of vLLM, SGLang, aiter and flash-attn."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.aten.attention import heads_last
from opcost.frontends.aten.call import Call, Described, NotKnown, Tensor, Translation, on, type_name
from opcost.frontends.aten.contraction import product
from opcost.frontends.aten.outputs.table import like, made
from opcost.frontends.aten.outputs.table import on as makes


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


# -- fused operators of vLLM, SGLang, aiter and flash-attn, as far as their shapes tell what they do
#
# Not those whose work depends on data: attention over pages of a cache, whose lengths stand in no shape, and a layer of experts
# that is called by its name alone. For traces `library_schemas.txt` has the arguments that come first in all versions.

# -- norms and gates --------------------------------------------------------------------------------------------------


@on("_C::rms_norm", "sgl_kernel::rmsnorm", "aiter::rmsnorm", "aiter::rmsnorm2d_fwd_ck")
def _rms_norm(call: Call) -> Translation:
    return Translation("norm", {"fn": "rms", "affine": 1}, call.tensors("input", "weight"), _written(call))


@on(
    "_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", "aiter::add_rmsnorm", "aiter::rmsnorm2d_fwd_with_add",
    "aiter::rmsnorm2d_fwd_with_add_ck",
)  # fmt: skip
def _add_rms_norm(call: Call) -> Translation:
    """The residual is added before, one FLOP for each element as a bias would be, and the sum is kept."""
    ins = call.tensors("input", "weight", "residual", "residual_in")
    outs = _written(call) or call.tensors("input")
    return Translation("norm", {"fn": "rms", "affine": 2}, ins, (*outs, *call.tensors("residual", "residual_out")))


@on("aiter::_groupnorm_run")
def _group_norm(call: Call) -> Translation:
    return Translation("norm", {"fn": "group", "affine": 2}, call.tensors("input", "weight", "bias"))


_GATES = {"silu_and_mul": "swiglu", "gelu_and_mul": "geglu", "gelu_tanh_and_mul": "geglu_tanh"}


@on(*(f"{library}::{name}" for library in ("_C", "sgl_kernel") for name in _GATES), "aiter::silu_and_mul")
def _gate(call: Call) -> Translation:
    return Translation("elementwise", {"fn": _GATES[call.base]}, call.tensors("input"), _written(call))


@on("_C::rotary_embedding", "sgl_kernel::rotary_embedding")
def _rotary(call: Call) -> Translation:
    """Of each head the part that the table of sines and cosines is made for is rotated, in place."""
    turned = call.tensors("query", "key")
    part, head = call["cos_sin_cache"].shape[-1], call["head_size"]
    elements = sum(each.numel() for each in turned) * part // head
    return Translation("elementwise", {"fn": "rotary", "elements": elements}, (*turned, call["positions"]), turned)


# -- moves, fewer bits and products -----------------------------------------------------------------------------------


@on("_C_cache_ops::reshape_and_cache", "_C_cache_ops::reshape_and_cache_flash", "sglang::store_cache")
def _store(call: Call) -> Translation:
    """The keys and values of new tokens are put into their places; of the cache nothing else is touched."""
    new = call.tensors("key", "value")
    stored = tuple(
        like(x, type_name(cache)) for x, cache in zip(new, call.tensors("key_cache", "value_cache"), strict=True)
    )
    return Translation("copy", {}, new, stored)


@on(
    "_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant", "_C::dynamic_per_token_scaled_fp8_quant",
    "_C::static_scaled_int8_quant", "_C::dynamic_scaled_int8_quant",
)  # fmt: skip
def _quantize(call: Call) -> Translation:
    return Translation("quantize", {}, call.tensors("input"), _written(call))


@on("_C::cutlass_scaled_mm", "sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm")
def _scaled_product(call: Call) -> Translation:
    attrs: dict[str, Attr] = {"depth": call.get("a", "mat_a").shape[-1]}
    if call.get("bias") is not None:
        attrs["bias"] = True
    names = ("a", "mat_a", "b", "mat_b", "bias", "a_scales", "scales_a", "b_scales", "scales_b")
    return Translation("matmul", attrs, call.tensors(*names), _written(call) or None)


@makes("fp8_scaled_mm", "int8_scaled_mm")
def _product_made(call: Call) -> tuple[Described, ...]:
    return (made((call["mat_a"].shape[0], call["mat_b"].shape[-1]), call["out_dtype"]),)


@on(*(f"{library}::{way}place_fused_experts" for library in ("vllm", "sglang") for way in ("in", "out")))
def _experts(call: Call) -> Translation:
    """Every token meets both matrices of each of its experts; no more experts are read than there are tokens for them."""
    hidden, up, down, chosen = (call[name] for name in ("hidden_states", "w1", "w2", "topk_ids"))
    if up.shape[-1] != hidden.shape[-1] or down.shape[-2] != hidden.shape[-1]:
        raise NotKnown("how weights are packed")
    count = up.shape[0]
    macs = chosen.numel() * (up.numel() + down.numel()) // count
    read = [made((min(count, chosen.numel()), *weight.shape[1:]), type_name(weight)) for weight in (up, down)]
    return Translation("matmul", {"macs": macs}, (hidden, *read), (like(hidden),))


@makes("outplace_fused_experts")
def _experts_made(call: Call) -> tuple[Described, ...]:
    return (like(call["hidden_states"]),)


# -- attention --------------------------------------------------------------------------------------------------------


@on("aiter::mha_fwd", "aiter::fmha_v3_fwd")
def _attention(call: Call) -> Translation:
    return Translation("attention", heads_last(call), call.tensors("q", "k", "v"))


@on("aiter::mha_batch_prefill")
def _prefill(call: Call) -> Translation:
    """Keys lie in pages of a cache. Where all queries together are as many as the longest sequence lets be, all are that long."""
    q, count = call["q"], call["cu_seqlens_q"].numel() - 1
    if count < 1 or q.shape[0] != count * call["max_seqlen_q"]:
        raise NotKnown("how long the sequences are")
    read = [made((count * call["max_seqlen_k"], *x.shape[-2:]), type_name(x)) for x in call.tensors("k", "v")]
    return Translation("attention", heads_last(call), (q, *read))


@makes("mha_fwd", "fmha_v3_fwd", "mha_batch_prefill", "_flash_attn_forward", "_flash_attn_varlen_forward")
def _attended(call: Call) -> tuple[Described, ...]:
    return (like(call["q"]),)


@makes("_groupnorm_run", "one_shot_all_reduce")
def _same(call: Call) -> tuple[Described, ...]:
    return (like(call["input"]),)


def _written(call: Call) -> tuple[Tensor, ...]:
    """Where the results are put; versions call it otherwise."""
    return call.tensors("out", "result", "output")[:1]
