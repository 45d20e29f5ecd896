"""Results of matrix products, convolutions, attention and solvers, and of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import Call, Described, Tensor, complex_of, per_axis, real_of, type_name
from opcost.frontends.aten.outputs.table import like, made, on, on_each, only, with_last


def product(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape of a product over the last axis of one and the last but one of the other, the others broadcast."""
    rows, columns = tuple(a[-2:-1]), tuple(b[-1:]) if len(b) > 1 else ()
    return (*broadcast([a[:-2], b[:-2]]), *rows, *columns)


@on("mm", "bmm", "mv", "matmul", "linalg_matmul", "dot", "vdot", "_scaled_mm", "_int_mm")
def _plain(call: Call) -> tuple[Described, ...]:
    a, b = (call[name] for name in list(call.args)[:2])
    wanted = next((call[name] for name in ("out_dtype", "dtype") if name in call.args), None)
    dtype = "int32" if call.base == "_int_mm" else wanted or type_name(a)
    return (made(product(a.shape, b.shape), dtype),)


@on("addmm", "_addmm_activation", "baddbmm", "addmv", "sspaddmm")
def _added(call: Call) -> tuple[Described, ...]:
    a, b = (call[name] for name in list(call.args)[1:3])
    wanted = call["out_dtype"] if "out_dtype" in call.args else None
    return (made(product(a.shape, b.shape), wanted or type_name(a)),)


@on("linear_backward", "mkldnn_linear_backward")
def _linear_backward(call: Call) -> tuple[Tensor, ...]:
    grad, weight = call["grad_output"], call["weight"]
    grads = like(call["self"]), like(weight), made(grad.shape[-1:], type_name(grad))
    return only(grads, call["output_mask"])


@on("linalg_vecdot")
def _vecdot(call: Call) -> tuple[Described, ...]:
    shape = list(broadcast([call["x"].shape, call["y"].shape]))
    del shape[call["dim"]]
    return (made(shape, type_name(call["x"])),)


@on("tensordot")
def _tensordot(call: Call) -> tuple[Described, ...]:
    kept = (
        tuple(n for axis, n in enumerate(x.shape) if axis not in {dim % x.dim() for dim in dims})
        for x, dims in ((call["self"], call["dims_self"]), (call["other"], call["dims_other"]))
    )
    return (made(sum(kept, ()), type_name(call["self"])),)


@on("_trilinear")
def _trilinear(call: Call) -> tuple[Described, ...]:
    """Each operand gets axes of one element where it is expanded; the summed axes are gone."""
    shapes = []
    for name, where in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        shape = list(call[name].shape)
        for axis in call[where]:
            shape.insert(axis, 1)
        shapes.append(shape)
    summed = set(call["sumdim"])
    kept = (n for axis, n in enumerate(broadcast(shapes)) if axis not in summed)
    return (made(kept, type_name(call["i1"])),)


@on("affine_grid_generator", "cudnn_affine_grid_generator")
def _affine_grid(call: Call) -> tuple[Described, ...]:
    if "size" in call.args:
        batch, _, *extents = call["size"]
    else:
        batch, extents = call["N"], [call["H"], call["W"]]
    return (made((batch, *extents, len(extents)), type_name(call["theta"])),)


def _list(call: Call, name: str, axes: int, otherwise: int) -> tuple[int, ...]:
    """A setting of a convolution, one number for each axis."""
    return per_axis(call[name], axes) if name in call.args else (otherwise,) * axes


@on(
    "conv1d", "conv2d", "conv3d", "_slow_conv2d_forward", "slow_conv3d_forward", "slow_conv3d", "thnn_conv2d",
    "slow_conv_dilated2d", "slow_conv_dilated3d", "_conv_depthwise2d", "conv_depthwise3d", "cudnn_convolution",
    "miopen_convolution", "miopen_depthwise_convolution", "mkldnn_convolution", "convolution", "_convolution",
    "convolution_overrideable", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "slow_conv_transpose2d",
    "slow_conv_transpose3d", "cudnn_convolution_transpose", "miopen_convolution_transpose", "cudnn_convolution_relu",
    "cudnn_convolution_add_relu", "miopen_convolution_relu", "miopen_convolution_add_relu", "_convolution_mode",
)  # fmt: skip
def _convolution(call: Call) -> tuple[Described, ...]:
    x, weight = call.get("input", "self"), call["weight"]
    axes = weight.dim() - 2
    if call.args.get("padding") == "same":
        return (made((*x.shape[: -axes - 1], weight.shape[0], *x.shape[-axes:]), type_name(x)),)
    valid = call.args.get("padding") == "valid"
    padding, stride = (0,) * axes if valid else _list(call, "padding", axes, 0), _list(call, "stride", axes, 1)
    dilation = _list(call, "dilation", axes, 1)
    sizes = zip(x.shape[-axes:], weight.shape[2:], stride, padding, dilation, strict=True)
    if bool(call["transposed"]) if "transposed" in call.args else "transpose" in call.base:
        extra = _list(call, "output_padding", axes, 0)
        spatial = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + e for (n, k, s, p, d), e in zip(sizes, extra, strict=True)]
        channels = weight.shape[1] * (call["groups"] if "groups" in call.args else 1)
    else:
        spatial = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]
        channels = weight.shape[0]
    return (made((*x.shape[: -axes - 1], channels, *spatial), type_name(x)),)


