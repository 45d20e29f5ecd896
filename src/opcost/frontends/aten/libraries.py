"""Quantized operators, whose weights are packed in objects that torch can open, and operators that other libraries register."""

from math import prod
from typing import Any

from opcost.frontends.aten.attention import heads_last
from opcost.frontends.aten.call import AtenCall, Translation, means, rows
from opcost.frontends.aten.contraction import conv, product
from opcost.frontends.aten.elementwise import elementwise
from opcost.frontends.aten.results import OUTPUTS, like, made
from opcost.frontends.aten.tensor import AtenTensor, NotKnown, type_name

_WORDS = {"add": "add", "relu": "relu", "leakyrelu": "leaky_relu", "tanh": "tanh"}
_POST_OPS = ("binary_attr", "binary_post_op", "attr", "unary_attr", "post_op_name", "unary_post_op")
_SPELLINGS = {"swish": "silu", "sum": "add"}


def _then(base: str) -> tuple[str, ...] | None:
    """What the name of a fused operator says: `conv2d_add_relu`."""
    words = base.replace("leaky_relu", "leakyrelu").split("_")
    return tuple(_WORDS[word] for word in words if word in _WORDS) or None


def _fused(call: AtenCall) -> tuple[str, ...] | None:
    """The elementwise functions that a oneDNN operator applies to its result, by their names among its arguments."""
    names = (call.args.get(key) for key in _POST_OPS)
    return tuple(_SPELLINGS.get(name, name) for name in names if name and name != "none") or None


def _linear(call: AtenCall) -> Translation:
    """The input's last extent is the depth; a package that cannot be opened is taken to have a bias."""
    packed = call.get("W_prepack", "packed_weight", "weight")
    bias = getattr(packed, "bias", None)
    try:
        has_bias = (bias() if callable(bias) else packed.unpack()[1]) is not None
    except (RuntimeError, AttributeError, NotImplementedError):
        has_bias = True
    return means("matmul", depth=call["X"].shape[-1], then=_then(call.base), bias=has_bias or None)


def _packed_conv(call: AtenCall, *, transposed: bool) -> Translation:
    """The weight is in the package, so no input has its shape."""
    weight, bias = call.get("W_prepack", "packed_weight", "weight").unpack()
    side = call["qx"] if transposed else call.outs[0]
    macs, has_bias = side.numel() * prod(weight.shape[1:]), None if bias is None else True
    return means("conv", macs=macs, then=_then(call.base), transposed=transposed or None, bias=has_bias)


