"""Operators that run an algorithm: Fourier transforms, sorting, pairwise distances, matrix factorizations."""

from collections.abc import Callable
from math import log2, prod
from typing import cast

from opcost.core.graph import Cost
from opcost.rules.registry import OpView, Rule, reals


def fft(op: OpView) -> Cost:
    """5 × numel × Σ log2(length), and half of it for real data, FLOPs.

    The customary count of a complex transform of length N is 5 N log2 N, for every length; `numel` are the elements
    that are transformed (of the real side where one side is real), so each axis has numel / N transforms.
    """
    lengths = cast("tuple[int, ...]", op.attrs["lengths"])
    levels = sum(log2(length) for length in lengths if length > 1)
    if op.flag("real"):
        elements = max(op.ins[0].numel, op.outs[0].numel)
        return op.cost(flops=round(5 * elements * levels / 2))
    return op.cost(flops=round(5 * op.outs[0].numel * levels))


def sort(op: OpView) -> Cost:
    """x.numel × ceil(log2(length)) FLOPs.

    Comparisons of a merge sort, or of a binary search for each of x in `length` sorted elements; keeping only the k
    best costs ceil(log2(k)), at least 1, for each element.
    """
    comparisons = _ceil_log2(op.integer("length"))
    if op.get("selected") is not None:
        comparisons = min(comparisons, max(1, _ceil_log2(op.integer("selected"))))
    return op.cost(flops=op.ins[0].numel * comparisons)


def _ceil_log2(number: int) -> int:
    return max(number - 1, 0).bit_length()


def distance(op: OpView) -> Cost:
    """y.numel × (3 × features + 1) FLOPs.

    For each feature subtract, square or take the absolute value, add; then one root, also where a framework chooses to
    work it out by a matrix product. Gradient: for each feature subtract, divide, multiply, add.
    """
    if op.flag("grad"):
        return op.cost(flops=op.ins[0].numel * 4 * op.ins[1].dims[-1])
    return op.cost(flops=op.outs[0].numel * (3 * op.ins[0].dims[-1] + 1))


# -- factorizations and solvers: leading terms of the textbook counts (Golub and Van Loan, Matrix Computations) --------

COMPLEX_FACTOR = 4  # a complex multiplication and addition are 8 real operations where a real one is 2


def _lu(op: OpView, tall: int, thin: int) -> int:
    return 3 * tall * thin**2 - thin**3


def _qr(op: OpView, tall: int, thin: int) -> int:
    return 6 * tall * thin**2 - 2 * thin**3


def _svd(op: OpView, tall: int, thin: int) -> int:
    with_vectors, without = 42 * tall * thin**2 + 24 * thin**3, 12 * tall * thin**2 - 4 * thin**3
    return with_vectors if _with_vectors(op) else without


def _right_sides(op: OpView) -> int:
    """Columns of the right-hand side of one system; a vector is one column."""
    matrix, right = op.ins[0].dims, op.ins[1].dims
    return right[-1] if len(right) >= len(matrix) else 1


def _with_vectors(op: OpView) -> bool:
    """Vectors are computed if any output is a matrix with elements."""
    rank = len(op.ins[0].dims)
    return any(len(spec.dims) == rank and spec.numel > 0 for spec in op.outs)


THIRDS: dict[str, Callable[[OpView, int, int], int]] = {
    "inverse": lambda op, m, n: 6 * n**3,
    "solve": lambda op, m, n: 2 * n**3 + 6 * n**2 * _right_sides(op),
    "triangular_solve": lambda op, m, n: 3 * n**2 * _right_sides(op),
    "factored_solve": lambda op, m, n: 6 * n**2 * _right_sides(op),
    "cholesky": lambda op, m, n: n**3,
    "lu": _lu,
    "det": _lu,
    "qr": _qr,
    "householder": _qr,
    "svd": _svd,
    "eig": lambda op, m, n: (75 if _with_vectors(op) else 30) * n**3,
    "eigh": lambda op, m, n: (27 if _with_vectors(op) else 4) * n**3,
    "lstsq": lambda op, m, n: _qr(op, m, n) + 12 * m * n * _right_sides(op),
    "matrix_exp": lambda op, m, n: 30 * n**3,
}
"""Three times the FLOPs of one matrix of m × n, n the smaller side: whole numbers, divided once at the end."""


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
    thirds = op.choice(THIRDS)(op, max(rows, columns), min(rows, columns))
    factor = COMPLEX_FACTOR if reals(matrix) == 2 else 1
    return op.cost(flops=prod(batch) * thirds * factor // 3)


RULES: dict[str, Rule] = {"fft": fft, "sort": sort, "distance": distance, "linalg": linalg}
