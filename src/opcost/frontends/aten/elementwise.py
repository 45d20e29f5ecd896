"""Plain operators: arithmetic element by element, reductions, sorting, random values, solvers, optimizers."""

from collections.abc import Iterable, Sequence
from typing import Any

from opcost.core.parsing import packaged_table
from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import AtenCall, Constant, Translation, means, on, rows
from opcost.frontends.aten.contraction import product_of
from opcost.frontends.aten.results import OUTPUTS, Results, axis_of, like, made, of_elements, replaced, together
from opcost.frontends.aten.tensor import (
    AtenTensor,
    Described,
    complex_of,
    floating,
    promoted,
    real_of,
    summed,
    type_name,
)


def elementwise(fn: str, elements: int | None = None) -> Translation:
    """One function of the table, for each output element, or for another number of them."""
    return means("elementwise", fn=fn, elements=elements)


def _pow(exponent: Any) -> Translation:
    known = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    return elementwise(known.get(exponent, "pow") if isinstance(exponent, (int, float)) else "pow")


def _clamp(min: Any, max: Any) -> Translation:
    return elementwise("min" if min is None else "max" if max is None else "clamp")


# -- sorting, selection by rank, and search in sorted values

_WHOLE = ("median", "nanmedian", "unique_consecutive", "quantile", "nanquantile")


def _sort(length: int, selected: int | None = None, ins: tuple[AtenTensor, ...] | None = None) -> Translation:
    """`length` elements compared together, all of them ordered or only some kept."""
    return means("sort", ins, length=length, selected=selected)


def _extent(call: AtenCall) -> int:
    """Elements along the axis that is compared; the whole tensor where there is no axis."""
    x: AtenTensor = call["self"]
    dim = call.get("dim")
    if dim is None:
        return x.numel() if call.base in _WHOLE else x.shape[-1] if x.dim() else 1
    return x.shape[dim] if x.dim() else 1


# -- drawn values. Dropout that does not run (evaluation) reaches the dispatcher as nothing at all


def _fill(call: AtenCall) -> Translation:
    """What is filled lends only its shape; tensors of probabilities, means and deviations are read."""
    drawn_by_self = call.base == "bernoulli" and "p" not in call.args
    return means("random", call.tensors("self") if drawn_by_self else call.tensors("p", "mean", "std", "key"))


def _dropout(call: AtenCall, p: Any) -> Translation:
    """Nothing is drawn where nothing is to be dropped."""
    return means("random", fn="dropout") if call.get("train", "training") and p else Translation("view", {})


# -- fused updates over lists of parameters. `_foreach_` operators are translated as the operator they repeat

