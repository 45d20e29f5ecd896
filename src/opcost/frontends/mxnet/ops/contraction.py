"""Matrix products: fully connected layers, dot and its relatives, attention, recurrent layers."""

from __future__ import annotations

from math import prod

from opcost.core.shapes import (
    Dims,
    Extent,
    Mismatch,
    Shape,
    axes_of,
    axis_of,
    divided,
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
    times,
)
from opcost.frontends.mxnet.ops.table import Call, Means, row, types_of
from opcost.frontends.mxnet.symbol import AttributeFault, Attributes


def product_of(depth: int, *, bias: bool = False) -> Means:
    """A product that sums this many elements for each of its own."""
    return "matmul", {"depth": depth, "bias": True} if bias else {"depth": depth}


# -- products ----------------------------------------------------------------------------------------------------------


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


def _intgemm(call: Call) -> Shape:
    """A fully connected layer on bytes: a scale is between the weight and the bias."""
    hidden = call.attrs.integer("num_hidden")
    x = call.ins[0]
    call.put_in(2, (1,))
    call.put_in(3, (hidden,))
    if x is None:
        return None
    flatten = call.attrs.flag("flatten", default=True)
    call.put_in(1, (hidden, product(x[1:]) if flatten else x[-1]))
    return (x[0], hidden) if flatten else (*x[:-1], hidden)


def _intgemm_types(call: Call) -> None:
    call.type_in(1, "int8")
    call.type_out(0, call.attrs.dtype("out_type", "float32"))
    for index in (2, 3):
        call.type_in(index, "float32")


def _summed(call: Call, index: int) -> int:
    """The axis of an operand of `dot` that is summed, its last or first; transposed, the other one."""
    return 0 if call.attrs.flag("transpose_b" if index else "transpose_a") != bool(index) else -1


def _dot(call: Call) -> Shape:
    a, b = call.every()
    return tensordot(a, b, (_summed(call, 0),), (_summed(call, 1),)) or (1,)


def _batch_dot(call: Call) -> Shape:
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
    return (*shared[:-1], rows, columns)


def _turned(shape: Dims, *, turn: bool) -> Dims:
    if len(shape) < 2:
        raise Mismatch(f"{text(shape)} is not a matrix")
    return swapped(shape, -1, -2) if turn else shape


def _gemm(call: Call) -> None:
    """alpha A B (+ beta C): rows are along `axis`, columns along the last one."""
    a, b = call.dims(0), call.dims(1)
    axis = axis_of(call.attrs.integer("axis", -2), len(a))
    if len(a) != len(b) or len(a) < 2:
        raise Mismatch(f"{text(a)} and {text(b)} are not batches of matrices that can be multiplied")
    rows = a[-1] if call.attrs.flag("transpose_a") else a[axis]
    columns = b[axis] if call.attrs.flag("transpose_b") else b[-1]
    y = (*replaced(a, axis, rows)[:-1], columns)
    call.put_out(0, y)
    call.put_in(2, y)


def _gemm_product(call: Call) -> Means:
    a = call.x()
    axis = axis_of(call.attrs.integer("axis", -2), len(a))
    return product_of(a[axis] if call.attrs.flag("transpose_a") else a[-1], bias=len(call.ins) > 2)


def _np_dot_product(call: Call) -> Means:
    """The last axis of the first with the last but one of the second; a scalar multiplies."""
    return product_of(call.x()[-1]) if call.x() and call.x(1) else ("elementwise", {"fn": "mul"})


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


def _tensordot(call: Call) -> Shape:
    a, b = call.every()
    return tensordot(a, b, *_summed_axes(call))


def _equation(call: Call) -> str:
    """The subscripts with an explicit output and a letter for every axis of an ellipsis."""
    return explicit(call.attrs.text("subscripts"), [len(shape) for shape in call.every()])


def _khatri_rao(call: Call) -> Shape:
    """Column by column the Kronecker product of matrices."""
    matrices = call.every()
    if any(len(shape) != 2 for shape in matrices):
        return None
    return (product(rows for rows, _ in matrices), matrices[0][1])


