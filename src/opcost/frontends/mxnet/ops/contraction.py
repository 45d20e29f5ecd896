"""Products of matrices: fully connected layers, dot and its relatives, attention, recurrent layers; and linear algebra."""

from math import isqrt, prod

from opcost.core import shapes as sh
from opcost.core.graph import Attrs
from opcost.core.shapes import Mismatch, Shape
from opcost.frontends.mxnet.ops.table import FUNCTIONS, SymbolCall
from opcost.frontends.mxnet.symbol import AttributeFault, Attributes
from opcost.frontends.rows import Means, pattern

# -- products ----------------------------------------------------------------------------------------------------------


def _fully_connected(call: SymbolCall, bias: int = 2) -> Attrs:
    hidden = call.attrs.integer("num_hidden")
    flatten = call.attrs.flag("flatten", default=True)
    call.put_in(1, (hidden, None))
    call.put_in(bias, (hidden,))
    x = call.ins[0]
    if x is not None:
        if not x:
            raise Mismatch("the data is a scalar")
        call.put_in(1, (hidden, sh.product(x[1:]) if flatten else x[-1]))
        weight = call.ins[1]
        depth = weight[1] if weight is not None else None
        if not flatten or len(x) == 2:
            call.put_in(0, (*x[:-1], depth))
        else:
            call.put_in(0, (x[0], *sh.filled(x[1:], depth)))
        call.put_out(0, (x[0], hidden) if flatten else (*x[:-1], hidden))
    y = call.outs[0]
    if y is not None and y:
        if flatten and x is not None:
            call.put_in(0, (y[0], *(None,) * (len(x) - 1)))
        elif not flatten:
            call.put_in(0, (*y[:-1], None))
    return {"depth": call.x(1)[1], **({"bias": True} if len(call.ins) > bias else {})}


def _intgemm(call: SymbolCall) -> Attrs:
    """A fully connected layer on bytes: a scale is between the weight and the bias."""
    call.put_in(2, (1,))
    return _fully_connected(call, 3)


def _intgemm_types(call: SymbolCall) -> None:
    call.type_in(1, "int8")
    call.type_out(0, call.attrs.dtype("out_type", "float32"))
    for index in (2, 3):
        call.type_in(index, "float32")


def _dot(call: SymbolCall) -> Attrs:
    """The last axis of the first operand and the first of the second are summed; transposed, the other ones."""
    a, b = call.dims(0), call.dims(1)
    mine, other = 0 if call.attrs.flag("transpose_a") else -1, -1 if call.attrs.flag("transpose_b") else 0
    call.put_out(0, sh.tensordot(a, b, (mine,), (other,)) or (1,))
    return {"depth": sh.known((a[mine],))[0]}


def _batch_dot(call: SymbolCall) -> Attrs:
    left = "... k m" if call.attrs.flag("transpose_a") else "... m k"
    right = "... n k" if call.attrs.flag("transpose_b") else "... k n"
    return {"depth": sh.known((pattern(f"{left}, {right} -> ... m n")(call).get("k"),))[0]}


def _gemm(call: SymbolCall) -> Attrs:
    """alpha A B (+ beta C): rows are along `axis`, columns along the last one."""
    a, b = call.dims(0), call.dims(1)
    axis = sh.axis_of(call.attrs.integer("axis", -2), len(a))
    if len(a) != len(b) or len(a) < 2:
        raise Mismatch(f"{sh.text(a)} and {sh.text(b)} are not batches of matrices that can be multiplied")
    turned = call.attrs.flag("transpose_a")
    columns = b[axis] if call.attrs.flag("transpose_b") else b[-1]
    y = (*sh.replaced(a, axis, a[-1] if turned else a[axis])[:-1], columns)
    call.put_out(0, y)
    call.put_in(2, y)
    return {"depth": call.x()[axis if turned else -1], **({"bias": True} if len(call.ins) > 2 else {})}


def _matmul(call: SymbolCall) -> Attrs:
    call.put_out(0, sh.matmul(*call.every()))
    return {"depth": call.x()[-1]}


def _tensordot(call: SymbolCall) -> Attrs:
    a, b = call.every()
    if "a_axes_summed" in call.attrs or "b_axes_summed" in call.attrs:
        mine, other = call.attrs.integers("a_axes_summed", ()), call.attrs.integers("b_axes_summed", ())
    else:
        count = call.attrs.integer("axes", 2)
        if not 0 <= count <= min(len(a), len(b)):
            raise AttributeFault(f"{count} axes cannot be summed")
        mine, other = tuple(range(len(a) - count, len(a))), tuple(range(count))
    if len(mine) != len(other):
        raise AttributeFault("the two operands do not have the same number of summed axes")
    call.put_out(0, sh.tensordot(a, b, mine, other))
    return {"depth": prod(call.x()[axis] for axis in mine)}


def _einsum(call: SymbolCall) -> Attrs:
    """The subscripts with an explicit output and a letter for every axis of an ellipsis."""
    operands = call.every()
    equation = sh.explicit(call.attrs.text("subscripts"), [len(shape) for shape in operands])
    call.put_out(0, sh.einsum(equation, operands))
    return {"equation": equation}


def _numpy_dot(call: SymbolCall) -> Means:
    """The last axis of the first with the last but one of the second; a scalar multiplies."""
    return ("matmul", {"depth": call.x()[-1]}) if call.x() and call.x(1) else ("elementwise", {"fn": "mul"})


def _khatri_rao(call: SymbolCall) -> Shape:
    """Column by column the Kronecker product of matrices."""
    matrices = call.every()
    return (sh.product(rows for rows, _ in matrices), matrices[0][1]) if all(len(m) == 2 for m in matrices) else None


FUNCTIONS.update(numpy_dot_shape=lambda call: sh.dot(*call.every()))

