"""Results of factorisations and solvers."""

from __future__ import annotations

from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import Call
from opcost.frontends.aten.outputs.table import like, made, on, on_each
from opcost.frontends.aten.promotion import complex_of, real_of
from opcost.frontends.aten.tensor import Described, Tensor, type_name


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
    """A permutation and two triangles, each empty where it is not asked for."""
    a = call[next(iter(call.args))]
    (*batch, rows, columns), dtype = a.shape, type_name(a)
    rank = min(rows, columns)
    has_permutation, has_triangles = call.get("pivot", "unpack_pivots"), call.base == "linalg_lu" or call["unpack_data"]
    shapes = (has_permutation, (rows, rows)), (has_triangles, (rows, rank)), (has_triangles, (rank, columns))
    permutation, lower, upper = (made((*batch, *shape) if asked else (0,), dtype) for asked, shape in shapes)
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
