"""Factorizations, solvers and products of triangular matrices; transforms."""

from __future__ import annotations

from math import isqrt, prod

from opcost.frontends.mxnet.ops.elementwise import like_first, same_shapes
from opcost.frontends.mxnet.ops.table import (
    COPY,
    Call,
    Operator,
    Translation,
    always,
    register,
    same_types,
)
from opcost.frontends.mxnet.shape import Extent, Mismatch, axis_of, replaced, show


def _square(call: Call) -> None:
    """The first input is a batch of square matrices."""
    x = call.ins[0]
    if x is not None and len(x) < 2:
        raise Mismatch(f"{show(x)} is not a matrix")


def _same(call: Call) -> None:
    _square(call)
    like_first(call)


def _factored(fn: str) -> Translation:
    return Translation("linalg", {"fn": fn})


def _det(call: Call) -> None:
    _square(call)
    x = call.ins[0]
    if x is not None:
        for index in range(len(call.outs)):
            call.put_out(index, x[:-2] or call.scalar)


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
    x = call.ins[0]
    if x is not None and len(x) >= 2:
        side = x[-1] if call.attrs.flag("transpose") else x[-2]
        call.put_out(0, (*x[:-2], side, side))


def _symmetric_product(call: Call) -> Translation:
    x = call.x()
    return Translation("matmul", {"depth": x[-2] if call.attrs.flag("transpose") else x[-1]})


def _lq(call: Call) -> None:
    x = call.ins[0]
    if x is not None and len(x) >= 2:
        call.put_out(0, x)
        call.put_out(1, (*x[:-2], x[-2], x[-2]))


def _eigen(call: Call) -> None:
    x = call.ins[0]
    if x is not None and len(x) >= 2:
        call.put_out(0, x)
        call.put_out(1, x[:-1])


def _svd(call: Call) -> None:
    x = call.ins[0]
    if x is not None and len(x) >= 2:
        call.put_out(0, (*x[:-2], x[-2], x[-2]))
        call.put_out(1, x[:-1])
        call.put_out(2, x)


def _solve(call: Call) -> None:
    call.put_out(0, call.ins[1])


def _diagonal(call: Call) -> None:
    x = call.ins[0]
    if x is None or len(x) < 2:
        return
    offset = call.attrs.integer("offset", 0)
    call.put_out(0, (*x[:-2], _diagonal_length(x[-2], x[-1], offset)))


def _diagonal_length(rows: Extent, columns: Extent, offset: int) -> Extent:
    if rows is None or columns is None:
        return None
    return max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)


def _make_diagonal(call: Call) -> None:
    x = call.ins[0]
    if x is None or not x:
        return
    side = None if x[-1] is None else x[-1] + abs(call.attrs.integer("offset", 0))
    call.put_out(0, (*x[:-1], side, side))


def _diag(call: Call) -> None:
    """A diagonal of a matrix, or a matrix of a diagonal."""
    x = call.ins[0]
    if x is None:
        return
    k = call.attrs.integer("k", call.attrs.integer("offset", 0))
    if len(x) == 1:
        side = None if x[0] is None else x[0] + abs(k)
        call.put_out(0, (side, side))
        return
    first = axis_of(call.attrs.integer("axis1", 0), len(x))
    second = axis_of(call.attrs.integer("axis2", 1), len(x))
    rest = tuple(extent for axis, extent in enumerate(x) if axis not in (first, second))
    call.put_out(0, (*rest, _diagonal_length(x[first], x[second], k)))


def _trace(call: Call) -> None:
    x = call.ins[0]
    if x is None:
        return
    axes = {axis_of(call.attrs.integer("axis1", 0), len(x)), axis_of(call.attrs.integer("axis2", 1), len(x))}
    call.put_out(0, tuple(extent for axis, extent in enumerate(x) if axis not in axes))


def _sum_of_logs(call: Call) -> None:
    x = call.ins[0]
    if x is not None and len(x) >= 2:
        call.put_out(0, x[:-2] or call.scalar)


