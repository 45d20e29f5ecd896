"""Matrix products: fully connected layers, dot and its relatives, attention's interleaved products."""

from __future__ import annotations

from math import prod

from opcost.core.shapes import (
    Dims,
    Mismatch,
    axes_of,
    axis_of,
    dot,
    einsum,
    explicit,
    filled,
    known,
    matmul,
    merge,
    product,
    replaced,
    swapped,
    tensordot,
    text,
)
from opcost.frontends.mxnet.attribute import AttributeFault
from opcost.frontends.mxnet.ops.table import Call, Translation, define, same_types


def _fully_connected(call: Call) -> None:
    hidden = call.attrs.integer("num_hidden")
    flatten = call.attrs.flag("flatten", default=True)
    call.put_in(1, (hidden, None))
    call.put_in(2, (hidden,))
    x = call.ins[0]
    if x is not None:
        if not x:
            raise Mismatch("the data is a scalar")
        call.put_in(1, (hidden, product(x[1:]) if flatten else x[-1]))
        weight = call.ins[1]
        depth = weight[1] if weight is not None else None
        if not flatten or len(x) == 2:
            call.put_in(0, (*x[:-1], depth))
        else:
            call.put_in(0, (x[0], *filled(x[1:], depth)))
        call.put_out(0, (x[0], hidden) if flatten else (*x[:-1], hidden))
    y = call.outs[0]
    if y is not None and y:
        if flatten and x is not None:
            call.put_in(0, (y[0], *(None,) * (len(x) - 1)))
        elif not flatten:
            call.put_in(0, (*y[:-1], None))


def _linear(call: Call) -> Translation:
    attrs = {"depth": call.x(1)[1]}
    return Translation("matmul", {**attrs, "bias": True} if len(call.ins) > 2 else attrs)


def _intgemm(call: Call) -> None:
    """A fully connected layer on bytes: a scale stands between the weight and the bias."""
    hidden = call.attrs.integer("num_hidden")
    x = call.ins[0]
    call.put_in(2, (1,))
    call.put_in(3, (hidden,))
    if x is not None:
        flatten = call.attrs.flag("flatten", default=True)
        call.put_in(1, (hidden, product(x[1:]) if flatten else x[-1]))
        call.put_out(0, (x[0], hidden) if flatten else (*x[:-1], hidden))


def _intgemm_types(call: Call) -> None:
    call.type_in(1, "int8")
    call.type_out(0, call.attrs.dtype("out_type", "float32"))
    for index in (2, 3):
        call.type_in(index, "float32")


def _intgemmed(call: Call) -> Translation:
    attrs = {"depth": call.x(1)[1]}
    has_bias = len(call.ins) > 3
    return (
        Translation("matmul", {**attrs, "bias": True}, (0, 1, 3)) if has_bias else Translation("matmul", attrs, (0, 1))
    )


def _dot(call: Call) -> None:
    """The last axis of the first with the first of the second; transposed, the first with the last."""
    a, b = call.every()
    call.put_out(0, tensordot(a, b, (_summed(call, 0),), (_summed(call, 1),)) or (1,))


def _summed(call: Call, index: int) -> int:
    """The axis of an operand that is summed: its first or its last."""
    return 0 if call.attrs.flag("transpose_b" if index else "transpose_a") != bool(index) else -1


def _dotted(call: Call) -> Translation:
    return Translation("matmul", {"depth": known((call.dims(0)[_summed(call, 0)],))[0]})


def _batch_dot(call: Call) -> None:
    turns = call.attrs.flag("transpose_a"), call.attrs.flag("transpose_b")
    a, b = (_turned(shape, turn=turn) for shape, turn in zip(call.every(), turns, strict=True))
    if len(a) != len(b) or (None not in (a[-1], b[-2]) and a[-1] != b[-2]):
        raise Mismatch(
            f"{text(call.ins[0])} and {text(call.ins[1])} are not batches of matrices that can be multiplied"
        )
    rows, columns = a[-2], b[-1]
    shared = merge((*a[:-2], a[-1]), b[:-1]) or ()
    call.put_in(0, _turned((*shared[:-1], rows, shared[-1]), turn=turns[0]))
    call.put_in(1, _turned((*shared, columns), turn=turns[1]))
    call.put_out(0, (*shared[:-1], rows, columns))


def _turned(shape: Dims, *, turn: bool) -> Dims:
    if len(shape) < 2:
        raise Mismatch(f"{text(shape)} is not a matrix")
    return swapped(shape, -1, -2) if turn else shape


def _batch_dotted(call: Call) -> Translation:
    return Translation("matmul", {"depth": call.x()[-2 if call.attrs.flag("transpose_a") else -1]})


