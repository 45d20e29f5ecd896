"""Matrix factorizations and solvers: leading terms of the textbook counts (Golub and Van Loan, Matrix Computations)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from opcost.core.cost import Cost
from opcost.rules.attr import choose, parts
from opcost.rules.registry import OpView

COMPLEX_FACTOR = 4
"""A complex multiplication and addition are 8 real operations where a real one is 2."""


def _triangular_solve(op: OpView, rows: int, columns: int) -> int:
    return 3 * rows**2 * _right_sides(op)


def _lu(op: OpView, rows: int, columns: int) -> int:
    tall, thin = max(rows, columns), min(rows, columns)
    return 3 * tall * thin**2 - thin**3


def _qr(op: OpView, rows: int, columns: int) -> int:
    tall, thin = max(rows, columns), min(rows, columns)
    return 6 * tall * thin**2 - 2 * thin**3


def _svd(op: OpView, rows: int, columns: int) -> int:
    tall, thin = max(rows, columns), min(rows, columns)
    if _with_vectors(op):
        return 42 * tall * thin**2 + 24 * thin**3
    return 12 * tall * thin**2 - 4 * thin**3


def _right_sides(op: OpView) -> int:
    """Columns of the right-hand side of one system; a vector is one column."""
    matrix, right = op.ins[0].dims, op.ins[1].dims
    return right[-1] if len(right) >= len(matrix) else 1


def _with_vectors(op: OpView) -> bool:
    """Vectors are asked for if any output is a matrix with elements."""
    rank = len(op.ins[0].dims)
    return any(len(spec.dims) == rank and spec.numel > 0 for spec in op.outs)


THIRDS: dict[str, Callable[[OpView, int, int], int]] = {
    "inverse": lambda op, rows, columns: 6 * rows**3,
    "solve": lambda op, rows, columns: 2 * rows**3 + 6 * rows**2 * _right_sides(op),
    "triangular_solve": _triangular_solve,
    "factored_solve": lambda op, rows, columns: 2 * _triangular_solve(op, rows, columns),
    "cholesky": lambda op, rows, columns: rows**3,
    "lu": _lu,
    "det": _lu,
    "qr": _qr,
    "householder": _qr,
    "svd": _svd,
    "eig": lambda op, rows, columns: (75 if _with_vectors(op) else 30) * rows**3,
    "eigh": lambda op, rows, columns: (27 if _with_vectors(op) else 4) * rows**3,
    "lstsq": lambda op, rows, columns: _qr(op, rows, columns) + 12 * rows * columns * _right_sides(op),
    "matrix_exp": lambda op, rows, columns: 30 * rows**3,
}
"""Three times the FLOPs of one matrix with so many rows and columns: whole numbers, divided once at the end."""


def linalg(op: OpView) -> Cost:
    """Batch × the leading term of the textbook count for a matrix of m × n FLOPs.

    cholesky n³/3; lu and det mn² - n³/3 (2n³/3 if square); solve 2n³/3 + 2n²k for k right-hand sides; inverse 2n³;
    triangular_solve n²k; factored_solve, of a matrix already split into two triangles, 2n²k; qr and the product of its
    reflectors 2mn² - 2n³/3; lstsq that + 4mnk; svd 14mn² + 8n³ with vectors, 4mn² - 4n³/3 without; eig 25n³ with vectors,
    10n³ without; symmetric eigh 9n³ and 4n³/3; matrix_exp 10n³ (five products; its squarings depend on the values). n is
    the smaller side. Complex matrices cost four times that.
    """
    matrix = op.ins[0]
    *batch, rows, columns = matrix.dims
    thirds = choose(op, THIRDS)(op, rows, columns)
    factor = COMPLEX_FACTOR if parts(matrix) == 2 else 1
    return op.cost(flops=prod(batch) * thirds * factor // 3)


RULES = {"linalg": linalg}
