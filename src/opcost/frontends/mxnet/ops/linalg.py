"""Factorizations, solvers, diagonals and triangles of matrices; transforms."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod

from opcost.core.shapes import Extent, Mismatch, Shape, diagonal, divided, reduced, text, times, total
from opcost.frontends.mxnet.ops.contraction import product_of
from opcost.frontends.mxnet.ops.table import Call, Means, elements, like_first, row, same_shapes


def _matrices(call: Call) -> tuple[list[Extent], Extent, Extent]:
    """Batch, rows and columns of the first input."""
    x = call.dims(0)
    if len(x) < 2:
        raise Mismatch(f"{text(x)} is not a matrix")
    *batch, rows, columns = x
    return batch, rows, columns


def _same_matrices(call: Call) -> None:
    like_first(call)
    _matrices(call)


def _of_matrices(form: str) -> Callable[[Call], list[Shape]]:
    """Outputs that have the batch of the input and of its rows (m), its columns (n) and the lesser (k) those named."""

    def shapes(call: Call) -> list[Shape]:
        batch, rows, columns = _matrices(call)
        extents = {"m": rows, "n": columns, "k": diagonal(rows, columns)}
        return [(*batch, *(extents[letter] for letter in each)) for each in form.split()]

    return shapes


def _det(call: Call) -> None:
    call.put_all(tuple(_matrices(call)[0]) or call.scalar)


def _triangular_product(call: Call) -> Means:
    """Half of a square times a matrix: n (n + 1) / 2 products for each column."""
    b, n = call.x(1), call.x(0)[-1]
    columns = b[-2] if call.attrs.flag("rightside") else b[-1]
    return "matmul", {"macs": prod(b[:-2]) * columns * n * (n + 1) // 2}


def _symmetric(call: Call) -> Shape:
    """A times its own transpose."""
    batch, rows, columns = _matrices(call)
    side = columns if call.attrs.flag("transpose") else rows
    return (*batch, side, side)


def _diagonal(call: Call) -> Shape:
    batch, rows, columns = _matrices(call)
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
    batch, _, columns = _matrices(call)
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


def _sketch(call: Call) -> Shape:
    """Features hashed to fewer."""
    *batch, features = call.dims(0)
    call.put_in(1, (1, features))
    call.put_in(2, (1, features))
    return (*batch, call.attrs.integer("out_dim"))


def _fourier(*, back: bool) -> Callable[[Call], Shape]:
    """Real and imaginary parts are side by side along the last axis."""

    def shapes(call: Call) -> Shape:
        *batch, length = call.dims(0)
        return (*batch, divided(length, 2) if back else times(length, 2))

    return shapes


def _transformed(length: int) -> Means:
    """Two numbers are one complex element, so the longer side has twice as many elements as are transformed."""
    return "fft", {"lengths": (length,), "real": True}


ROWS = [
    row("_linalg_inverse linalg_inverse _npi_inv _linalg_potri linalg_potri", _same_matrices, "linalg inverse", slots="A"),
    row("_linalg_potrf linalg_potrf _npi_cholesky", _same_matrices, "linalg cholesky", slots="A"),
    row("_linalg_det linalg_det _npi_det", _det, "linalg det", slots="A"),
    row("_linalg_slogdet linalg_slogdet _npi_slogdet", _det, "linalg det", outputs=2, slots="A"),
    row("_linalg_trsm linalg_trsm", lambda c: c.both(1), "linalg triangular_solve", slots="A B"),
    row("_linalg_trmm linalg_trmm", lambda c: c.both(1), _triangular_product, slots="A B"),
    row("_linalg_syrk linalg_syrk", _symmetric, lambda c: product_of(c.x()[-2 if c.attrs.flag("transpose") else -1]),
        slots="A"),
    row("_linalg_gelqf linalg_gelqf", _of_matrices("mn mm"), "linalg qr", outputs=2, slots="A"),
    row("_linalg_syevd linalg_syevd", _of_matrices("mn m"), "linalg eigh", outputs=2, slots="A"),
    row("_npi_svd", _of_matrices("mm m mn"), "linalg svd", outputs=3, slots="A"),
    row("_npi_solve", lambda c: c.ins[1], "linalg solve", slots="A B"),
    row("_linalg_sumlogdiag linalg_sumlogdiag", _det, "reduce sum"),
    row("_linalg_extractdiag linalg_extractdiag", _diagonal, "copy"),
    row("_linalg_makediag linalg_makediag", _make_diagonal, "copy"),
    row("diag _np_diag _np_diagonal _npi_diag _npi_diagonal", _diag, "copy"),
    row("_np_trace _npi_trace", lambda c: reduced(c.dims(0), _two_axes(c)), "reduce trace"),
    row("_npi_tril _npi_triu", same_shapes, "elementwise triangle"),
    row("_linalg_extracttrian linalg_extracttrian", _triangle, "copy"),
    row("_linalg_maketrian linalg_maketrian", _make_triangle, "copy"),
    row("_npi_eigh", _of_matrices("m mn"), "linalg eigh", outputs=2, slots="A"),
    row("_npi_eig", _of_matrices("m mn"), "linalg eig", outputs=2, slots="A"),
    row("_npi_eigvalsh", _of_matrices("m"), "linalg eigh", slots="A"),
    row("_npi_eigvals", _of_matrices("m"), "linalg eig", slots="A"),
    row("_npi_qr", _of_matrices("mk kn"), "linalg qr", outputs=2, slots="A"),
    row("_npi_pinv_scalar_rcond _npi_pinv", _of_matrices("nm"), "linalg svd", slots="A"),
    # every element takes a sign and is added at its place
    row("_contrib_count_sketch", _sketch, lambda c: elements("fma", prod(c.x())), slots="x h s"),
    row("_contrib_fft", _fourier(back=False), lambda c: _transformed(c.x()[-1])),
    row("_contrib_ifft", _fourier(back=True), lambda c: _transformed(c.y()[-1])),
]  # fmt: skip
