"""Quantized operators, whose weights are packed in objects that torch can open, and operators that other libraries register."""

from __future__ import annotations

from math import prod
from typing import Any

from opcost.core.graph import Attr
from opcost.frontends.aten.attention import heads_last
from opcost.frontends.aten.call import Call, Described, NotKnown, Tensor, Translation, means, on, type_name
from opcost.frontends.aten.contraction import conv, product
from opcost.frontends.aten.outputs.table import like, made
from opcost.frontends.aten.outputs.table import on as makes


@on(
    "fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "_fused_moving_avg_obs_fq_helper", "_fused_moving_avg_obs_fq_helper_functional",
)  # fmt: skip
def _with_mask(call: Call) -> Translation:
    """The second output is the mask for the gradient, which falls off on the way."""
    return Translation("elementwise", {"fn": "fake_quantize", "elements": call.get("self").numel()})


@on(
    "_fake_quantize_learnable_per_tensor_affine_backward",
    "_fake_quantize_learnable_per_channel_affine_backward",
)
def _learnable_backward(call: Call) -> Translation:
    """Besides the input's gradient those of scale and zero point are summed up."""
    return Translation("elementwise", {"fn": "fake_quantize_grad", "elements": 3 * call["self"].numel()})


# -- packed weights ---------------------------------------------------------------------------------------------------


def _packed(call: Call) -> Any:
    return call.get("W_prepack", "packed_weight", "weight")


_LINEAR = (
    "linear", "linear_relu", "linear_leaky_relu", "linear_tanh", "linear_dynamic", "linear_relu_dynamic",
    "linear_dynamic_fp16", "linear_relu_dynamic_fp16", "linear_with_input_q_dq_qweight_dq_output_fp32",
    "linear_with_input_q_dq_qweight_dq_relu_output_fp32",
)  # fmt: skip


@on(
    *(f"quantized::{name}" for name in _LINEAR), "_quantized::linear", "_quantized::linear_dynamic",
    "sparse::qlinear", "sparse::qlinear_relu", "sparse::qlinear_dynamic", "sparse::qlinear_relu_dynamic",
)  # fmt: skip
def _linear(call: Call) -> Translation:
    """The input's last extent is the depth, whatever the package has."""
    depth = call["X"].shape[-1]
    return means("matmul", depth=depth, then=_then(call.base) or None, bias=has_bias(_packed(call)) or None)


def _then(base: str) -> tuple[str, ...]:
    """What the name of a fused operator says: `conv2d_add_relu`."""
    words = base.replace("leaky_relu", "leakyrelu").split("_")
    return tuple(_WORDS[word] for word in words if word in _WORDS)


_WORDS = {"add": "add", "relu": "relu", "leakyrelu": "leaky_relu", "tanh": "tanh"}


def has_bias(packed: Any) -> bool:
    """Whether a package holds a bias; one that cannot be opened is taken to."""
    bias = getattr(packed, "bias", None)
    try:
        return bias() is not None if callable(bias) else bool(packed.unpack()[1] is not None)
    except (RuntimeError, AttributeError, NotImplementedError):
        return True


@on("_quantized::_wrapped_quantized_linear_prepacked", "_wrapped_quantized_linear_prepacked")
def _wrapped_prepacked(call: Call) -> Translation:
    x = call.get("X", "input")
    return Translation("matmul", {"depth": x.shape[-1], "bias": True})


@on(
    "quantized::conv1d", "quantized::conv1d_relu", "quantized::conv1d_dynamic",
    "quantized::conv2d", "quantized::conv2d_relu", "quantized::conv2d_dynamic",
    "quantized::conv2d_add", "quantized::conv2d_add_relu",
    "quantized::conv3d", "quantized::conv3d_relu", "quantized::conv3d_dynamic",
    "_quantized::conv2d", "_quantized::conv2d_relu", "_quantized::conv3d", "_quantized::conv3d_relu",
)  # fmt: skip
def _conv(call: Call) -> Translation:
    return _packed_conv(call, transposed=False)


@on(
    "quantized::conv_transpose1d", "quantized::conv_transpose2d", "quantized::conv_transpose3d",
    "quantized::conv_transpose1d_dynamic", "quantized::conv_transpose2d_dynamic", "quantized::conv_transpose3d_dynamic",
    "_quantized::conv_transpose1d", "_quantized::conv_transpose2d",
)  # fmt: skip
def _conv_transpose(call: Call) -> Translation:
    return _packed_conv(call, transposed=True)


def _packed_conv(call: Call, *, transposed: bool) -> Translation:
    """The weight is in the package, so no input has its shape."""
    weight, bias = _packed(call).unpack()
    side = call["qx"] if transposed else call.outs[0]
    depth = prod(weight.shape[1:])
    return means(
        "conv",
        macs=side.numel() * depth,
        then=_then(call.base) or None,
        transposed=transposed or None,
        bias=None if bias is None else True,
    )


