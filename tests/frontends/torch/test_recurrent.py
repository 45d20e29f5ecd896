"""Recurrent layers: whole in a forward count, taken apart into time steps where gradients are counted."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

T, B, X, H, P = 5, 3, 4, 6, 2
"""Time steps, batch, input size, hidden size, projection."""
GATES = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}
LENGTHS = (2, 5, 4)
TYPES = pytest.mark.parametrize("layer", GATES)


def t(*shape: int) -> Tensor:
    return torch.empty(shape)


def step_macs(gates: int, layers: int = 1, directions: int = 1, projection: int = 0) -> int:
    """One time step of one sequence through all layers and directions."""
    output = projection or H
    total = 0
    for depth in range(layers):
        size = X if depth == 0 else output * directions
        total += directions * (gates * H * (size + output) + H * projection)
    return total


@TYPES
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_every_step_layer_and_direction_is_counted(layer: Any, layers: int, bidirectional: bool, count: Any) -> None:
    model = layer(X, H, layers, bidirectional=bidirectional)
    directions = 2 if bidirectional else 1
    report = count(model, t(T, B, X))
    assert report.totals.macs == T * B * step_macs(GATES[layer], layers, directions)
    assert report.totals.params == sum(p.numel() for p in model.parameters())
    assert report.totals.unused_params == 0
    assert [spec.shape for spec in report.outputs][:2] == [(T, B, directions * H), (layers * directions, B, H)]


@TYPES
def test_the_place_of_the_batch_changes_no_count(layer: Any, count: Any) -> None:
    report = count(layer(X, H, batch_first=True), t(B, T, X))
    assert report.totals.macs == T * B * step_macs(GATES[layer])
    assert report.outputs[0].shape == (B, T, H)


@TYPES
def test_a_layer_without_a_batch_is_counted(layer: Any, count: Any) -> None:
    report = count(layer(X, H, 2), t(T, X))
    assert report.totals.macs == T * step_macs(GATES[layer], 2)
    assert report.outputs[0].shape == (T, H)


@TYPES
def test_a_state_that_is_handed_in_changes_no_macs(layer: Any, count: Any) -> None:
    state = t(1, B, H)
    report = count(layer(X, H), t(T, B, X), (state, state) if layer is nn.LSTM else state)
    assert report.totals.macs == T * B * step_macs(GATES[layer])


@TYPES
def test_both_biases_of_every_gate_are_added_once_per_step(layer: Any, count: Any) -> None:
    with_bias, without = (count(layer(X, H, bias=bias), t(T, B, X)).totals for bias in (True, False))
    assert with_bias.macs == without.macs
    assert with_bias.flops - without.flops == T * B * 2 * GATES[layer] * H


def test_the_nonlinearity_of_a_plain_layer_is_flops(count: Any) -> None:
    tanh, relu = (count(nn.RNN(X, H, nonlinearity=name), t(T, B, X)).totals for name in ("tanh", "relu"))
    assert tanh.macs == relu.macs
    assert tanh.flops - relu.flops == T * B * H * (5 - 1)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_projection_feeds_the_next_step_and_the_next_layer(bidirectional: bool, count: Any) -> None:
    directions = 2 if bidirectional else 1
    report = count(nn.LSTM(X, H, 2, proj_size=P, bidirectional=bidirectional), t(T, B, X))
    assert report.totals.macs == T * B * step_macs(4, 2, directions, P)
    assert [spec.shape for spec in report.outputs] == [
        (T, B, directions * P),
        (2 * directions, B, P),
        (2 * directions, B, H),
    ]


class Packs(nn.Module):
    """Packs padded sequences, runs a layer, and pads again; its last output has the lengths found for its shape."""

    def __init__(self, layer: nn.Module, *, enforce_sorted: bool, batch_first: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.enforce_sorted = enforce_sorted
        self.batch_first = batch_first

    def forward(self, x: Tensor, lengths: Any) -> Any:
        packed = pack_padded_sequence(x, lengths, self.batch_first, self.enforce_sorted)
        y, _ = self.layer(packed)
        padded, found = pad_packed_sequence(y, self.batch_first, total_length=T + 1)
        return padded, torch.zeros(found.tolist())


@TYPES
@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed_sequences_count_their_own_steps(layer: Any, enforce_sorted: bool, count: Any) -> None:
    lengths = torch.tensor(sorted(LENGTHS, reverse=True) if enforce_sorted else LENGTHS)
    model = Packs(layer(X, H, 2, bidirectional=True), enforce_sorted=enforce_sorted)
    report = count(model, t(T, B, X), lengths)
    assert report.totals.macs == sum(LENGTHS) * step_macs(GATES[layer], 2, 2)
    assert [spec.shape for spec in report.outputs] == [(T + 1, B, 2 * H), tuple(lengths.tolist())]


@TYPES
def test_lengths_may_be_a_list_and_the_batch_may_come_first(layer: Any, count: Any) -> None:
    model = Packs(layer(X, H, batch_first=True), enforce_sorted=False, batch_first=True)
    report = count(model, t(B, T, X), list(LENGTHS))
    assert report.totals.macs == sum(LENGTHS) * step_macs(GATES[layer])
    assert [spec.shape for spec in report.outputs] == [(B, T + 1, H), LENGTHS]


@TYPES
@pytest.mark.parametrize("backward", [False, True])
def test_a_packed_sequence_may_be_the_input_itself(layer: Any, backward: bool, count: Any) -> None:
    packed = pack_padded_sequence(t(T, B, X), torch.tensor(LENGTHS), enforce_sorted=False)
    report = count(layer(X, H), packed, backward=backward)
    assert report.phases["forward"].macs == sum(LENGTHS) * step_macs(GATES[layer])


def test_padding_packed_sequences_is_pytorchs_own_again_after_a_count(count: Any) -> None:
    x = torch.randn(T, B, X)
    lengths = torch.tensor(LENGTHS)
    count(Packs(nn.GRU(X, H), enforce_sorted=False), x, lengths)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    padded, found = pad_packed_sequence(packed)
    assert isinstance(packed, PackedSequence)
    assert torch.equal(found, lengths)
    for index, length in enumerate(LENGTHS):
        assert torch.equal(padded[:length, index], x[:length, index])
        assert not padded[length:, index].any()


CELLS = {nn.LSTMCell: 4, nn.GRUCell: 3, nn.RNNCell: 1}


class Loop(nn.Module):
    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Any:
        state = None
        for step in x:
            state = self.cell(step, state)
        return state


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_in_a_loop_counts_every_turn(cell: Any, count: Any) -> None:
    report = count(Loop(cell(X, H)), t(T, B, X))
    assert report.totals.macs == T * B * CELLS[cell] * H * (X + H)
    assert report.module("cell").calls == T
    assert report.module("cell").total.macs == report.totals.macs


def test_a_layer_costs_as_much_as_its_cell_in_a_loop(count: Any) -> None:
    layer, cell = count(nn.LSTM(X, H), t(T, B, X)).totals, count(Loop(nn.LSTMCell(X, H)), t(T, B, X)).totals
    assert (layer.macs, layer.flops) == (cell.macs, cell.flops)


# -- gradients -------------------------------------------------------------------------------------------------------


@pytest.fixture
def plain_kernels() -> Any:
    """Without the fused LSTM of oneDNN the layer is taken apart."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


