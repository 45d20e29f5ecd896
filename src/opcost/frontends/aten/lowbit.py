"""Layers of few bits by other libraries: bitsandbytes and torchao. Their products are those of the dequantized layer."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, on
from opcost.frontends.aten.contraction import product

# -- bitsandbytes -----------------------------------------------------------------------------------------------------


@on("bitsandbytes::gemm_4bit", "bitsandbytes::gemv_4bit")
def _product_4bit(call: Call) -> Translation:
    """The weight lies packed, whatever its own shape; its scales are read as well, and may have scales themselves."""
    attrs: dict[str, Attr] = {"depth": call["A"].shape[-1]}
    if call.get("bias") is not None:
        attrs["bias"] = True
    scales = ("absmax", "code", "absmax_8bit", "absmax_code", "absmax_offset")
    return Translation("matmul", attrs, call.tensors("A", "B", "bias", *scales))


@on("bitsandbytes::int8_linear_matmul")
def _product_8bit(call: Call) -> Translation:
    return product(call, "A", "B")


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
def _quantize(call: Call) -> Translation:
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
    attrs: dict[str, Attr] = {"fn": fn, "elements": call["p"].numel()}
    return Translation(
        "elementwise", attrs, call.tensors("g", "p", *_KEPT, "qmap1", "qmap2"), call.tensors("p", *_KEPT)
    )


# -- torchao ----------------------------------------------------------------------------------------------------------


@on(
    "torchao::da8w4_linear_cpu", "torchao::float8_linear_cpu", "torchao::rowwise_scaled_linear_cutlass_s8s4",
    "torchao::rowwise_scaled_linear_cutlass_s4s4",
)  # fmt: skip
def _linear(call: Call) -> Translation:
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
def _attention(call: Call) -> Translation:
    attrs: dict[str, Attr] = {"causal": True} if call["is_causal"] else {}
    return Translation("attention", attrs, call.tensors("query", "key", "value", "attn_mask"))


@on("torchao::_scaled_embedding_bag")
def _embedding_bag(call: Call) -> Translation:
    """Each element that is looked up is scaled, and added to its bag."""
    elements = call["indices"].numel() * call["qweight"].shape[-1]
    return Translation("elementwise", {"fn": "addcmul", "elements": elements})
