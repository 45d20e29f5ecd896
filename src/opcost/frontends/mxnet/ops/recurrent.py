"""Recurrent layers whose weights lie in one packed vector."""

from __future__ import annotations

from opcost.core.shapes import Dims, Mismatch, Shape, text
from opcost.frontends.mxnet.attribute import AttributeFault, Attributes
from opcost.frontends.mxnet.ops.table import Call, Translation, define, types_of

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}
BIASES = 2
"""One for the input and one for the state, for every gate."""
_MOST_LAYERS = 4096


class Layers:
    """The attributes of a recurrent operator."""

    __slots__ = ("directions", "gates", "hidden", "layers", "mode", "projection")

    def __init__(self, attrs: Attributes) -> None:
        self.mode = attrs.text("mode")
        self.hidden = attrs.integer("state_size")
        self.layers = attrs.integer("num_layers")
        self.directions = 2 if attrs.flag("bidirectional") else 1
        self.projection = attrs.maybe_integer("projection_size")
        if self.mode not in GATES or self.hidden < 1 or not 1 <= self.layers <= _MOST_LAYERS:
            raise AttributeFault("mode, state_size and num_layers do not describe a recurrent layer")
        self.gates = GATES[self.mode]

    @property
    def output(self) -> int:
        """The size of what a layer hands on, in one direction."""
        return self.projection or self.hidden

    def sizes(self, features: int) -> tuple[tuple[int, int, int], ...]:
        """Input, hidden and output size of every layer and direction."""
        first = ((features, self.hidden, self.output),) * self.directions
        inner = ((self.output * self.directions, self.hidden, self.output),) * self.directions
        return first + inner * (self.layers - 1)

    def packed(self, features: int) -> int:
        """Elements of the vector that holds all weights and biases."""
        total = 0
        for size, hidden, output in self.sizes(features):
            total += self.gates * hidden * (size + output + BIASES)
            total += hidden * output if self.projection else 0
        return total


def _slots(attrs: Attributes) -> tuple[str, ...]:
    cell = ("state_cell",) if attrs.text("mode", "lstm") == "lstm" else ()
    length = ("sequence_length",) if attrs.flag("use_sequence_length") else ()
    return ("data", "parameters", "state", *cell, *length)


def _outputs(attrs: Attributes) -> int:
    if not attrs.flag("state_outputs"):
        return 1
    return 3 if attrs.text("mode", "lstm") == "lstm" else 2


def _recurrent(call: Call) -> None:
    layers = Layers(call.attrs)
    steps, batch, features = _sequence(call.ins[0])
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
    call.put_out(0, (steps, batch, layers.directions * layers.output))


def _sequence(shape: Shape) -> Dims:
    if shape is None:
        return (None, None, None)
    if len(shape) != 3:
        raise Mismatch(f"the data is {text(shape)}, not steps, batch and features")
    return shape


def _unrolled(call: Call) -> Translation:
    layers = Layers(call.attrs)
    steps, batch, features = call.x()
    return Translation(
        "recurrent",
        {"cell": layers.mode, "steps": steps * batch, "layers": layers.sizes(features), "bias": True},
    )


define("RNN _npx_rnn", _recurrent, _unrolled, types_of(0, 1, 2, 3), _outputs, _slots)
