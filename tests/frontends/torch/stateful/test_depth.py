"""A model that is nested as deeply as Python lets it run is counted too."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import opcost


@pytest.fixture(autouse=True)
def limit_kept() -> Iterator[None]:
    before = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(before)


def nested(depth: int) -> nn.Module:
    model: nn.Module = nn.Linear(2, 2)
    for _ in range(depth):
        model = nn.Sequential(model)
    return model


def _limit_at_which_it_runs(model: nn.Module) -> int:
    """Sets and returns the limit of recursion that the model itself needs, when that is more than the present one."""
    while True:
        try:
            model(torch.ones(1, 2))
        except RecursionError:
            sys.setrecursionlimit(sys.getrecursionlimit() + 50)
        else:
            return sys.getrecursionlimit()


@pytest.mark.parametrize("entry", ["count", "real", "backward", "profile"])
@pytest.mark.parametrize("depth", [200, 400])
def test_modules_nested_as_deeply_as_they_run_are_counted(depth: int, entry: str) -> None:
    model = nested(depth)
    limit = _limit_at_which_it_runs(model)
    if entry == "profile":
        assert opcost.profile(model, torch.ones(1, 2), warmup=0, repeat=1).rows
    else:
        options = {} if entry == "count" else {entry: True}
        report = opcost.count(model, torch.ones(1, 2), **options)
        assert report.phases["forward"].macs == 4
    assert sys.getrecursionlimit() == limit