@on("conv_tbc")
def _conv_tbc(call: Call) -> tuple[Described, ...]:
    x, weight = call["self"], call["weight"]
    steps = x.shape[0] + 2 * call["pad"] - weight.shape[0] + 1
    return (made((steps, x.shape[1], weight.shape[2]), type_name(x)),)


def _conv_grads(call: Call, x: str) -> tuple[Any, ...]:
    grad, weight = call["grad_output"], call["weight"]
    grads = like(call[x]), like(weight), made(grad.shape[1:2], type_name(grad))
    return only(grads, call["output_mask"])


on_each(
    {
        "addbmm": lambda batch1, batch2: made((batch1.shape[1], batch2.shape[2]), type_name(batch1)),
        "linear mkldnn_linear": lambda call, weight: with_last(call.get("input", "self"), *weight.shape[:-1]),
        "bilinear": lambda input1, weight: with_last(input1, weight.shape[0]),
        "outer ger": lambda call: (made((*call["self"].shape, *call.get("vec2").shape), type_name(call["self"])),),
        "addr": lambda call: (made((*call["vec1"].shape, *call["vec2"].shape), type_name(call["self"])),),
        "convolution_backward convolution_backward_overrideable": lambda call: _conv_grads(call, "input"),
        "_slow_conv2d_backward": lambda call: _conv_grads(call, "self"),
    }
)


# -- results of attention kernels: the values, and what each kernel keeps for its gradient

_ROWS = 32  # The efficient kernel keeps the logarithms of its sums for blocks of this many rows


def _values(call: Call) -> Described:
    q, v = call["query"], call["value"]
    return made((*q.shape[:-1], v.shape[-1]), type_name(q))


on_each({"scaled_dot_product_attention": _values})


@on("_scaled_dot_product_flash_attention_for_cpu")
def _on_cpu(call: Call) -> tuple[Described, ...]:
    q = call["query"]
    kept = "float64" if type_name(q) == "float64" else "float32"
    return _values(call), made(q.shape[:-1], kept)


@on("_scaled_dot_product_flash_attention")
def _flash(call: Call) -> tuple[Described, ...]:
    """Values, logarithms of the sums, the state of the random numbers, and two tensors without elements."""
    q = call["query"]
    if call["return_debug_mask"]:
        raise ValueError("the mask for debugging has a size of the kernel's choice")
    return (
        _values(call), made(q.shape[:-1], "float32"), made((2,), "uint64"), made((), "uint64"),
        made((0,), type_name(q)),
    )  # fmt: skip