_PRODUCTS = [
    row("FullyConnected _npx_fully_connected _sparse_FullyConnected", _fully_connected,
        lambda c: product_of(c.x(1)[1], bias=len(c.ins) > 2), slots="data weight bias"),
    row("_contrib_intgemm_fully_connected _npx_intgemm_fully_connected", _intgemm,
        lambda c: product_of(c.x(1)[1], bias=len(c.ins) > 3), _intgemm_types, slots="data weight scaling bias",
        reads=(0, 1, 3)),
    row("dot _sparse_dot", _dot, lambda c: product_of(known((c.dims(0)[_summed(c, 0)],))[0]), slots="lhs rhs"),
    row("batch_dot _npx_batch_dot", _batch_dot, lambda c: product_of(c.x()[-2 if c.attrs.flag("transpose_a") else -1]),
        slots="lhs rhs"),
    row("_linalg_gemm linalg_gemm _linalg_gemm2 linalg_gemm2 _npx_linalg_gemm _npx_linalg_gemm2", _gemm, _gemm_product,
        slots="A B C"),
    row("_npi_matmul", lambda c: matmul(*c.every()), lambda c: product_of(c.x()[-1]), slots="a b"),
    row("_np_dot _npi_dot", lambda c: dot(*c.every()), _np_dot_product, slots="a b"),
    row("_npi_tensordot _npi_tensordot_int_axes", _tensordot,
        lambda c: product_of(prod(c.x()[axis] for axis in _summed_axes(c)[0])), slots="a b"),
    row("_npi_einsum", lambda c: einsum(_equation(c), c.every()), lambda c: ("einsum", {"equation": _equation(c)})),
    row("khatri_rao", _khatri_rao, lambda c: ("elementwise", {"fn": "mul"})),
]  # fmt: skip

# -- attention on interleaved projections, and on sliding windows ------------------------------------------------------


def _heads(call: Call) -> int:
    heads = call.attrs.integer("heads")
    if heads < 1:
        raise AttributeFault(f"{heads} heads")
    return heads


def _sequence(shape: Shape, what: str = "") -> tuple[Extent, Extent, Extent]:
    """Length, batch and features of a sequence."""
    if shape is None:
        return None, None, None
    if len(shape) != 3:
        raise Mismatch(f"{what}{text(shape)}{', not steps' if what else ' is not length'}, batch and features")
    return shape[0], shape[1], shape[2]


def _self_scores(call: Call) -> Shape:
    length, batch, _ = _sequence(call.ins[0])
    return (times(batch, _heads(call)), length, length)


def _self_values(call: Call) -> Shape:
    length, batch, features = _sequence(call.ins[0])
    call.put_in(1, (times(batch, _heads(call)), length, length))
    return (length, batch, divided(features, 3))


def _cross_scores(call: Call) -> Shape:
    queries, batch, features = _sequence(call.ins[0])
    call.put_in(1, (None, batch, times(features, 2)))
    keys, batch, _ = _sequence(call.ins[1])
    return (times(batch, _heads(call)), queries, keys)


def _cross_values(call: Call) -> Shape:
    keys, batch, features = _sequence(call.ins[0])
    call.put_in(1, (times(batch, _heads(call)), None, keys))
    attention = call.ins[1]
    return (attention[1] if attention is not None else None, batch, divided(features, 2))


def _window(call: Call) -> int:
    """Places that one query meets: w to each side and its own, or only those before."""
    reach = call.attrs.integer("w")
    return 2 * reach + 1 if call.attrs.flag("symmetric", default=True) else reach + 1


def _window_scores(call: Call) -> Shape:
    """Queries and keys are (batch, length, heads, features); the third input says how far apart places are."""
    call.put_in(0, call.ins[1])
    call.put_in(1, call.ins[0])
    query = call.ins[0]
    if query is None or len(query) != 4:
        return None
    call.put_in(2, (query[2],))
    return (*query[:3], _window(call))


def _window_values(call: Call) -> None:
    """Scores (batch, length, heads, window) with values (batch, length, heads, features)."""
    value = call.ins[1]
    call.put_out(0, value)
    if value is not None and len(value) == 4:
        call.put_in(2, (value[2],))
        call.put_in(0, (*value[:3], _window(call)))


def _attention(name: str) -> str:
    return f"_contrib_{name} _npx_{name}"


