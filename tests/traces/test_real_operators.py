"""Operators that were once unpriced in traces, recorded with PyTorch's own profiler and held against a count of the same call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import opcost
from opcost.analysis.join import with_costs
from opcost.core.graph import TensorSpec
from opcost.core.profile import ProfileRow
from opcost.rules import default_rules

ROWS, COLUMNS = 4, 8
X = torch.arange(ROWS * COLUMNS, dtype=torch.float32).reshape(ROWS, COLUMNS)
OPERATORS: dict[str, Callable[[Tensor], Any]] = {
    "aten::var": lambda x: x.var(1),
    "aten::std": lambda x: x.std(1),
    "aten::var_mean": lambda x: torch.var_mean(x, 1),
    "aten::topk": lambda x: x.topk(2),
    "aten::cumsum": lambda x: x.cumsum(1),
    "aten::max": lambda x: x.max(1),
    "aten::clamp_min_": lambda x: x.clamp_min_(0),
}


def traced(run: Callable[[], Any], path: Path) -> tuple[ProfileRow, ...]:
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        run()
    profiler.export_chrome_trace(str(path))
    return with_costs(opcost.read_profile(path), default_rules()).rows


@pytest.mark.parametrize("name", OPERATORS)
def test_it_costs_in_a_trace_what_it_costs_in_a_count(name: str, tmp_path: Path) -> None:
    """`var` and its kind are dispatched twice under one name, and are one execution with one price."""
    call = OPERATORS[name]
    rows = traced(lambda: call(X.clone()), tmp_path / "trace.json")
    (row,) = (row for row in rows if row.type == name)
    (counted,) = (row for row in opcost.count(call, X.clone()).rows if row.cost is not None and row.cost.flops)
    assert (row.kind, row.cost) == (counted.op.kind, counted.cost)
    assert row.ins == (TensorSpec((ROWS, COLUMNS), "float32"),)


def test_an_lstm_has_the_products_of_its_gates(tmp_path: Path) -> None:
    """Four gates, each the input times its matrix and the state times its own, for every step of every sequence."""
    steps, batch, width, hidden = 5, 4, 8, 16
    lstm = nn.LSTM(width, hidden)
    rows = traced(lambda: lstm(torch.zeros(steps, batch, width)), tmp_path / "trace.json")
    assert sum(row.cost.macs for row in rows if row.cost) == steps * batch * 4 * hidden * (width + hidden)


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float16", "float16"), ("float32", "float16")])
def test_what_is_joined_has_no_price_because_the_types_in_a_list_are_not_written(
    dtypes: tuple[str, str], tmp_path: Path
) -> None:
    """The profiler writes the same event for all of these, and they move different numbers of bytes."""
    parts = [X.to(getattr(torch, dtype)) for dtype in dtypes]
    rows = traced(lambda: torch.cat(parts), tmp_path / "trace.json")
    (row,) = (row for row in rows if row.type == "aten::cat")
    assert [(spec.dims, spec.dtype) for spec in row.ins] == [((ROWS, COLUMNS), "")] * 2
    assert row.cost is None


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_has_no_price_because_its_approximation_is_not_written(approximate: str, tmp_path: Path) -> None:
    rows = traced(lambda: nn.functional.gelu(X, approximate=approximate), tmp_path / "trace.json")
    (row,) = (row for row in rows if row.type == "aten::gelu")
    assert (row.kind, row.cost) == ("elementwise", None)
