"""The same nets in PyTorch, MXNet and MegEngine have the same parameters and multiply-adds per kind of operator."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opcost
from opcost.analysis.receptive import receptive_fields
from opcost.core.report import Report

SYMBOLS = Path(__file__).parents[1] / "data/mxnet/parity"
DUMPS = Path(__file__).parents[1] / "data/megengine/parity"


class Block(nn.Module):
    """Two convolutions and a shortcut, as in a ResNet."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Conv2d(inputs, channels, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


class Transformer(nn.Module):
    """One block with the attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, dim=2)
        q, k, v = (part.reshape(batch, length, self.heads, -1).transpose(1, 2).flatten(0, 1) for part in parts)
        scores = torch.softmax(torch.bmm(q * self.scale, k.transpose(1, 2)), dim=-1)
        y = torch.bmm(scores, v).reshape(batch, self.heads, length, -1).transpose(1, 2).reshape(batch, length, width)
        x = x + self.proj(y)
        return x + self.fc2(torch.relu(self.fc1(self.norm2(x))))


def pooled(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


NETS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10)), (4, 20)),
    "resnet": (
        lambda: pooled(
            nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Block(8, 8, 1), Block(8, 16, 2)
        ),
        (2, 3, 16, 16),
    ),
    "depthwise": (
        lambda: pooled(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False),
            nn.BatchNorm2d(8),
            nn.Conv2d(8, 16, 1, bias=False),
            nn.BatchNorm2d(16),
        ),
        (2, 3, 17, 17),
    ),
    "transformer": (lambda: Transformer(16, 4), (2, 9, 16)),
}


def macs_by_kind(report: Report) -> dict[str, int]:
    return {group.key: group.stats.macs for group in report.by_kind() if group.stats.macs}


def in_torch(name: str) -> Report:
    make, shape = NETS[name]
    return opcost.count(make().eval(), shapes=shape)


def other(framework: str, name: str) -> Report:
    if framework == "mxnet":
        return opcost.count(str(SYMBOLS / name), shapes=NETS[name][1])
    return opcost.count(DUMPS / f"{name}.plain.mge")


def flops_by_kind(report: Report) -> dict[str, int]:
    return {group.key: group.stats.flops for group in report.by_kind()}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("framework", ["mxnet", "megengine"])
def test_parameters_and_multiply_adds_per_kind_are_the_same(framework: str, name: str) -> None:
    expected, found = in_torch(name), other(framework, name)
    assert found.coverage.complete
    assert macs_by_kind(found) == macs_by_kind(expected)
    assert found.totals.params == expected.totals.params
    assert found.totals.buffers == expected.totals.buffers - counters(name)
    assert found.outputs[0].dims == expected.outputs[0].dims


def counters(name: str) -> int:
    """Numbers that only PyTorch keeps: how many batches a batch norm has seen."""
    return sum(isinstance(module, nn.BatchNorm2d) for module in NETS[name][0]().modules())


def test_trainable_parameters_are_known_where_the_file_has_them() -> None:
    for name in NETS:
        assert other("mxnet", name).totals.trainable_params == in_torch(name).totals.trainable_params
        assert other("megengine", name).totals.trainable_params == 0  # a dump holds no gradients


@pytest.mark.parametrize("name", NETS)
def test_norms_and_activations_cost_the_same(name: str) -> None:
    expected, found = flops_by_kind(in_torch(name)), flops_by_kind(other("mxnet", name))
    for kind in ("norm", "softmax", "elementwise"):
        assert found.get(kind) == expected.get(kind)


@pytest.mark.parametrize("name", NETS)
def test_megengine_adds_a_bias_as_an_operator_of_its_own(name: str) -> None:
    """Which moves FLOPs from one kind to another, and changes no sum."""
    expected, found = flops_by_kind(in_torch(name)), flops_by_kind(other("megengine", name))
    for kind in ("norm", "softmax"):
        assert found.get(kind) == expected.get(kind)
    summed = ("conv", "matmul", "elementwise")
    assert sum(found.get(kind, 0) for kind in summed) == sum(expected.get(kind, 0) for kind in summed)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("form", ["v1", "v2"])
def test_what_megengines_optimizer_leaves_has_the_same_multiply_adds(form: str, name: str) -> None:
    expected, found = in_torch(name), opcost.count(DUMPS / f"{name}.{form}.mge")
    assert found.coverage.complete
    assert macs_by_kind(found) == macs_by_kind(expected)
    assert found.totals.params == expected.totals.params - folded(name)
    assert found.totals.buffers == 0
    assert found.outputs[0].dims == expected.outputs[0].dims


def folded(name: str) -> int:
    """A batch norm's factors go into the filter before it; a shift goes into the one after it where nothing is between."""
    factors = sum(m.num_features for m in NETS[name][0]().modules() if isinstance(m, nn.BatchNorm2d))
    return factors + (8 if name == "depthwise" else 0)


@pytest.mark.parametrize("framework", ["torch", "mxnet", "megengine"])
def test_convolutions_see_the_same_of_the_image(framework: str) -> None:
    """Each 3 x 3 adds two steps of the stride so far; the shortcut of 1 x 1 sees what the block sees."""
    report = in_torch("resnet") if framework == "torch" else other(framework, "resnet")
    fields = receptive_fields(report)
    found = [fields[index] for index, row in enumerate(report.rows) if row.op.kind == "conv"]
    block = 3 + 2 + 2
    expected = [(3, 1), (3 + 2, 1), (block, 1), (block + 2, 2), (block + 2 + 2 * 2, 2), (block, 2)]
    assert Counter(found) == Counter(((size, size), (stride, stride)) for size, stride in expected)
