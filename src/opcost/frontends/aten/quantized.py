"""Quantization, and operators on quantized tensors, whose weights are packed in objects that torch can open."""

from __future__ import annotations

from math import prod
from typing import Any

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, always, on
from opcost.frontends.aten.contraction import product
from opcost.frontends.aten.convolution import conv

always(
    "quantize",
    (
        "quantize_per_tensor", "quantize_per_tensor_dynamic", "quantize_per_channel", "dequantize",
        "_make_per_tensor_quantized_tensor", "_make_per_channel_quantized_tensor", "int_repr",
        "quantization::_FloatToBfloat16Quantized", "quantization::_Bfloat16QuantizedToFloat",
        *(
            f"quantized_decomposed::{way}_{scale}"
            for way in ("quantize", "dequantize")
            for scale in ("per_tensor", "per_channel", "per_token", "per_channel_group")
        ),
    ),
)  # fmt: skip

_FAKE = "fake_quantize"
always(
    "elementwise",
    (
        "fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine",
        "_fake_quantize_learnable_per_tensor_affine", "_fake_quantize_learnable_per_channel_affine",
        "fused_moving_avg_obs_fake_quant",
    ),
    fn=_FAKE,
)  # fmt: skip
always(
    "elementwise",
    (
        "fake_quantize_per_tensor_affine_cachemask_backward", "fake_quantize_per_channel_affine_cachemask_backward",
    ),
    fn="fake_quantize_grad",
)  # fmt: skip


@on(
    "fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "_fused_moving_avg_obs_fq_helper", "_fused_moving_avg_obs_fq_helper_functional",
)  # fmt: skip
def _with_mask(call: Call) -> Translation:
    """The second output is the mask for the gradient, which falls off on the way."""
    return Translation("elementwise", {"fn": _FAKE, "elements": call.get("self").numel()})


@on(
    "_fake_quantize_learnable_per_tensor_affine_backward",
    "_fake_quantize_learnable_per_channel_affine_backward",
)
def _learnable_backward(call: Call) -> Translation:
    """Besides the input's gradient those of scale and zero point are summed up."""
    return Translation("elementwise", {"fn": "fake_quantize_grad", "elements": 3 * call["self"].numel()})


always(
    "reduce",
    (
        "_choose_qparams_per_tensor", "choose_qparams_optimized", "quantized_decomposed::choose_qparams",
        "quantized_decomposed::choose_qparams_symmetric", "quantized_decomposed::choose_qparams_per_token",
        "quantized_decomposed::choose_qparams_per_token_asymmetric",
        "quantized_decomposed::_choose_qparams_per_token_asymmetric_impl",
    ),
    fn="minmax",
)  # fmt: skip
always("elementwise", ["quantized_decomposed::fake_quant_per_channel"], fn=_FAKE)
always("copy", ["quantized_decomposed::convert_element_type"])


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
    """The input's last extent is the depth, whatever lies in the package."""
    attrs: dict[str, Attr] = {"depth": call["X"].shape[-1], **_then_attr(call.base)}
    if has_bias(_packed(call)):
        attrs["bias"] = True
    return Translation("matmul", attrs)


def _then(base: str) -> tuple[str, ...]:
    """What stands in the name of a fused operator: `conv2d_add_relu`."""
    words = base.replace("leaky_relu", "leakyrelu").split("_")
    return tuple(_WORDS[word] for word in words if word in _WORDS)


_WORDS = {"add": "add", "relu": "relu", "leakyrelu": "leaky_relu", "tanh": "tanh"}


def _then_attr(base: str) -> dict[str, Attr]:
    then = _then(base)
    return {"then": then} if then else {}


def has_bias(packed: Any) -> bool:
    """Whether a package holds a bias; one that cannot be opened is taken to."""
    bias = getattr(packed, "bias", None)
    try:
        return bias() is not None if callable(bias) else bool(packed.unpack()[1] is not None)
    except (RuntimeError, AttributeError, NotImplementedError):
        return True