def _gemm(call: Call) -> None:
    """alpha A B (+ beta C): rows stand along `axis`, columns along the last one."""
    a, b = call.dims(0), call.dims(1)
    axis = axis_of(call.attrs.integer("axis", -2), len(a))
    if len(a) != len(b) or len(a) < 2:
        raise Mismatch(f"{text(a)} and {text(b)} are not batches of matrices that can be multiplied")
    rows = a[-1] if call.attrs.flag("transpose_a") else a[axis]
    columns = b[axis] if call.attrs.flag("transpose_b") else b[-1]
    y = (*replaced(a, axis, rows)[:-1], columns)
    call.put_out(0, y)
    call.put_in(2, y)


def _gemmed(call: Call) -> Translation:
    a = call.x()
    axis = axis_of(call.attrs.integer("axis", -2), len(a))
    attrs = {"depth": a[axis] if call.attrs.flag("transpose_a") else a[-1]}
    return Translation("matmul", {**attrs, "bias": True} if len(call.ins) > 2 else attrs)


def _matmul(call: Call) -> None:
    """NumPy's matmul: vectors are completed and the batch is broadcast."""
    call.put_out(0, matmul(*call.every()))


def _np_dot(call: Call) -> None:
    """NumPy's dot: the last axis of the first with the last but one of the second; a scalar multiplies."""
    call.put_out(0, dot(*call.every()))


def _np_dotted(call: Call) -> Translation:
    if not call.x() or not call.x(1):
        return Translation("elementwise", {"fn": "mul"})
    return Translation("matmul", {"depth": call.x()[-1]})


def _summed_axes(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of both operands that `tensordot` sums."""
    ranks = [len(shape) for shape in call.every()]
    if "a_axes_summed" in call.attrs or "b_axes_summed" in call.attrs:
        listed = call.attrs.integers("a_axes_summed", ()), call.attrs.integers("b_axes_summed", ())
        a, b = (axes_of(axes, rank) for axes, rank in zip(listed, ranks, strict=True))
    else:
        count = call.attrs.integer("axes", 2)
        if not 0 <= count <= min(ranks):
            raise AttributeFault(f"{count} axes cannot be summed")
        a, b = tuple(range(ranks[0] - count, ranks[0])), tuple(range(count))
    if len(a) != len(b):
        raise AttributeFault("the two operands do not have the same number of summed axes")
    return a, b


def _tensordot(call: Call) -> None:
    a, b = call.every()
    call.put_out(0, tensordot(a, b, *_summed_axes(call)))


def _tensordotted(call: Call) -> Translation:
    return Translation("matmul", {"depth": prod(call.x()[axis] for axis in _summed_axes(call)[0])})


def _equation(call: Call) -> str:
    """The subscripts with an explicit output and a letter for every axis of an ellipsis."""
    return explicit(call.attrs.text("subscripts"), [len(shape) for shape in call.every()])


def _einsum(call: Call) -> None:
    call.put_out(0, einsum(_equation(call), call.every()))


def _khatri_rao(call: Call) -> None:
    """Column by column the Kronecker product of matrices."""
    matrices = call.every()
    if all(len(shape) == 2 for shape in matrices):
        call.put_out(0, (product(rows for rows, _ in matrices), matrices[0][1]))


define(
    "FullyConnected _npx_fully_connected _sparse_FullyConnected", _fully_connected, _linear, slots="data weight bias"
)
define("dot _sparse_dot", _dot, _dotted, slots="lhs rhs")
define("batch_dot _npx_batch_dot", _batch_dot, _batch_dotted, slots="lhs rhs")
define(
    "_linalg_gemm linalg_gemm _linalg_gemm2 linalg_gemm2 _npx_linalg_gemm _npx_linalg_gemm2",
    _gemm,
    _gemmed,
    slots="A B C",
)
define(
    "_contrib_intgemm_fully_connected _npx_intgemm_fully_connected",
    _intgemm,
    _intgemmed,
    _intgemm_types,
    slots="data weight scaling bias",
)
define("_npi_matmul", _matmul, lambda call: Translation("matmul", {"depth": call.x()[-1]}), slots="a b")
define("_np_dot _npi_dot", _np_dot, _np_dotted, slots="a b")
define("_npi_tensordot _npi_tensordot_int_axes", _tensordot, _tensordotted, same_types, slots="a b")
define("_npi_einsum", _einsum, lambda call: Translation("einsum", {"equation": _equation(call)}))
define("khatri_rao", _khatri_rao, lambda call: Translation("elementwise", {"fn": "mul"}))
