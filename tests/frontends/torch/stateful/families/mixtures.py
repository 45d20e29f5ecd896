"""Models with a little of everything, for tests of what surrounds or interrupts a count."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from stateful.registry import D, stateful
from torch import Tensor, nn


@stateful("statistics, spectral norm, dropout, a cache, a step, and a weight that is clamped")
class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.spectral_norm(nn.Linear(D, D))
        self.norm = nn.BatchNorm1d(D)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(D, 3)
        self.kept: list[Any] = []
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        y = self.drop(self.norm(self.first(x)))
        self.kept.append(y)
        with torch.no_grad():
            self.last.weight.clamp_(-0.2, 0.2)
        return self.last(y)


@lru_cache
def positions(length: int) -> Tensor:
    return torch.arange(length) / length


LAST: list[Any] = []


@stateful("little enough to be interrupted at every line: statistics, a clamped weight, and caches inside and outside")
class Little(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.norm = nn.BatchNorm1d(D)
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        y = self.norm(self.layer(x))
        LAST.append(y)
        with torch.no_grad():
            self.layer.weight.clamp_(-0.2, 0.2)
        return y * positions(D)


@stateful("the same without anything outside the instance")
class LittleInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.norm = nn.BatchNorm1d(D)
        self.kept: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.layer(x))
        self.kept.append(y)
        return y
