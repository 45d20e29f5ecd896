"""Counting small models: a function may be counted as a model, and nothing may be left uncounted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
import torch
from torch import nn

import opcost
from opcost.core.report import Report


@pytest.fixture(autouse=True)
def _onednn_stays_as_it_is() -> Iterator[None]:
    """PyTorch turns oneDNN off for good where a product of bfloat16 fails in it, as on some ARM processors."""
    before = torch._C._get_mkldnn_enabled()
    yield
    torch._C._set_mkldnn_enabled(before)


class Calls(nn.Module):
    """A model that calls a function, with parameters and modules of its own where names are given."""

    def __init__(self, function: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, nn.Parameter(value) if isinstance(value, torch.Tensor) else value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class Counter(Protocol):
    def __call__(self, model: nn.Module | Callable[..., Any], *inputs: Any, **options: Any) -> Report: ...


@pytest.fixture(scope="session")
def count() -> Counter:
    """Count a model or a function on positional inputs; an operator without a cost fails the test."""

    def counted(model: nn.Module | Callable[..., Any], *inputs: Any, **options: Any) -> Report:
        report = opcost.count(model if isinstance(model, nn.Module) else Calls(model), inputs, **options)
        assert report.coverage.complete, report.coverage.uncounted
        return report

    return counted


@pytest.fixture(scope="session")
def calls() -> type[Calls]:
    """The model that calls a function."""
    return Calls
