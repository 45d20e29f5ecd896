"""Files of AMD's profilers, written here by their documented form: no AMD device was at hand to record any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.errors import SourceError

FIRST = 10**15
"""When it began, in nanoseconds: a clock that a float would round."""
GPU, HOST = {"handle": 77}, {"handle": 5}
WORDS = [
    {"kind": "NONE", "operations": []},
    {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel", "hipMemcpyAsync"]},
    {"kind": "MARKER_CORE_API", "operations": ["roctxMarkA", "roctxThreadRangeA"]},
    {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
    {"kind": "HSA_CORE_API", "operations": ["hsa_queue_create"]},
]


def record(kind: int, operation: int, start: int, end: int, number: int, **more: Any) -> dict[str, Any]:
    times = {"start_timestamp": FIRST + start, "end_timestamp": FIRST + end}
    ties = {"correlation_id": {"internal": number, "external": 0}}
    return {"kind": kind, "operation": operation, "thread_id": 9, **times, **ties, **more}


def document(**records: list[dict[str, Any]]) -> dict[str, Any]:
    run = {
        "metadata": {"pid": 41},
        "agents": [
            {"id": HOST, "type": 1, "name": "EPYC"},
            {"id": GPU, "type": 2, "name": "gfx942", "product_name": "AMD Instinct MI300X"},
        ],
        "strings": {"buffer_records": WORDS, "marker_api": [{"key": 1, "value": "layer 0"}]},
        "kernel_symbols": [{"kernel_id": 3, "formatted_kernel_name": "gemm(float*)", "kernel_name": "_Z4gemmPf.kd"}],
        "buffer_records": records,
    }
    return {"rocprofiler-sdk-tool": [run]}


DISPATCH = {"kernel_id": 3, "agent_id": GPU, "queue_id": {"handle": 2}}


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_rocprofv3_kernels_belong_to_the_range_in_which_they_were_launched(tmp_path: Path) -> None:
    copy = record(3, 1, 40, 55, 3, bytes=4096, dst_agent_id=GPU, src_agent_id=HOST)
    path = write(
        tmp_path / "results.json",
        document(
            marker_api=[record(2, 1, 0, 100, 1), record(2, 0, 5, 5, 9)],
            hip_api=[record(1, 0, 10, 20, 2), record(1, 1, 30, 35, 3), record(1, 0, 200, 210, 4)],
            kernel_dispatch=[
                record(0, 0, 60, 90, 2, dispatch_info=DISPATCH),
                record(0, 0, 220, 225, 4, dispatch_info=DISPATCH),
            ],
            memory_copy=[copy],
        ),
    )
    profile = opcost.read_profile(path)
    assert profile.meta["device"] == "AMD Instinct MI300X"
    (owner,) = [row for row in profile.rows if row.kernels]
    assert (owner.type, owner.provider, owner.host_start_ns, owner.host_ns) == ("layer 0", "roctx", FIRST, 100)
    assert [
        (kernel.name, kernel.device, kernel.stream, kernel.duration_ns, kernel.launched_ns) for kernel in owner.kernels
    ] == [
        ("Memcpy HtoD", "gpu:0", "0", 15, FIRST + 30),
        ("gemm(float*)", "gpu:0", "2", 30, FIRST + 10),
    ]
    assert [(kernel.name, kernel.start_ns) for kernel in profile.unattributed] == [("gemm(float*)", FIRST + 220)]
    assert {row.type for row in profile.rows if row.provider == "runtime"} == {"hipLaunchKernel", "hipMemcpyAsync"}
    assert [(copy["name"], copy["bytes"], copy["time_ns"]) for copy in profile.extra["copies"]] == [
        ("Memcpy HtoD", 4096, 15)
    ]


def test_a_call_of_hsa_in_one_of_hip_is_the_latter(tmp_path: Path) -> None:
    low = record(4, 0, 12, 18, 8)
    low["correlation_id"]["ancestor"] = 2
    path = write(
        tmp_path / "results.json",
        document(
            marker_api=[record(2, 1, 0, 100, 1)],
            hip_api=[record(1, 0, 10, 20, 2)],
            hsa_api=[low],
            kernel_dispatch=[record(0, 0, 60, 90, 8, dispatch_info=DISPATCH)],
        ),
    )
    profile = opcost.read_profile(path)
    assert [row.type for row in profile.rows if row.kernels] == ["layer 0"]
    assert sum(row.provider == "runtime" for row in profile.rows) == 1  # its time is not counted twice


def chart(*events: dict[str, Any]) -> dict[str, Any]:
    labels = {0: "Markers and Ranges", 1: "COPY", 2: "CPU HIP API", 3: "CPU HSA API", 6: "GPU0"}
    named = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in labels.items()]
    return {"traceEvents": [*named, *events]}


def drawn(name: str, pid: int, start: int, end: int, **args: str) -> dict[str, Any]:
    times = {"BeginNs": str(FIRST + start), "EndNs": str(FIRST + end), "DurationNs": str(end - start)}
    place = {"pid": pid, "tid": 9 if pid in (0, 2, 3) else 0}
    return {
        "ph": "X",
        "name": name,
        "ts": start // 1000,
        "dur": (end - start) // 1000,
        **place,
        "args": {**times, **args},
    }


def arrow(number: int, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "ph": phase,
            "cat": "DataFlow",
            "name": "dep",
            "id": number,
            **{key: event[key] for key in ("pid", "tid", "ts")},
        }
        for phase, event in (("s", start), ("t", end))
    ]


def test_the_chrome_trace_of_rocprof_is_tied_by_its_arrows(tmp_path: Path) -> None:
    outer, call = drawn("layer 0", 0, 0, 100_500), drawn("hipLaunchKernel", 2, 10_001, 20_002)
    low = drawn("hsa_signal_create", 3, 12_000, 13_000)
    kernel = drawn("gemm.kd", 6, 60_003, 90_007, **{"dev-id": "0", "queue-id": "4"})
    copy = drawn("CopyHostToDevice", 1, 30_000, 32_000)
    path = write(tmp_path / "results.json", chart(outer, call, low, kernel, copy, *arrow(1, call, kernel)))
    profile = opcost.read_profile(path)
    (owner,) = [row for row in profile.rows if row.kernels]
    assert (owner.type, owner.host_ns) == (
        "layer 0",
        100_500,
    )  # from nanoseconds, not from the microseconds beside them
    (launched,) = owner.kernels
    assert launched[:6] == ("gemm.kd", "gpu:0", "4", FIRST + 60_003, 30_004, FIRST + 10_001)
    assert [(work.name, work.why) for work in profile.unattributed] == [("Memcpy HtoD", "outside")]
    assert "hsa_signal_create" not in {row.type for row in profile.rows}


def test_a_file_without_work_or_of_another_form_says_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no call and no device work"):
        opcost.read_profile(write(tmp_path / "a.json", document()))
    with pytest.raises(SourceError, match="no record of a run"):
        opcost.read_profile(write(tmp_path / "b.json", {"rocprofiler-sdk-tool": 3}))
    late = record(0, 0, 0, 0, 2, dispatch_info=DISPATCH) | {"end_timestamp": "soon"}
    with pytest.raises(SourceError, match="none of its 1 events has a beginning and an end"):
        opcost.read_profile(write(tmp_path / "c.json", document(kernel_dispatch=[late])))
