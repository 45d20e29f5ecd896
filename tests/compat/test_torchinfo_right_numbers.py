"""What opcost.compat.torchinfo counts where torchinfo counts nothing or too much, each number derived from the shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, rnn

from opcost.compat import torchinfo as ours


def mult_adds(model: nn.Module, **options: Any) -> int:
    return int(ours.summary(model, verbose=0, **options).total_mult_adds)


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.rand(5, 7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bi,io->bo", x, self.w)


def test_functional_calls_are_counted() -> None:
    assert mult_adds(Functional(), input_size=(3, 5)) == 3 * 5 * 7


def test_linear_counts_every_position_of_its_input() -> None:
    rows, n, m = 2 * 5, 8, 16
    assert mult_adds(nn.Linear(n, m), input_size=(2, 5, n)) == rows * (n * m + m)


def test_unbatched_layers_are_counted_as_batches_of_one() -> None:
    positions = 9 * 9
    assert mult_adds(nn.Conv2d(3, 4, 3, padding=1), input_size=(3, 9, 9)) == positions * (3 * 4 * 9 + 4)
    assert mult_adds(nn.Linear(8, 16), input_size=(8,)) == 8 * 16 + 16


def test_transposed_convolution_counts_its_input_positions() -> None:
    cin, cout, k, side = 4, 6, 2, 8
    macs = side * side * cin * cout * k * k
    assert (
        mult_adds(nn.ConvTranspose2d(cin, cout, k, stride=2), input_size=(1, cin, side, side))
        == macs + cout * (2 * side) ** 2
    )


def test_recurrent_layers_count_their_steps() -> None:
    lstm, cell, gru = nn.LSTM(4, 6, 2, proj_size=3), nn.LSTMCell(4, 6), nn.GRU(4, 6)
    numel = lambda module: sum(p.numel() for p in module.parameters())
    assert mult_adds(lstm, input_size=(7, 3, 4)) == 7 * 3 * numel(lstm)
    assert mult_adds(cell, input_size=(3, 4)) == 3 * numel(cell)
    assert mult_adds(gru, input_size=(7, 4)) == 7 * numel(gru), "unbatched"


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.lstm(packed)[0].data


def test_packed_sequences_count_their_true_lengths() -> None:
    model, lengths = Packed(), torch.tensor([7, 3, 2])
    expected = int(lengths.sum()) * sum(p.numel() for p in model.parameters())
    assert mult_adds(model, input_data=[torch.rand(3, 7, 4), lengths]) == expected


def test_embedding_bag_does_not_multiply() -> None:
    model = nn.Sequential(nn.EmbeddingBag(100, 8), nn.Linear(8, 2))
    assert mult_adds(model, input_size=(3, 5), dtypes=[torch.long]) == 3 * (8 * 2 + 2)


@pytest.mark.parametrize("normed", [nn.utils.weight_norm, parametrizations.weight_norm], ids=["old", "new"])
def test_weight_norm_does_not_change_the_convolution(normed: Callable[[nn.Module], nn.Module]) -> None:
    positions = 6 * 6
    model = nn.Sequential(normed(nn.Conv2d(3, 4, 3)))
    assert mult_adds(model, input_size=(1, 3, 8, 8)) == positions * (3 * 4 * 9 + 4)


def test_attention_is_counted() -> None:
    n, length, width, heads = 2, 6, 8, 2
    model = nn.MultiheadAttention(width, heads, batch_first=True)
    projections = n * length * width * (3 * width + width)
    products = 2 * n * heads * length * length * (width // heads)
    assert mult_adds(model, input_data=[torch.rand(n, length, width)] * 3) == projections + products


def test_layers_that_are_called_conv_or_linear_but_are_not_count_what_they_do() -> None:
    class ConvexGate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    assert mult_adds(ConvexGate(), input_size=(2, 5, 8)) == 2 * 5 * 8 * 8


def test_tied_weights_count_once_and_are_marked() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(11, 4)
            self.head = nn.Linear(4, 11, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(ids))

    results = ours.summary(Tied(), (2, 3), dtypes=[torch.long], verbose=0)
    assert results.total_params == 11 * 4
    assert results.summary_list[-1].num_params_to_str(False) == "(recursive)"


def test_two_models_of_one_class_are_not_confused() -> None:
    small, large = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 9))
    for model, out in ((small, 2), (large, 9)):
        results = ours.summary(model, (1, 2), verbose=0, cache_forward_pass=True)
        assert results.total_params == 2 * out + out


def test_branches_on_values_are_taken_as_in_a_real_run() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low, self.high = nn.Linear(3, 4), nn.Linear(3, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.high(x) if x.sum() > 0 else self.low(x)

    for sign, out in ((1.0, 5), (-1.0, 4)):
        assert mult_adds(Branch(), input_data=sign * torch.ones(2, 3)) == 2 * (3 * out + out)


def test_results_that_are_no_tensors_do_not_stop_it() -> None:
    class Distribution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.distributions.Normal:
            return torch.distributions.Normal(self.mean(x), 1.0, validate_args=False)

    results = ours.summary(Distribution(), (4, 3), verbose=0)
    assert results.summary_list[0].output_size == []
    assert results.total_mult_adds == 4 * (3 * 2 + 2)
