"""docs/formats.md names every option, column and field that exists."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from opcost.analysis.query import query
from opcost.core.plugin import OWN, VIEWS, load, load_view
from opcost.core.profile import (
    OWN_LABELS,
    AllocationHolder,
    AllocatorMemory,
    AllocatorMemoryOverTime,
    Busy,
    CollectiveSummary,
    CopySummary,
    Gain,
    Kernel,
    Profile,
    ProfileRow,
    RankWait,
)
from opcost.core.report import STATS, Report
from opcost.core.results import Advice, Counted, Fit, Point, Recomputation, StepCost, Sweep
from opcost.core.schema import SCHEMA
from opcost.profiles import askable
from opcost.views.report import EVERY_BY, columns_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([a-z_0-9]+)`", PAGE))


@pytest.mark.parametrize("by", EVERY_BY)
def test_every_column_is_described(by: Any) -> None:
    own = {f"own_{name}" for name in (*STATS, "bytes", "share")}
    assert set(columns_of(by, 0)) - own <= NAMED


@pytest.mark.parametrize("name", ["table", "text", "csv", "md"])
def test_every_option_of_a_listing_is_described(name: str) -> None:
    assert {field.name for field in fields(load_view(name, "report").results["report"])} <= NAMED


def test_every_view_and_its_suffix_is_described() -> None:
    for name in OWN[VIEWS]:
        view = load(VIEWS, name)
        assert f"| `{name}` | {f'`{view.suffix}`' if view.suffix else '–'} |" in PAGE


def names(data: Any) -> set[str]:
    if isinstance(data, dict):
        return set(data) | {name for key, value in data.items() if key != "attrs" for name in names(value)}
    return {name for item in data for name in names(item)} if isinstance(data, list) else set()


def test_every_field_of_an_answer_about_sizes_is_described() -> None:
    advice, counted = (Advice("optimizer", "sgd", 3, 30),), (Counted(1, 10, fits=True),)
    fit = Fit(source="net", vary="batch", largest=2, peak_bytes=20, next_peak_bytes=30, limit_bytes=25, advice=advice,
              counted=counted, parts={"weights": 20})  # fmt: skip
    sweep = Sweep(source="net", variables=("batch",), points=(Point((1,), {"macs": 1}, True, 5, (4, 6)),))
    cost = StepCost(peak_bytes=30, reserved_bytes=None, flops=7)
    recomputation = Recomputation(source="net", vary="batch", size=2, before=cost, after=cost, limit_bytes=35)
    for found in (fit, sweep, recomputation):
        data = json.loads(found.render("json"))
        assert f'`"{data["schema"]}"`' in PAGE
        assert names(data) <= NAMED


def test_every_field_of_the_schema_is_described(odd: Report) -> None:
    found = json.loads(odd.render("json"))
    assert found["schema"] == SCHEMA
    assert f'`"{SCHEMA}"`' in PAGE
    assert names(found) <= NAMED


def test_every_field_of_an_answer_is_described() -> None:
    row = ProfileRow(id=0, name="a", type="aten::mm", device_ns=1, kernels=(Kernel("k", "gpu:0", "7", 0, 1),))
    data = json.loads(query(Profile(meta={}, rows=(row,))).render("json"))
    answer_fields = {*data, *data["lines"][0], *data["devices"][0], *Gain._fields, *data["lines"][0]["kernels"][0]}
    assert answer_fields - set(OWN_LABELS) <= NAMED


def test_every_field_of_a_sheet_is_described() -> None:
    copied = CopySummary("gpu:0", 0, "Memcpy", 1, 1)
    exchanged = CollectiveSummary("gpu:0", 0, "allreduce", "", 2, 4, "Float", "", 1, 1, 1, 1)
    use = Busy("gpu:0", 0, 2, 1, 1, 1, 1, compute_ns=1, mfu=0.5)
    answer_fields = {
        "devices": [use],
        "copies": [copied],
        "collectives": [exchanged],
        "ranks": [RankWait(0, 1, 1, 1, 1)],
    }
    answer_fields |= {
        "memory": [AllocatorMemory("gpu:0", 0, 1, 1, 1, 1, 1, 1, 1)],
        "holders": [AllocationHolder("gpu:0", 0, "a", "b", 1, 1)],
    }
    answer_fields |= {"memory_over_time": [AllocatorMemoryOverTime("gpu:0", 0, "1/10", 1, 1, 1)]}
    extra = {name: [entry._asdict() for entry in entries] for name, entries in answer_fields.items()}
    profile = askable(Profile(meta={}, rows=(), extra=extra))
    for sheet in (profile.breakdown(), profile.communication(), profile.allocations()):
        data = json.loads(sheet.render("json"))
        assert {*data, *data["tables"][0], *data["tables"][0]["fields"][0], *extra} <= NAMED
        for table in sheet.tables:
            row = f"| `{sheet.name}`: {table.title} | {', '.join(f'`{field.name}`' for field in table.fields)} |"
            assert row in PAGE
            assert table.lines
