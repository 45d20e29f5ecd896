from __future__ import annotations

from typing import Any

import pytest

SIGMOID, TANH, RELU = 4, 5, 1
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
UNIT = {
    # additions of both sides, activations, and the state's update
    "lstm": 4 + 3 * SIGMOID + 2 * TANH + 3 + 1,
    "gru": 2 + 2 * SIGMOID + 2 + TANH + 4,
    "rnn_tanh": 1 + TANH,
    "rnn_relu": 1 + RELU,
}
SIGMOID_SLOPE, TANH_SLOPE, RELU_SLOPE = 3, 3, 2  # g y (1 - y); g (1 - y²); compare, select
UNIT_GRADIENT = {
    "lstm": TANH + 6 + 1 + 3 * SIGMOID_SLOPE + 2 * TANH_SLOPE,  # tanh of the state again, products, an addition
    "gru": 5 + 2 + 2 * SIGMOID_SLOPE + TANH_SLOPE,  # products, subtractions
    "rnn_tanh": TANH_SLOPE,
    "rnn_relu": RELU_SLOPE,
}


@pytest.mark.parametrize("cell", GATES)
def test_one_layer_multiplies_input_and_state_by_every_gate(cost: Any, cell: str) -> None:
    time, batch, size, hidden = 7, 2, 5, 3
    result = cost(
        "recurrent", [(time, batch, size)], [(time, batch, hidden)],
        cell=cell, steps=time * batch, layers=((size, hidden, hidden),),
    )  # fmt: skip
    assert result.macs == time * batch * GATES[cell] * hidden * (size + hidden)
    assert result.flops == 2 * result.macs + time * batch * hidden * UNIT[cell]


def test_two_biases_are_added_in_every_gate(cost: Any) -> None:
    steps, size, hidden = 14, 5, 3
    op = "recurrent", [(steps, size)], [(steps, hidden)]
    attrs = {"cell": "gru", "steps": steps, "layers": ((size, hidden, hidden),)}
    assert cost(*op, **attrs, bias=True).flops - cost(*op, **attrs).flops == steps * hidden * 2 * GATES["gru"]


def test_layers_and_directions_add_up(cost: Any) -> None:
    steps, size, hidden = 14, 5, 3
    first, second = (size, hidden, hidden), (2 * hidden, hidden, hidden)
    result = cost(
        "recurrent", [(steps, size)], [(steps, 2 * hidden)], cell="lstm", steps=steps,
        layers=(first, first, second, second),
    )  # fmt: skip
    assert result.macs == steps * 4 * hidden * (2 * (size + hidden) + 2 * (2 * hidden + hidden))


def test_a_projection_shrinks_the_state_and_costs_a_product(cost: Any) -> None:
    steps, size, hidden, projected = 14, 5, 6, 2
    result = cost(
        "recurrent", [(steps, size)], [(steps, projected)], cell="lstm", steps=steps,
        layers=((size, hidden, projected),),
    )  # fmt: skip
    assert result.macs == steps * (4 * hidden * (size + projected) + hidden * projected)


def test_a_packed_batch_counts_its_real_steps(cost: Any) -> None:
    lengths, size, hidden = (7, 4, 1), 5, 3
    steps = sum(lengths)
    result = cost(
        "recurrent", [(steps, size)], [(steps, hidden)], cell="rnn_relu", steps=steps, layers=((size, hidden, hidden),)
    )
    assert result.macs == sum(length * hidden * (size + hidden) for length in lengths)


@pytest.mark.parametrize("cell", GATES)
def test_the_gradient_has_twice_the_macs(cost: Any, cell: str) -> None:
    steps, size, hidden = 14, 5, 3
    op = "recurrent", [(steps, size)], [(steps, hidden)]
    attrs = {"cell": cell, "steps": steps, "layers": ((size, hidden, hidden),)}
    gradient = cost(*op, **attrs, grad=True)
    assert gradient.macs == 2 * cost(*op, **attrs).macs
    assert gradient.flops == 2 * gradient.macs + steps * hidden * UNIT_GRADIENT[cell]


@pytest.mark.parametrize("cell", GATES)
def test_gradients_of_constants_are_not_counted(cost: Any, cell: str) -> None:
    time, batch, size, hidden = 7, 2, 5, 3
    op = "recurrent", [(time * batch, size)], [(time * batch, hidden)]
    attrs = {"cell": cell, "steps": time * batch, "layers": ((size, hidden, hidden),), "grad": True}
    whole, input_alone = cost(*op, **attrs), cost(*op, **attrs, constant_input=True)
    assert whole.macs - input_alone.macs == time * batch * GATES[cell] * hidden * size
    states = cost(*op, **attrs, constant_states=batch)
    assert whole.macs - states.macs == batch * GATES[cell] * hidden * hidden