# -- attention on sliding windows --------------------------------------------------------------------------------------


def _window(call: SymbolCall) -> int:
    """Places that one query meets: w to each side and its own, or only those before."""
    reach = call.attrs.integer("w")
    return 2 * reach + 1 if call.attrs.flag("symmetric", default=True) else reach + 1


def _window_scores(call: SymbolCall) -> Attrs:
    pattern(f"b l h f, b l h f, h -> b l h {_window(call)}")(call)
    return {"depth": call.x()[3]}


def _window_values(call: SymbolCall) -> Attrs:
    pattern(f"b l h {_window(call)}, b l h f, h -> b l h f")(call)
    return {"macs": prod(call.x()) * call.x(1)[3]}


# -- recurrent layers whose weights are in one packed vector -----------------------------------------------------------

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}
BIASES = 2  # One for the input and one for the state, for every gate
_MOST_LAYERS = 4096


def _rnn(call: SymbolCall) -> Attrs:
    mode, hidden = call.attrs.text("mode"), call.attrs.integer("state_size")
    count, directions = call.attrs.integer("num_layers"), 2 if call.attrs.flag("bidirectional") else 1
    projection = call.attrs.maybe_integer("projection_size")
    output = projection or hidden  # of one direction
    if mode not in GATES or hidden < 1 or not 1 <= count <= _MOST_LAYERS:
        raise AttributeFault("mode, state_size and num_layers do not describe a recurrent layer")
    call.put_in(0, (None, None, None))
    features = call.dims(0)[2]
    sizes: tuple[tuple[int, int, int], ...] = ()  # of every layer and direction: input, hidden, output
    if features is not None:  # all weights and biases are in one vector
        inputs = (features, *(output * directions,) * (count - 1))
        sizes = tuple((size, hidden, output) for size in inputs for _ in range(directions))
        projected = hidden * output if projection else 0
        weights = (GATES[mode] * hidden * (size + output + BIASES) + projected for size, *_ in sizes)
        call.put_in(1, (sum(weights),))
    depth, width = count * directions, directions * output
    states = f", {depth} b {output}" + (f", {depth} b {hidden}" if mode == "lstm" else "")
    length = ", b" if call.attrs.flag("use_sequence_length") else ""
    pattern(f"t b f, _{states}{length} -> t b {width}{states}")(call)
    return {"cell": mode, "steps": prod(call.x()[:2]), "layers": sizes, "bias": True}


def _rnn_outputs(attrs: Attributes) -> int:
    return (3 if attrs.text("mode", "lstm") == "lstm" else 2) if attrs.flag("state_outputs") else 1


# -- factorizations, solvers, diagonals and triangles of matrices; transforms ------------------------------------------


def _det(call: SymbolCall) -> None:
    *batch, _, _ = call.dims(0)
    call.put_all(tuple(batch) or call.scalar)


def _triangular_product(call: SymbolCall) -> Attrs:
    """Half of a square times a matrix: n (n + 1) / 2 products for each column."""
    call.both(1)
    b, n = call.x(1), call.x(0)[-1]
    columns = b[-2] if call.attrs.flag("rightside") else b[-1]
    return {"macs": prod(b[:-2]) * columns * n * (n + 1) // 2}


def _symmetric(call: SymbolCall) -> Attrs:
    """A times its own transpose."""
    found = pattern("... d n -> ... n n" if call.attrs.flag("transpose") else "... n d -> ... n n")(call)
    return {"depth": sh.known((found.get("d"),))[0]}


def _qr(call: SymbolCall) -> list[Shape]:
    *batch, rows, columns = call.dims(0)
    least = sh.diagonal(rows, columns)
    return [(*batch, rows, least), (*batch, least, columns)]


def _diagonal(call: SymbolCall) -> Shape:
    *batch, rows, columns = call.dims(0)
    return (*batch, sh.diagonal(rows, columns, call.attrs.integer("offset", 0)))


def _make_diagonal(call: SymbolCall) -> Shape:
    *batch, length = call.dims(0)
    side = sh.total((length, abs(call.attrs.integer("offset", 0))))
    return (*batch, side, side)


def _diag(call: SymbolCall) -> Shape:
    """A diagonal of a matrix, or a matrix of a diagonal."""
    x = call.dims(0)
    k = call.attrs.integer("k", call.attrs.integer("offset", 0))
    if len(x) == 1:
        side = sh.total((x[0], abs(k)))
        return (side, side)
    first, second = _two_axes(call)
    return (*sh.reduced(x, (first, second)), sh.diagonal(x[first], x[second], k))


def _two_axes(call: SymbolCall) -> tuple[int, int]:
    return call.attrs.integer("axis1", 0), call.attrs.integer("axis2", 1)


def _triangle(call: SymbolCall) -> Shape:
    """The elements of a triangle in one row."""
    *batch, _, columns = call.dims(0)
    side = sh.total((columns, -abs(call.attrs.integer("offset", 0))))
    return (*batch, None if side is None else side * (side + 1) // 2)


def _make_triangle(call: SymbolCall) -> Shape:
    *batch, length = call.dims(0)
    if length is None:
        return None
    side = (isqrt(8 * length + 1) - 1) // 2
    if side * (side + 1) // 2 != length:
        raise Mismatch(f"{length} elements do not fill a triangle")
    side += abs(call.attrs.integer("offset", 0))
    return (*batch, side, side)


# Real and imaginary parts are side by side along the last axis: the longer side has twice as many elements as are transformed.
FUNCTIONS.update(
    trace=lambda call: sh.reduced(call.dims(0), _two_axes(call)),
    fft=lambda call: {"lengths": (call.x()[-1],), "real": True},
    ifft=lambda call: {"lengths": (call.y()[-1],), "real": True},
)