def _triangle(call: Call) -> None:
    """The elements of a triangle in one row."""
    x = call.ins[0]
    if x is not None and len(x) >= 2:
        side = None if x[-1] is None else x[-1] - abs(call.attrs.integer("offset", 0))
        call.put_out(0, (*x[:-2], None if side is None else side * (side + 1) // 2))


def _make_triangle(call: Call) -> None:
    x = call.ins[0]
    if x is not None and x and x[-1] is not None:
        side = (isqrt(8 * x[-1] + 1) - 1) // 2
        if side * (side + 1) // 2 != x[-1]:
            raise Mismatch(f"{x[-1]} elements do not fill a triangle")
        side += abs(call.attrs.integer("offset", 0))
        call.put_out(0, (*x[:-1], side, side))


def _eigenvalues(call: Call) -> None:
    x = call.ins[0]
    if x is not None and len(x) >= 2:
        call.put_out(0, x[:-1])
        call.put_out(1, x)


def _transposed(call: Call) -> None:
    x = call.ins[0]
    if x is not None and len(x) >= 2:
        call.put_out(0, (*x[:-2], x[-1], x[-2]))


def _qr(call: Call) -> None:
    x = call.ins[0]
    if x is not None and len(x) >= 2 and None not in x[-2:]:
        thin = min(x[-2] or 0, x[-1] or 0)
        call.put_out(0, (*x[:-1], thin))
        call.put_out(1, (*x[:-2], thin, x[-1]))


def _sketch(call: Call) -> None:
    """Features hashed to fewer."""
    x = call.ins[0]
    if x is not None and x:
        call.put_in(1, (1, x[-1]))
        call.put_in(2, (1, x[-1]))
        call.put_out(0, (*x[:-1], call.attrs.integer("out_dim")))


def _fourier(*, back: bool) -> Operator:
    """Real and imaginary parts lie side by side along the last axis."""

    def infer(call: Call) -> None:
        x = call.ins[0]
        if x is not None and x:
            length = x[-1]
            call.put_out(0, replaced(x, len(x) - 1, None if length is None else length // 2 if back else length * 2))

    def translate(call: Call) -> Translation:
        return Translation("fft", {"lengths": ((call.y() if back else call.x())[-1],)})

    return Operator(infer, translate)


register(
    ("_linalg_inverse", "linalg_inverse", "_npi_inv", "_linalg_potri", "linalg_potri"),
    Operator(_same, always(_factored("inverse")), slots=("A",)),
)
register(
    ("_linalg_potrf", "linalg_potrf", "_npi_cholesky"), Operator(_same, always(_factored("cholesky")), slots=("A",))
)
register(("_linalg_det", "linalg_det", "_npi_det"), Operator(_det, always(_factored("det")), slots=("A",)))
register(
    ("_linalg_slogdet", "linalg_slogdet", "_npi_slogdet"),
    Operator(_det, always(_factored("det")), same_types, 2, ("A",)),
)
register(
    ("_linalg_trsm", "linalg_trsm"), Operator(_triangular, always(_factored("triangular_solve")), slots=("A", "B"))
)
register(("_linalg_trmm", "linalg_trmm"), Operator(_triangular, _triangular_product, slots=("A", "B")))
register(("_linalg_syrk", "linalg_syrk"), Operator(_symmetric, _symmetric_product, slots=("A",)))
register(("_linalg_gelqf", "linalg_gelqf"), Operator(_lq, always(_factored("qr")), same_types, 2, ("A",)))
register(("_linalg_syevd", "linalg_syevd"), Operator(_eigen, always(_factored("eigh")), same_types, 2, ("A",)))
register(("_npi_svd",), Operator(_svd, always(_factored("svd")), same_types, 3, ("A",)))
register(("_npi_solve",), Operator(_solve, always(_factored("solve")), slots=("A", "B")))
register(
    ("_linalg_sumlogdiag", "linalg_sumlogdiag"), Operator(_sum_of_logs, always(Translation("reduce", {"fn": "sum"})))
)
register(("_linalg_extractdiag", "linalg_extractdiag"), Operator(_diagonal, always(COPY)))
register(("_linalg_makediag", "linalg_makediag"), Operator(_make_diagonal, always(COPY)))
register(("diag", "_np_diag", "_np_diagonal", "_npi_diag", "_npi_diagonal"), Operator(_diag, always(COPY)))
register(("_np_trace", "_npi_trace"), Operator(_trace, always(Translation("reduce", {"fn": "trace"}))))
register(("_npi_tril", "_npi_triu"), Operator(same_shapes, always(Translation("elementwise", {"fn": "triangle"}))))
register(("_linalg_extracttrian", "linalg_extracttrian"), Operator(_triangle, always(COPY)))
register(("_linalg_maketrian", "linalg_maketrian"), Operator(_make_triangle, always(COPY)))
register(("_npi_eigh",), Operator(_eigenvalues, always(_factored("eigh")), same_types, 2, ("A",)))
register(("_npi_eig",), Operator(_eigenvalues, always(_factored("eig")), same_types, 2, ("A",)))
register(("_npi_eigvalsh",), Operator(_eigenvalues, always(_factored("eigh")), slots=("A",)))
register(("_npi_eigvals",), Operator(_eigenvalues, always(_factored("eig")), slots=("A",)))
register(("_npi_qr",), Operator(_qr, always(_factored("qr")), same_types, 2, ("A",)))
register(("_npi_pinv_scalar_rcond", "_npi_pinv"), Operator(_transposed, always(_factored("svd")), slots=("A",)))
register(
    ("_contrib_count_sketch",),
    Operator(_sketch, always(Translation("scatter", {"fn": "add"}, (0, 1))), same_types, slots=("x", "h", "s")),
)
register(("_contrib_fft",), _fourier(back=False))
register(("_contrib_ifft",), _fourier(back=True))
