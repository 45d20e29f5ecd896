"""The critical path, queues and launches of a trace whose clock is known by hand."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.analysis.critical_path import Dependencies
from opcost.errors import OpcostError
from opcost.profiles import askable
from opcost.traces.kineto.reader import read_table

US = 1000


def device(name: str, start: int, end: int, stream: int = 7, **args: object) -> dict[str, Any]:
    fields = {"device": 0, "stream": stream, **args}
    times = {"ts": start, "dur": end - start, "args": fields}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, **times}


def host(name: str, start: int, end: int, category: str = "cpu_op", **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args}


def read(path: Path, *events: dict[str, Any]) -> opcost.Profile:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    return opcost.read_profile(path)


def launched(number: int, start: int, end: int, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    return host(name, start, end, "cuda_runtime", correlation=number)


PATH = (
    # The host runs an operator from 0 to 20, launches from 10 to 15, and waits in a call from 25 to 100.
    host("aten::mm", 0, 20),
    launched(1, 10, 15),
    launched(2, 16, 18),
    host("cudaDeviceSynchronize", 25, 100, "cuda_runtime", correlation=9),
    device("gemm", 30, 60, correlation=1),
    device("ncclDevKernel_AllReduce", 62, 90, correlation=2),
    host("aten::add", 110, 130),
)


def test_without_what_is_inferred_no_call_waits_for_the_device(tmp_path: Path) -> None:
    profile = read(tmp_path / "t.json", *PATH)
    assert Dependencies(profile, 0).longest().length_ns == (10 + 20 + 30 + 2 + 28 + 20) * US
    # Then the chain ends with the last kernel; the host's alone is 20 + 20.
    assert Dependencies(profile, 0, inferred=False).longest().length_ns == (10 + 20 + 30 + 2 + 28) * US
    other = [device("gemm", 30, 60, correlation=1), device("late", 62, 90, 8, correlation=2)]
    streams = read(tmp_path / "s.json", *PATH[:3], *other)
    assert Dependencies(streams, 0).longest().length_ns == (10 + 20 + 30 + 2 + 28) * US
    assert (
        Dependencies(streams, 0, inferred=False).longest().length_ns == (16 + (62 - 16) + 28) * US
    )  # from its own launch


def test_links_need_the_time_of_every_execution(tmp_path: Path) -> None:
    profile = read(tmp_path / "t.json", *PATH, host("aten::mm", 140, 150))
    grouped = read_table(tmp_path / "t.json").profile
    assert Dependencies(profile, 0).longest().length_ns
    with pytest.raises(OpcostError, match="rows of this profile stand for many"):
        Dependencies(grouped, 0)


def test_the_critical_path_goes_through_host_launch_kernels_and_back(tmp_path: Path) -> None:
    found = read(tmp_path / "t.json", *PATH).critical_path()
    # aten::mm until its launch 10; 20 from the launch to the kernel; 30 in it; 2 to the next on its stream; 28 in that;
    # the call that waits for it takes nothing of its own, nor does what lies between it and aten::add, which takes 20.
    assert {line["bound"]: line["time"] for line in found["critical path"]} == {
        "host": (10 + 20) * US,
        "from launch to start": 20 * US,
        "computing": 30 * US,
        "between kernels": 2 * US,
        "communication": 28 * US,
    }
    assert found.table("critical path").total[2] == 110 * US
    on_it = {(line["operator"], line["bound"]): (line["time"], line["halved"]) for line in found["operators on it"]}
    assert on_it["aten::mm", "computing"] == (30 * US, 15 * US)
    assert on_it["aten::mm", "communication"] == (28 * US, 14 * US)
    assert on_it["aten::add", "host"] == (20 * US, 10 * US)
    assert "10.00 µs more lie between operators" in str(found).replace("\u00a0", " ")  # from 100 to 110


def test_what_is_not_on_the_path_wins_nothing(tmp_path: Path) -> None:
    # Two streams side by side: the longer decides, and to halve it wins only as much as the other leaves.
    events = (
        host("aten::mm", 0, 20),
        launched(1, 1, 2),
        launched(2, 3, 4),
        device("long", 10, 110, 7, correlation=1),
        device("short", 10, 90, 8, correlation=2),
    )
    found = read(tmp_path / "t.json", *events).critical_path()
    halved = {line["bound"]: line["halved"] for line in found["critical path"]}
    assert halved["computing"] == 50 * US  # both are computing
    names = {line["operator"]: line["halved"] for line in found["operators on it"] if line["bound"] == "computing"}
    assert names == {"aten::mm": 50 * US}


def test_a_kernel_that_waited_for_another_stream_follows_its_kernel(tmp_path: Path) -> None:
    events = (
        host("aten::mm", 0, 20),
        launched(1, 1, 2),
        launched(2, 3, 4),
        device("first", 10, 60, 7, correlation=1),
        device("second", 61, 90, 8, correlation=2),
    )
    found = read(tmp_path / "t.json", *events).critical_path()
    # 1 until the launch, 9 after it, 50 and 29 in kernels, 1 between them.
    assert found.table("critical path").total[2] == (1 + 9 + 50 + 1 + 29) * US


def test_the_queue_and_the_delays_over_time(tmp_path: Path) -> None:
    step = [host(f"ProfilerStep#{number}", 100 * number, 100 * number + 100, "user_annotation") for number in (0, 1)]
    events = (
        *step,
        launched(1, 0, 1),
        launched(2, 10, 11),
        device("a", 20, 40, correlation=1),
        device("b", 40, 50, correlation=2),
        host("aten::slow", 100, 150),
        launched(3, 150, 151),
        device("c", 160, 170, correlation=3),
    )
    found = read(tmp_path / "t.json", *events).launches()
    first, second = found["queue and launches over time"]
    # In the first step one waits from 0 to 20 and one from 10 to 40: 50 of 100; nothing waits from 40 on.
    assert (first["launches"], first["queue"], first["queue_max"], first["empty"]) == (2, 0.5, 2, 0.6)
    assert (first["delay"], first["late"]) == (25 * US, 0)  # 20 and 30
    assert (second["launches"], second["queue"], second["delay"], second["late"]) == (1, 0.1, 10 * US, 1)
    (behind,) = found["where the host was behind"]
    # The device ran dry at 50, 30 after its first kernel, and waited until 160 while the host was in `aten::slow`.
    assert (behind["from"], behind["idle"], behind["kernels"]) == (30 * US, 110 * US, 1)
    assert (behind["host_ran"], behind["host_time"]) == ("aten::slow", 50 * US)


def test_rows_for_many_executions_have_no_path(tmp_path: Path) -> None:
    read(tmp_path / "t.json", *PATH)
    with pytest.raises(OpcostError, match="rows of this profile stand for many"):
        askable(read_table(tmp_path / "t.json").profile).critical_path()


def test_columns_choose_the_table_that_has_all_of_them_in_their_order(tmp_path: Path, opcost_command: Any) -> None:
    read(tmp_path / "t.json", *PATH)
    options = ("--view", "critical-path", "--columns", "operator,halved", "--order-by", "+halved", "--format", "csv")
    done = opcost_command("analyze", tmp_path / "t.json", *options)
    assert done.code == 0
    head, *lines = csv.reader(io.StringIO(done.out))
    assert head == ["table", "operator", "halved"]
    assert {line[0] for line in lines} == {"operators on it"}
    halved = [int(line[2]) for line in lines]
    assert halved == sorted(halved)
    wrong = opcost_command("analyze", tmp_path / "t.json", "--view", "launches", "--order-by", "halved")
    assert (wrong.code, "unknown column 'halved'" in wrong.err, "queue_max" in wrong.err) == (2, True, True)


def test_a_path_of_many_operators_is_shown_in_few_lines(tmp_path: Path, opcost_command: Any) -> None:
    read(tmp_path / "t.json", *(host(f"aten::op{number}", 10 * number, 10 * number + 5) for number in range(30)))
    short = opcost_command("analyze", tmp_path / "t.json", "--view", "critical-path").out
    assert (short.count("aten::op"), "and 20 more lines" in short) == (10, True)
    assert (
        opcost_command("analyze", tmp_path / "t.json", "--view", "critical-path", "-t", "0").out.count("aten::op") == 30
    )