_ATTENTION = [
    row(_attention("interleaved_matmul_selfatt_qk"), _self_scores, lambda c: product_of(c.x()[2] // 3 // _heads(c)),
        slots="queries_keys_values"),
    row(_attention("interleaved_matmul_selfatt_valatt"), _self_values, lambda c: product_of(c.x(1)[2]),
        slots="queries_keys_values attention"),
    row(_attention("interleaved_matmul_encdec_qk"), _cross_scores, lambda c: product_of(c.x()[2] // _heads(c)),
        slots="queries keys_values"),
    row(_attention("interleaved_matmul_encdec_valatt"), _cross_values, lambda c: product_of(c.x(1)[2]),
        slots="keys_values attention"),
    row(_attention("sldwin_atten_score"), _window_scores, lambda c: product_of(c.x()[3]), reads=(0, 1)),
    row(_attention("sldwin_atten_context"), _window_values,
        lambda c: ("matmul", {"macs": prod(c.x()) * c.x(1)[3]}), reads=(0, 1)),
    row(_attention("sldwin_atten_mask_like"), lambda c: c.ins[0], "create"),
]  # fmt: skip

# -- recurrent layers whose weights are in one packed vector -----------------------------------------------------------

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}
BIASES = 2
"""One for the input and one for the state, for every gate."""
_MOST_LAYERS = 4096


class Layers:
    """The attributes of a recurrent operator."""

    __slots__ = ("directions", "gates", "hidden", "layers", "mode", "output", "projection")

    def __init__(self, attrs: Attributes) -> None:
        self.mode = attrs.text("mode")
        self.hidden = attrs.integer("state_size")
        self.layers = attrs.integer("num_layers")
        self.directions = 2 if attrs.flag("bidirectional") else 1
        self.projection = attrs.maybe_integer("projection_size")
        self.output = self.projection or self.hidden
        """The size of what a layer hands on, in one direction."""
        if self.mode not in GATES or self.hidden < 1 or not 1 <= self.layers <= _MOST_LAYERS:
            raise AttributeFault("mode, state_size and num_layers do not describe a recurrent layer")
        self.gates = GATES[self.mode]

    def sizes(self, features: int) -> tuple[tuple[int, int, int], ...]:
        """Input, hidden and output size of every layer and direction."""
        first = ((features, self.hidden, self.output),) * self.directions
        inner = ((self.output * self.directions, self.hidden, self.output),) * self.directions
        return first + inner * (self.layers - 1)

    def packed(self, features: int) -> int:
        """Elements of the vector that holds all weights and biases."""
        projected = self.hidden * self.output if self.projection else 0
        return sum(
            self.gates * hidden * (size + out + BIASES) + projected for size, hidden, out in self.sizes(features)
        )


def _is_lstm(attrs: Attributes) -> bool:
    return attrs.text("mode", "lstm") == "lstm"


def _recurrent_slots(attrs: Attributes) -> tuple[str, ...]:
    cell = ("state_cell",) if _is_lstm(attrs) else ()
    length = ("sequence_length",) if attrs.flag("use_sequence_length") else ()
    return ("data", "parameters", "state", *cell, *length)


def _recurrent_shapes(call: Call) -> Shape:
    layers = Layers(call.attrs)
    steps, batch, features = _sequence(call.ins[0], "the data is ")
    state = call.ins[2] if len(call.ins) > 2 else None
    if batch is None and state is not None and len(state) == 3:
        batch = state[1]
    call.put_in(0, (steps, batch, features))
    call.put_in(1, (None if features is None else layers.packed(features),))
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
    layers = Layers(call.attrs)
    steps, batch, features = call.x()
    sizes = layers.sizes(features)
    return "recurrent", {"cell": layers.mode, "steps": steps * batch, "layers": sizes, "bias": True}


ROWS = [
    *_PRODUCTS,
    *_ATTENTION,
    row(
        "RNN _npx_rnn",
        _recurrent_shapes,
        _recurrent,
        types_of(0, 1, 2, 3),
        lambda attrs: (3 if _is_lstm(attrs) else 2) if attrs.flag("state_outputs") else 1,
        _recurrent_slots,
    ),
]
