"""Results of matrix products, convolutions, attention and solvers, and of their gradients."""

from __future__ import annotations

from typing import Any

from opcost.core.shapes import broadcast, reduced, spread, tensordot, windows
from opcost.frontends.aten.call import AtenCall, AtenTensor, Described, complex_of, per_axis, real_of, type_name
from opcost.frontends.aten.outputs.table import OUTPUTS, Results, like, made, only


def _product(a: AtenTensor, b: AtenTensor, dtype: str | None = None) -> Described:
    """A product over the last axis of one and the last but one of the other, the others broadcast."""
    columns = b.shape[-1:] if b.dim() > 1 else ()
    return made((*broadcast([a.shape[:-2], b.shape[:-2]]), *a.shape[-2:-1], *columns), dtype or a)


def _with_last(x: AtenTensor, *extents: int) -> Described:
    """A new tensor of the shape of another, but for the last axis."""
    return made((*x.shape[:-1], *extents), x)


def _plain(call: AtenCall, out_dtype: str | None = None, dtype: str | None = None) -> Described:
    a, b = (call[name] for name in list(call.args)[:2])
    return _product(a, b, "int32" if call.base == "_int_mm" else out_dtype or dtype)


def _added(call: AtenCall, out_dtype: str | None = None) -> Described:
    a, b = (call[name] for name in list(call.args)[1:3])
    return _product(a, b, out_dtype)


def _grads(x: AtenTensor, weight: AtenTensor, grad_output: AtenTensor, axis: int, output_mask: Any) -> Results:
    """Gradients of input, weight and bias; `axis` is that of the output's features."""
    return only((like(x), like(weight), made((grad_output.shape[axis],), grad_output)), output_mask)


def _trilinear(call: AtenCall) -> Described:
    """Each operand gets axes of one element where it is expanded; the summed axes are gone."""
    shapes = []
    for name, where in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        shape = list(call[name].shape)
        for axis in call[where]:
            shape.insert(axis, 1)
        shapes.append(shape)
    return made(reduced(broadcast(shapes), call["sumdim"]), call["i1"])


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
    transposed = bool(call["transposed"]) if "transposed" in call.args else "transpose" in call.base
    extents: list[Any] = []
    for n, k, s, p, d, e in zip(x.shape[-axes:], weight.shape[2:], *settings, strict=True):
        step = {"stride": s, "padding": (p, p), "dilation": d}
        extents.append(spread(n, k, extra=e, **step) if transposed else windows(n, k, **step))
    groups = call["groups"] if "groups" in call.args else 1
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return made((*x.shape[: -axes - 1], channels, *extents), x)


OUTPUTS.rows(
    {
        "mm bmm mv matmul linalg_matmul dot vdot _scaled_mm _int_mm": _plain,
        "addmm _addmm_activation baddbmm addmv sspaddmm": _added,
        "addbmm": lambda batch1, batch2: made((batch1.shape[1], batch2.shape[2]), batch1),
        "linear mkldnn_linear": lambda call, weight: _with_last(call.get("input", "self"), *weight.shape[:-1]),
        "linear_backward mkldnn_linear_backward": lambda self, weight, grad_output, output_mask:
            _grads(self, weight, grad_output, -1, output_mask),
        "bilinear": lambda input1, weight: _with_last(input1, weight.shape[0]),
        "outer ger": lambda self, vec2: made((*self.shape, *vec2.shape), self),
        "addr": lambda self, vec1, vec2: made((*vec1.shape, *vec2.shape), self),
        "linalg_vecdot": lambda x, y, dim: made(reduced(broadcast([x.shape, y.shape]), (dim,)), x),
        "tensordot": lambda self, other, dims_self, dims_other:
            made(tensordot(self.shape, other.shape, dims_self, dims_other), self),
        "_trilinear": _trilinear,
        "affine_grid_generator cudnn_affine_grid_generator": _affine_grid,
        "conv1d conv2d conv3d _slow_conv2d_forward slow_conv3d_forward slow_conv3d thnn_conv2d slow_conv_dilated2d "
        "slow_conv_dilated3d _conv_depthwise2d conv_depthwise3d cudnn_convolution miopen_convolution "
        "miopen_depthwise_convolution mkldnn_convolution convolution _convolution convolution_overrideable "
        "conv_transpose1d conv_transpose2d conv_transpose3d slow_conv_transpose2d slow_conv_transpose3d "
        "cudnn_convolution_transpose miopen_convolution_transpose cudnn_convolution_relu cudnn_convolution_add_relu "
        "miopen_convolution_relu miopen_convolution_add_relu _convolution_mode": _convolution,
        "conv_tbc": lambda self, weight, pad: made(
            (self.shape[0] + 2 * pad - weight.shape[0] + 1, self.shape[1], weight.shape[2]), self,
        ),
        "convolution_backward convolution_backward_overrideable": lambda input, weight, grad_output, output_mask:
            _grads(input, weight, grad_output, 1, output_mask),
        "_slow_conv2d_backward": lambda self, weight, grad_output, output_mask:
            _grads(self, weight, grad_output, 1, output_mask),
    }
)  # fmt: skip


