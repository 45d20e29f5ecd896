"""Matrix products: fully connected layers, dot and its relatives, attention's interleaved products."""

from __future__ import annotations

from opcost.frontends.mxnet.attribute import AttributeFault
from opcost.frontends.mxnet.ops.table import Call, Operator, Translation, register, same_types
from opcost.frontends.mxnet.shape import Extent, Mismatch, axis_of, broadcast, dims, product, show


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
        elif x.count(None) == 1 and x[0] is not None and depth is not None:
            known = product(extent for extent in x[1:] if extent is not None) or 1
            call.put_in(0, tuple(depth // known if extent is None else extent for extent in x))
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
    a, b = call.ins
    if a is None or b is None:
        return
    (kept_a, depth_a), (kept_b, depth_b) = _contracted(call, 0), _contracted(call, 1)
    if depth_a is not None and depth_b is not None and depth_a != depth_b:
        raise Mismatch(f"{show(a)} and {show(b)} do not share the axis that is summed")
    call.put_out(0, (*kept_a, *kept_b) or (1,))


def _contracted(call: Call, index: int) -> tuple[tuple[Extent, ...], Extent]:
    """What of an operand is kept, and the extent that is summed."""
    shape = call.ins[index]
    if not shape:
        raise Mismatch("an operand is a scalar")
    first = call.attrs.flag("transpose_b" if index else "transpose_a") != bool(index)
    return (shape[1:], shape[0]) if first else (shape[:-1], shape[-1])


def _dotted(call: Call) -> Translation:
    return Translation("matmul", {"depth": dims((_contracted(call, 0)[1],))[0]})


def _batch_dot(call: Call) -> None:
    swapped = call.attrs.flag("transpose_a"), call.attrs.flag("transpose_b")
    a, b = (_matrix(shape, swap=swap) for shape, swap in zip(call.ins, swapped, strict=True))
    if a is None or b is None:
        return
    if len(a) != len(b) or (a[-1] is not None and b[-2] is not None and a[-1] != b[-2]):
        raise Mismatch(f"{show(call.ins[0])} and {show(call.ins[1])} are no batches of matrices to multiply")
    batch = [n if m is None else m for m, n in zip(a[:-2], b[:-2], strict=True)]
    depth = b[-2] if a[-1] is None else a[-1]
    call.put_in(0, _matrix((*batch, a[-2], depth), swap=swapped[0]))
    call.put_in(1, _matrix((*batch, depth, b[-1]), swap=swapped[1]))
    call.put_out(0, (*batch, a[-2], b[-1]))


def _matrix(shape: tuple[Extent, ...] | None, *, swap: bool) -> tuple[Extent, ...] | None:
    if shape is None:
        return None
    if len(shape) < 2:
        raise Mismatch(f"{show(shape)} is not a matrix")
    return (*shape[:-2], shape[-1], shape[-2]) if swap else shape


def _batch_dotted(call: Call) -> Translation:
    return Translation("matmul", {"depth": call.x()[-2 if call.attrs.flag("transpose_a") else -1]})


def _gemm(call: Call) -> None:
    """alpha A B (+ beta C): rows stand along `axis`, columns along the last one."""
    a, b = call.ins[:2]
    if a is None or b is None:
        return
    axis = axis_of(call.attrs.integer("axis", -2), len(a))
    if len(a) != len(b) or len(a) < 2:
        raise Mismatch(f"{show(a)} and {show(b)} are no batches of matrices to multiply")
    rows = a[-1] if call.attrs.flag("transpose_a") else a[axis]
    columns = b[axis] if call.attrs.flag("transpose_b") else b[-1]
    y = list(a)
    y[axis], y[-1] = rows, columns
    call.put_out(0, tuple(y))
    call.put_in(2, tuple(y))


def _gemmed(call: Call) -> Translation:
    a = call.x()
    axis = axis_of(call.attrs.integer("axis", -2), len(a))
    attrs = {"depth": a[axis] if call.attrs.flag("transpose_a") else a[-1]}
    return Translation("matmul", {**attrs, "bias": True} if len(call.ins) > 2 else attrs)


def _matmul(call: Call) -> None:
    """NumPy's matmul: vectors are completed and the batch is broadcast."""
    a, b = call.ins
    if a is None or b is None:
        return
    if not a or not b:
        raise Mismatch("matmul takes no scalars")
    full_a, full_b = ((1, *a) if len(a) == 1 else a), ((*b, 1) if len(b) == 1 else b)
    if full_a[-1] is not None and full_b[-2] is not None and full_a[-1] != full_b[-2]:
        raise Mismatch(f"{show(a)} and {show(b)} do not share the axis that is summed")
    batch = broadcast([full_a[:-2], full_b[:-2]]) or ()
    call.put_out(0, (*batch, *full_a[-2:-1][: len(a) - 1], *full_b[-1:][: len(b) - 1]))


def _matmuled(call: Call) -> Translation:
    return Translation("matmul", {"depth": call.x()[-1]})


def _np_dot(call: Call) -> None:
    """NumPy's dot: the last axis of the first with the last but one of the second; a scalar multiplies."""
    a, b = call.ins
    if a is None or b is None:
        return
    if not a or not b:
        call.put_out(0, a or b)
    elif len(b) == 1:
        call.put_out(0, a[:-1])
    else:
        call.put_out(0, (*a[:-1], *b[:-2], b[-1]))


def _np_dotted(call: Call) -> Translation:
    if not call.x() or not call.x(1):
        return Translation("elementwise", {"fn": "mul"})
    return Translation("matmul", {"depth": call.x()[-1]})


def _summed_axes(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of both operands that `tensordot` sums."""
    ranks = [len(dims(shape)) for shape in call.ins]
    if "a_axes_summed" in call.attrs or "b_axes_summed" in call.attrs:
        listed = call.attrs.integers("a_axes_summed", ()), call.attrs.integers("b_axes_summed", ())
        a, b = (tuple(axis_of(axis, rank) for axis in axes) for axes, rank in zip(listed, ranks, strict=True))
    else:
        count = call.attrs.integer("axes", 2)
        if not 0 <= count <= min(ranks):
            raise AttributeFault(f"{count} axes cannot be summed")
        a, b = tuple(range(ranks[0] - count, ranks[0])), tuple(range(count))
    if len(a) != len(b):
        raise AttributeFault("not as many axes of the first operand are summed as of the second")
    return a, b


def _tensordot(call: Call) -> None:
    if None in call.ins:
        return
    axes = _summed_axes(call)
    kept = [
        extent
        for shape, summed in zip(call.ins, axes, strict=True)
        for axis, extent in enumerate(shape or ())
        if axis not in summed
    ]
    call.put_out(0, tuple(kept))


def _tensordotted(call: Call) -> Translation:
    depth = 1
    for axis in _summed_axes(call)[0]:
        depth *= call.x()[axis]
    return Translation("matmul", {"depth": depth})


def _equation(call: Call) -> str:
    """The subscripts with an explicit output and a letter for every axis of an ellipsis."""
    text = call.attrs.text("subscripts").replace(" ", "")
    left, arrow, output = text.partition("->")
    operands = left.split(",")
    if len(operands) != len(call.ins):
        raise AttributeFault(f"the subscripts {text!r} have {len(operands)} operands, and the node has {len(call.ins)}")
    spare = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if letter not in text]
    widest = 0
    written = []
    for labels, shape in zip(operands, call.ins, strict=True):
        hidden = len(dims(shape)) - len(labels.replace("...", ""))
        if hidden < 0 or (hidden and "..." not in labels) or hidden > len(spare):
            raise Mismatch(f"the subscripts {labels!r} do not fit {show(shape)}")
        widest = max(widest, hidden)
        written.append((labels, hidden))
    rest = "".join(spare[:widest])
    filled = [labels.replace("...", rest[widest - hidden :]) for labels, hidden in written]
    if arrow:
        output = output.replace("...", rest)
    else:
        joined = "".join(filled)
        output = rest + "".join(sorted(c for c in set(joined) if joined.count(c) == 1 and c not in rest))
    return f"{','.join(filled)}->{output}"


def _einsum(call: Call) -> None:
    if None in call.ins or any(None in shape for shape in call.ins if shape is not None):
        return
    left, _, output = _equation(call).partition("->")
    extents: dict[str, int] = {}
    for labels, shape in zip(left.split(","), call.ins, strict=True):
        for label, extent in zip(labels, dims(shape), strict=True):
            known = extents.setdefault(label, extent)
            if known != extent and 1 not in (known, extent):
                raise Mismatch(f"the label {label!r} stands for {known} and for {extent}")
            extents[label] = max(known, extent)
    if not set(output) <= extents.keys():
        raise AttributeFault(f"the output {output!r} has a label that no operand has")
    call.put_out(0, tuple(extents[label] for label in output))


def _einsummed(call: Call) -> Translation:
    return Translation("einsum", {"equation": _equation(call)})


def _khatri_rao(call: Call) -> None:
    """Column by column the Kronecker product of matrices."""
    rows: Extent = 1
    columns: Extent = None
    for shape in call.ins:
        if shape is None or len(shape) != 2:
            return
        rows = None if rows is None or shape[0] is None else rows * shape[0]
        columns = shape[1] if columns is None else columns
    call.put_out(0, (rows, columns))


register(
    ("FullyConnected", "_npx_fully_connected", "_sparse_FullyConnected"),
    Operator(_fully_connected, _linear, slots=("data", "weight", "bias")),
)
register(("dot", "_sparse_dot"), Operator(_dot, _dotted, slots=("lhs", "rhs")))
register(("batch_dot", "_npx_batch_dot"), Operator(_batch_dot, _batch_dotted, slots=("lhs", "rhs")))
register(
    ("_linalg_gemm", "linalg_gemm", "_linalg_gemm2", "linalg_gemm2", "_npx_linalg_gemm", "_npx_linalg_gemm2"),
    Operator(_gemm, _gemmed, slots=("A", "B", "C")),
)
register(
    ("_contrib_intgemm_fully_connected", "_npx_intgemm_fully_connected"),
    Operator(_intgemm, _intgemmed, _intgemm_types, slots=("data", "weight", "scaling", "bias")),
)
register(("_npi_matmul",), Operator(_matmul, _matmuled, slots=("a", "b")))
register(("_np_dot", "_npi_dot"), Operator(_np_dot, _np_dotted, slots=("a", "b")))
register(
    ("_npi_tensordot", "_npi_tensordot_int_axes"), Operator(_tensordot, _tensordotted, same_types, slots=("a", "b"))
)
register(("_npi_einsum",), Operator(_einsum, _einsummed))
register(("khatri_rao",), Operator(_khatri_rao, lambda call: Translation("elementwise", {"fn": "mul"})))