@on("quantized::linear_dynamic_fp16_unpacked_weight")
def _linear_unpacked(call: Call) -> Translation:
    return product(call, "X", "weight", "bias")


@on("_quantized::wrapped_quantized_linear")
def _wrapped_linear(call: Call) -> Translation:
    return product(call, "X", "W", "B")


@on("_quantized::wrapped_fbgemm_linear_fp16_weight")
def _wrapped_fp16(call: Call) -> Translation:
    return product(call, "X", "W", "B")


@on("_quantized::_wrapped_quantized_linear_prepacked", "_wrapped_quantized_linear_prepacked")
def _wrapped_prepacked(call: Call) -> Translation:
    x = call.get("X", "input")
    return Translation("matmul", {"depth": x.shape[-1], "bias": True})


@on("quantized::matmul")
def _matmul(call: Call) -> Translation:
    return product(call, "qa", "qb")


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
    """The weight lies in the package, so no input has its shape."""
    weight, bias = _packed(call).unpack()
    side = call["qx"] if transposed else call.outs[0]
    depth = prod(weight.shape[1:])
    attrs: dict[str, Attr] = {"macs": side.numel() * depth, **_then_attr(call.base)}
    if transposed:
        attrs["transposed"] = True
    if bias is not None:
        attrs["bias"] = True
    return Translation("conv", attrs)


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


@on("onednn::qlinear_pointwise")
def _onednn_linear(call: Call) -> Translation:
    return _with_operand(call, product(call, "qx", "qw", "bias", then=_fused(call)))


@on("onednn::linear_dynamic_fp16", "onednn::linear_relu_dynamic_fp16")
def _onednn_fp16(call: Call) -> Translation:
    return product(call, "x", "w", "bias", then=_then(call.base))


@on("mkldnn::_linear_pointwise")
def _mkldnn_linear(call: Call) -> Translation:
    return _with_operand(call, product(call, "X", "W", "B", then=_fused(call)))


@on("mkl::_mkl_linear")
def _mkl_linear(call: Call) -> Translation:
    return product(call, "X", "ORI_W", "B")


@on(
    "onednn::qconv_pointwise", "onednn::qconv1d_pointwise", "onednn::qconv2d_pointwise", "onednn::qconv3d_pointwise",
    "mkldnn::_convolution_pointwise",
)  # fmt: skip
def _onednn_conv(call: Call) -> Translation:
    return _with_operand(call, conv(call, then=_fused(call)))


@on("mkldnn::_convolution_transpose_pointwise")
def _onednn_conv_transpose(call: Call) -> Translation:
    return conv(call, transposed=True, then=_fused(call))


always("elementwise", ["onednn::qadd"], fn="add")
always("elementwise", ["onednn::qmul"], fn="mul")
always("elementwise", ["onednn::qadd_relu"], fn="add_relu")
always("norm", ["onednn::qbatch_norm2d"], fn="batch", training=False, affine=2)

# -- elementwise on quantized tensors ---------------------------------------------------------------------------------

for _fn in ("add", "mul"):
    always(
        "elementwise",
        [f"quantized::{_fn}", f"quantized::{_fn}_out", f"quantized::{_fn}_scalar", f"quantized::{_fn}_scalar_out"],
        fn=_fn,
    )
    always(
        "elementwise",
        [
            f"quantized::{_fn}_relu",
            f"quantized::{_fn}_relu_out",
            f"quantized::{_fn}_scalar_relu",
            f"quantized::{_fn}_scalar_relu_out",
        ],
        fn="add_relu",
    )
always("elementwise", ["_quantized::add"], fn="add")
always("copy", ["quantized::cat", "quantized::cat_out"])
always("elementwise", ["quantized::cat_relu", "quantized::cat_relu_out"], fn="relu")
always("softmax", ["quantized::softmax"], fn="softmax")