_STATE = ("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "momentum_buffer_list", "state_sums")


def _step(call: AtenCall, fn: str) -> Translation:
    """A step writes the parameters and its own state."""
    return means(
        "elementwise", None, call.tensors("self", *_STATE) if call.in_place else None, fn=f"{fn}_step",
        elements=_total(call["self"]),
    )  # fmt: skip


def _total(tensors: Sequence[AtenTensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _fft(call: AtenCall, dim: Sequence[int]) -> Translation:
    """The real side holds the whole length of the last axis."""
    x = call.outs[0] if call.base == "fft_c2r" else call["self"]
    return means("fft", lengths=tuple(x.shape[d] for d in dim), real=call.base != "fft_c2c" or None)


rows(
    {
        # with a factor on the second operand it is a multiplication and an addition
        "add sub rsub subtract": lambda call, alpha=None: elementwise(
            ("add" if call.base == "add" else "sub") if alpha in (None, 1) else "fma"
        ),
        "div divide":
            lambda rounding_mode=None: elementwise("div" if rounding_mode is None else "floor_divide"),
        "pow": _pow,
        "clamp clip quantized::clamp": _clamp,
        "gelu": lambda approximate: elementwise("gelu_tanh" if approximate == "tanh" else "gelu"),
        "gelu_backward":
            lambda approximate: elementwise("gelu_tanh_grad" if approximate == "tanh" else "gelu_grad"),
        # the second output is a buffer for the gradient, empty on most devices
        "log_sigmoid_forward": lambda call: elementwise("logsigmoid", call.outs[0].numel()),
        "cosine_similarity pairwise_distance":
            lambda call: means("reduce", fn="dot" if call.base == "cosine_similarity" else "norm"),
        "segment_reduce":
            lambda call, reduce: means("reduce", call.tensors("data", "lengths", "indices", "offsets"), fn=reduce),
        "sort argsort msort":
            lambda call, self: _sort(self.shape[0] if call.base == "msort" else _extent(call)),
        "median nanmedian mode quantile nanquantile unique_dim unique_consecutive unique_dim_consecutive":
            lambda call: _sort(_extent(call)),
        "topk kthvalue": lambda call, k: _sort(_extent(call), k),
        "_unique _unique2": lambda self: _sort(self.numel()),
        # each value is found by bisection, so the sequence's length counts by its logarithm
        "searchsorted": lambda call, sorted_sequence: _sort(
            sorted_sequence.shape[-1], ins=call.tensors("self", "sorted_sequence", "sorter"),
        ),
        "bucketize": lambda boundaries: _sort(boundaries.numel()),
        # both sides are sorted together
        "isin":
            lambda call: _sort(_total(call.tensors("elements", "element", "test_elements", "test_element"))),
        "bernoulli cauchy exponential geometric log_normal normal random uniform _philox_normal _philox_uniform "
        "_fill_mem_eff_dropout_mask": _fill,
        "dropout quantized::dropout": _dropout,
        # a sparse tensor's indices are sorted, and values at equal places added
        "_coalesce coalesce": lambda self: _sort(max(self._nnz(), 1)),
        # one of the primitive operators into which exported programs may be taken apart; most share aten's names
        "prims::fft_c2c prims::fft_r2c prims::fft_c2r": _fft,
        "_fused_sgd": lambda call, momentum: _step(call, "momentum" if momentum else "sgd"),
        "_fused_adam _fused_adamw _fused_adagrad": lambda call: _step(call, call.base.removeprefix("_fused_")),
        # each gradient is checked and scaled
        "_amp_foreach_non_finite_check_and_unscale": lambda self: elementwise("fma", _total(self)),
    }
)  # fmt: skip


# -- operators that mean the same in every call: a kind with fixed attributes, or the product of named arguments
#
# `operators.json` lists them; a name without a library belongs to aten, and `reads` names the arguments that are inputs where
# they do not come in the order of the kind; `product` names the operands, what is added, and what is read besides. Views
# proper are found by their schema. Under the kind `view` are those that torch declares as if they made something new, memory
# that is handed out but not written (`empty`; what fills it counts), and orders that leave data alone: `set_` and `resize_`
# change which memory a tensor looks at, not its content.

for _entry in packaged_table(__package__, "operators.json"):
    _product = _entry.pop("product", None)
    on(*_entry.pop("ops"))(
        Constant(_entry.pop("kind"), tuple(_entry.pop("reads", ())), _entry)
        if _product is None
        else product_of(_product)
    )


# -- results of arithmetic


def _float_power(call: AtenCall) -> Described:
    y = of_elements(call)
    return like(y, "complex128" if type_name(y).startswith("complex") else "float64")


OUTPUTS.rows(
    {
        "add sub rsub subtract pow clamp clip gelu gelu_backward clamp_min clamp_max": lambda call: of_elements(call),
        "div divide": lambda call: of_elements(call, "div" if call.get("rounding_mode") is None else "floor_divide"),
        "float_power": _float_power,
        # the condition takes part in the shape alone
        "where": lambda condition, self, other: together(condition, self, other, dtype=promoted(self, other)),
        "lerp": lambda call, self: together(*call.args.values(), dtype=self),
        "glu": lambda self, dim: made(replaced(self, dim, self.shape[axis_of(self, dim)] // 2), self),
        "masked_fill": lambda self, mask: together(self, mask, dtype=self),
        "polar": lambda abs, angle: together(abs, angle, dtype=complex_of(type_name(abs))),
        "complex": lambda real, imag: together(real, imag, dtype=complex_of(type_name(real))),
    }
)


# -- results of reductions, running sums, sorting and selection


def left(call: AtenCall) -> tuple[int, ...]:
    """The shape that is left when axes are reduced: one, several, or with None or an empty list all of them."""
    x, dims = call["self"], call["dim"] if "dim" in call.args else None
    keep = "keepdim" in call.args and call["keepdim"]
    listed: Iterable[int] = (dims,) if isinstance(dims, int) else dims or range(x.dim())
    gone = {axis_of(x, dim) for dim in listed}
    return tuple(1 if axis in gone else n for axis, n in enumerate(x.shape) if keep or axis not in gone)


def _extreme(call: AtenCall) -> Results:
    """Of two tensors the larger elements; along an axis the largest and where it was; or the largest of all."""
    if "other" in call.args:
        return of_elements(call, "max")
    y = made(left(call), call["self"])
    return (y, like(y, "int64")) if "dim" in call.args else y


def _found(values: Any, dtype: str) -> Described:
    """One answer for each value that is searched; a number is a single one."""
    return like(values, dtype) if isinstance(values, AtenTensor) else made((), dtype)


OUTPUTS.rows(
    {
        "mean nanmean logsumexp": lambda call, self, dtype=None: made(left(call), dtype or floating(type_name(self))),
        "var std norm linalg_vector_norm frobenius_norm linalg__powsum":
            lambda call, self, dtype=None: made(left(call), real_of(dtype or floating(type_name(self)))),
        "amax amin": lambda call, self: made(left(call), self),
        "argmax argmin count_nonzero": lambda call: made(left(call), "int64"),
        "max min median nanmedian mode kthvalue": _extreme,
        "searchsorted bucketize": lambda self, out_int32: _found(self, "int32" if out_int32 else "int64"),
        "isin": lambda call: _found(call.get("elements", "element"), "bool"),
        "var_mean std_mean":
            lambda call, self: (made(left(call), real_of(type_name(self))), made(left(call), self)),
        # of bytes they make bytes, as in the time before there were truths
        "any all _is_any_true _is_all_true":
            lambda call, self: made(left(call), "uint8" if type_name(self) == "uint8" else "bool"),
        "aminmax _aminmax": lambda call, self: [made(left(call), self)] * 2,
        "topk": lambda self, dim, k: (made(replaced(self, dim, k), self), made(replaced(self, dim, k), "int64")),
        "sum nansum prod": lambda call, self, dtype=None: made(left(call), dtype or summed(type_name(self))),
        "trace": lambda self: made((), summed(type_name(self))),
        "dist": lambda self: made((), real_of(type_name(self))),
        "hash_tensor": lambda call: made(left(call), "uint64"),
        "histc": lambda self, bins: made((bins,), self),
        "cumsum cumprod": lambda self, dtype=None: like(self, dtype or summed(type_name(self))),
        "logcumsumexp _logcumsumexp": lambda self: like(self, floating(type_name(self))),
    }
)  # fmt: skip


# -- results of losses, distances and transforms


def _reduced(reduction: int, each: Described) -> Described:
    """Each value, or with a reduction one number."""
    return made((), each) if reduction else each


def _pairs(x1: AtenTensor, x2: AtenTensor, *last: int) -> Described:
    return made((*broadcast([x1.shape[:-2], x2.shape[:-2]]), *last), x1)


def _from_real(self: AtenTensor, dim: Sequence[int], onesided: Any) -> Described:
    """Of a real signal half of the spectrum says all."""
    shape = replaced(self, dim[-1], self.shape[dim[-1]] // 2 + 1) if onesided else self.shape
    return made(shape, complex_of(type_name(self)))


OUTPUTS.rows(
    {
        "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits "
        "soft_margin_loss":
            lambda self, target, reduction: _reduced(reduction, together(self, target, dtype=promoted(self, target))),
        "multi_margin_loss": lambda self, target, reduction: _reduced(reduction, made(target.shape, self)),
        "multilabel_margin_loss_forward": lambda self, target, reduction: (
            _reduced(reduction, made(self.shape[:-1], self)), like(target, type_name(self)),
        ),
        # the loss, and the sum of the weights, by which a mean is divided
        "nll_loss_forward nll_loss2d_forward":
            lambda self, target, reduction: (_reduced(reduction, made(target.shape, self)), made((), self)),
        "cdist _cdist_forward _euclidean_dist": lambda x1, x2: _pairs(x1, x2, x1.shape[-2], x2.shape[-2]),
        "_cdist_backward": lambda x1, x2: _pairs(x1, x2, *x1.shape[-2:]),
        "pdist _pdist_forward": lambda self: made((self.shape[0] * (self.shape[0] - 1) // 2,), self),
        "_fft_r2c": _from_real,
        "_fft_c2r": lambda self, dim, last_dim_size: made(
            replaced(self, dim[-1], last_dim_size), real_of(type_name(self)),
        ),
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
        "linalg_pinv": lambda self: _per_matrix(self, self, self.shape[-1], self.shape[-2]),
        "_linalg_solve_ex": _solve,
        "triangular_solve": lambda self, A: (_solution(A, self), _solution(self, A)),
        "linalg_solve_triangular": lambda self, B: _solution(self, B),
        "linalg_lu_solve": lambda LU, B: _solution(LU, B),
        "linalg_ldl_solve": lambda LD, B: _solution(LD, B),
    }
)  # fmt: skip
