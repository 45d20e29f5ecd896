"""Matrix products and convolutions: all that sums products over a dimension and is not attention or a recurrent cell.

Two-to-four sparse weights execute half of the products, so their depth is the compressed one. A product of two vectors
without a sum (`addr`, `outer`) is elementwise. Where several products hide in one operator, `macs` carries their sum.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from opcost.core.shapes import Mismatch, broadcast, einsum, explicit, reduced, spread, tensordot, windows
from opcost.frontends.aten.call import AtenCall, Handler, Translation, means, on, per_axis, rows
from opcost.frontends.aten.results import OUTPUTS, Results, like, made, only, with_last
from opcost.frontends.aten.tensor import (
    AtenTensor,
    Described,
    asks_for_channels_last,
    has_channels_last,
    is_contiguous,
    layout_name,
    tells_strides,
    type_name,
)


def product(
    left: AtenTensor, right: AtenTensor, added: AtenTensor | None = None, *also: Any, **attrs: Any
) -> Translation:
    """A product of two tensors, plus a third if there is one; `also` is read besides.

    The depth is the first one's last extent, if no other is given.
    """
    attrs = {"depth": left.shape[-1], "bias": None if added is None else True} | attrs
    return means("matmul", (left, right, added, also), **attrs)


def product_of(names: str) -> Handler:
    """A product of the arguments of these names: two operands, what is added, and what is read besides, where it is given."""
    left, right, *more = names.split()
    return lambda call: product(call[left], call[right], call.get(*more[:1]), call.tensors(*more[1:]))


def is_sparse(tensor: Any) -> bool:
    """Whether only some of a tensor's elements are stored."""
    return isinstance(tensor, AtenTensor) and layout_name(tensor) != "strided"


def stored(tensor: Any) -> int:
    """The explicitly stored values of a sparse tensor."""
    if layout_name(tensor) == "sparse_coo":
        return int(tensor._values().numel())  # `values` refuses tensors with repeated indices
    return int(tensor.values().numel())


def sparse_product(left: AtenTensor, right: AtenTensor, added: AtenTensor | None = None) -> Translation:
    """A product with one sparse operand: every stored value meets each of the other's columns (or rows).

    With two sparse operands the number depends on where the values are, which shapes do not say.
    """
    if is_sparse(left) and is_sparse(right):
        return Translation("unknown", {})
    if is_sparse(left):
        macs = stored(left) * (right.shape[-1] if right.dim() > 1 else 1)
    else:
        macs = stored(right) * (left.shape[-2] if left.dim() > 1 else 1)
    return product(left, right, added, macs=macs)


def _any_product(left: AtenTensor, right: AtenTensor, added: AtenTensor | None = None) -> Translation:
    return (sparse_product if is_sparse(left) or is_sparse(right) else product)(left, right, added)


@on(
    "mm", "bmm", "_int_mm", "mv", "matmul", "linalg_matmul", "inner", "dot", "vdot", "linalg_vecdot", "smm", "hspmm",
    "_sparse_mm", "_sparse_mm_reduce_impl", "_native::_foreach_mm_native_0",
)  # fmt: skip
def _plain(call: AtenCall) -> Translation:
    left, right = (call[name] for name in list(call.args)[:2])
    if isinstance(left, (list, tuple)):
        macs = sum(a.shape[0] * a.shape[1] * b.shape[1] for a, b in zip(left, right, strict=True))
        return means("matmul", depth=left[0].shape[-1], macs=macs)
    if call.base == "linalg_vecdot":
        return product(left, right, depth=left.shape[call["dim"]])
    return _any_product(left, right)


def then(activation: str | None) -> tuple[str, ...] | None:
    """What a fused layer applies to its result."""
    return None if activation in (None, "none") else (str(activation),)


def _depth_of(a: AtenTensor) -> int:
    """The summed extent of a left operand; four-bit floats are stored two to an element."""
    return int(a.shape[-1]) * (2 if type_name(a) == "float4_e2m1fn_x2" else 1)


def _grouped(call: AtenCall, self: AtenTensor, mat2: AtenTensor, bias: AtenTensor | None) -> Translation:
    """Rows (2d x 3d), columns (3d x 2d) or the depth (2d x 2d) are divided among the groups; 3d x 3d is a batch.

    With divided rows every row meets exactly one group's matrix and with divided columns every column does,
    so only a divided depth is shared among the output matrices.
    """
    groups = call.outs[0].shape[0] if self.dim() == mat2.dim() == 2 else None
    return product(self, mat2, bias, depth=_depth_of(self), groups=groups)


