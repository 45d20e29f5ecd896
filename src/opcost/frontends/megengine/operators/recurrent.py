"""Recurrent layers, and single steps of them."""

from __future__ import annotations

from opcost.core.dtype import bits
from opcost.core.graph import Attr
from opcost.core.shapes import Extent, Mismatch, Shape, product, times
from opcost.frontends.megengine.node import Meaning, Node, Rule

MOST_LAYERS = 1 << 10
"""Layers of the deepest recurrent operator that is believed."""

_PLAIN_CELLS = {"RELU": "rnn_relu", "TANH": "rnn_tanh"}


def _layer_shapes(node: Node) -> list[Shape]:
    """x (time, batch, features) and the states; out come y, the new states, and what a backward pass would need."""
    steps, batch, _ = node.ranked(0, 3)
    state = node.ranked(1, 3)
    directions = 2 if node.flag("bidirectional") else 1
    states = [node.dims(index) for index in range(1, len(node.op.outputs) - 1)]
    return [(steps, batch, times(state[2], directions)), *states, (_reserved(node),)]


def _reserved(node: Node) -> Extent:
    """What a CPU sets aside for a backward pass: the bytes of every state, given as that many elements."""
    states = 2 if node.op.type == "LSTM" else 1
    directions = 2 if node.flag("bidirectional") else 1
    steps, batch, _ = node.ranked(0, 3)
    per_step = states * node.whole("num_layers") * directions * node.whole("hidden_size") * bits(node.dtypes[0]) // 8
    return product((steps, batch, per_step))


def _layer_meaning(node: Node) -> Meaning:
    steps, batch, features = node.ranked(0, 3)
    hidden = node.ranked(1, 3)[2]
    elements = product((steps, batch))
    if elements is None or features is None or hidden is None:
        return Meaning("recurrent", {"cell": _cell(node)}, outputs=(0,))
    count = node.whole("num_layers")
    if not 0 < count <= MOST_LAYERS:
        raise Mismatch(f"{count} layers are not plausible")
    projected = node.whole("proj_size") or hidden
    directions = 2 if node.flag("bidirectional") else 1
    layers = []
    for number in range(count):
        size = features if number == 0 else directions * projected
        layers += [(size, hidden, projected)] * directions
    attrs: dict[str, Attr] = {
        "cell": _cell(node),
        "steps": elements,
        "layers": tuple(layers),
        "bias": node.flag("bias"),
    }
    return Meaning("recurrent", attrs, outputs=tuple(range(len(node.op.outputs) - 1)))


def _cell(node: Node) -> str:
    if node.op.type.startswith("LSTM"):
        return "lstm"
    mode = node.word("nonlineMode")
    if mode not in _PLAIN_CELLS:
        raise Mismatch(f"a recurrent layer with {mode or 'no'} activation is not known")
    return _PLAIN_CELLS[mode]


# -- one step: x, weight_ih, bias_ih, h, weight_hh, bias_hh, [c] --------------------------------------------------------


def _plain_step(node: Node) -> list[Shape]:
    batch = node.ranked(0, 2)[0]
    return [(batch, node.ranked(1, 2)[0])]


def _lstm_step(node: Node) -> list[Shape]:
    """The two new states, and the gates."""
    return [node.dims(3), node.dims(6), (node.ranked(0, 2)[0], node.ranked(1, 2)[0])]


def _step_meaning(node: Node) -> Meaning:
    batch, features = node.ranked(0, 2)
    hidden: Extent = node.ranked(3, 2)[1]
    if batch is None or features is None or hidden is None:
        return Meaning("recurrent", {"cell": "lstm"})
    mode = node.word("nonlineMode")
    lstm = node.op.type == "LSTMCell"
    attrs: dict[str, Attr] = {
        "cell": "lstm" if lstm else _PLAIN_CELLS.get(mode, "rnn_relu"),
        "steps": batch,
        "layers": ((features, hidden, hidden),),
        "bias": True,
    }
    if not lstm and mode == "IDENTITY":
        # Two products and three additions without a function: no cell, but a matrix product.
        return Meaning("matmul", {"depth": features + hidden, "bias": True, "then": ("add", "add")})
    return Meaning("recurrent", attrs)


RULES = {
    "RNN": Rule(_layer_shapes, _layer_meaning),
    "LSTM": Rule(_layer_shapes, _layer_meaning),
    "RNNCell": Rule(_plain_step, _step_meaning),
    "LSTMCell": Rule(_lstm_step, _step_meaning),
}
