"""Matrix products: everything that sums products over a dimension and is not a convolution, attention or recurrent cell.

Two-to-four sparse weights execute half of the products, so their depth is the compressed one. A product of two vectors
without a sum (`addr`, `outer`) is elementwise. Where several products hide in one operator, `macs` carries their sum.
"""

from __future__ import annotations

from math import prod
from typing import Any

from opcost.core.graph import Attr
from opcost.core.shapes import Mismatch, explicit
from opcost.frontends.aten.call import (
    Call,
    Handler,
    Tensor,
    Translation,
    has_channels_last,
    layout_name,
    means,
    on,
    type_name,
)


def product(
    call: Call,
    a: str,
    b: str,
    added: str = "",
    *,
    depth: int | None = None,
    groups: int | None = None,
    macs: int | None = None,
    then: tuple[str, ...] = (),
) -> Translation:
    """A product of two named arguments, plus a third one if it is there; the depth is the first one's last extent."""
    left: Tensor = call[a]
    return means(
        "matmul",
        call.tensors(a, b, *([added] if added else [])),
        depth=left.shape[-1] if depth is None else depth,
        bias=bool(added and call[added] is not None) or None,
        groups=groups,
        macs=macs,
        then=then or None,
    )


_PRODUCTS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("mat", "vec", "self"): ("addmv",),
    ("batch1", "batch2", "self"): ("baddbmm",),
    ("grad_output", "weight"): ("mkldnn_linear_backward_input",),
    ("mat1", "mat2"): ("_sparse_semi_structured_mm",),
    ("mat1", "mat2", "input"): ("_sparse_semi_structured_addmm",),
    ("a", "b"): ("symm_mem::_async_input_mm",),
    ("qa", "qb"): ("quantized::matmul",),
    ("input", "packed_weight", "bias"): ("fbgemm_linear_fp16_weight", "fbgemm_linear_fp16_weight_fp32_activation"),
    ("input", "weight", "bias"): ("fbgemm_linear_int8_weight", "fbgemm_linear_int8_weight_fp32_activation"),
    ("X", "weight", "bias"): ("quantized::linear_dynamic_fp16_unpacked_weight",),
    ("X", "W", "B"): ("_quantized::wrapped_quantized_linear", "_quantized::wrapped_fbgemm_linear_fp16_weight"),
    ("X", "ORI_W", "B"): ("mkl::_mkl_linear",),
}
"""Plain products by the names of their two operands and of what is added."""


def _product_of(operands: tuple[str, ...]) -> Handler:
    return lambda call: product(call, *operands)


for _operands, _names in _PRODUCTS.items():
    on(*_names)(_product_of(_operands))


def activation(call: Call) -> tuple[str, ...]:
    """What a fused linear layer applies to its result."""
    name = call["activation"]
    return () if name in (None, "none") else (str(name),)


@on(
    "mm", "bmm", "_int_mm", "mv", "matmul", "linalg_matmul", "inner", "dot", "vdot", "linalg_vecdot", "smm",
    "_native::_foreach_mm_native_0",
)  # fmt: skip
def _plain(call: Call) -> Translation:
    names = list(call.args)
    a, b = names[0], names[1]
    if isinstance(call[a], (list, tuple)):
        macs = sum(left.shape[0] * left.shape[1] * right.shape[1] for left, right in zip(call[a], call[b], strict=True))
        return Translation("matmul", {"depth": call[a][0].shape[-1], "macs": macs})
    if is_sparse(call[a]) or is_sparse(call[b]):
        return sparse_product(call, a, b)
    if call.base == "linalg_vecdot":
        return product(call, a, b, depth=call[a].shape[call["dim"]])
    return product(call, a, b)


@on("addmm", "_sparse_addmm", "sspaddmm")
def _addmm(call: Call) -> Translation:
    if is_sparse(call["mat1"]) or is_sparse(call["mat2"]):
        return sparse_product(call, "mat1", "mat2", "self")
    return product(call, "mat1", "mat2", "self")


@on("_addmm_activation")
def _addmm_activation(call: Call) -> Translation:
    return product(call, "mat1", "mat2", "self", then=("gelu" if call["use_gelu"] else "relu",))


@on("addbmm")
def _addbmm(call: Call) -> Translation:
    batch, _, depth = call["batch1"].shape
    return product(call, "batch1", "batch2", "self", depth=batch * depth)