rows(
    {
        # the second output is the mask for the gradient, which is not counted
        "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fused_moving_avg_obs_fq_helper "
        "_fused_moving_avg_obs_fq_helper_functional": lambda self: elementwise("fake_quantize", self.numel()),
        # besides the input's gradient those of scale and zero point are summed up
        "_fake_quantize_learnable_per_tensor_affine_backward _fake_quantize_learnable_per_channel_affine_backward":
            lambda self: elementwise("fake_quantize_grad", 3 * self.numel()),
        # -- packed weights
        "quantized::linear quantized::linear_relu quantized::linear_leaky_relu quantized::linear_tanh "
        "quantized::linear_dynamic quantized::linear_relu_dynamic quantized::linear_dynamic_fp16 "
        "quantized::linear_relu_dynamic_fp16 quantized::linear_with_input_q_dq_qweight_dq_output_fp32 "
        "quantized::linear_with_input_q_dq_qweight_dq_relu_output_fp32 _quantized::linear _quantized::linear_dynamic "
        "sparse::qlinear sparse::qlinear_relu sparse::qlinear_dynamic sparse::qlinear_relu_dynamic": _linear,
        "_quantized::_wrapped_quantized_linear_prepacked _wrapped_quantized_linear_prepacked":
            lambda call: means("matmul", depth=call.get("X", "input").shape[-1], bias=True),
        "quantized::conv1d quantized::conv1d_relu quantized::conv1d_dynamic quantized::conv2d quantized::conv2d_relu "
        "quantized::conv2d_dynamic quantized::conv2d_add quantized::conv2d_add_relu quantized::conv3d "
        "quantized::conv3d_relu quantized::conv3d_dynamic _quantized::conv2d _quantized::conv2d_relu "
        "_quantized::conv3d _quantized::conv3d_relu": lambda call: _packed_conv(call, transposed=False),
        "quantized::conv_transpose1d quantized::conv_transpose2d quantized::conv_transpose3d "
        "quantized::conv_transpose1d_dynamic quantized::conv_transpose2d_dynamic quantized::conv_transpose3d_dynamic "
        "_quantized::conv_transpose1d _quantized::conv_transpose2d": lambda call: _packed_conv(call, transposed=True),
        # -- oneDNN; the second operand of a fused addition or multiplication is read too
        "onednn::qlinear_pointwise": lambda call, qx, qw, bias: product(
            qx, qw, bias, call.tensors("other", "qaccum"), then=_fused(call),
        ),
        "mkldnn::_linear_pointwise":
            lambda call, X, W, B: product(X, W, B, call.tensors("other", "qaccum"), then=_fused(call)),
        "onednn::linear_dynamic_fp16 onednn::linear_relu_dynamic_fp16":
            lambda call, x, w, bias: product(x, w, bias, then=_then(call.base)),
        "onednn::qconv_pointwise onednn::qconv1d_pointwise onednn::qconv2d_pointwise onednn::qconv3d_pointwise "
        "mkldnn::_convolution_pointwise mkldnn::_convolution_transpose_pointwise":
            lambda call: conv(call, call.tensors("other", "qaccum"), then=_fused(call)),
        # the table is in a package; each element looked up is scaled and shifted, and perhaps added to its bag
        "quantized::embedding_byte quantized::embedding_4bit":
            lambda indices: means("elementwise", (indices,), fn="fma"),
        "quantized::embedding_bag_byte quantized::embedding_bag_4bit":
            lambda call, indices: elementwise("addcmul", indices.numel() * call.outs[0].shape[-1]),
    }
)  # fmt: skip


# -- layers of few bits by bitsandbytes and torchao. Their products are those of the dequantized layer

_STEPS = ("adam", "momentum", "adagrad", "lion", "rmsprop")
_KEPT = ("state1", "state2", "absmax1", "absmax2")


def _update(call: AtenCall, optimizer_name: str, weight_decay: float | None = None) -> Translation:
    """The arithmetic of the step; that numbers of eight bits are looked up and found again is left out."""
    if optimizer_name not in _STEPS:
        return Translation("unknown", {})
    fn = "adamw_step" if optimizer_name == "adam" and weight_decay else f"{optimizer_name}_step"
    ins, outs = call.tensors("g", "p", *_KEPT, "qmap1", "qmap2"), call.tensors("p", *_KEPT)
    return means("elementwise", ins, outs, fn=fn, elements=call["p"].numel())


def _few_bit_linear(call: AtenCall, input: AtenTensor, weight: AtenTensor, bias: AtenTensor | None) -> Translation:
    """Prepacked weights have other shapes; two values of four bits may share an element of the input."""
    scales = ("input_scales", "input_qzeros", "input_scale", "weight_scales", "weight_qzeros", "weight_scale")
    depth = (2 if call.base.endswith("s4s4") else 1) * input.shape[-1]
    return product(input, weight, bias, call.tensors(*scales, "compensation"), depth=depth)


rows(
    {
        "bitsandbytes::quantize_4bit bitsandbytes::quantize_blockwise": lambda A: means("quantize", elements=A.numel()),
        "bitsandbytes::optimizer_update_32bit bitsandbytes::optimizer_update_8bit_blockwise "
        "opcost::optimizer_update_32bit opcost::optimizer_update_8bit_blockwise": _update,
        "torchao::da8w4_linear_cpu torchao::float8_linear_cpu torchao::rowwise_scaled_linear_cutlass_s8s4 "
        "torchao::rowwise_scaled_linear_cutlass_s4s4": _few_bit_linear,
        # two values of four are stored, and multiplied
        "torchao::rowwise_scaled_linear_sparse_cutlass_f8f8": lambda call, input, weight, bias: product(
            input, weight, bias, call.tensors("weight_meta", "input_scale", "weight_scale"), depth=input.shape[-1] // 2,
        ),
        # an operand that is laid out in tiles has other extents, and as many elements
        "torchao::swizzle_mm torchao::swizzle_scaled_mm": lambda call, mat1, mat2, bias=None: product(
            mat1, mat2, bias, call.tensors("scale_a", "scale_b"), depth=mat1.numel() // call.outs[0].shape[0],
        ),
        "torchao::qscaled_dot_product": lambda query, key, value, attn_mask, is_causal: means(
            "attention", (query, key, value, attn_mask), causal=bool(is_causal) or None,
        ),
        # each element that is looked up is scaled, and added to its bag
        "torchao::_scaled_embedding_bag":
            lambda indices, qweight: elementwise("addcmul", indices.numel() * qweight.shape[-1]),
    }
)  # fmt: skip