# -- results of attention kernels: the values, and what each kernel keeps for its gradient


def _flash(
    query: AtenTensor, values: AtenTensor, sums: tuple[int, ...], *, return_debug_mask: Any
) -> tuple[Described | AtenTensor, ...]:
    """Values, logarithms of the sums, the state of the random numbers, and two tensors without elements."""
    if return_debug_mask:
        raise ValueError("the mask for debugging has a size of the kernel's choice")
    return values, made(sums, "float32"), made((2,), "uint64"), made((), "uint64"), made((0,), query)


def _other_kernel(
    values: AtenTensor, sums: tuple[int, ...], *, packed: Any = None
) -> tuple[Described | AtenTensor, ...]:
    """Values, logarithms of the sums, and two numbers that are the state of the random numbers."""
    if packed is not None:  # padded as their longest needs it, which is unknown
        raise ValueError("sequences are packed")
    return values, made(sums, "float32"), made((), "int64"), made((), "int64")


def _blocks(length: int, compute_log_sumexp: Any) -> int:
    """The efficient kernel keeps the logarithms of its sums for blocks of 32 rows."""
    return -(-length // 32) * 32 if compute_log_sumexp else 0


def _cudnn(
    query: AtenTensor, value: AtenTensor, return_debug_mask: Any, cum_seq_q: AtenTensor | None = None
) -> tuple[Described | AtenTensor, ...]:
    if return_debug_mask and cum_seq_q is None:
        raise ValueError("the mask for debugging has a size of the kernel's choice")
    batch, heads, length, _ = query.shape
    return _other_kernel(_with_last(query, value.shape[-1]), (batch, heads, length, 1), packed=cum_seq_q)


OUTPUTS.rows(
    {
        "scaled_dot_product_attention": lambda query, value: _with_last(query, value.shape[-1]),
        "_scaled_dot_product_flash_attention_for_cpu": lambda query, value: (
            _with_last(query, value.shape[-1]),
            made(query.shape[:-1], "float64" if type_name(query) == "float64" else "float32"),
        ),
        "_scaled_dot_product_flash_attention": lambda query, value, return_debug_mask: _flash(
            query, _with_last(query, value.shape[-1]), query.shape[:-1], return_debug_mask=return_debug_mask,
        ),
        # heads behind the length; packed sequences keep their sums by head
        "_flash_attention_forward": lambda query, return_debug_mask: _flash(
            query, like(query), (*query.shape[:-3], query.shape[-2], query.shape[-3]),
            return_debug_mask=return_debug_mask,
        ),
        "_scaled_dot_product_efficient_attention": lambda query, value, compute_log_sumexp: _other_kernel(
            _with_last(query, value.shape[-1]), (*query.shape[:2], _blocks(query.shape[2], compute_log_sumexp)),
        ),
        "_efficient_attention_forward": lambda query, value, compute_log_sumexp, cu_seqlens_q: _other_kernel(
            _with_last(query, value.shape[-1]),
            (query.shape[0], query.shape[2], _blocks(query.shape[1], compute_log_sumexp)), packed=cu_seqlens_q,
        ),
        "_scaled_dot_product_cudnn_attention _cudnn_attention_forward": _cudnn,
        # the gradient of the mask too, where it is requested
        "_scaled_dot_product_efficient_attention_backward": lambda query, key, value, attn_bias, grad_input_mask:
            [like(x) for x in only((query, key, value, attn_bias), grad_input_mask)],
    }
)  # fmt: skip


# -- results of factorisations and solvers


def _per_matrix(x: AtenTensor, dtype: str | AtenTensor, *extents: int) -> Described:
    return made((*x.shape[:-2], *extents), dtype)


def _svd(A: AtenTensor, full_matrices: Any, compute_uv: Any) -> Results:
    rows, columns = A.shape[-2:]
    rank = min(rows, columns)
    inner = (rows, columns) if full_matrices else (rank, rank)
    sizes = ((rows, inner[0]), (inner[1], columns))
    u, v = (_per_matrix(A, A, *size) if compute_uv else made((0,), A) for size in sizes)
    return u, _per_matrix(A, real_of(type_name(A)), rank), v


def _triangles(call: AtenCall) -> Results:
    """A permutation and two triangles, each empty where it is not requested."""
    a = call[next(iter(call.args))]
    rows, columns = a.shape[-2:]
    has_permutation, has_triangles = call.get("pivot", "unpack_pivots"), call.base == "linalg_lu" or call["unpack_data"]
    rank = min(rows, columns)
    shapes = (has_permutation, (rows, rows)), (has_triangles, (rows, rank)), (has_triangles, (rank, columns))
    return [_per_matrix(a, a, *shape) if wanted else made((0,), a) for wanted, shape in shapes]


def _solution(a: AtenTensor, b: AtenTensor) -> Described:
    """As many right-hand sides as were given, for each matrix of either batch."""
    return made((*broadcast([a.shape[:-2], b.shape[:-2]]), *b.shape[-2:]), b)


def _solve(A: AtenTensor, B: AtenTensor) -> Results:
    is_vector = B.dim() == 1 or (B.dim() == A.dim() - 1 and tuple(B.shape) == tuple(A.shape[:-1]))
    solution = _per_matrix(A, B, B.shape[-1]) if is_vector else _solution(A, B)
    return solution, like(A), made(A.shape[:-1], "int32"), _per_matrix(A, "int32")


OUTPUTS.rows(
    {
        # after the factors one number for each matrix that says whether it could be done
        "linalg_cholesky_ex": lambda self: (like(self), _per_matrix(self, "int32")),
        "linalg_inv_ex": lambda A: (like(A), _per_matrix(A, "int32")),
        "linalg_lu_factor_ex": lambda A: (like(A), _per_matrix(A, "int32", min(A.shape[-2:])), _per_matrix(A, "int32")),
        "linalg_ldl_factor_ex": lambda self: (like(self), made(self.shape[:-1], "int32"), _per_matrix(self, "int32")),
        "linalg_lu lu_unpack": _triangles,
        "_linalg_det": lambda A: (_per_matrix(A, A), like(A), made(A.shape[:-1], "int32")),
        "_linalg_slogdet":
            lambda A: (_per_matrix(A, A), _per_matrix(A, real_of(type_name(A))), like(A), made(A.shape[:-1], "int32")),
        "_linalg_eigh":
            lambda A, compute_v: (made(A.shape[:-1], real_of(type_name(A))), like(A) if compute_v else made((0,), A)),
        # the eigenvalues of real matrices are complex too
        "linalg_eig":
            lambda self: [made(shape, complex_of(type_name(self))) for shape in (self.shape[:-1], self.shape)],
        "_linalg_svd": _svd,
        "geqrf": lambda self: (like(self), _per_matrix(self, self, min(self.shape[-2:]))),
        "ormqr": lambda input3: like(input3),
        "linalg_householder_product": lambda input: like(input),
        "linalg_pinv": lambda self: _per_matrix(self, self, self.shape[-1], self.shape[-2]),
        "_linalg_solve_ex": _solve,
        "triangular_solve": lambda self, A: (_solution(A, self), _solution(self, A)),
        "linalg_solve_triangular": lambda self, B: _solution(self, B),
        "linalg_lu_solve": lambda LU, B: _solution(LU, B),
        "linalg_ldl_solve": lambda LD, B: _solution(LD, B),
    }
)  # fmt: skip
