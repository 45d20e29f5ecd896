"""opcost.compat.thop beside thop itself: the same numbers where it is right, the right number where not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import rnn

from opcost.compat import thop as ours

theirs = pytest.importorskip("thop")


def image(*extents: int) -> tuple[torch.Tensor, ...]:
    return (torch.rand(2, 3, *extents),)


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]] = {
    "conv net": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, groups=2),
            nn.LeakyReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10), nn.Softmax(1),
        ),
        image(16, 16),
    ),
    "1d": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3, bias=False), nn.BatchNorm1d(4), nn.AvgPool1d(2)), image(9)),
    "3d": (lambda: nn.Sequential(nn.Conv3d(3, 4, 3), nn.InstanceNorm3d(4), nn.AvgPool3d(2)), image(5, 5, 5)),
    "prelu": (lambda: nn.Sequential(nn.PReLU(), nn.LayerNorm(7)), image(5, 7)),
    "nearest": (lambda: nn.Sequential(nn.Upsample(scale_factor=2)), image(5, 7)),
    "bilinear": (lambda: nn.Sequential(nn.UpsamplingBilinear2d(scale_factor=2)), image(5, 7)),
    "bicubic": (lambda: nn.Sequential(nn.Upsample(scale_factor=2, mode="bicubic")), image(5, 7)),
    "uneven windows": (lambda: nn.Sequential(nn.AdaptiveAvgPool2d(3)), image(5, 7)),
    "linear in 3-d": (lambda: nn.Sequential(nn.Linear(7, 2)), image(7)),
    "softmax in 3-d": (lambda: nn.Sequential(nn.Softmax(-1)), image(7)),
    "lstm": (lambda: nn.LSTM(4, 6, 2, bidirectional=True), (torch.rand(7, 3, 4),)),
    "gru": (lambda: nn.GRU(4, 6, 2, batch_first=True), (torch.rand(3, 7, 4),)),
    "rnn without bias": (lambda: nn.RNN(4, 6, bias=False), (torch.rand(7, 3, 4),)),
    "lstm cell": (lambda: nn.LSTMCell(4, 6), (torch.rand(3, 4),)),
    "gru cell": (lambda: nn.GRUCell(4, 6, bias=False), (torch.rand(3, 4),)),
    "rnn cell": (lambda: nn.RNNCell(4, 6), (torch.rand(3, 4),)),
}  # fmt: skip


@pytest.mark.parametrize(("make", "inputs"), CASES.values(), ids=CASES)
def test_the_operations_are_thops(make: Callable[[], nn.Module], inputs: tuple[torch.Tensor, ...]) -> None:
    expected, _ = theirs.profile(make(), inputs, verbose=False)
    macs, _ = ours.profile(make(), inputs, verbose=False)
    assert macs == expected
    assert isinstance(macs, float)


def test_parameters_layers_and_announcements_are_thops(capsys: pytest.CaptureFixture[str]) -> None:
    make, inputs = CASES["conv net"]
    expected = theirs.profile(make(), inputs, ret_layer_info=True)
    announced = capsys.readouterr().out
    assert ours.profile(make(), inputs, ret_layer_info=True) == expected
    assert capsys.readouterr().out == announced
    assert ours.profile_origin(make(), inputs, verbose=False) == theirs.profile_origin(make(), inputs, verbose=False)


@pytest.mark.parametrize("numbers", [[5], 999, 1000, 1001, [1.5e6, 2], (3e9, 4e12, 5e13), [0, 1e6]], ids=str)
@pytest.mark.parametrize("template", ["%.2f", "%.3f"])
def test_numbers_get_thops_units(numbers: Any, template: str) -> None:
    assert ours.clever_format(numbers, template) == theirs.clever_format(numbers, template)


class Swish(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)


class Gate(nn.Module):
    """A layer with layers inside, for which the caller has a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def count_swish(m: Any, x: Any, y: torch.Tensor) -> None:
    m.total_ops += torch.DoubleTensor([int(2 * y.numel())])


def count_gate(m: Any, x: Any, y: torch.Tensor) -> None:
    m.total_ops += torch.DoubleTensor([7])


def gated() -> nn.Module:
    swish = Swish()
    return nn.Sequential(nn.Linear(4, 6), swish, Gate(), swish)


def test_rules_of_the_caller_run_as_in_thop(capsys: pytest.CaptureFixture[str]) -> None:
    rules = {Swish: count_swish, Gate: count_gate}
    expected, _ = theirs.profile(gated(), (torch.rand(2, 4),), custom_ops=rules)
    announced = capsys.readouterr().out
    macs, params = ours.profile(gated(), (torch.rand(2, 4),), custom_ops=rules)
    assert capsys.readouterr().out == announced
    uses = 2  # of the one Swish
    assert macs == expected == 2 * 4 * 6 + uses * 2 * (2 * 6) + 7
    assert params == (4 * 6 + 6) + (6 * 6 + 6)