@on(*(f"quantized::batch_norm{axes}{suffix}" for axes in ("", "1d", "2d", "3d") for suffix in ("", "_relu")))
def _batch_norm(call: Call) -> Translation:
    return Translation("norm", {"fn": "batch", "training": False, "affine": len(call.tensors("weight", "bias"))})


@on("quantized::layer_norm", "quantized::group_norm", "quantized::instance_norm")
def _norm(call: Call) -> Translation:
    fn = call.base.removesuffix("_norm")
    return Translation("norm", {"fn": fn, "affine": len(call.tensors("weight", "bias"))})


# -- packing weights, once --------------------------------------------------------------------------------------------

always(
    "copy",
    (
        "_convert_weight_to_int4pack", "_convert_weight_to_int4pack_for_cpu", "_dyn_quant_pack_4bit_weight",
        "fbgemm_linear_quantize_weight", "fbgemm_pack_gemm_matrix_fp16", "fbgemm_pack_quantized_matrix",
        "_wrapped_linear_prepack", "_saturate_weight_to_fp16", "_quantized::_wrapped_linear_prepack",
        "_quantized::wrapped_fbgemm_pack_gemm_matrix_fp16", "onednn::qlinear_prepack", "onednn::qconv_prepack",
        "onednn::linear_prepack_fp16", "mkldnn::_reorder_linear_weight", "mkldnn::_reorder_convolution_weight",
        "mkldnn::_reorder_convolution_transpose_weight", "mkl::_mkl_reorder_linear_weight",
    ),
)  # fmt: skip

always(
    "copy",
    (
        *(
            f"{library}::{name}"
            for library in ("quantized", "_quantized")
            for name in (
                "linear_prepack", "linear_prepack_fp16", "linear_prepack_legacy", "linear_prepack_fp16_legacy",
                "conv2d_prepack", "conv3d_prepack", "conv_transpose1d_prepack", "conv_transpose2d_prepack",
                "conv_transpose3d_prepack",
            )
        ),
        "quantized::conv_prepack", "quantized::conv1d_prepack", "quantized::embedding_bag_prepack",
        *(f"quantized::embedding_bag_{bits}_{way}" for bits in ("byte", "4bit", "2bit") for way in ("prepack", "unpack")),
        *(f"quantized::embedding_bag_{bits}_prepack_with_rowwise_min_max" for bits in ("byte", "4bit", "2bit")),
        "quantized::conv_unpack", "quantized::conv1d_unpack", "quantized::conv2d_unpack", "quantized::conv3d_unpack",
        "quantized::conv_transpose1d_unpack", "quantized::conv_transpose2d_unpack", "quantized::conv_transpose3d_unpack",
        "quantized::linear_unpack", "quantized::linear_unpack_fp16", "quantized::embedding_bag_unpack",
        "sparse::qlinear_prepack", "sparse::qlinear_unpack", "mkldnn_prepacked::conv2d_prepack",
    ),
)  # fmt: skip
always(
    "view",
    (
        "quantized::make_quantized_cell_params", "quantized::make_quantized_cell_params_dynamic",
        "quantized::make_quantized_cell_params_fp16", "mkldnn::_nbytes", "mkldnn::data_ptr",
        "mkldnn::_get_mkldnn_serialized_md",
    ),
)  # fmt: skip


@on("quantized::embedding_byte", "quantized::embedding_4bit")
def _embedding(call: Call) -> Translation:
    """The table lies in a package; each element looked up is scaled and shifted."""
    return Translation("elementwise", {"fn": "fma"}, call.tensors("indices"))


@on("quantized::embedding_bag_byte", "quantized::embedding_bag_4bit")
def _embedding_bag(call: Call) -> Translation:
    """Scaled, shifted, and added to its bag."""
    elements = call["indices"].numel() * call.outs[0].shape[-1]
    return Translation("elementwise", {"fn": "addcmul", "elements": elements})