def unneeded(gates: int, layers: int = 1, directions: int = 1, projection: int = 0, *, first_rows: int = B) -> int:
    """MACs of gradients that are not requested: the first layer's input, and the state before the first step."""
    output = projection or H
    first_layer_input = directions * gates * H * X
    initial_state = layers * directions * gates * H * output
    return T * B * first_layer_input + first_rows * initial_state


@TYPES
@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, False), (2, True)])
def test_steps_taken_apart_have_exact_gradients(layer: Any, layers: int, bidirectional: bool, count: Any) -> None:
    directions = 2 if bidirectional else 1
    shape = (GATES[layer], layers, directions)
    report = count(layer(X, H, layers, bidirectional=bidirectional), t(T, B, X), backward=True)
    forward = T * B * step_macs(*shape)
    assert report.phases["forward"].macs == forward
    assert report.phases["backward"].macs == 2 * forward - unneeded(*shape)


@pytest.mark.usefixtures("plain_kernels")
def test_a_projection_has_its_gradients(count: Any) -> None:
    report = count(nn.LSTM(X, H, 2, proj_size=P), t(T, B, X), backward=True)
    forward = T * B * step_macs(4, 2, 1, P)
    assert report.phases["forward"].macs == forward
    assert report.phases["backward"].macs == 2 * forward - unneeded(4, 2, 1, P)


