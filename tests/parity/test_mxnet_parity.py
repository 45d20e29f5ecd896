"""The same nets in PyTorch and in MXNet have the same parameters and the same multiply-adds per kind of operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opcost
from opcost.core.report import Report

SYMBOLS = Path(__file__).parents[1] / "data/mxnet/parity"


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


@pytest.mark.parametrize("name", NETS)
def test_parameters_and_multiply_adds_per_kind_are_the_same(name: str) -> None:
    make, shape = NETS[name]
    in_torch = opcost.count(make().eval(), shapes=shape)
    in_mxnet = opcost.count(str(SYMBOLS / name), shapes=shape)
    assert in_mxnet.coverage.complete
    assert macs_by_kind(in_mxnet) == macs_by_kind(in_torch)
    assert in_mxnet.totals.params == in_torch.totals.params
    assert in_mxnet.totals.trainable_params == in_torch.totals.trainable_params
    assert in_mxnet.outputs[0].dims == in_torch.outputs[0].dims


@pytest.mark.parametrize("name", NETS)
def test_norms_and_activations_cost_the_same(name: str) -> None:
    make, shape = NETS[name]
    in_torch, in_mxnet = (
        {group.key: group.stats.flops for group in report.by_kind()}
        for report in (opcost.count(make().eval(), shapes=shape), opcost.count(str(SYMBOLS / name), shapes=shape))
    )
    for kind in ("norm", "softmax", "elementwise"):
        assert in_mxnet.get(kind) == in_torch.get(kind)
