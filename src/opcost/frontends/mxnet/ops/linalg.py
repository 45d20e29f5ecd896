"""Factorizations, solvers and products of triangular matrices; transforms."""

from __future__ import annotations

from math import isqrt, prod

from opcost.core.shapes import (
    Extent,
    Mismatch,
    diagonal,
    divided,
    reduced,
    text,
    times,
    total,
)
from opcost.frontends.mxnet.ops.elementwise import like_first, same_shapes
from opcost.frontends.mxnet.ops.table import (
    COPY,
    Call,
    Operator,
    Translation,
    define,
    elementwise,
    register,
    same_types,
)


def _matrices(call: Call) -> tuple[list[Extent], Extent, Extent]:
    """Batch, rows and columns of the first input."""
    x = call.dims(0)
    if len(x) < 2:
        raise Mismatch(f"{text(x)} is not a matrix")
    *batch, rows, columns = x
    return batch, rows, columns


def _same(call: Call) -> None:
    like_first(call)
    _matrices(call)


def _factored(fn: str) -> Translation:
    return Translation("linalg", {"fn": fn})


def _det(call: Call) -> None:
    batch, _, _ = _matrices(call)
    call.put_all(tuple(batch) or call.scalar)


def _triangular(call: Call) -> None:
    """A (triangle) with B; the result is like B."""
    call.put_out(0, call.ins[1])
    call.put_in(1, call.outs[0])


