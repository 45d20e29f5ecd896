"""The page of a profile: alerts, what to do next, and where collectives and copies ran."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from html_page import HtmlPage, column

from opcost.analysis.query import query
from opcost.core.graph import Cost
from opcost.core.profile import Gain, Kernel, Profile, ProfileRow
from opcost.profiles import askable
from opcost.views.html import HTML


def row(number: int, kind: str, kernel: str, stream: str = "7", cost: Cost | None = None) -> ProfileRow:
    start = number * 100
    return ProfileRow(
        id=number, name=f"op{number}", type=f"aten::{kind}", kind=kind, host_start_ns=start, host_ns=20, host_self_ns=20,
        device_ns=30, kernels=(Kernel(kernel, "gpu:0", stream, start + 50, 30, start + 10),), cost=cost,
    )  # fmt: skip


def data(*rows: ProfileRow) -> dict:
    profile = Profile(meta={"source": "run.json"}, rows=rows)
    return HtmlPage(HTML.render(query(profile, aggregate_by=("type",)), profile=profile)).data


def test_kernels_are_of_the_kind_of_their_operator_and_collectives_have_lanes() -> None:
    found = data(
        row(0, "matmul", "gemm"),
        row(1, "copy", "Memcpy HtoD (Pinned -> Device)"),
        row(2, "collective", "ncclDevKernel_AllReduce", "20"),
    )["timeline"]
    assert [lane["title"] for lane in found["lanes"]] == ["host", "gpu:0 collectives 20", "gpu:0 stream 7"]
    sorts = dict(zip(found["words"], found["sorts"], strict=True))
    assert sorts["gemm"] == "matmul"
    assert sorts["Memcpy HtoD (Pinned -> Device)"] == "copy"
    assert sorts["ncclDevKernel_AllReduce"] == "collective"


def test_time_without_a_cost_is_an_alert_with_its_operators() -> None:
    known, odd = row(0, "matmul", "gemm", cost=Cost(4, 8, 8, 8)), row(1, "unknown", "odd")
    found = data(known, odd)
    facts = dict(map(tuple, found["facts"]))
    # 30 of 60 ns of kernels have a cost.
    assert facts["counted"] == "50.0 % of the device time"
    (alert,) = found["alerts"]
    assert alert["title"].startswith("50.0 % of the device time has no cost model")
    assert alert["lines"] == ["aten::unknown: 30 ns"]
    whole = data(known)
    assert whole["alerts"] == []
    assert dict(map(tuple, whole["facts"]))["counted"] == "all of the device time"


@pytest.mark.parametrize(
    ("what", "advised"),
    [("idle: host-bound", "host launches too slowly"), ("aten::mm at 40 % of its bound", "multiples of 64")],
)
def test_each_gain_says_what_to_do_and_which_command_shows_it(what: str, advised: str) -> None:
    profile = Profile(meta={"source": "run.json"}, rows=(row(0, "matmul", "gemm"),))
    answer = replace(query(profile), gains=(Gain(what=what, share=0.25, time_ns=250, command="--view breakdown"),))
    found = HtmlPage(HTML.render(answer, profile=profile)).data["gains"]
    assert found["title"].endswith("potential savings in the whole run, upper bounds")
    (gain,) = found["found"]
    assert (gain["time"], gain["share"]) == (250, 0.25)
    assert advised in gain["advice"]
    assert gain["command"] == "opcost analyze run.json --view breakdown"


def test_every_cause_of_idle_time_is_a_part() -> None:
    profile = Profile(meta={}, rows=(row(0, "matmul", "gemm"), row(1, "matmul", "gemm")))
    answer = query(profile)
    (use,) = answer.devices
    # From 50 to 180 ns: 60 of kernels, 70 idle, of which 30 and 25 have a cause.
    known = use._replace(idle_host_ns=30, idle_blocked_ns=25)
    found = HtmlPage(HTML.render(replace(answer, devices=(known,)), profile=profile)).data["uses"]
    parts = dict(map(tuple, found[0]["parts"]))
    assert parts == {"computing": 60, "idle: host-bound": 30, "idle: blocked after launch": 25, "idle": 15}
    assert found[0]["title"].startswith("gpu:0: busy 60 ns of 130 ns")


def test_tables_about_the_whole_profile_are_below_its_lines(tmp_path: Path) -> None:
    profile = Profile(
        meta={"source": "run.json"},
        rows=(row(0, "matmul", "gemm"),),
        extra={
            "copies": [{"device": "gpu:0", "rank": 0, "name": "Memcpy HtoD", "number": 2, "time_ns": 10, "bytes": 64}]
        },
    )
    askable(profile).save(tmp_path / "page.html")
    tables = HtmlPage((tmp_path / "page.html").read_text()).data["tables"]
    (copies,) = [table for table in tables if table["title"] == "breakdown: copies"]
    assert column(copies, "copy") == ["Memcpy HtoD"]
    assert column(copies, "bytes") == [64]
    assert not any(table["title"].startswith("memory") for table in tables)
