"""Factorisations and solvers; the rule wants the matrix first, then the right-hand side."""

from __future__ import annotations

from opcost.frontends.aten.call import Call, Translation, on


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