def _triangular_product(call: Call) -> Translation:
    """Half of a square times a matrix: n (n + 1) / 2 products for each column."""
    b = call.x(1)
    n = call.x(0)[-1]
    columns = b[-2] if call.attrs.flag("rightside") else b[-1]
    return Translation("matmul", {"macs": prod(b[:-2]) * columns * n * (n + 1) // 2})


def _symmetric(call: Call) -> None:
    """A times its own transpose."""
    batch, rows, columns = _matrices(call)
    side = columns if call.attrs.flag("transpose") else rows
    call.put_out(0, (*batch, side, side))


def _symmetric_product(call: Call) -> Translation:
    x = call.x()
    return Translation("matmul", {"depth": x[-2] if call.attrs.flag("transpose") else x[-1]})


def _lq(call: Call) -> None:
    batch, rows, columns = _matrices(call)
    call.put_out(0, (*batch, rows, columns))
    call.put_out(1, (*batch, rows, rows))


def _eigen(call: Call) -> None:
    batch, rows, columns = _matrices(call)
    call.put_out(0, (*batch, rows, columns))
    call.put_out(1, (*batch, rows))


def _svd(call: Call) -> None:
    batch, rows, columns = _matrices(call)
    call.put_out(0, (*batch, rows, rows))
    call.put_out(1, (*batch, rows))
    call.put_out(2, (*batch, rows, columns))


def _solve(call: Call) -> None:
    call.put_out(0, call.ins[1])


def _diagonal(call: Call) -> None:
    batch, rows, columns = _matrices(call)
    call.put_out(0, (*batch, diagonal(rows, columns, call.attrs.integer("offset", 0))))


def _make_diagonal(call: Call) -> None:
    *batch, length = call.dims(0)
    side = total((length, abs(call.attrs.integer("offset", 0))))
    call.put_out(0, (*batch, side, side))


def _diag(call: Call) -> None:
    """A diagonal of a matrix, or a matrix of a diagonal."""
    x = call.dims(0)
    k = call.attrs.integer("k", call.attrs.integer("offset", 0))
    if len(x) == 1:
        side = total((x[0], abs(k)))
        call.put_out(0, (side, side))
    else:
        first, second = _two_axes(call)
        call.put_out(0, (*reduced(x, (first, second)), diagonal(x[first], x[second], k)))


def _two_axes(call: Call) -> tuple[int, int]:
    return call.attrs.integer("axis1", 0), call.attrs.integer("axis2", 1)


def _trace(call: Call) -> None:
    call.put_out(0, reduced(call.dims(0), _two_axes(call)))


def _triangle(call: Call) -> None:
    """The elements of a triangle in one row."""
    batch, _, columns = _matrices(call)
    side = total((columns, -abs(call.attrs.integer("offset", 0))))
    call.put_out(0, (*batch, None if side is None else side * (side + 1) // 2))


def _make_triangle(call: Call) -> None:
    *batch, length = call.dims(0)
    if length is not None:
        side = (isqrt(8 * length + 1) - 1) // 2
        if side * (side + 1) // 2 != length:
            raise Mismatch(f"{length} elements do not fill a triangle")
        side += abs(call.attrs.integer("offset", 0))
        call.put_out(0, (*batch, side, side))


def _eigenvalues(call: Call) -> None:
    batch, rows, columns = _matrices(call)
    call.put_out(0, (*batch, rows))
    call.put_out(1, (*batch, rows, columns))


def _transposed(call: Call) -> None:
    batch, rows, columns = _matrices(call)
    call.put_out(0, (*batch, columns, rows))


def _qr(call: Call) -> None:
    batch, rows, columns = _matrices(call)
    thin = diagonal(rows, columns)
    call.put_out(0, (*batch, rows, thin))
    call.put_out(1, (*batch, thin, columns))


def _sketch(call: Call) -> None:
    """Features hashed to fewer."""
    *batch, features = call.dims(0)
    call.put_in(1, (1, features))
    call.put_in(2, (1, features))
    call.put_out(0, (*batch, call.attrs.integer("out_dim")))


def _fourier(*, back: bool) -> Operator:
    """Real and imaginary parts lie side by side along the last axis."""

    def infer(call: Call) -> None:
        *batch, length = call.dims(0)
        call.put_out(0, (*batch, divided(length, 2) if back else times(length, 2)))

    def translate(call: Call) -> Translation:
        # Two numbers are one complex element, so the longer side has twice as many elements as are transformed.
        return Translation("fft", {"lengths": ((call.y() if back else call.x())[-1],), "real": True})

    return Operator(infer, translate)


define("_linalg_inverse linalg_inverse _npi_inv _linalg_potri linalg_potri", _same, _factored("inverse"), slots="A")
define("_linalg_potrf linalg_potrf _npi_cholesky", _same, _factored("cholesky"), slots="A")
define("_linalg_det linalg_det _npi_det", _det, _factored("det"), slots="A")
define("_linalg_slogdet linalg_slogdet _npi_slogdet", _det, _factored("det"), same_types, 2, ("A",))
define("_linalg_trsm linalg_trsm", _triangular, _factored("triangular_solve"), slots="A B")
define("_linalg_trmm linalg_trmm", _triangular, _triangular_product, slots="A B")
define("_linalg_syrk linalg_syrk", _symmetric, _symmetric_product, slots="A")
define("_linalg_gelqf linalg_gelqf", _lq, _factored("qr"), same_types, 2, ("A",))
define("_linalg_syevd linalg_syevd", _eigen, _factored("eigh"), same_types, 2, ("A",))
define("_npi_svd", _svd, _factored("svd"), same_types, 3, ("A",))
define("_npi_solve", _solve, _factored("solve"), slots="A B")
define("_linalg_sumlogdiag linalg_sumlogdiag", _det, Translation("reduce", {"fn": "sum"}))
define("_linalg_extractdiag linalg_extractdiag", _diagonal, COPY)
define("_linalg_makediag linalg_makediag", _make_diagonal, COPY)
define("diag _np_diag _np_diagonal _npi_diag _npi_diagonal", _diag, COPY)
define("_np_trace _npi_trace", _trace, Translation("reduce", {"fn": "trace"}))
define("_npi_tril _npi_triu", same_shapes, Translation("elementwise", {"fn": "triangle"}))
define("_linalg_extracttrian linalg_extracttrian", _triangle, COPY)
define("_linalg_maketrian linalg_maketrian", _make_triangle, COPY)
define("_npi_eigh", _eigenvalues, _factored("eigh"), same_types, 2, ("A",))
define("_npi_eig", _eigenvalues, _factored("eig"), same_types, 2, ("A",))
define("_npi_eigvalsh", _eigenvalues, _factored("eigh"), slots="A")
define("_npi_eigvals", _eigenvalues, _factored("eig"), slots="A")
define("_npi_qr", _qr, _factored("qr"), same_types, 2, ("A",))
define("_npi_pinv_scalar_rcond _npi_pinv", _transposed, _factored("svd"), slots="A")
define(  # every element takes a sign and is added at its place
    "_contrib_count_sketch",
    _sketch,
    lambda call: elementwise("fma", elements=prod(call.x())),
    same_types,
    slots="x h s",
)
register(("_contrib_fft",), _fourier(back=False))
register(("_contrib_ifft",), _fourier(back=True))
