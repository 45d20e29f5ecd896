"""Operators that once had no cost in traces, recorded with PyTorch's own profiler and compared with a count of the same call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import opcost
from opcost.analysis.join import with_costs
from opcost.core.graph import TensorSpec
from opcost.core.profile import ProfileRow
from opcost.rules import default_rules
from opcost.traces.kineto.reader import read_table

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
    """`var` and its kind are dispatched twice under one name, and are one execution with one cost."""
    call = OPERATORS[name]
    rows = traced(lambda: call(X.clone()), tmp_path / "trace.json")
    (row,) = (row for row in rows if row.type == name)
    (counted,) = (row for row in opcost.count(call, X.clone()).rows if row.cost is not None and row.cost.flops)
    assert (row.kind, row.cost) == (counted.op.kind, counted.cost)
    assert row.ins == (TensorSpec((ROWS, COLUMNS), "float32"),)


Y = X.flip(0)
AROUND_OTHERS: dict[str, Callable[[], Any]] = {
    "mse_loss": lambda: F.mse_loss(X, Y),
    "huber_loss": lambda: F.huber_loss(X, Y),
    "smooth_l1_loss": lambda: F.smooth_l1_loss(X, Y),
    "binary_cross_entropy": lambda: F.binary_cross_entropy(X.sigmoid(), Y.sigmoid()),
    "var": X.var,
    "std": X.std,
    "svd": lambda: torch.linalg.svd(X),
    "mean": X.mean,
    "logsumexp": lambda: X.logsumexp(1),
    "the same sum alone too": lambda: (F.mse_loss(X, Y), X.sum()),
}
"""Operators that call others on their way, which PyTorch does not take apart."""


@pytest.mark.parametrize("run", AROUND_OTHERS.values(), ids=AROUND_OTHERS)
def test_an_operator_that_calls_others_has_its_cost_and_they_have_none(run: Callable[[], Any], tmp_path: Path) -> None:
    rows = traced(run, tmp_path / "trace.json")
    counted = opcost.count(run).totals.flops
    assert sum(row.cost.flops for row in rows if row.cost) == counted > 0
    grouped = with_costs(read_table(tmp_path / "trace.json").profile, default_rules()).rows
    assert sum(row.count * row.cost.flops for row in grouped if row.cost) == counted


def test_a_mean_squared_error_subtracts_squares_and_adds(tmp_path: Path) -> None:
    rows = traced(AROUND_OTHERS["mse_loss"], tmp_path / "trace.json")
    assert sum(row.cost.flops for row in rows if row.cost) == 3 * ROWS * COLUMNS == 96


def test_singular_values_alone_cost_the_reduction_to_two_diagonals(tmp_path: Path) -> None:
    """4 m n² − 4/3 n³ for n ≤ m; PyTorch works out the vectors too while a mode looks on, and so does a count."""
    rows = traced(lambda: torch.linalg.svdvals(X), tmp_path / "trace.json")
    assert sum(row.cost.flops for row in rows if row.cost) == (12 * COLUMNS * ROWS**2 - 4 * ROWS**3) // 3


def test_an_lstm_has_the_products_of_its_gates(tmp_path: Path) -> None:
    """Four gates, each the input times its matrix and the state times its own, for every step of every sequence."""
    steps, batch, width, hidden = 5, 4, 8, 16
    lstm = nn.LSTM(width, hidden)
    rows = traced(lambda: lstm(torch.zeros(steps, batch, width)), tmp_path / "trace.json")
    assert sum(row.cost.macs for row in rows if row.cost) == steps * batch * 4 * hidden * (width + hidden)


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float16", "float16"), ("float32", "float16")])
def test_cat_has_no_cost_because_the_types_in_a_list_are_not_written(dtypes: tuple[str, str], tmp_path: Path) -> None:
    """The profiler writes the same event for all of these, and they move different numbers of bytes."""
    parts = [X.to(getattr(torch, dtype)) for dtype in dtypes]
    rows = traced(lambda: torch.cat(parts), tmp_path / "trace.json")
    (row,) = (row for row in rows if row.type == "aten::cat")
    assert [(spec.dims, spec.dtype) for spec in row.ins] == [((ROWS, COLUMNS), "")] * 2
    assert row.cost is None


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_has_no_cost_because_its_approximation_is_not_written(approximate: str, tmp_path: Path) -> None:
    rows = traced(lambda: nn.functional.gelu(X, approximate=approximate), tmp_path / "trace.json")
    (row,) = (row for row in rows if row.type == "aten::gelu")
    assert (row.kind, row.cost) == ("elementwise", None)