on("linear", "mkldnn_linear")(lambda call: product(call, "input" if "input" in call.args else "self", "weight", "bias"))


@on("linear_backward", "mkldnn_linear_backward")
def _linear_backward(call: Call) -> Translation:
    """The input's gradient and the weight's gradient are one product each, as large as the forward one."""
    weight: Tensor = call["weight"]
    wants_input, wants_weight, _ = call["output_mask"]
    forward = call["grad_output"].numel() * weight.shape[-1]
    attrs: dict[str, Attr] = {"depth": weight.shape[0], "macs": forward * (bool(wants_input) + bool(wants_weight))}
    return Translation("matmul", attrs, call.tensors("grad_output", "weight", "self"))


@on("mkldnn_linear_backward_weights")
def _linear_backward_weights(call: Call) -> Translation:
    rows = prod(call["grad_output"].shape[:-1])
    return Translation("matmul", {"depth": rows}, call.tensors("grad_output", "input"))


@on("matmul_backward")
def _matmul_backward(call: Call) -> Translation:
    forward = call["grad"].numel() * call["self"].shape[-1]
    macs = forward * sum(map(bool, call["mask"]))
    return Translation("matmul", {"depth": call["grad"].shape[-1], "macs": macs}, call.tensors("grad", "self", "other"))


@on("_scaled_mm", "_scaled_mm_v2")
def _scaled_mm(call: Call) -> Translation:
    return product(call, "self", "mat2", "bias", depth=_depth_of(call["self"]))


def _depth_of(a: Tensor) -> int:
    """The summed extent of a left operand; four-bit floats are stored two to an element."""
    return int(a.shape[-1]) * (2 if type_name(a) == "float4_e2m1fn_x2" else 1)


@on("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2")
def _grouped_mm(call: Call) -> Translation:
    """Rows (2d x 3d), columns (3d x 2d) or the depth (2d x 2d) are divided among the groups; 3d x 3d is a batch.

    With divided rows every row meets exactly one group's matrix and with divided columns every column does,
    so only a divided depth is shared among the output matrices.
    """
    depth = _depth_of(call["self"])
    if call["self"].dim() == call["mat2"].dim() == 2:
        return product(call, "self", "mat2", "bias", depth=depth, groups=call.outs[0].shape[0])
    return product(call, "self", "mat2", "bias", depth=depth)


@on(
    "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", "_weight_int4pack_mm_with_scales_and_zeros",
    "_weight_int8pack_mm", "quantized::int4mm_packed_weight_cpu",
)  # fmt: skip
def _packed_weight_mm(call: Call) -> Translation:
    return Translation("matmul", {"depth": call["self"].shape[-1]})


on("_dyn_quant_matmul_4bit")(lambda call: Translation("matmul", {"depth": call["in_features"]}))


@on("_mixed_dtypes_linear")
def _mixed_dtypes_linear(call: Call) -> Translation:
    return product(call, "input", "weight", "bias", then=activation(call))


@on("_sparse_semi_structured_linear")
def _two_of_four_linear(call: Call) -> Translation:
    return product(call, "input", "weight", "bias", depth=call["weight"].shape[-1], then=activation(call))


@on("semi_structured::cutlass_mm", "semi_structured::cusparselt_mm")
def _two_of_four(call: Call) -> Translation:
    """Two of four weights are there; the dense operand has all four."""
    depth = call["dense"].shape[1 if call["should_transpose_dense"] else 0] // 2
    return product(call, "dense", "packed", "bias", depth=depth)._replace(
        ins=call.tensors("dense", "packed", "bias", "meta")
    )