def required(requires_grad: bool, *shape: int) -> Tensor:
    return torch.zeros(shape).requires_grad_(requires_grad)


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("of_state", [False, True])
@pytest.mark.parametrize("of_input", [False, True])
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of PyTorch has no oneDNN")
def test_the_fused_lstm_counts_the_requested_gradients(count: Any, of_input: bool, of_state: bool, real: bool) -> None:
    state = (required(of_state, 1, B, H), required(False, 1, B, H))
    report = count(nn.LSTM(X, H), required(of_input, T, B, X), state, backward=True, real=real)
    assert "aten::mkldnn_rnn_layer_backward" in {row.op.raw for row in report.rows}
    forward = T * B * 4 * H * (X + H)
    for_weights = forward
    for_input = T * B * 4 * H * X if of_input else 0
    for_states = (T - 1) * B * 4 * H * H  # of every step but the first: the state before it
    for_first_state = B * 4 * H * H if of_state else 0
    assert report.phases["forward"].macs == forward
    assert report.phases["backward"].macs == for_weights + for_input + for_states + for_first_state


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of PyTorch has no oneDNN")
def test_two_fused_layers_of_one_shape_have_different_gradients(count: Any) -> None:
    """The second layer's input is the first one's output, whose gradient is needed."""
    report = count(nn.LSTM(H, H, 2), t(T, B, H), backward=True)
    one = T * B * 4 * H * (H + H)
    first_states = 2 * B * 4 * H * H
    assert report.phases["backward"].macs == 2 * 2 * one - first_states - T * B * 4 * H * H


MODES = {nn.RNN: 1, nn.LSTM: 2, nn.GRU: 3}
"""The number by which cuDNN's operator knows a cell."""


@TYPES
@pytest.mark.parametrize("together", [True, False])
def test_cudnns_fused_layer_and_its_gradient(layer: Any, together: bool, count: Any) -> None:
    class Fused(layer):
        def forward(self, x: Tensor) -> Tensor:
            state = x.new_zeros(1, B, H)
            cell = state if layer is nn.LSTM else None
            weights = torch.empty(0).set_(self.weight_ih_l0.untyped_storage()) if together else None
            options = (MODES[layer], H, 0, 1, False, 0.0, True, False, [], None)
            return torch.ops.aten._cudnn_rnn(x, self._flat_weights, 4, weights, state, cell, *options)[0]

    report = count(Fused(X, H), t(T, B, X), backward=True)
    forward = T * B * step_macs(GATES[layer])
    assert (report.phases["forward"].macs, report.phases["backward"].macs) == (forward, 2 * forward)


@TYPES
@pytest.mark.usefixtures("plain_kernels")
def test_packed_sequences_have_the_gradients_of_their_own_steps(layer: Any, count: Any) -> None:
    report = count(Packs(layer(X, H), enforce_sorted=False), t(T, B, X), torch.tensor(LENGTHS), backward=True)
    gates = GATES[layer]
    forward = sum(LENGTHS) * step_macs(gates)
    assert report.phases["forward"].macs == forward
    first_layer_input = sum(LENGTHS) * gates * H * X
    initial_state = B * gates * H * H
    assert report.phases["backward"].macs == 2 * forward - first_layer_input - initial_state


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_in_a_loop_has_exact_gradients(cell: Any, count: Any) -> None:
    report = count(Loop(cell(X, H)), t(T, B, X), backward=True)
    gates = CELLS[cell]
    forward = T * B * gates * H * (X + H)
    assert report.phases["forward"].macs == forward
    assert report.phases["backward"].macs == 2 * forward - unneeded(gates)
    assert report.module("cell").total.macs == report.totals.macs


def test_a_long_sequence_is_counted_at_once(count: Any) -> None:
    """A layer used to be run step by step to learn its output's shape: most of a minute for a thousand steps."""
    steps = 100_000
    count(nn.LSTM(X, H, 2, bidirectional=True), t(T, B, X))
    begin = time.process_time()
    report = count(nn.LSTM(X, H, 2, bidirectional=True), torch.empty(steps, B, X, device="meta"))
    assert time.process_time() - begin < 2
    assert report.totals.macs == steps * B * step_macs(4, 2, 2)
