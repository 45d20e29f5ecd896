"""Factorisations and solvers; the rule wants the matrix first, then the right-hand side."""

from __future__ import annotations

from opcost.frontends.aten.call import Call, Translation, always, on

_FUNCTIONS = {
    "inverse": ("inverse", "linalg_inv", "linalg_inv_ex", "linalg_tensorinv"),
    "solve": ("linalg_solve", "linalg_solve_ex", "_linalg_solve_ex", "linalg_tensorsolve", "_spsolve"),
    "lstsq": ("linalg_lstsq",),
    "triangular_solve": ("linalg_solve_triangular",),
    "cholesky": ("cholesky", "linalg_cholesky", "linalg_cholesky_ex", "linalg_ldl_factor", "linalg_ldl_factor_ex"),
    "qr": ("qr", "linalg_qr", "geqrf"),
    "householder": ("orgqr", "ormqr", "linalg_householder_product"),
    "svd": (
        "svd", "linalg_svd", "_linalg_svd", "linalg_svdvals", "linalg_cond", "linalg_matrix_rank", "nuclear_norm",
        "linalg_pinv", "pinverse",
    ),
    "eig": ("linalg_eig", "linalg_eigvals", "_linalg_eigvals"),
    "eigh": ("linalg_eigh", "_linalg_eigh", "linalg_eigvalsh"),
    "det": ("det", "logdet", "slogdet", "linalg_det", "_linalg_det", "linalg_slogdet", "_linalg_slogdet"),
    "lu": ("_lu_with_info", "linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex"),
    "matrix_exp": ("matrix_exp", "linalg_matrix_exp", "matrix_exp_backward"),
}  # fmt: skip

for _fn, _names in _FUNCTIONS.items():
    always("linalg", _names, fn=_fn)


@on("triangular_solve")
def _triangular_solve(call: Call) -> Translation:
    return Translation("linalg", {"fn": "triangular_solve"}, call.tensors("A", "self"))


@on("cholesky_inverse")
def _cholesky_inverse(call: Call) -> Translation:
    """Two triangular solves with the identity: as many right-hand sides as rows, twice."""
    return Translation("linalg", {"fn": "inverse"})


@on("cholesky_solve", "_cholesky_solve_helper", "lu_solve", "linalg_lu_solve", "linalg_ldl_solve")
def _two_triangles(call: Call) -> Translation:
    """A factorised matrix is solved by two triangular systems."""
    factor = call.tensors("input2", "A", "LU_data", "LU", "LD")
    right = call.tensors("B", "self")
    return Translation("linalg", {"fn": "factored_solve"}, (*factor, *right))


always("copy", ["lu_unpack"])
always("view", ["_linalg_check_errors"])
