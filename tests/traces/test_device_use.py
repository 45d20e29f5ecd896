"""What a device lost its time to: the causes of gaps, and what ran alone, on traces whose clock is known by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.analysis.query import query
from opcost.core.answer import Busy
from opcost.traces.kineto.table import read_table

US = 1000


def host(category: str, name: str, start: int, end: int, **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args}


def kernel(number: int, start: int, end: int, name: str = "gemm", stream: int = 7) -> dict[str, Any]:
    args = {"device": 0, "stream": stream, "correlation": number}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": start,
        "dur": end - start,
        "args": args,
    }


def launch(number: int, start: int) -> dict[str, Any]:
    return host("cuda_runtime", "cudaLaunchKernel", start, start + 1, correlation=number)


def use_of(events: list[dict[str, Any]], path: Path) -> Busy:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    (use,) = query(opcost.read_profile(path)).devices
    assert tuple(read_table(path).devices.values()) == (use,)
    return use


def test_a_gap_is_the_host_s_until_the_launch_and_the_launch_s_from_there(tmp_path: Path) -> None:
    events = [launch(1, 0), kernel(1, 10, 20), launch(2, 50), kernel(2, 57, 60)]
    use = use_of(events, tmp_path / "t.json")
    assert (use.span_ns, use.busy_ns, use.idle_ns) == (50 * US, 13 * US, 37 * US)
    assert (use.idle_host_ns, use.idle_launch_ns) == (30 * US, 7 * US)
    assert use.idle_synchronised_ns == use.idle_input_ns == 0


def test_what_was_launched_in_time_waits_for_no_host(tmp_path: Path) -> None:
    use = use_of([launch(1, 0), launch(2, 5), kernel(1, 10, 20), kernel(2, 24, 30)], tmp_path / "t.json")
    assert (use.idle_host_ns, use.idle_launch_ns, use.idle_ns) == (0, 4 * US, 4 * US)


def test_after_the_host_waited_for_the_device_the_gap_is_of_that(tmp_path: Path) -> None:
    wait = host("cuda_runtime", "cudaDeviceSynchronize", 12, 25)
    events = [launch(1, 0), kernel(1, 10, 20), wait, launch(2, 50), kernel(2, 57, 60), launch(3, 90), kernel(3, 91, 95)]
    use = use_of(events, tmp_path / "t.json")
    assert (use.idle_synchronised_ns, use.idle_host_ns, use.idle_launch_ns) == (30 * US, 30 * US, 8 * US)


def test_the_wait_for_the_next_batch_is_told_apart(tmp_path: Path) -> None:
    load = host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 15, 40)
    use = use_of([launch(1, 0), kernel(1, 10, 20), load, launch(2, 50), kernel(2, 50, 60)], tmp_path / "t.json")
    assert (use.idle_input_ns, use.idle_host_ns) == (20 * US, 10 * US)


def test_what_has_no_launch_in_the_trace_has_no_cause(tmp_path: Path) -> None:
    use = use_of([kernel(1, 10, 20), kernel(2, 50, 60)], tmp_path / "t.json")
    assert use.idle_ns == 30 * US
    assert use.idle_host_ns == use.idle_launch_ns == use.idle_synchronised_ns == use.idle_input_ns == 0


def test_collectives_and_copies_count_where_nothing_else_ran(tmp_path: Path) -> None:
    events = [
        kernel(1, 0, 10),
        kernel(2, 5, 30, "ncclDevKernel_AllReduce", 20),
        kernel(3, 20, 35, "Memcpy HtoD (Pinned -> Device)", 21),
        kernel(4, 25, 28),
    ]
    use = use_of(events, tmp_path / "t.json")
    assert use.busy_ns == 35 * US
    assert use.communication_ns == (15 + 2) * US  # 10 to 25, 28 to 30
    assert use.copies_ns == 5 * US  # 30 to 35
    said = str(opcost.read_profile(tmp_path / "t.json"))
    assert "communication alone" in said
    assert said.index("busy") < said.index("calls")  # above the table


def test_the_first_step_is_told_apart(tmp_path: Path) -> None:
    steps = [
        host("user_annotation", f"ProfilerStep#{n}", 100 * n, 100 * n + length)
        for n, length in enumerate((90, 10, 20, 30))
    ]
    use = use_of([*steps, launch(1, 0), kernel(1, 1, 2)], tmp_path / "t.json")
    assert (use.steps, use.first_step_ns, use.step_ns) == (4, 90 * US, 20 * US)
    assert "4 steps" in str(opcost.read_profile(tmp_path / "t.json"))


@pytest.mark.parametrize(
    ("told", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100-pcie"), ("NVIDIA H200", "h200"), ("NVIDIA H200 NVL", None),
        ("NVIDIA B200", "b200"), ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"), ("NVIDIA A100-PG509-200", None), ("Tesla V100-SXM2-32GB", "v100"),
        ("AMD Instinct MI300X", "mi300x"), ("AMD Instinct MI300X VF", "mi300x"), ("AMD Instinct MI250X", None),
        ("NVIDIA L4", "l4"), ("NVIDIA L40S", "l40s"), ("NVIDIA L40", "l40"), ("Tesla T4", "t4"), ("NVIDIA A10G", None),
        ("NVIDIA GeForce RTX 3090 Ti", None), ("NVIDIA GeForce RTX 4090", "rtx4090"), ("AMD Radeon Graphics", None), ("", None),
    ],
)  # fmt: skip
def test_the_peaks_are_those_of_the_device_that_the_trace_names(tmp_path: Path, told: str, known: str | None) -> None:
    path = tmp_path / "t.json"
    fields = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": told}] * 2}
    path.write_text(json.dumps({**fields, "traceEvents": [kernel(1, 0, 1)]}), encoding="utf-8")
    profile = opcost.read_profile(path)
    assert query(profile).peak.partition(":")[0] == (known or "")
    assert query(profile, device="t4").peak.startswith("t4")