def test_rules_of_the_caller_leave_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), *gated()).train()
    before = copy.deepcopy(model.state_dict())
    x = torch.full((2, 4), -1.0)
    ours.profile(model, (x,), custom_ops={Swish: count_swish}, verbose=False)
    assert torch.equal(x, torch.full((2, 4), -1.0))
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


# -- where thop is wrong ----------------------------------------------------------------------------------------------


def macs_of(model: nn.Module, *inputs: torch.Tensor) -> float:
    return ours.profile(model, inputs, verbose=False)[0]  # type: ignore[no-any-return]


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.rand(4, 3, 3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(x, self.w).flatten(2)
        return y @ y.transpose(1, 2)


def test_functional_calls_are_counted() -> None:
    n, positions = 2, 4 * 4
    model = Functional()
    expected = n * positions * 4 * 3 * 9 + n * 4 * 4 * positions
    assert ours.profile(model, (torch.rand(n, 3, 6, 6),), verbose=False) == (expected, model.w.numel())


def test_transposed_convolution_counts_its_input_positions() -> None:
    assert macs_of(nn.ConvTranspose2d(3, 4, 2, stride=2), torch.rand(1, 3, 7, 5)) == 7 * 5 * 3 * 4 * 2 * 2


def test_trilinear_upsampling_counts_by_thops_own_constant() -> None:
    model = nn.Sequential(nn.Upsample(scale_factor=2, mode="trilinear"))
    assert macs_of(model, torch.rand(1, 3, 2, 2, 2)) == 31 * 3 * 4**3


def test_attention_is_counted() -> None:
    n, length, width, heads = 2, 6, 8, 2
    x = torch.rand(n, length, width)
    expected = n * length * width * 4 * width + 2 * n * heads * length * length * (width // heads)
    assert macs_of(nn.MultiheadAttention(width, heads, batch_first=True), x, x, x) == expected


def test_subclasses_of_known_layers_are_counted() -> None:
    class Mine(nn.Linear):
        pass

    assert macs_of(Mine(3, 5), torch.rand(2, 3)) == 2 * 3 * 5


def test_projections_and_packed_sequences_are_counted_as_they_run() -> None:
    def lstm(sizes: list[tuple[int, int, int]], steps: int) -> int:
        """(input, hidden, output) of each cell: four gates, each with 2 bias terms and an addition, 4 more products."""
        cell = sum(4 * h * (i + o) + (h * o if o != h else 0) + h * (4 * 3 + 4) for i, h, o in sizes)
        return steps * cell

    assert macs_of(nn.LSTM(4, 6, 2, proj_size=3), torch.rand(7, 2, 4)) == lstm([(4, 6, 3), (3, 6, 3)], 7 * 2)

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(rnn.pack_padded_sequence(x, torch.tensor([5, 2])))[0].data

    assert macs_of(Packed(), torch.rand(5, 2, 4)) == lstm([(4, 6, 6)], 5 + 2)


def test_parameters_are_counted_once_wherever_they_are() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bare = nn.Parameter(torch.rand(3))
            self.embedding = nn.Embedding(11, 3)
            self.head = nn.Linear(3, 11, bias=False)
            self.head.weight = self.embedding.weight
            self.spare = nn.Linear(2, 2)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(ids) + self.bare)

    macs, params, layers = ours.profile(
        Model(), (torch.zeros(2, 5, dtype=torch.long),), verbose=False, ret_layer_info=True
    )
    assert macs == 2 * 5 * 3 * 11
    assert params == 3 + 11 * 3 + (2 * 2 + 2)
    assert layers == {"embedding": (0.0, 33.0, {}), "head": (330.0, 33.0, {}), "spare": (0.0, 6.0, {})}


def test_a_layer_of_two_parents_counts_once_per_call() -> None:
    def make() -> nn.Module:
        shared = nn.Linear(4, 4)
        return nn.Sequential(nn.Sequential(shared), nn.Sequential(shared))

    x = torch.rand(2, 4)
    assert macs_of(make(), x) == 2 * (2 * 4 * 4)
    assert theirs.profile(make(), (x,), verbose=False)[0] > macs_of(make(), x), "thop adds up both calls in both places"


def test_operators_without_a_cost_are_reported_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    library = torch.library.Library("opcost_thop_test", "FRAGMENT")
    library.define("twist(Tensor x) -> Tensor")
    library.impl("twist", torch.clone, "CompositeExplicitAutograd")
    library.impl("twist", torch.empty_like, "Meta")

    class Twist(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.opcost_thop_test.twist(x)

    ours.profile(Twist(), (torch.rand(3),), report_missing=True)
    assert "Cannot find rule for opcost_thop_test::twist" in capsys.readouterr().out
    ours.profile(CASES["conv net"][0](), image(16, 16), report_missing=True)
    assert "WARN" not in capsys.readouterr().out
