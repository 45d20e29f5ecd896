"""The page of a profile: alerts, what to do next, and where collectives and copies ran."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from html_page import HtmlPage, column

from opcost.analysis.query import query
from opcost.core.graph import Cost
from opcost.core.profile import Busy, Gain, Kernel, Profile, ProfileRow
from opcost.profiles import askable
from opcost.views.html import HTML


def row(number: int, kind: str, kernel: str, stream: str = "7", cost: Cost | None = None) -> ProfileRow:
    start = number * 100
    return ProfileRow(
        id=number, name=f"op{number}", type=f"aten::{kind}", kind=kind, host_start_ns=start, host_ns=20, host_self_ns=20,
        device_ns=30, kernels=(Kernel(kernel, "gpu:0", stream, start + 50, 30, start + 10),), cost=cost,
    )  # fmt: skip


MARK = ProfileRow(id=0, name="", type="annotation", provider="user_annotation")


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


def test_unknown_operators_are_of_the_kind_of_their_kernels() -> None:
    exchange = row(0, "", "ncclDevKernel_AllReduce")._replace(name="c10d::allreduce_", type="c10d::allreduce_")
    operators = data(exchange, row(1, "matmul", "ncclDevKernel_AllReduce"), row(2, "", "gemm"))["ops"]
    (kinds,) = [each for each in operators["columns"] if each["name"] == "kind"]
    assert [kinds["words"][at] for at in kinds["at"]] == ["collective", "matmul", ""]


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
    ("what", "command", "advised", "shown"),
    [
        ("idle: host-bound", "--view launches", "too slowly", {"view": "timeline", "find": "idle: host-bound"}),
        (
            "aten::mm at 40 % of its bound",
            "--type aten::mm",
            "multiples of 64",
            {"view": "operators", "find": "aten::mm"},
        ),
        ("recomputing what", "--where", "Keep more", {"view": "operators", "find": "recompute"}),
        ("kernels shorter than a launch", "--where", "Fuse them", {"view": "table", "place": 0, "find": "launch"}),
        (
            "copies that could run beside kernels",
            "--view breakdown",
            "pinned",
            {"view": "table", "place": 2, "find": ""},
        ),
        ("unbalanced ranks: 1", "--view communication", "comes last", None),
    ],
)
def test_each_gain_says_what_to_do_and_where_that_is_shown(
    what: str, command: str, advised: str, shown: object
) -> None:
    profile = Profile(
        meta={"source": "run.json"},
        rows=(row(0, "matmul", "gemm"), row(1, "matmul", "gemm")),
        extra={
            "copies": [{"device": "gpu:0", "rank": 0, "name": "Memcpy HtoD", "number": 2, "time_ns": 10, "bytes": 64}]
        },
    )
    answer = replace(query(profile), gains=(Gain(what=what, share=0.25, time_ns=250, command=command),))
    # The answer's own table, the time of each device, and copies; there is none of ranks.
    data = HtmlPage(HTML.render(answer, profile=profile, sheets=(askable(profile).breakdown(),))).data
    assert [table["title"] for table in data["tables"]][1:] == ["breakdown: time of each device", "breakdown: copies"]
    assert data["gains"]["title"].endswith("potential savings in the whole run, upper bounds")
    (gain,) = data["gains"]["found"]
    assert (gain["time"], gain["share"]) == (250, 0.25)
    assert advised in gain["advice"]
    assert gain["command"] == f"opcost analyze run.json {command}"
    assert gain["show"] == shown


@pytest.mark.parametrize("view", ["table", "md", "latex", "notebook", "json"])
def test_what_to_do_is_in_every_output(view: str) -> None:
    profile = Profile(meta={"source": "run.json"}, rows=(row(0, "matmul", "gemm"),))
    gain = Gain(what="idle: host-bound", share=0.25, time_ns=250, command="--view launches")
    text = " ".join(replace(query(profile), gains=(gain,)).render(view).split())
    assert "--view launches" in text.replace("\u00a0", " ").replace("&nbsp;", " ")
    assert "The host launches too slowly: capture the step" in text


def test_without_a_timeline_idle_time_is_shown_by_its_cause() -> None:
    use = Busy(device="gpu:0", rank=0, span_ns=100, busy_ns=60, work_ns=60, kernels=2, median_ns=30, idle_host_ns=40)
    profile = Profile(meta={}, rows=(row(0, "matmul", "gemm")._replace(count=2),), extra={"devices": [use._asdict()]})
    gain = Gain(what="idle: host-bound", share=0.25, time_ns=250, command="--view breakdown")
    answer = replace(query(profile), gains=(gain,))
    data = HtmlPage(HTML.render(answer, profile=profile, sheets=(askable(profile).breakdown(),))).data
    assert data["timeline"] is None
    assert data["gains"]["found"][0]["show"] == {"view": "table", "place": 1, "find": "idle: host-bound"}


def test_steps_are_those_that_the_schedule_marked() -> None:
    marks = [
        MARK._replace(id=10 + n, name=f"ProfilerStep#{n}", host_start_ns=start, host_ns=spent)
        for n, start, spent in ((3, 1000, 400), (4, 1400, 350))
    ]
    # From the first event at 1,000 ns on
    found = data(*marks, row(11, "matmul", "gemm"))["timeline"]
    assert found["steps"] == [[0, 400, 3], [400, 750, 4]]
    assert dict(zip(found["words"], found["sorts"], strict=True))["ProfilerStep#3"] == ""


def test_without_marks_a_step_lasts_until_the_next_one() -> None:
    rows = [row(number, "matmul", "gemm")._replace(step=number // 2) for number in range(4)]
    # Rows begin at 0, 100, 200 and 300 ns; the last is on the host for 20 ns.
    assert data(*rows)["timeline"]["steps"] == [[0, 200, 0], [200, 320, 1]]
    assert data(*(each._replace(step=None) for each in rows))["timeline"]["steps"] == []


def test_unknown_peaks_are_said_below_the_lines_with_the_options_that_give_them() -> None:
    profile = Profile(meta={"source": "run.json", "gpu": "Odd 1"}, rows=(row(0, "matmul", "gemm"),))
    found = HtmlPage(HTML.render(query(profile), profile=profile)).data
    (remark,) = found["tables"][0]["remarks"]
    assert "the peaks of Odd 1 are not known" in remark
    assert all(option in remark for option in ("--device NAME", "--peak-flops", "--peak-bandwidth"))
    assert not any("Odd 1 are" in line for note in found["notes"] for line in note["lines"])


def test_operators_are_ordered_by_their_time() -> None:
    rows = [
        row(0, "matmul", "gemm"),
        row(1, "norm", "norm")._replace(device_ns=90),
        row(2, "view", "v")._replace(device_ns=0),
    ]
    operators = data(*rows)["ops"]
    (times,) = [each["values"] for each in operators["columns"] if each["name"] == "whole"]
    assert times == [90, 30, 0]


def test_an_operator_that_never_ran_has_no_time_of_one_call() -> None:
    operators = data(row(0, "matmul", "gemm"), row(1, "view", "v")._replace(count=0, device_ns=0))["ops"]
    times = {each["name"]: each["values"] for each in operators["columns"] if each["name"] in ("repeat", "time")}
    assert times == {"repeat": [1, 0], "time": [30, None]}


def test_kernels_are_called_by_their_own_names_and_found_by_their_full_ones() -> None:
    name = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)"
    profile = Profile(meta={}, rows=(), unattributed=(Kernel(name, "gpu:0", "7", 0, 50),))
    found = HtmlPage(HTML.render(query(profile, aggregate_by="kernel"), profile=profile)).data
    kernels = found["tables"][0]["columns"][0]
    assert (kernels["words"], kernels["short"]["words"]) == ([name, "total"], ["vectorized_gather_kernel", "total"])


def test_a_page_of_many_ranks_is_named_by_the_first_and_the_last() -> None:
    names = ", ".join(f"rank{number}.json" for number in range(4))
    profile = Profile(meta={"source": names, "ranks": "4"}, rows=(row(0, "matmul", "gemm"),))
    gain = Gain(what="unbalanced ranks: 1", share=0.25, time_ns=250, command="--view communication")
    found = HtmlPage(HTML.render(replace(query(profile), gains=(gain,)), profile=profile)).data
    assert found["tree"]["root"] == dict(found["facts"])["source"] == "rank0.json to rank3.json"
    assert found["gains"]["found"][0]["command"] == "opcost analyze TRACES --view communication"


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