def _einsum(equation: str, tensors: Sequence[AtenTensor]) -> Translation:
    try:
        written = explicit(equation, [operand.dim() for operand in tensors])
    except Mismatch:
        return Translation("unknown", {})
    return means("einsum", tensors, equation=written)


def _chain(matrices: Sequence[AtenTensor]) -> Translation:
    """Counted from left to right; the kernels may choose a cheaper order, and then show it as single products."""
    count = matrices[0].shape[0] if matrices[0].dim() > 1 else 1
    macs = sum(count * prod(matrix.shape) for matrix in matrices[1:])
    return means("matmul", matrices, depth=matrices[-1].shape[0], macs=macs)


rows(
    {
        "addmm _sparse_addmm sspaddmm": lambda self, mat1, mat2: _any_product(mat1, mat2, self),
        "_addmm_activation":
            lambda self, mat1, mat2, use_gelu: product(mat1, mat2, self, then=("gelu" if use_gelu else "relu",)),
        "addbmm": lambda self, batch1, batch2: product(batch1, batch2, self, depth=batch1.shape[0] * batch1.shape[2]),
        "tensordot": lambda self, other, dims_self: product(self, other, depth=prod(self.shape[d] for d in dims_self)),
        "inductor::_mm_plus_mm": lambda a, b, c, d: means("matmul", (a, b, c, d), depth=a.shape[1] + c.shape[1]),
        "einsum": _einsum,
        "chain_matmul": _chain,
        "linalg_multi_dot": lambda tensors: _chain(tensors),
        # the input's gradient and the weight's gradient are one product each, as large as the forward one
        "linear_backward mkldnn_linear_backward": lambda self, grad_output, weight, output_mask: means(
            "matmul", (grad_output, weight, self), depth=weight.shape[0],
            macs=grad_output.numel() * weight.shape[-1] * sum(map(bool, output_mask[:2])),
        ),
        "mkldnn_linear_backward_weights":
            lambda grad_output, input: means("matmul", (grad_output, input), depth=prod(grad_output.shape[:-1])),
        "matmul_backward": lambda grad, self, other, mask: means(
            "matmul", (grad, self, other), depth=grad.shape[-1],
            macs=grad.numel() * self.shape[-1] * sum(map(bool, mask)),
        ),
        # few bits, groups, and weights of which two of four are there
        "_scaled_mm _scaled_mm_v2": lambda call, self, mat2, bias: product(
            self, mat2, bias, call.tensors("scale_a", "scale_b"), depth=_depth_of(self),
        ),
        "_grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2": _grouped,
        "_weight_int4pack_mm _weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros _weight_int8pack_mm "
        "quantized::int4mm_packed_weight_cpu": lambda self: means("matmul", depth=self.shape[-1]),
        "_dyn_quant_matmul_4bit": lambda in_features: means("matmul", depth=in_features),
        "_mixed_dtypes_linear":
            lambda input, weight, bias, activation: product(input, weight, bias, then=then(activation)),
        "_sparse_semi_structured_linear": lambda input, weight, bias, activation: product(
            input, weight, bias, depth=weight.shape[-1], then=then(activation),
        ),
        "semi_structured::cutlass_mm semi_structured::cusparselt_mm": lambda call, dense, packed, bias: product(
            dense, packed, bias, call["meta"], depth=dense.shape[1 if call["should_transpose_dense"] else 0] // 2,
        ),
        "_cslt_sparse_mm":
            lambda compressed_A, dense_B, bias: product(compressed_A, dense_B, bias, depth=dense_B.shape[0] // 2),
        # every position, with a one appended, times the affine matrix
        "affine_grid_generator cudnn_affine_grid_generator": lambda theta: means("matmul", depth=theta.shape[-1]),
        "affine_grid_generator_backward cudnn_affine_grid_generator_backward":
            lambda grad: means("matmul", depth=prod(grad.shape[1:-1])),
        # products without a sum; `addr` adds its result to a matrix
        "kron addr outer ger": lambda call: means("elementwise", fn="addcmul" if call.base == "addr" else "mul"),
        # every stored value meets the columns once for its own gradient and once for the dense operand's
        "_sparse_mm_reduce_impl_backward": lambda self, grad_out, weight, output_mask: product(
            grad_out, weight, macs=stored(self) * weight.shape[-1] * sum(map(bool, output_mask)),
        ),
        # the dense product is computed only where the sparse operand stores a value
        "sparse_sampled_addmm": lambda self, mat1, mat2: product(mat1, mat2, self, macs=stored(self) * mat1.shape[-1]),
    }
)  # fmt: skip


def _equation(call: AtenCall) -> tuple[list[AtenTensor], str]:
    """Three operands over one index space, in which `bilinear` and its gradients arrive.

    Each operand lacks the dimensions it is expanded over, and the result lacks the summed ones, so the call is an einsum.
    """
    operands = [call["i1"], call["i2"], call["i3"]]
    letters = "abcdefghijklmnopqrstuvwxyz"[: operands[0].dim() + len(call["expand1"])]
    terms = (
        "".join(letter for i, letter in enumerate(letters) if i not in tuple(call[name]))
        for name in ("expand1", "expand2", "expand3", "sumdim")
    )
    return operands, "{},{},{}->{}".format(*terms)


@on("_trilinear")
def _trilinear(call: AtenCall) -> Translation:
    """The forward form x1, weight, x2 has a kind of its own."""
    (a, b, c), equation = _equation(call)
    forward = equation == "ac,bcd,ad->ab"
    return means("bilinear", (a, c, b)) if forward else means("einsum", (a, b, c), equation=equation)


@OUTPUTS.on("_trilinear")
def _trilinear_result(call: AtenCall) -> Described:
    operands, equation = _equation(call)
    return made(einsum(equation, [tuple(x.shape) for x in operands]), operands[0])


# -- convolutions in all their spellings, and their gradients


def _is_transposed(call: AtenCall) -> bool:
    return bool(call["transposed"]) if "transposed" in call.args else "transpose" in call.base


def conv(call: AtenCall, added: Any = None, *, then: tuple[str, ...] | None = None) -> Translation:
    """A convolution whose arguments go by one of the names that torch uses for them."""
    x, weight = call.get("input", "self", "X", "qx"), call.get("weight", "W", "qw")
    # No cost depends on these two; the receptive field does
    stride, dilation = (tuple(call[name]) if name in call.args else None for name in ("stride", "dilation"))
    return means(
        "conv", (x, weight, call.get("bias", "B"), added), transposed=_is_transposed(call) or None, then=then or None,
        stride=stride, dilation=dilation, **_order(x, weight),
    )  # fmt: skip


def _order(x: AtenTensor, weight: AtenTensor) -> dict[str, Any]:
    """Whether a GPU runs a convolution with channels last, and which tensors it has to copy because they lie otherwise."""
    if not (tells_strides(x) and tells_strides(weight)):
        return {}
    last = asks_for_channels_last(x) or asks_for_channels_last(weight)
    axes = (0, *range(2, x.dim()), 1) if last else None
    copied = tuple(name for name, tensor in (("image", x), ("weight", weight)) if not is_contiguous(tensor, axes))
    return {
        "channels_last": (last and not (is_contiguous(x) and is_contiguous(x, axes))) or None,
        "copied": copied or None,
    }


def _conv_grads(call: AtenCall, weight: AtenTensor, grad_output: AtenTensor) -> Translation:
    """Those gradients that the mask requests; the overload with three destinations computes all three."""
    x = call.get("input", "self")
    mask = call["output_mask"] if "output_mask" in call.args else (True, True, True)
    grads = tuple(name for name, wanted in zip(("input", "weight", "bias"), mask, strict=False) if wanted)
    return means(
        "conv", (grad_output, x, weight), grads=grads, transposed=_is_transposed(call) or None,
        channels_last=has_channels_last(x) or None,
    )  # fmt: skip


# Each row is a family, by which measured operators are matched with counted ones: `conv2d` is measured around `convolution`
_STRAIGHT = (
    "conv1d conv2d conv3d _convolution_mode thnn_conv2d slow_conv3d slow_conv3d_forward _slow_conv2d_forward "
    "slow_conv_dilated2d slow_conv_dilated3d _conv_depthwise2d conv_depthwise3d cudnn_convolution miopen_convolution "
    "miopen_depthwise_convolution mkldnn_convolution _nnpack_spatial_convolution _mps_convolution"
)
_TRANSPOSED = (
    "conv_transpose1d conv_transpose2d conv_transpose3d slow_conv_transpose2d slow_conv_transpose3d "
    "cudnn_convolution_transpose miopen_convolution_transpose _mps_convolution_transpose"
)
_EITHER = "convolution _convolution convolution_overrideable"

rows(
    {
        _STRAIGHT: lambda call: conv(call),
        _TRANSPOSED: lambda call: conv(call),
        _EITHER: lambda call: conv(call),
        "cudnn_convolution_relu miopen_convolution_relu": lambda call: conv(call, then=("relu",)),
        # the rule counts one addition for whatever follows the weight
        "cudnn_convolution_add_relu miopen_convolution_add_relu":
            lambda call, z, bias: conv(call, z, then=("relu",) if bias is None else ("add", "relu")),
        "convolution_backward convolution_backward_overrideable _slow_conv2d_backward mps_convolution_backward "
        "mps_convolution_transpose_backward": _conv_grads,
        # time, batch and channels last, the weight as (kernel, in, out): a product over kernel and input channels
        "conv_tbc":
            lambda self, weight, bias: means("matmul", (self, weight, bias), depth=prod(weight.shape[:2]), bias=True),
        "conv_tbc_backward": lambda self, input, weight: means(
            "matmul", (self, input, weight), depth=prod(weight.shape[:2]),
            macs=2 * self.numel() * prod(weight.shape[:2]),
        ),
    }
)  # fmt: skip


# -- results of both


def multiplied(a: AtenTensor, b: AtenTensor, dtype: str | None = None) -> Described:
    """A product over the last axis of one and the last but one of the other, the others broadcast."""
    columns = b.shape[-1:] if b.dim() > 1 else ()
    return made((*broadcast([a.shape[:-2], b.shape[:-2]]), *a.shape[-2:-1], *columns), dtype or a)


def _plain_result(call: AtenCall, out_dtype: str | None = None, dtype: str | None = None) -> Described:
    a, b = (call[name] for name in list(call.args)[:2])
    return multiplied(a, b, "int32" if call.base == "_int_mm" else out_dtype or dtype)


def _added(call: AtenCall, out_dtype: str | None = None) -> Described:
    a, b = (call[name] for name in list(call.args)[1:3])
    return multiplied(a, b, out_dtype)


def _grads(x: AtenTensor, weight: AtenTensor, grad_output: AtenTensor, axis: int, output_mask: Any) -> Results:
    """Gradients of input, weight and bias; `axis` is that of the output's features."""
    return only((like(x), like(weight), made((grad_output.shape[axis],), grad_output)), output_mask)


def _affine_grid(call: AtenCall, theta: AtenTensor) -> Described:
    batch, _, *extents = call["size"] if "size" in call.args else (call["N"], 0, call["H"], call["W"])
    return made((batch, *extents, len(extents)), theta)


def _convolution(
    call: AtenCall, weight: AtenTensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, output_padding: Any = 0
) -> Described:
    x, axes = call.get("input", "self"), weight.dim() - 2
    if padding == "same":
        return made((*x.shape[: -axes - 1], weight.shape[0], *x.shape[-axes:]), x)
    settings = (per_axis(0 if each == "valid" else each, axes) for each in (stride, padding, dilation, output_padding))
    transposed = _is_transposed(call)
    extents: list[Any] = []
    for n, k, s, p, d, e in zip(x.shape[-axes:], weight.shape[2:], *settings, strict=True):
        step = {"stride": s, "padding": (p, p), "dilation": d}
        extents.append(spread(n, k, extra=e, **step) if transposed else windows(n, k, **step))
    groups = call["groups"] if "groups" in call.args else 1
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return made((*x.shape[: -axes - 1], channels, *extents), x)


OUTPUTS.rows(
    {
        "mm bmm mv matmul linalg_matmul dot vdot _scaled_mm _int_mm": _plain_result,
        "addmm _addmm_activation baddbmm addmv sspaddmm": _added,
        "addbmm": lambda batch1, batch2: made((batch1.shape[1], batch2.shape[2]), batch1),
        "linear mkldnn_linear": lambda call, weight: with_last(call.get("input", "self"), *weight.shape[:-1]),
        "linear_backward mkldnn_linear_backward": lambda self, weight, grad_output, output_mask:
            _grads(self, weight, grad_output, -1, output_mask),
        "bilinear": lambda input1, weight: with_last(input1, weight.shape[0]),
        "outer ger": lambda self, vec2: made((*self.shape, *vec2.shape), self),
        "addr": lambda self, vec1, vec2: made((*vec1.shape, *vec2.shape), self),
        "linalg_vecdot": lambda x, y, dim: made(reduced(broadcast([x.shape, y.shape]), (dim,)), x),
        "tensordot": lambda self, other, dims_self, dims_other:
            made(tensordot(self.shape, other.shape, dims_self, dims_other), self),
        "affine_grid_generator cudnn_affine_grid_generator": _affine_grid,
        f"{_STRAIGHT} {_TRANSPOSED} {_EITHER} cudnn_convolution_relu cudnn_convolution_add_relu miopen_convolution_relu "
        "miopen_convolution_add_relu": _convolution,
        "conv_tbc": lambda self, weight, pad: made(
            (self.shape[0] + 2 * pad - weight.shape[0] + 1, self.shape[1], weight.shape[2]), self,
        ),
        "convolution_backward convolution_backward_overrideable _slow_conv2d_backward":
            lambda call, weight, grad_output, output_mask:
                _grads(call.get("input", "self"), weight, grad_output, 1, output_mask),
    }
)  # fmt: skip