@on("_scaled_dot_product_efficient_attention")
def _efficient(call: Call) -> tuple[Described, ...]:
    batch, heads, length, _ = call["query"].shape
    rows = -(-length // _ROWS) * _ROWS if call["compute_log_sumexp"] else 0
    return _values(call), made((batch, heads, rows), "float32"), made((), "int64"), made((), "int64")


@on("_efficient_attention_forward")
def _below_efficient(call: Call) -> tuple[Described, ...]:
    """As above with heads behind the length; packed sequences are padded as their longest needs it, which is unknown."""
    if call["cu_seqlens_q"] is not None:
        raise ValueError("sequences are packed")
    batch, length, heads, _ = call["query"].shape
    rows = -(-length // _ROWS) * _ROWS if call["compute_log_sumexp"] else 0
    return _values(call), made((batch, heads, rows), "float32"), made((), "int64"), made((), "int64")


@on("_scaled_dot_product_cudnn_attention", "_cudnn_attention_forward")
def _cudnn(call: Call) -> tuple[Described, ...]:
    if call.get("cum_seq_q") is not None:
        raise ValueError("sequences are packed")
    batch, heads, length, _ = call["query"].shape
    if call["return_debug_mask"]:
        raise ValueError("the mask for debugging has a size of the kernel's choice")
    return _values(call), made((batch, heads, length, 1), "float32"), made((), "int64"), made((), "int64")


@on("_flash_attention_forward")
def _below_flash(call: Call) -> tuple[Described, ...]:
    """As above with heads behind the length; packed sequences keep their sums by head."""
    q = call["query"]
    if call["return_debug_mask"]:
        raise ValueError("the mask for debugging has a size of the kernel's choice")
    *batch, length, heads, _ = q.shape
    kept = made((*batch, heads, length), "float32")
    return like(q), kept, made((2,), "uint64"), made((), "uint64"), made((0,), type_name(q))


@on("_scaled_dot_product_efficient_attention_backward")
def _efficient_backward(call: Call) -> tuple[Any, ...]:
    """The gradient of the mask too, where it is requested."""
    names = ("query", "key", "value", "attn_bias")
    return tuple(like(call[name]) for name in only(names, call["grad_input_mask"]))


# -- results of factorisations and solvers


def _batch(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape[:-2])


def _info(x: Tensor) -> Described:
    """One number for each matrix that says whether it could be done."""
    return made(_batch(x), "int32")


@on("linalg_lu_factor_ex")
def _lu(call: Call) -> tuple[Described, ...]:
    a = call["A"]
    return like(a), made((*_batch(a), min(a.shape[-2:])), "int32"), _info(a)


@on("_linalg_det")
def _det(call: Call) -> tuple[Described, ...]:
    a = call["A"]
    return made(_batch(a), type_name(a)), like(a), made(a.shape[:-1], "int32")


@on("_linalg_slogdet")
def _slogdet(call: Call) -> tuple[Described, ...]:
    a = call["A"]
    sign, size = made(_batch(a), type_name(a)), made(_batch(a), real_of(type_name(a)))
    return sign, size, like(a), made(a.shape[:-1], "int32")


@on("_linalg_eigh")
def _eigh(call: Call) -> tuple[Described, ...]:
    a = call["A"]
    vectors = like(a) if call["compute_v"] else made((0,), type_name(a))
    return made(a.shape[:-1], real_of(type_name(a))), vectors


@on("_linalg_svd")
def _svd(call: Call) -> tuple[Described, ...]:
    a = call["A"]
    (*batch, rows, columns), dtype = a.shape, type_name(a)
    rank = min(rows, columns)
    inner = (rows, columns) if call["full_matrices"] else (rank, rank)
    sizes = ((rows, inner[0]), (inner[1], columns)) if call["compute_uv"] else ((0,), (0,))
    u, v = (made((*batch, *size) if call["compute_uv"] else size, dtype) for size in sizes)
    return u, made((*batch, rank), real_of(dtype)), v


@on("linalg_householder_product", "geqrf", "ormqr")
def _householder(call: Call) -> tuple[Tensor, ...]:
    if call.base == "ormqr":
        return (like(call["input3"]),)
    if call.base == "geqrf":
        a = call["self"]
        return like(a), made((*_batch(a), min(a.shape[-2:])), type_name(a))
    return (like(call["input"]),)


@on("linalg_eig")
def _eig(call: Call) -> tuple[Described, ...]:
    """The eigenvalues of real matrices are complex too."""
    a = call["self"]
    dtype = complex_of(type_name(a))
    return made(a.shape[:-1], dtype), made(a.shape, dtype)


@on("linalg_ldl_factor_ex")
def _ldl(call: Call) -> tuple[Described, ...]:
    a = call["self"]
    return like(a), made(a.shape[:-1], "int32"), _info(a)


@on("linalg_lu", "lu_unpack")
def _triangles(call: Call) -> tuple[Described, ...]:
    """A permutation and two triangles, each empty where it is not requested."""
    a = call[next(iter(call.args))]
    (*batch, rows, columns), dtype = a.shape, type_name(a)
    rank = min(rows, columns)
    has_permutation, has_triangles = call.get("pivot", "unpack_pivots"), call.base == "linalg_lu" or call["unpack_data"]
    shapes = (has_permutation, (rows, rows)), (has_triangles, (rows, rank)), (has_triangles, (rank, columns))
    permutation, lower, upper = (made((*batch, *shape) if wanted else (0,), dtype) for wanted, shape in shapes)
    return permutation, lower, upper


@on("linalg_pinv")
def _pseudoinverse(call: Call) -> tuple[Described, ...]:
    (*batch, rows, columns) = call["self"].shape
    return (made((*batch, columns, rows), type_name(call["self"])),)


def _solution(a: Tensor, b: Tensor) -> Described:
    """As many right-hand sides as were given, for each matrix of either batch."""
    return made((*broadcast([_batch(a), _batch(b)]), *b.shape[-2:]), type_name(b))


@on("_linalg_solve_ex")
def _solve(call: Call) -> tuple[Described, ...]:
    a, b = call["A"], call["B"]
    is_vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and tuple(b.shape) == tuple(a.shape[:-1]))
    solution = made((*_batch(a), b.shape[-1]), type_name(b)) if is_vector else _solution(a, b)
    return solution, like(a), made(a.shape[:-1], "int32"), _info(a)


@on("triangular_solve")
def _triangular_solve(call: Call) -> tuple[Described, ...]:
    b, a = call["self"], call["A"]
    return _solution(a, b), _solution(b, a)


on_each(
    {
        "linalg_cholesky_ex": lambda call: (like(call["self"]), _info(call["self"])),
        "linalg_inv_ex": lambda call: (like(call["A"]), _info(call["A"])),
        "linalg_solve_triangular": lambda call: (_solution(call["self"], call["B"]),),
        "linalg_lu_solve": lambda call: (_solution(call["LU"], call["B"]),),
        "linalg_ldl_solve": lambda call: (_solution(call["LD"], call["B"]),),
    }
)