# -- operators of transformers, FSDP, flash-attn and others


def _logits(products: int, input: AtenTensor, linear_weight: AtenTensor) -> Translation:
    return means("matmul", depth=input.shape[-1], macs=products * input.numel() * linear_weight.shape[0])


rows(
    {
        # the logits are one product; the requested gradients are computed in the same pass
        "torch_nn::_linear_cross_entropy_batch_chunked":
            lambda input, linear_weight, compute_input_grad, compute_linear_weight_grad:
                _logits(1 + bool(compute_input_grad) + bool(compute_linear_weight_grad), input, linear_weight),
        "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction":
            lambda input, linear_weight: _logits(1, input, linear_weight),
        # rows are gathered from all ranks, then multiplied with each of several matrices
        "symm_mem::fused_all_gather_matmul symm_mem::fused_all_gather_scaled_matmul": lambda call, A, Bs: means(
            "matmul", depth=A.shape[-1],
            macs=sum(out.numel() * b.shape[0] for out, b in zip(call.outs[-len(Bs) :], Bs, strict=True)),
        ),
        # the whole product is computed here, its sum over the ranks is left in parts
        "symm_mem::fused_matmul_reduce_scatter symm_mem::fused_scaled_matmul_reduce_scatter":
            lambda A, B: product(A, B, macs=A.numel() * B.shape[-1]),
        "flash_attn::_flash_attn_forward flash_attn::_flash_attn_varlen_forward":
            lambda call, q, k, v: means("attention", (q, k, v), **heads_last(call)),
        "flash_attn::_flash_attn_backward flash_attn::_flash_attn_varlen_backward": lambda call, dout, q, k, v: means(
            "attention", (dout, q, k, v), call.tensors("dq", "dk", "dv") or None, grad=True, products=5,
            **heads_last(call),
        ),
        # the shards of this rank are put into their place in the memory that the gathered ones will fill
        "fsdp::all_gather_copy_in": lambda all_gather_inputs, all_gather_output: means(
            "scatter", (all_gather_output, all_gather_inputs), fn="copy", overwrites=True,
            elements=sum(shard.numel() for shard in all_gather_inputs),
        ),
        "fsdp::split_with_sizes_copy fsdp::chunk_cat":
            lambda call: means("copy", call.tensors("all_gather_output", "tensors"), call.tensors("out")),
    }
)  # fmt: skip


# -- fused operators of vLLM, SGLang, aiter and flash-attn, as far as their shapes tell what they do
#
# Not those whose work depends on data: attention over pages of a cache, whose lengths are in no shape, and a layer of experts
# that is called by its name alone. For traces `library_schemas.txt` has the arguments that come first in all versions.

_GATES = {"silu_and_mul": "swiglu", "gelu_and_mul": "geglu", "gelu_tanh_and_mul": "geglu_tanh"}


def _written(call: AtenCall) -> tuple[AtenTensor, ...]:
    """Where the results are put; versions call it otherwise."""
    return call.tensors("out", "result", "output")[:1]


def _add_rms_norm(call: AtenCall) -> Translation:
    """The residual is added before, one FLOP for each element as a bias would be, and the sum is kept."""
    ins = call.tensors("input", "weight", "residual", "residual_in")
    outs = _written(call) or call.tensors("input")
    return means("norm", ins, (outs, call.tensors("residual", "residual_out")), fn="rms", affine=2)


def _rotary(call: AtenCall, positions: AtenTensor, head_size: int, cos_sin_cache: AtenTensor) -> Translation:
    """Of each head the part that the table of sines and cosines is made for is rotated, in place."""
    turned = call.tensors("query", "key")
    elements = sum(each.numel() for each in turned) * cos_sin_cache.shape[-1] // head_size
    return means("elementwise", (turned, positions), turned, fn="rotary", elements=elements)


