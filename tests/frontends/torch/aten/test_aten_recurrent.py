from __future__ import annotations

from typing import Any

import pytest
import torch

aten = torch.ops.aten
T, B, IN, HID, OUT = 5, 3, 4, 8, 6
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 1), (2, 2)])
def test_a_recurrent_stack_lists_the_sizes_of_every_layer(
    cell: str, layers: int, directions: int, translated: Any, meta: Any
) -> None:
    state = meta(layers * directions, B, HID)
    states = [state, meta(layers * directions, B, HID)] if cell == "lstm" else state
    seen = translated(
        getattr(aten, cell).input, meta(T, B, IN), states, [], True, layers, 0.0, False, directions == 2, False,
        outs=((T, B, directions * HID),),
    )  # fmt: skip
    first, later = (IN, HID, HID), (directions * HID, HID, HID)
    assert seen.attrs == {
        "cell": cell,
        "steps": T * B,
        "layers": (first,) * directions + (later,) * directions * (layers - 1),
        "bias": True,
    }
    gates = GATES[cell]
    per_step = directions * gates * HID * (IN + HID) + (layers - 1) * directions * gates * HID * (
        directions * HID + HID
    )
    assert seen.cost.macs == T * B * per_step


def test_a_projection_shortens_what_is_fed_back(translated: Any, meta: Any) -> None:
    states = [meta(1, B, OUT), meta(1, B, HID)]
    seen = translated(
        aten.lstm.input, meta(T, B, IN), states, [], False, 1, 0.0, False, False, False, outs=((T, B, OUT),)
    )
    assert seen.attrs == {"cell": "lstm", "steps": T * B, "layers": ((IN, HID, OUT),)}
    assert seen.cost.macs == T * B * (4 * HID * (IN + OUT) + HID * OUT)


def test_packed_sequences_count_their_real_steps(translated: Any, meta: Any) -> None:
    steps = 11
    seen = translated(
        aten.gru.data, meta(steps, IN), meta(T, dtype=torch.int64), meta(1, B, HID), [], True, 1, 0.0, False, False,
        outs=((steps, HID),),
    )  # fmt: skip
    assert seen.attrs["steps"] == steps
    assert seen.cost.macs == steps * 3 * HID * (IN + HID)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("proj", [0, OUT])
def test_the_cudnn_operator_says_the_same_by_number(mode: int, proj: int, translated: Any, meta: Any) -> None:
    cell = ("rnn_relu", "rnn_tanh", "lstm", "gru")[mode]
    seen = translated(
        aten._cudnn_rnn.default, meta(T, B, IN), [meta(1)], 4, None, meta(1, B, HID), None, mode, HID, proj, 1, False,
        0.0, True, False, [], None, outs=((T, B, proj or HID),),
    )  # fmt: skip
    assert seen.attrs == {"cell": cell, "steps": T * B, "layers": ((IN, HID, proj or HID),), "bias": True}


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_trained_lstm_on_the_cpu_costs_three_times_its_forward_but_for_its_first_state(
    bidirectional: bool, record: Any
) -> None:
    layer = torch.nn.LSTM(IN, HID, 2, bidirectional=bidirectional)
    x = torch.randn(T, B, IN, requires_grad=True)
    seen = record(lambda: layer(x)[0].sum().backward())
    directions = 2 if bidirectional else 1
    forward = T * B * directions * 4 * HID * ((IN + HID) + (directions * HID + HID))
    first_states = 2 * directions * B * 4 * HID * HID  # zeros, whose gradient is not requested
    assert sum(s.cost.macs for s in seen) == 3 * forward - first_states


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_fused_cell_has_only_the_arithmetic_of_its_gates(cell: str, translated: Any, meta: Any) -> None:
    gates = GATES[cell]
    operator = getattr(aten, f"_thnn_fused_{cell}_cell").default
    pair = (meta(B, gates * HID), meta(B, gates * HID), meta(B, HID))
    seen = translated(operator, *pair, outs=((B, HID), (B, HID), (B, gates * HID)))
    assert (seen.kind, seen.cost.macs) == ("elementwise", 0)
    assert seen.attrs == {"fn": f"{cell}_cell", "elements": B * HID}


def test_a_cell_contracts_input_and_state(translated: Any, meta: Any) -> None:
    weights = (meta(4 * HID, IN), meta(4 * HID, HID), meta(4 * HID), meta(4 * HID))
    seen = translated(
        aten.lstm_cell.default, meta(B, IN), [meta(B, HID), meta(B, HID)], *weights, outs=((B, HID), (B, HID))
    )
    assert seen.cost.macs == B * 4 * HID * (IN + HID)