# -- oneDNN -----------------------------------------------------------------------------------------------------------


def _fused(call: Call) -> tuple[str, ...]:
    """The elementwise functions that a oneDNN operator applies to its result, by their names among its arguments."""
    names = (call.args.get(key) for key in _POST_OPS)
    return tuple(_SPELLINGS.get(name, name) for name in names if name and name != "none")


_POST_OPS = ("binary_attr", "binary_post_op", "attr", "unary_attr", "post_op_name", "unary_post_op")
_SPELLINGS = {"swish": "silu", "sum": "add"}


def _with_operand(call: Call, found: Translation) -> Translation:
    """The second operand of a fused addition or multiplication is read too."""
    return found._replace(ins=(*(found.ins or ()), *call.tensors("other", "qaccum")))


on("onednn::qlinear_pointwise")(lambda call: _with_operand(call, product(call, "qx", "qw", "bias", then=_fused(call))))


@on("onednn::linear_dynamic_fp16", "onednn::linear_relu_dynamic_fp16")
def _onednn_fp16(call: Call) -> Translation:
    return product(call, "x", "w", "bias", then=_then(call.base))


on("mkldnn::_linear_pointwise")(lambda call: _with_operand(call, product(call, "X", "W", "B", then=_fused(call))))


@on(
    "onednn::qconv_pointwise", "onednn::qconv1d_pointwise", "onednn::qconv2d_pointwise", "onednn::qconv3d_pointwise",
    "mkldnn::_convolution_pointwise",
)  # fmt: skip
def _onednn_conv(call: Call) -> Translation:
    return _with_operand(call, conv(call, then=_fused(call)))


on("mkldnn::_convolution_transpose_pointwise")(lambda call: conv(call, transposed=True, then=_fused(call)))


@on(*(f"quantized::batch_norm{axes}{suffix}" for axes in ("", "1d", "2d", "3d") for suffix in ("", "_relu")))
def _batch_norm(call: Call) -> Translation:
    return Translation("norm", {"fn": "batch", "training": False, "affine": len(call.tensors("weight", "bias"))})


@on("quantized::layer_norm", "quantized::group_norm", "quantized::instance_norm")
def _norm(call: Call) -> Translation:
    fn = call.base.removesuffix("_norm")
    return Translation("norm", {"fn": fn, "affine": len(call.tensors("weight", "bias"))})


@on("quantized::embedding_byte", "quantized::embedding_4bit")
def _embedding(call: Call) -> Translation:
    """The table is in a package; each element looked up is scaled and shifted."""
    return Translation("elementwise", {"fn": "fma"}, call.tensors("indices"))


@on("quantized::embedding_bag_byte", "quantized::embedding_bag_4bit")
def _embedding_bag(call: Call) -> Translation:
    """Scaled, shifted, and added to its bag."""
    elements = call["indices"].numel() * call.outs[0].shape[-1]
    return Translation("elementwise", {"fn": "addcmul", "elements": elements})


# -- layers of few bits by other libraries: bitsandbytes and torchao. Their products are those of the dequantized layer

# -- bitsandbytes -----------------------------------------------------------------------------------------------------


@on("bitsandbytes::gemm_4bit", "bitsandbytes::gemv_4bit")
def _product_4bit(call: Call) -> Translation:
    """The weight is packed, whatever its own shape; its scales are read as well, and may have scales themselves."""
    ins = call.tensors("A", "B", "bias", "absmax", "code", "absmax_8bit", "absmax_code", "absmax_offset")
    return means("matmul", ins, depth=call["A"].shape[-1], bias=call.get("bias") is not None or None)


on("bitsandbytes::int8_linear_matmul")(lambda call: product(call, "A", "B"))


@on("bitsandbytes::int8_scaled_mm")
def _scaled_8bit(call: Call) -> Translation:
    found = product(call, "A", "B", "bias")
    return found._replace(ins=(*(found.ins or ()), *call.tensors("row_stats", "col_stats")))


@on("bitsandbytes::int8_mixed_scaled_mm")
def _mixed_8bit(call: Call) -> Translation:
    """What the outliers of the input, whose number depends on data, add in a product of their own is not counted."""
    found = product(call, "CA", "CB", "bias")
    return found._replace(ins=(*(found.ins or ()), *call.tensors("SCA", "SCB")))


@on("bitsandbytes::quantize_4bit", "bitsandbytes::quantize_blockwise")
def _quantize_4bit(call: Call) -> Translation:
    return Translation("quantize", {"elements": call["A"].numel()})


_STEPS = {
    "adam": "adam_step", "momentum": "momentum_step", "adagrad": "adagrad_step", "lion": "lion_step", "rmsprop": "rmsprop_step",
}  # fmt: skip
_KEPT = ("state1", "state2", "absmax1", "absmax2")


