"""Factorizations, solvers, diagonals and triangles of matrices; transforms."""

from __future__ import annotations

from math import isqrt, prod

from opcost.core.shapes import Mismatch, Shape, diagonal, reduced, total
from opcost.frontends.mxnet.ops.contraction import product_of
from opcost.frontends.mxnet.ops.table import Call, Means, elements, pattern, row, same_shapes


def _det(call: Call) -> None:
    *batch, _, _ = call.dims(0)
    call.put_all(tuple(batch) or call.scalar)


def _triangular_product(call: Call) -> Means:
    """Half of a square times a matrix: n (n + 1) / 2 products for each column."""
    b, n = call.x(1), call.x(0)[-1]
    columns = b[-2] if call.attrs.flag("rightside") else b[-1]
    return "matmul", {"macs": prod(b[:-2]) * columns * n * (n + 1) // 2}


def _symmetric(call: Call) -> Shape:
    """A times its own transpose."""
    *batch, rows, columns = call.dims(0)
    side = columns if call.attrs.flag("transpose") else rows
    return (*batch, side, side)


def _qr(call: Call) -> list[Shape]:
    *batch, rows, columns = call.dims(0)
    least = diagonal(rows, columns)
    return [(*batch, rows, least), (*batch, least, columns)]


def _diagonal(call: Call) -> Shape:
    *batch, rows, columns = call.dims(0)
    return (*batch, diagonal(rows, columns, call.attrs.integer("offset", 0)))


def _make_diagonal(call: Call) -> Shape:
    *batch, length = call.dims(0)
    side = total((length, abs(call.attrs.integer("offset", 0))))
    return (*batch, side, side)


def _diag(call: Call) -> Shape:
    """A diagonal of a matrix, or a matrix of a diagonal."""
    x = call.dims(0)
    k = call.attrs.integer("k", call.attrs.integer("offset", 0))
    if len(x) == 1:
        side = total((x[0], abs(k)))
        return (side, side)
    first, second = _two_axes(call)
    return (*reduced(x, (first, second)), diagonal(x[first], x[second], k))


def _two_axes(call: Call) -> tuple[int, int]:
    return call.attrs.integer("axis1", 0), call.attrs.integer("axis2", 1)


def _triangle(call: Call) -> Shape:
    """The elements of a triangle in one row."""
    *batch, _, columns = call.dims(0)
    side = total((columns, -abs(call.attrs.integer("offset", 0))))
    return (*batch, None if side is None else side * (side + 1) // 2)


def _make_triangle(call: Call) -> Shape:
    *batch, length = call.dims(0)
    if length is None:
        return None
    side = (isqrt(8 * length + 1) - 1) // 2
    if side * (side + 1) // 2 != length:
        raise Mismatch(f"{length} elements do not fill a triangle")
    side += abs(call.attrs.integer("offset", 0))
    return (*batch, side, side)


def _transformed(length: int) -> Means:
    """Two numbers are one complex element, so the longer side has twice as many elements as are transformed."""
    return "fft", {"lengths": (length,), "real": True}


_SQUARE = pattern("... m n -> ... m n")

ROWS = [
    row("_linalg_inverse linalg_inverse _npi_inv _linalg_potri linalg_potri", _SQUARE, "linalg inverse", slots="A"),
    row("_linalg_potrf linalg_potrf _npi_cholesky", _SQUARE, "linalg cholesky", slots="A"),
    row("_linalg_det linalg_det _npi_det", _det, "linalg det", slots="A"),
    row("_linalg_slogdet linalg_slogdet _npi_slogdet", _det, "linalg det", outputs=2, slots="A"),
    row("_linalg_trsm linalg_trsm", lambda c: c.both(1), "linalg triangular_solve", slots="A B"),
    row("_linalg_trmm linalg_trmm", lambda c: c.both(1), _triangular_product, slots="A B"),
    row("_linalg_syrk linalg_syrk", _symmetric, lambda c: product_of(c.x()[-2 if c.attrs.flag("transpose") else -1]),
        slots="A"),
    row("_linalg_gelqf linalg_gelqf", pattern("... m n -> ... m n, ... m m"), "linalg qr", outputs=2, slots="A"),
    row("_linalg_syevd linalg_syevd", pattern("... m n -> ... m n, ... m"), "linalg eigh", outputs=2, slots="A"),
    row("_npi_svd", pattern("... m n -> ... m m, ... m, ... m n"), "linalg svd", outputs=3, slots="A"),
    row("_npi_solve", lambda c: c.ins[1], "linalg solve", slots="A B"),
    row("_linalg_sumlogdiag linalg_sumlogdiag", _det, "reduce sum"),
    row("_linalg_extractdiag linalg_extractdiag", _diagonal, "copy"),
    row("_linalg_makediag linalg_makediag", _make_diagonal, "copy"),
    row("diag _np_diag _np_diagonal _npi_diag _npi_diagonal", _diag, "copy"),
    row("_np_trace _npi_trace", lambda c: reduced(c.dims(0), _two_axes(c)), "reduce trace"),
    row("_npi_tril _npi_triu", same_shapes, "elementwise triangle"),
    row("_linalg_extracttrian linalg_extracttrian", _triangle, "copy"),
    row("_linalg_maketrian linalg_maketrian", _make_triangle, "copy"),
    row("_npi_eigh", pattern("... m n -> ... m, ... m n"), "linalg eigh", outputs=2, slots="A"),
    row("_npi_eig", pattern("... m n -> ... m, ... m n"), "linalg eig", outputs=2, slots="A"),
    row("_npi_eigvalsh", pattern("... m n -> ... m"), "linalg eigh", slots="A"),
    row("_npi_eigvals", pattern("... m n -> ... m"), "linalg eig", slots="A"),
    row("_npi_qr", _qr, "linalg qr", outputs=2, slots="A"),
    row("_npi_pinv_scalar_rcond _npi_pinv", pattern("... m n -> ... n m"), "linalg svd", slots="A"),
    # every element takes a sign and is added at its place
    row("_contrib_count_sketch", pattern("... f, 1 f, 1 f -> ... {out_dim}"), lambda c: elements("fma", prod(c.x())),
        slots="x h s"),
    # real and imaginary parts are side by side along the last axis
    row("_contrib_fft", pattern("... n -> ... 2*n"), lambda c: _transformed(c.x()[-1])),
    row("_contrib_ifft", pattern("... 2*n -> ... n"), lambda c: _transformed(c.y()[-1])),
]  # fmt: skip
