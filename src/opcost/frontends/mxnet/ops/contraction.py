"""Matrix products: fully connected layers, dot and its relatives, attention, recurrent layers."""

from __future__ import annotations

from math import prod

from opcost.core import shapes as sh
from opcost.core.shapes import Dims, Mismatch, Shape
from opcost.frontends.mxnet.ops.table import Call, Means, pattern, row, types_of
from opcost.frontends.mxnet.symbol import AttributeFault, Attributes


def product_of(depth: int, *, bias: bool = False) -> Means:
    """A product that sums this many elements for each of its own."""
    return "matmul", {"depth": depth, "bias": True} if bias else {"depth": depth}


# -- products ----------------------------------------------------------------------------------------------------------


def _fully_connected(call: Call, bias: int = 2) -> None:
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


def _intgemm(call: Call) -> None:
    """A fully connected layer on bytes: a scale is between the weight and the bias."""
    call.put_in(2, (1,))
    _fully_connected(call, bias=3)


def _intgemm_types(call: Call) -> None:
    call.type_in(1, "int8")
    call.type_out(0, call.attrs.dtype("out_type", "float32"))
    for index in (2, 3):
        call.type_in(index, "float32")


def _summed(call: Call, index: int) -> int:
    """The axis of an operand of `dot` that is summed, its last or first; transposed, the other one."""
    return 0 if call.attrs.flag("transpose_b" if index else "transpose_a") != bool(index) else -1


def _batch_dot(call: Call) -> Shape:
    turns = call.attrs.flag("transpose_a"), call.attrs.flag("transpose_b")
    a, b = (_turned(shape, turn=turn) for shape, turn in zip(call.every(), turns, strict=True))
    if len(a) != len(b) or (None not in (a[-1], b[-2]) and a[-1] != b[-2]):
        raise Mismatch(
            f"{sh.text(call.ins[0])} and {sh.text(call.ins[1])} are not batches of matrices that can be multiplied"
        )
    rows, columns = a[-2], b[-1]
    shared = sh.merge((*a[:-2], a[-1]), b[:-1]) or ()
    call.put_in(0, _turned((*shared[:-1], rows, shared[-1]), turn=turns[0]))
    call.put_in(1, _turned((*shared, columns), turn=turns[1]))
    return (*shared[:-1], rows, columns)


def _turned(shape: Dims, *, turn: bool) -> Dims:
    if len(shape) < 2:
        raise Mismatch(f"{sh.text(shape)} is not a matrix")
    return sh.swapped(shape, -1, -2) if turn else shape


def _gemm(call: Call) -> None:
    """alpha A B (+ beta C): rows are along `axis`, columns along the last one."""
    a, b = call.dims(0), call.dims(1)
    axis = sh.axis_of(call.attrs.integer("axis", -2), len(a))
    if len(a) != len(b) or len(a) < 2:
        raise Mismatch(f"{sh.text(a)} and {sh.text(b)} are not batches of matrices that can be multiplied")
    rows = a[-1] if call.attrs.flag("transpose_a") else a[axis]
    columns = b[axis] if call.attrs.flag("transpose_b") else b[-1]
    y = (*sh.replaced(a, axis, rows)[:-1], columns)
    call.put_out(0, y)
    call.put_in(2, y)


def _gemm_product(call: Call) -> Means:
    a = call.x()
    axis = sh.axis_of(call.attrs.integer("axis", -2), len(a))
    return product_of(a[axis] if call.attrs.flag("transpose_a") else a[-1], bias=len(call.ins) > 2)