@on(
    "bitsandbytes::optimizer_update_32bit", "bitsandbytes::optimizer_update_8bit_blockwise",
    "opcost::optimizer_update_32bit", "opcost::optimizer_update_8bit_blockwise",
)  # fmt: skip
def _update(call: Call) -> Translation:
    """The arithmetic of the step; that numbers of eight bits are looked up and found again is left out."""
    fn = _STEPS.get(call["optimizer_name"])
    if fn is None:
        return Translation("unknown", {})
    if fn == "adam_step" and call.get("weight_decay"):
        fn = "adamw_step"
    ins, outs = call.tensors("g", "p", *_KEPT, "qmap1", "qmap2"), call.tensors("p", *_KEPT)
    return means("elementwise", ins, outs, fn=fn, elements=call["p"].numel())


# -- torchao ----------------------------------------------------------------------------------------------------------


@on(
    "torchao::da8w4_linear_cpu", "torchao::float8_linear_cpu", "torchao::rowwise_scaled_linear_cutlass_s8s4",
    "torchao::rowwise_scaled_linear_cutlass_s4s4",
)  # fmt: skip
def _few_bit_linear(call: Call) -> Translation:
    """Prepacked weights have other shapes; two values of four bits may share an element of the input."""
    packed = 2 if call.base.endswith("s4s4") else 1
    found = product(call, "input", "weight", "bias", depth=packed * call["input"].shape[-1])
    scales = ("input_scales", "input_qzeros", "input_scale", "weight_scales", "weight_qzeros", "weight_scale")
    return found._replace(ins=(*(found.ins or ()), *call.tensors(*scales, "compensation")))


@on("torchao::rowwise_scaled_linear_sparse_cutlass_f8f8")
def _sparse_linear(call: Call) -> Translation:
    """Two values of four are stored, and multiplied."""
    found = product(call, "input", "weight", "bias", depth=call["input"].shape[-1] // 2)
    return found._replace(ins=(*(found.ins or ()), *call.tensors("weight_meta", "input_scale", "weight_scale")))


@on("torchao::swizzle_mm", "torchao::swizzle_scaled_mm")
def _swizzled(call: Call) -> Translation:
    """An operand that is laid out in tiles has other extents, and as many elements."""
    a, y = call["mat1"], call.outs[0]
    found = product(call, "mat1", "mat2", *(["bias"] if "bias" in call.args else []), depth=a.numel() // y.shape[0])
    return found._replace(ins=(*(found.ins or ()), *call.tensors("scale_a", "scale_b")))


@on("torchao::mx_fp8_bf16")
def _block_scaled(call: Call) -> Translation:
    found = product(call, "a", "b")
    return found._replace(ins=(*(found.ins or ()), *call.tensors("a_scale", "b_scale")))


@on("torchao::qscaled_dot_product")
def _quantized_attention(call: Call) -> Translation:
    ins = call.tensors("query", "key", "value", "attn_mask")
    return means("attention", ins, causal=bool(call["is_causal"]) or None)


@on("torchao::_scaled_embedding_bag")
def _few_bit_embedding_bag(call: Call) -> Translation:
    """Each element that is looked up is scaled, and added to its bag."""
    elements = call["indices"].numel() * call["qweight"].shape[-1]
    return Translation("elementwise", {"fn": "addcmul", "elements": elements})


# -- operators of transformers, FSDP, flash-attn and others

# Each row meets the matrix of its own group
on("transformers::grouped_mm_fallback")(lambda call: product(call, "input", "weight"))


@on("torch_nn::_linear_cross_entropy_batch_chunked")
def _linear_cross_entropy(call: Call) -> Translation:
    """The logits are one product; the requested gradients are computed in the same pass."""
    return _logits(call, 1 + bool(call["compute_input_grad"]) + bool(call["compute_linear_weight_grad"]))


on("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")(lambda call: _logits(call, 1))


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
# Not those whose work depends on data: attention over pages of a cache, whose lengths are in no shape, and a layer of experts
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
    depth, bias = call.get("a", "mat_a").shape[-1], call.get("bias")
    names = ("a", "mat_a", "b", "mat_b", "bias", "a_scales", "scales_a", "b_scales", "scales_b")
    outs = _written(call) or None
    return means("matmul", call.tensors(*names), outs, depth=depth, bias=None if bias is None else True)


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


makes("outplace_fused_experts")(lambda call: (like(call["hidden_states"]),))


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


makes("_groupnorm_run", "one_shot_all_reduce")(lambda call: (like(call["input"]),))


def _written(call: Call) -> tuple[Tensor, ...]:
    """Where the results are put; versions call it otherwise."""
    return call.tensors("out", "result", "output")[:1]
