from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import opcost
from opcost.analysis.receptive import ReceptiveField, receptive_fields
from opcost.core.report import Report


def fields(model: nn.Module, *shape: int) -> list[ReceptiveField]:
    return [*receptive_fields(opcost.count(model.eval(), shapes=shape)).values()]


def square(size: Any, stride: Any) -> ReceptiveField:
    return ReceptiveField((size, size), (stride, stride))


def seen(model: nn.Module, size: int) -> int:
    """How far apart the input elements lie that one output element in the middle depends on: measured by gradients."""
    x = torch.randn(1, 1, size, size, requires_grad=True)
    y = model(x)
    y[0, 0, y.shape[2] // 2, y.shape[3] // 2].backward()
    assert x.grad is not None
    rows = x.grad[0, 0].abs().sum(1).nonzero().flatten()
    return int(rows[-1] - rows[0] + 1)


def test_a_chain_of_windows_grows_by_its_strides() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 7, 2, 3), nn.MaxPool2d(3, 2, 1), nn.Conv2d(4, 4, 3, padding=1))
    assert fields(net, 1, 3, 32, 32) == [square(7, 2), square(7 + 2 * 2, 4), square(11 + 2 * 4, 4)]


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(1, 1, 3), nn.Conv2d(1, 1, 5, 2)],
        [nn.Conv2d(1, 1, 3, dilation=3), nn.AvgPool2d(4, 3), nn.Conv2d(1, 1, 3)],
        [nn.Conv2d(1, 1, 4, 2), nn.ConvTranspose2d(1, 1, 4, 2), nn.Conv2d(1, 1, 3)],
        [nn.AvgPool2d(2), nn.Upsample(scale_factor=2), nn.Conv2d(1, 1, 3)],
    ],
    ids=str,
)
def test_it_is_never_less_than_what_gradients_reach(layers: list[nn.Module]) -> None:
    net = nn.Sequential(*layers)
    for parameter in net.parameters():
        nn.init.constant_(parameter, 1.0)
    size = fields(net, 1, 1, 64, 64)[-1].size[0]
    reached = seen(net, 64)
    assert reached <= size
    if not any(isinstance(layer, (nn.ConvTranspose2d, nn.Upsample)) for layer in layers):
        assert reached == size


def test_a_transposed_convolution_brings_positions_closer() -> None:
    net = nn.Sequential(nn.Conv2d(1, 1, 3, 2, 1), nn.ConvTranspose2d(1, 1, 4, 2, 1), nn.ConvTranspose2d(1, 1, 2, 2))
    assert fields(net, 1, 1, 16, 16) == [square(3, 2), square(3 + 2, 1), square(5, Fraction(1, 2))]


def test_each_axis_has_a_field_of_its_own() -> None:
    net = nn.Sequential(nn.Conv2d(1, 1, (1, 5), (1, 2)), nn.MaxPool2d((3, 1)))
    assert fields(net, 1, 1, 32, 32) == [ReceptiveField((1, 5), (1, 2)), ReceptiveField((3, 5), (3, 2))]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.long = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1))
        self.last = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.relu(x + self.long(x)))


def test_of_two_ways_the_wider_counts() -> None:
    assert fields(Residual(), 1, 4, 16, 16)[-1] == square(5, 1)


class Squeeze(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Conv2d(4, 4, 3, 2, 1)
        self.gate = nn.Conv2d(4, 4, 1)
        self.after = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        return self.after(x * self.gate(x.mean((2, 3), keepdim=True)).sigmoid())


def test_a_global_mean_sees_everything_and_its_result_does_not_set_the_stride() -> None:
    before, gate, after = fields(Squeeze(), 1, 4, 16, 16)
    assert before == square(3, 2)
    assert gate.size == (3 + 7 * 2,) * 2
    assert after == ReceptiveField((17 + 2 * 2,) * 2, (2, 2))


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Conv2d(1, 4, 3)
        self.after = nn.Conv2d(4, 1, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        tokens = y.flatten(2).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(tokens, tokens, tokens).transpose(1, 2).reshape(y.shape)
        return self.after(mixed)


def test_behind_attention_there_is_no_field_to_speak_of() -> None:
    report = opcost.count(Mixed(), shapes=(1, 1, 8, 8))
    found = receptive_fields(report)
    assert [report.rows[place].op.module for place in found] == ["before"]


def test_a_weight_that_is_computed_widens_nothing() -> None:
    net = nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 1, 3))
    assert fields(net, 1, 1, 8, 8) == [square(3, 1)]


def test_a_saved_report_has_the_same_fields(tmp_path: Any) -> None:
    report: Report = opcost.count(Residual().eval(), shapes=(1, 4, 16, 16))
    report.save(str(tmp_path / "net.json"))
    assert receptive_fields(opcost.load_report(tmp_path / "net.json")) == receptive_fields(report)