def _summed_axes(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of both operands that `tensordot` sums."""
    ranks = [len(shape) for shape in call.every()]
    if "a_axes_summed" in call.attrs or "b_axes_summed" in call.attrs:
        listed = call.attrs.integers("a_axes_summed", ()), call.attrs.integers("b_axes_summed", ())
        a, b = (sh.axes_of(axes, rank) for axes, rank in zip(listed, ranks, strict=True))
    else:
        count = call.attrs.integer("axes", 2)
        if not 0 <= count <= min(ranks):
            raise AttributeFault(f"{count} axes cannot be summed")
        a, b = tuple(range(ranks[0] - count, ranks[0])), tuple(range(count))
    if len(a) != len(b):
        raise AttributeFault("the two operands do not have the same number of summed axes")
    return a, b


def _equation(call: Call) -> str:
    """The subscripts with an explicit output and a letter for every axis of an ellipsis."""
    return sh.explicit(call.attrs.text("subscripts"), [len(shape) for shape in call.every()])


def _khatri_rao(call: Call) -> Shape:
    """Column by column the Kronecker product of matrices."""
    matrices = call.every()
    return (sh.product(rows for rows, _ in matrices), matrices[0][1]) if all(len(m) == 2 for m in matrices) else None


_PRODUCTS = [
    row("FullyConnected _npx_fully_connected _sparse_FullyConnected", _fully_connected,
        lambda c: product_of(c.x(1)[1], bias=len(c.ins) > 2), slots="data weight bias"),
    row("_contrib_intgemm_fully_connected _npx_intgemm_fully_connected", _intgemm,
        lambda c: product_of(c.x(1)[1], bias=len(c.ins) > 3), _intgemm_types, slots="data weight scaling bias",
        reads=(0, 1, 3)),
    row("dot _sparse_dot", lambda c: sh.tensordot(c.dims(0), c.dims(1), (_summed(c, 0),), (_summed(c, 1),)) or (1,),
        lambda c: product_of(sh.known((c.dims(0)[_summed(c, 0)],))[0]), slots="lhs rhs"),
    row("batch_dot _npx_batch_dot", _batch_dot, lambda c: product_of(c.x()[-2 if c.attrs.flag("transpose_a") else -1]),
        slots="lhs rhs"),
    row("_linalg_gemm linalg_gemm _linalg_gemm2 linalg_gemm2 _npx_linalg_gemm _npx_linalg_gemm2", _gemm, _gemm_product,
        slots="A B C"),
    row("_npi_matmul", lambda c: sh.matmul(*c.every()), lambda c: product_of(c.x()[-1]), slots="a b"),
    # the last axis of the first with the last but one of the second; a scalar multiplies
    row("_np_dot _npi_dot", lambda c: sh.dot(*c.every()),
        lambda c: product_of(c.x()[-1]) if c.x() and c.x(1) else ("elementwise", {"fn": "mul"}), slots="a b"),
    row("_npi_tensordot _npi_tensordot_int_axes", lambda c: sh.tensordot(c.dims(0), c.dims(1), *_summed_axes(c)),
        lambda c: product_of(prod(c.x()[axis] for axis in _summed_axes(c)[0])), slots="a b"),
    row("_npi_einsum", lambda c: sh.einsum(_equation(c), c.every()), lambda c: ("einsum", {"equation": _equation(c)})),
    row("khatri_rao", _khatri_rao, lambda c: ("elementwise", {"fn": "mul"})),
]  # fmt: skip

# -- attention on interleaved projections, and on sliding windows ------------------------------------------------------


def _window(call: Call) -> int:
    """Places that one query meets: w to each side and its own, or only those before."""
    reach = call.attrs.integer("w")
    return 2 * reach + 1 if call.attrs.flag("symmetric", default=True) else reach + 1


_SCORES, _VALUES = pattern("b l h f, b l h f, h -> b l h _"), pattern("b l h _, b l h f, h -> b l h f")


def _window_scores(call: Call) -> Shape:
    _SCORES(call)
    return (None, None, None, _window(call))


def _window_values(call: Call) -> None:
    _VALUES(call)
    call.put_in(0, (None, None, None, _window(call)))


def _attention(name: str) -> str:
    return f"_contrib_{name} _npx_{name}"


_ATTENTION = [
    row(_attention("interleaved_matmul_selfatt_qk"), pattern("l b _ -> b*{heads} l l"),
        lambda c: product_of(c.x()[2] // 3 // c.attrs.integer("heads")), slots="queries_keys_values"),
    row(_attention("interleaved_matmul_selfatt_valatt"), pattern("l b 3*f, b*{heads} l l -> l b f"),
        lambda c: product_of(c.x(1)[2]), slots="queries_keys_values attention"),
    row(_attention("interleaved_matmul_encdec_qk"), pattern("q b f, k b 2*f -> b*{heads} q k"),
        lambda c: product_of(c.x()[2] // c.attrs.integer("heads")), slots="queries keys_values"),
    row(_attention("interleaved_matmul_encdec_valatt"), pattern("k b 2*f, b*{heads} q k -> q b f"),
        lambda c: product_of(c.x(1)[2]), slots="keys_values attention"),
    row(_attention("sldwin_atten_score"), _window_scores, lambda c: product_of(c.x()[3]), reads=(0, 1)),
    row(_attention("sldwin_atten_context"), _window_values, lambda c: ("matmul", {"macs": prod(c.x()) * c.x(1)[3]}),
        reads=(0, 1)),
    row(_attention("sldwin_atten_mask_like"), lambda c: c.ins[0], "create"),
]  # fmt: skip

# -- recurrent layers whose weights are in one packed vector -----------------------------------------------------------

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}
BIASES = 2  # One for the input and one for the state, for every gate
_MOST_LAYERS = 4096


class _Layers:
    """The attributes of a recurrent operator."""

    def __init__(self, attrs: Attributes) -> None:
        self.mode, self.hidden = attrs.text("mode"), attrs.integer("state_size")
        self.layers, self.directions = attrs.integer("num_layers"), 2 if attrs.flag("bidirectional") else 1
        self.projection = attrs.maybe_integer("projection_size")
        self.output = self.projection or self.hidden  # of one direction
        if self.mode not in GATES or self.hidden < 1 or not 1 <= self.layers <= _MOST_LAYERS:
            raise AttributeFault("mode, state_size and num_layers do not describe a recurrent layer")

    def sizes(self, features: int) -> tuple[tuple[int, int, int], ...]:
        """Input, hidden and output size of every layer and direction."""
        inputs = (features, *(self.output * self.directions,) * (self.layers - 1))
        return tuple((size, self.hidden, self.output) for size in inputs for _ in range(self.directions))


def _is_lstm(attrs: Attributes) -> bool:
    return attrs.text("mode", "lstm") == "lstm"


def _recurrent_slots(attrs: Attributes) -> tuple[str, ...]:
    cell = ("state_cell",) if _is_lstm(attrs) else ()
    length = ("sequence_length",) if attrs.flag("use_sequence_length") else ()
    return ("data", "parameters", "state", *cell, *length)


def _recurrent_shapes(call: Call) -> Shape:
    layers = _Layers(call.attrs)
    call.put_in(0, (None, call.ins[2][1] if len(call.ins) > 2 and len(call.ins[2] or ()) == 3 else None, None))  # type: ignore[index]
    steps, batch, features = call.dims(0)
    if features is not None:  # all weights and biases are in one vector
        projected = layers.hidden * layers.output if layers.projection else 0
        gates = GATES[layers.mode]
        sizes = layers.sizes(features)
        call.put_in(1, (sum(gates * hidden * (size + out + BIASES) + projected for size, hidden, out in sizes),))
    depth = layers.layers * layers.directions
    states = [(depth, batch, layers.output)]
    if layers.mode == "lstm":
        states.append((depth, batch, layers.hidden))
    for index, shape in enumerate(states):
        call.put_in(2 + index, shape)
        call.put_out(1 + index, shape)
    if call.attrs.flag("use_sequence_length"):
        call.put_in(2 + len(states), (batch,))
    return (steps, batch, layers.directions * layers.output)


def _recurrent(call: Call) -> Means:
    layers, (steps, batch, features) = _Layers(call.attrs), call.x()
    sizes = layers.sizes(features)
    return "recurrent", {"cell": layers.mode, "steps": steps * batch, "layers": sizes, "bias": True}


ROWS = [
    *_PRODUCTS,
    *_ATTENTION,
    row("RNN _npx_rnn", _recurrent_shapes, _recurrent, types_of(0, 1, 2, 3),
        lambda attrs: (3 if _is_lstm(attrs) else 2) if attrs.flag("state_outputs") else 1, _recurrent_slots),
]  # fmt: skip