@on("_cslt_sparse_mm")
def _cslt_sparse_mm(call: Call) -> Translation:
    return product(call, "compressed_A", "dense_B", "bias", depth=call["dense_B"].shape[0] // 2)


@on("affine_grid_generator", "cudnn_affine_grid_generator")
def _affine_grid(call: Call) -> Translation:
    """Every position, with a one appended, times the affine matrix."""
    return Translation("matmul", {"depth": call["theta"].shape[-1]})


@on("affine_grid_generator_backward", "cudnn_affine_grid_generator_backward")
def _affine_grid_backward(call: Call) -> Translation:
    grad: Tensor = call["grad"]
    return Translation("matmul", {"depth": prod(grad.shape[1:-1])})


@on("_trilinear")
def _trilinear(call: Call) -> Translation:
    """Three operands over one index space; `bilinear` and its gradients arrive in this form.

    Each operand lacks the dimensions it is expanded over, and the result lacks the summed ones, so the call
    is an einsum. The forward form x1, weight, x2 has a kind of its own.
    """
    operands = (call["i1"], call["i2"], call["i3"])
    expanded = tuple(tuple(call[name]) for name in ("expand1", "expand2", "expand3"))
    summed = tuple(call["sumdim"])
    if (*expanded, summed) == ((1, 3), (0,), (1, 2), (2, 3)):
        return Translation("bilinear", {}, call.tensors("i1", "i3", "i2"))
    letters = "abcdefghijklmnopqrstuvwxyz"[: operands[0].dim() + len(expanded[0])]

    def without(dims: tuple[int, ...]) -> str:
        return "".join(letter for i, letter in enumerate(letters) if i not in dims)

    equation = ",".join(without(dims) for dims in expanded) + "->" + without(summed)
    return Translation("einsum", {"equation": equation}, operands)


@on("einsum")
def _einsum(call: Call) -> Translation:
    operands = call.tensors("tensors")
    try:
        equation = explicit(call["equation"], [operand.dim() for operand in operands])
    except Mismatch:
        return Translation("unknown", {})
    return Translation("einsum", {"equation": equation}, operands)


@on("tensordot")
def _tensordot(call: Call) -> Translation:
    return product(call, "self", "other", depth=prod(call["self"].shape[d] for d in call["dims_self"]))


@on("chain_matmul", "linalg_multi_dot")
def _chain(call: Call) -> Translation:
    """Counted from left to right; the kernels may choose a cheaper order, and then show it as single products."""
    matrices = call.tensors("matrices" if "matrices" in call.args else "tensors")
    rows, macs = matrices[0].shape[0] if matrices[0].dim() > 1 else 1, 0
    for matrix in matrices[1:]:
        macs += rows * prod(matrix.shape)
    return Translation("matmul", {"depth": matrices[-1].shape[0], "macs": macs}, matrices)


@on("kron", "addr", "outer", "ger")
def _outer(call: Call) -> Translation:
    """Products without a sum are elementwise; `addr` adds its result to a matrix."""
    return Translation("elementwise", {"fn": "addcmul" if call.base == "addr" else "mul"})


@on("inductor::_mm_plus_mm")
def _mm_plus_mm(call: Call) -> Translation:
    return Translation("matmul", {"depth": call["a"].shape[1] + call["c"].shape[1]}, call.tensors("a", "b", "c", "d"))


def is_sparse(tensor: Any) -> bool:
    """Whether only some of a tensor's elements are stored."""
    return isinstance(tensor, Tensor) and layout_name(tensor) != "strided"


def sparse_product(call: Call, a: str, b: str, added: str = "") -> Translation:
    """A product with one sparse operand: every stored value meets each of the other's columns (or rows).

    With two sparse operands the number depends on where the values are, which shapes do not say.
    """
    left, right = call[a], call[b]
    if is_sparse(left) and is_sparse(right):
        return Translation("unknown", {})
    if is_sparse(left):
        macs = stored(left) * (right.shape[-1] if right.dim() > 1 else 1)
    else:
        macs = stored(right) * (left.shape[-2] if left.dim() > 1 else 1)
    return product(call, a, b, added, macs=macs)


def stored(tensor: Any) -> int:
    """The explicitly stored values of a sparse tensor."""
    if layout_name(tensor) == "sparse_coo":
        return int(tensor._values().numel())  # `values` refuses tensors with repeated indices
    return int(tensor.values().numel())


@on("_sparse_mm")
def _sparse_mm(call: Call) -> Translation:
    return sparse_product(call, "sparse", "dense")


on("hspmm")(lambda call: sparse_product(call, "mat1", "mat2"))
on("_sparse_mm_reduce_impl")(lambda call: sparse_product(call, "self", "other"))


@on("_sparse_mm_reduce_impl_backward")
def _sparse_mm_reduce_backward(call: Call) -> Translation:
    """Every stored value meets the columns once for its own gradient and once for the dense operand's."""
    macs = stored(call["self"]) * call["weight"].shape[-1] * sum(map(bool, call["output_mask"]))
    return product(call, "grad_out", "weight", macs=macs)


@on("sparse_sampled_addmm")
def _sampled(call: Call) -> Translation:
    """The dense product is computed only where the sparse operand stores a value."""
    depth = call["mat1"].shape[-1]
    return product(call, "mat1", "mat2", "self", macs=stored(call["self"]) * depth)


# -- convolutions in all their spellings, and their gradients

_GRADS = ("input", "weight", "bias")


def conv(call: Call, *, transposed: bool = False, then: tuple[str, ...] = (), added: str = "") -> Translation:
    """A convolution whose arguments go by one of the names that torch uses for them."""
    attrs: dict[str, Attr] = {}
    if transposed:
        attrs["transposed"] = True
    if then:
        attrs["then"] = then
    for name in ("stride", "dilation"):  # no cost depends on them; the receptive field does
        if name in call.args:
            attrs[name] = tuple(call[name])
    x = next(name for name in ("input", "self", "X", "qx") if name in call.args)
    if has_channels_last(call[x]):
        attrs["channels_last"] = True
    weight = next(name for name in ("weight", "W", "qw") if name in call.args)
    bias = next((name for name in ("bias", "B") if name in call.args), "")
    return Translation("conv", attrs, call.tensors(x, weight, bias, added))


@on(
    "conv1d", "conv2d", "conv3d", "_convolution_mode", "thnn_conv2d", "slow_conv3d", "slow_conv3d_forward",
    "_slow_conv2d_forward", "slow_conv_dilated2d", "slow_conv_dilated3d", "_conv_depthwise2d", "conv_depthwise3d",
    "cudnn_convolution", "miopen_convolution", "miopen_depthwise_convolution", "mkldnn_convolution",
    "_nnpack_spatial_convolution", "_mps_convolution",
)  # fmt: skip
def _conv(call: Call) -> Translation:
    return conv(call)


@on("convolution", "_convolution", "convolution_overrideable")
def _convolution(call: Call) -> Translation:
    return conv(call, transposed=bool(call["transposed"]))


@on(
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "slow_conv_transpose2d", "slow_conv_transpose3d",
    "cudnn_convolution_transpose", "miopen_convolution_transpose", "_mps_convolution_transpose",
)  # fmt: skip
def _conv_transpose(call: Call) -> Translation:
    return conv(call, transposed=True)


on("cudnn_convolution_relu", "miopen_convolution_relu")(lambda call: conv(call, then=("relu",)))


@on("cudnn_convolution_add_relu", "miopen_convolution_add_relu")
def _conv_add_relu(call: Call) -> Translation:
    # the rule counts one addition for whatever follows the weight
    then = ("relu",) if call["bias"] is None else ("add", "relu")
    return conv(call, then=then, added="z")


@on("conv_tbc")
def _conv_tbc(call: Call) -> Translation:
    """Time, batch and channels last, the weight as (kernel, in, out): a product over kernel and input channels."""
    kernel, channels, _ = call["weight"].shape
    return Translation("matmul", {"depth": kernel * channels, "bias": True}, call.tensors("self", "weight", "bias"))


@on("conv_tbc_backward")
def _conv_tbc_backward(call: Call) -> Translation:
    kernel, channels, _ = call["weight"].shape
    macs = 2 * call["self"].numel() * kernel * channels
    return Translation("matmul", {"depth": kernel * channels, "macs": macs}, call.tensors("self", "input", "weight"))


def conv_backward(call: Call, x: str, mask: Any, *, transposed: bool = False) -> Translation:
    """Gradients of a convolution: those that the mask requests."""
    grads = tuple(name for name, wanted in zip(_GRADS, mask, strict=False) if wanted)
    ins, last = call.tensors("grad_output", x, "weight"), has_channels_last(call[x])
    return means("conv", ins, grads=grads, transposed=transposed or None, channels_last=last or None)


@on("convolution_backward", "convolution_backward_overrideable")
def _convolution_backward(call: Call) -> Translation:
    return conv_backward(call, "input", call["output_mask"], transposed=bool(call["transposed"]))


@on("_slow_conv2d_backward", "mps_convolution_backward")
def _self_backward(call: Call) -> Translation:
    # the overload with three destinations computes all three
    mask = call["output_mask"] if "output_mask" in call.args else (True, True, True)
    return conv_backward(call, "self", mask)


on("mps_convolution_transpose_backward")(lambda call: conv_backward(call, "self", call["output_mask"], transposed=True))
