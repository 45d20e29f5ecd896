"""LSTM, GRU and plain recurrent layers, all steps, layers and directions in one operator."""

from __future__ import annotations

from typing import NamedTuple

from opcost.core.cost import Cost
from opcost.rules.attr import choose, flag, integer
from opcost.rules.elementwise import FLOPS_PER_ELEMENT as ELEMENT
from opcost.rules.registry import OpView


class Cell(NamedTuple):
    """Gates, and the arithmetic of one hidden unit in one step."""

    gates: int
    forward: int
    backward: int


CELLS = {
    "lstm": Cell(4, ELEMENT["lstm_cell"], ELEMENT["lstm_cell_grad"]),
    "gru": Cell(3, ELEMENT["gru_cell"], ELEMENT["gru_cell_grad"]),
    # h = f(Wx + Uh): 1 addition.
    "rnn_tanh": Cell(1, 1 + ELEMENT["tanh"], ELEMENT["tanh_grad"]),
    "rnn_relu": Cell(1, 1 + ELEMENT["relu"], ELEMENT["relu_grad"]),
}

BIASES = 2
"""One on the input's side and one on the state's side of every gate."""


def recurrent(op: OpView) -> Cost:
    """Steps × Σ over layers of (gates × hidden × (input + output) + projection) MACs.

    `steps` is time steps times batch, or the sum of a packed batch; an LSTM has 4 gates, a GRU 3, a plain cell 1.
    The state that is fed back has the layer's output size; a projection hidden → output adds hidden × output MACs.
    The gates' arithmetic and biases are FLOPs. Gradient: twice the MACs, for what goes in and for the weights; less the
    products for a constant input and for constant first states, which nobody asks for.
    """
    cell = choose(op, CELLS, "cell")
    steps = integer(op, "steps")
    grad = flag(op, "grad")
    bias = BIASES * cell.gates if flag(op, "bias") else 0
    layers: tuple[tuple[int, int, int], ...] = op.attrs["layers"]  # type: ignore[assignment]
    macs = units = fed_back = 0
    for size, hidden, output in layers:
        macs += cell.gates * hidden * (size + output)
        macs += hidden * output if output != hidden else 0
        units += hidden
        fed_back += cell.gates * hidden * output
    unasked = integer(op, "constant_states", 0) * fed_back
    if flag(op, "constant_input"):
        size, hidden, _ = layers[0]
        unasked += steps * cell.gates * hidden * size
    return op.cost(
        macs=steps * macs * (2 if grad else 1) - unasked,
        flops=steps * units * ((cell.backward if grad else cell.forward) + bias),
    )


RULES = {"recurrent": recurrent}
