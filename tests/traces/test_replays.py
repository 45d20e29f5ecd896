"""Kernels of captured graphs and the operators that launched them during the capture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.analysis.query import query
from opcost.errors import OpcostError, SourceError

SHAPES = {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
FLOPS = 2 * 2 * 3 * 4


def host(category: str, name: str, start: int, end: int, **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args}


def call(name: str, start: int, correlation: int, **args: object) -> dict[str, Any]:
    return host("cuda_runtime", name, start, start + 1, correlation=correlation, **args)


def kernel(name: str, start: int, correlation: int, duration: int = 5, category: str = "kernel") -> dict[str, Any]:
    args = {"device": 0, "stream": 7, "correlation": correlation}
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": start, "dur": duration, "args": args}


def captured(*launches: tuple[str, str, str], at: int = 0, first: int = 100) -> list[dict[str, Any]]:
    """A capture in which operators (name, call, kernel or nothing) launch one kernel each."""
    events = [call("cudaStreamBeginCapture", at, first - 1)]
    for number, (operator, launch, name) in enumerate(launches):
        start = at + 10 + 10 * number
        args = {"kernel": name} if name else {}
        events += [
            host("cpu_op", operator, start, start + 8, **SHAPES),
            call(launch, start + 2, first + number, **args),
        ]
    return [*events, call("cudaStreamEndCapture", at + 20 + 10 * len(launches), first - 2)]


def written(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}), encoding="utf-8")
    return path


def replay(*names: str, at: int = 1000, correlation: int = 7) -> list[dict[str, Any]]:
    return [
        call("cudaGraphLaunch", at, correlation),
        *(kernel(name, at + 10 + 10 * place, correlation) for place, name in enumerate(names)),
    ]


ROCM = (
    ("aten::mm", "hipLaunchKernel", "gemm"),
    ("aten::relu", "hipLaunchKernel", "clamp"),
    ("aten::mm", "hipLaunchKernel", "gemm"),
)
CUDA = tuple((operator, "cudaLaunchKernel", "") for operator, _, _ in ROCM)


def owners(profile: opcost.Profile) -> list[tuple[str, int]]:
    return [(row.type, len(row.kernels)) for row in profile.rows if row.kernels]


def test_every_replay_is_an_execution_of_the_captured_operators_with_their_cost(tmp_path: Path) -> None:
    events = [
        *captured(*ROCM),
        *replay("gemm", "clamp", "gemm"),
        *replay("gemm", "clamp", "gemm", at=2000, correlation=8),
    ]
    found = opcost.read_profile(written(tmp_path / "t.json", *events))
    assert owners(found) == [("aten::mm", 1), ("aten::relu", 1), ("aten::mm", 1)] * 2
    assert not found.unattributed
    line = next(line for line in query(found, aggregate_by="type").rows if line.labels["type"] == "aten::mm")
    assert (line.count, line.time_ns, line.computation) == (4, 20_000, 4 * FLOPS)
    assert any("6 of 6 kernels of captured graphs" in note.text for note in found.notes)
    # The host ran the operators once, in the capture.
    host_line = next(
        line for line in query(found, aggregate_by="type", side="host").rows if line.labels["type"] == "aten::mm"
    )
    assert host_line.count == 2


def test_the_capture_may_stand_in_another_trace(tmp_path: Path) -> None:
    capture = written(tmp_path / "capture.json", *captured(*ROCM))
    trace = written(tmp_path / "t.json", *replay("gemm", "clamp", "gemm"))
    assert len(opcost.read_profile(trace).unattributed) == 3
    found = opcost.read_profile(trace, capture=capture)
    assert owners(found) == [("aten::mm", 1), ("aten::relu", 1), ("aten::mm", 1)]
    assert any("the capture in capture.json" in note.text for note in found.notes)
    with pytest.raises(SourceError, match="no graph is captured"):
        opcost.read_profile(capture, capture=trace)


def test_what_the_runtime_left_out_of_a_graph_may_be_missing_but_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    found = opcost.read_profile(written(path, *captured(*ROCM), *replay("gemm", "gemm")))
    assert owners(found) == [("aten::mm", 1), ("aten::mm", 1)]
    other = opcost.read_profile(written(path, *captured(*ROCM), *replay("gemm", "other", "gemm")))
    assert owners(other) == []
    assert {each.why for each in other.unattributed} == {"graph"}


def test_without_names_the_number_of_launches_and_the_copies_decide(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    copying = (*CUDA[:1], ("aten::copy_", "cudaMemcpyAsync", ""), *CUDA[2:])
    fits = opcost.read_profile(written(path, *captured(*copying), *replay("a", "Memcpy DtoD (Device -> Device)", "b")))
    assert [name for name, _ in owners(fits)] == ["aten::mm", "aten::copy_", "aten::mm"]
    assert owners(opcost.read_profile(written(path, *captured(*copying), *replay("a", "b", "c")))) == []
    assert owners(opcost.read_profile(written(path, *captured(*CUDA), *replay("a", "b")))) == []


def test_graphs_of_equal_layers_are_replayed_in_the_order_of_their_captures(tmp_path: Path) -> None:
    events = []
    for layer in range(2):
        begin = 100 * layer
        events += [
            {**host("python_function", f"nn.Module: Block_{layer}", begin, begin + 60), "args": {"Python id": layer}},
            *captured(ROCM[0], at=begin, first=200 + 10 * layer),
        ]
    for number in range(4):
        events += replay("gemm", at=1000 + 100 * number, correlation=10 + number)
    found = opcost.read_profile(written(tmp_path / "t.json", *events))
    assert [row.module for row in found.rows if row.kernels] == ["Block_0", "Block_1", "Block_0", "Block_1"]


def test_launches_that_ran_something_are_not_of_the_capture(tmp_path: Path) -> None:
    # Between the beginning and the end of a capture another stream may launch, and its kernel runs at once.
    events = captured(*ROCM[:2])
    found = opcost.read_profile(written(tmp_path / "t.json", *events, kernel("gemm", 20, 100), *replay("clamp")))
    assert sorted(owners(found)) == [("aten::mm", 1), ("aten::relu", 1)]


def test_the_command_takes_a_capture(tmp_path: Path, opcost_command: Any) -> None:
    capture = written(tmp_path / "capture.json", *captured(*ROCM))
    trace = written(tmp_path / "t.json", *replay("gemm", "clamp", "gemm"))
    done = opcost_command("analyze", trace, "--capture", capture)
    assert done.code == 0
    assert "aten::relu" in done.out
    several = opcost_command("analyze", trace, capture, "--capture", capture)
    assert (several.code, "--capture is for one trace" in several.err) == (2, True)


def test_a_format_without_captures_says_so(tmp_path: Path) -> None:
    profile = tmp_path / "p.json"
    opcost.read_profile(written(tmp_path / "t.json", *replay("a"))).save(profile)
    with pytest.raises(OpcostError, match="have no captures"):
        opcost.read_profile(profile, capture=tmp_path / "t.json")