def _store(call: AtenCall) -> Translation:
    """The keys and values of new tokens are put into their places; of the cache nothing else is touched."""
    new, caches = call.tensors("key", "value"), call.tensors("key_cache", "value_cache")
    return means("copy", new, [like(x, type_name(cache)) for x, cache in zip(new, caches, strict=True)])


def _scaled_product(call: AtenCall) -> Translation:
    a, b, scales = call.get("a", "mat_a"), call.get("b", "mat_b"), ("a_scales", "scales_a", "b_scales", "scales_b")
    return product(a, b, call.get("bias"), call.tensors(*scales))._replace(outs=_written(call) or None)


def _experts(hidden_states: AtenTensor, w1: AtenTensor, w2: AtenTensor, topk_ids: AtenTensor) -> Translation:
    """Every token meets both matrices of each of its experts; no more experts are read than there are tokens for them."""
    if w1.shape[-1] != hidden_states.shape[-1] or w2.shape[-2] != hidden_states.shape[-1]:
        raise NotKnown("how weights are packed")
    count, chosen = w1.shape[0], topk_ids.numel()
    read = [made((min(count, chosen), *weight.shape[1:]), type_name(weight)) for weight in (w1, w2)]
    macs = chosen * (w1.numel() + w2.numel()) // count
    return means("matmul", (hidden_states, read), (like(hidden_states),), macs=macs)


def _prefill(
    call: AtenCall, q: AtenTensor, cu_seqlens_q: AtenTensor, max_seqlen_q: Any, max_seqlen_k: Any
) -> Translation:
    """Keys are in pages of a cache. As many queries as the longest sequence allows mean that all are that long."""
    count = cu_seqlens_q.numel() - 1
    if count < 1 or q.shape[0] != count * max_seqlen_q:
        raise NotKnown("how long the sequences are")
    read = [made((count * max_seqlen_k, *x.shape[-2:]), type_name(x)) for x in call.tensors("k", "v")]
    return means("attention", (q, read), **heads_last(call))


rows(
    {
        "_C::rms_norm sgl_kernel::rmsnorm aiter::rmsnorm aiter::rmsnorm2d_fwd_ck":
            lambda call, input, weight: means("norm", (input, weight), _written(call), fn="rms", affine=1),
        "_C::fused_add_rms_norm sgl_kernel::fused_add_rmsnorm aiter::add_rmsnorm aiter::rmsnorm2d_fwd_with_add "
        "aiter::rmsnorm2d_fwd_with_add_ck": _add_rms_norm,
        "aiter::silu_and_mul " + " ".join(f"{library}::{name}" for library in ("_C", "sgl_kernel") for name in _GATES):
            lambda call, input: means("elementwise", (input,), _written(call), fn=_GATES[call.base]),
        "_C::rotary_embedding sgl_kernel::rotary_embedding": _rotary,
        "_C_cache_ops::reshape_and_cache _C_cache_ops::reshape_and_cache_flash sglang::store_cache": _store,
        "_C::static_scaled_fp8_quant _C::dynamic_scaled_fp8_quant _C::dynamic_per_token_scaled_fp8_quant "
        "_C::static_scaled_int8_quant _C::dynamic_scaled_int8_quant":
            lambda call, input: means("quantize", (input,), _written(call)),
        "_C::cutlass_scaled_mm sgl_kernel::fp8_scaled_mm sgl_kernel::int8_scaled_mm": _scaled_product,
        "vllm::inplace_fused_experts vllm::outplace_fused_experts sglang::inplace_fused_experts "
        "sglang::outplace_fused_experts": _experts,
        "aiter::mha_fwd aiter::fmha_v3_fwd": lambda call, q, k, v: means("attention", (q, k, v), **heads_last(call)),
        "aiter::mha_batch_prefill": _prefill,
    }
)  # fmt: skip
OUTPUTS.rows(
    {
        "fp8_scaled_mm int8_scaled_mm":
            lambda mat_a, mat_b, out_dtype: made((mat_a.shape[0], mat_b.shape[-1]), out_dtype),
    }
)  # fmt: skip
