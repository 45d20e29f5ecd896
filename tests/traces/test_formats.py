"""Formats other than Kineto, each against the sums of its own tool."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.errors import SourceError

DATA = Path(__file__).parent.parent / "data" / "traces"
ONNX = sorted((DATA / "onnxruntime").glob("*.json.gz"))


def load(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize("path", ONNX, ids=lambda path: path.name)
def test_onnx_runtime_sums_are_those_of_the_session(path: Path) -> None:
    events = load(path)
    nodes = [event for event in events if event["cat"] == "Node" and event["name"].endswith("_kernel_time")]
    runs = [event for event in events if event["name"] == "model_run"]
    profile = opcost.read_profile(path)
    assert len(profile.rows) == len(nodes)
    assert sum(row.host_ns for row in profile.rows) == 1000 * sum(event["dur"] for event in nodes)
    assert profile.wall_ns == 1000 * sum(event["dur"] for event in runs)
    assert {row.step for row in profile.rows} == set(range(len(runs)))
    for number, run in enumerate(runs):
        spent = sum(row.host_ns for row in profile.rows if row.step == number)
        assert 0.8 * run["dur"] * 1000 < spent <= run["dur"] * 1000


def test_onnx_runtime_rows_have_names_types_shapes_and_modules() -> None:
    rows = opcost.read_profile(DATA / "onnxruntime" / "resnet_noopt_seq.json.gz").rows
    row = next(row for row in rows if row.name == "/layer1/layer1.0/conv1/Conv")
    assert (row.type, row.kind, row.module, row.provider) == ("Conv", "conv", "layer1.0.conv1", "CPUExecutionProvider")
    assert row.ins[0].shape == (1, 64, 56, 56)
    assert row.ins[1].shape == (64, 64, 3, 3)
    assert row.outs[0].shape == (1, 64, 56, 56)
    assert {spec.dtype for spec in row.ins + row.outs} == {"float32"}


def test_fences_of_old_versions_are_no_operators() -> None:
    path = DATA / "onnxruntime" / "resnet_opt_seq_ort1.15.1.json.gz"
    assert any(event["name"].endswith("_fence_before") for event in load(path))
    assert not any("fence" in row.name for row in opcost.read_profile(path).rows)


def test_onnx_runtime_kernels_belong_to_their_node(tmp_path: Path) -> None:
    events = [
        {"cat": "Session", "name": "model_run", "ts": 0, "dur": 90, "args": {}},
        {"cat": "Node", "name": "a_kernel_time", "ts": 1, "dur": 5, "args": {"op_name": "MatMul", "provider": "CUDA"}},
        {"cat": "Kernel", "name": "gemm", "ts": 20, "dur": 7, "args": {"parent_name": "a_kernel_time", "stream": "7"}},
        {"cat": "Kernel", "name": "lost", "ts": 30, "dur": 2, "args": {"parent_name": "missing"}},
    ]
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    profile = opcost.read_profile(path)
    (row,) = profile.rows
    assert (row.host_ns, row.device_ns, row.kernels[0].name) == (5000, 7000, "gemm")
    assert [kernel.name for kernel in profile.unattributed] == ["lost"]


@pytest.mark.parametrize("net", ["hybrid", "imperative"])
def test_mxnet_sums_are_those_of_its_aggregate_table(net: str) -> None:
    table = json.loads((DATA / "mxnet" / f"resnet18_{net}.aggregate.json").read_text("utf-8"), parse_float=Decimal)
    sums: dict[str, list[int]] = defaultdict(list)
    for row in opcost.read_profile(DATA / "mxnet" / f"resnet18_{net}.json.gz").rows:
        sums[row.type].append(row.host_ns)
        assert row.device == "cpu/0"
    assert set(sums) == set(table["Time"]["operator"])
    for name, entry in table["Time"]["operator"].items():
        found = sums[name]
        assert len(found) == entry["Count"]
        for value, key in ((sum(found), "Total"), (min(found), "Min"), (max(found), "Max")):
            # MXNet prints four significant digits.
            written = Decimal(entry[key])
            digit = Decimal(1).scaleb(written.adjusted() - 3) if written else Decimal("0.001")
            assert abs(Decimal(value) / 1_000_000 - written) <= digit, (name, key)


def test_mxnet_aggregate_table_is_a_profile_too() -> None:
    profile = opcost.read_profile(DATA / "mxnet" / "resnet18_hybrid.aggregate.json")
    (row,) = (row for row in profile.rows if row.type == "Convolution")
    assert (row.count, row.host_ns, row.provider) == (40, 124_000_000, "operator")


def test_mxnet_aggregate_as_text_has_the_sums_of_the_trace() -> None:
    table = opcost.read_profile(DATA / "mxnet" / "resnet18_hybrid.aggregate.txt")
    sums: dict[str, list[int]] = defaultdict(list)
    for row in opcost.read_profile(DATA / "mxnet" / "resnet18_hybrid.json.gz").rows:
        sums[row.type].append(row.host_ns)
    # The calls of the library wait for the operators: as rows they would count that time twice.
    assert {row.type: (row.count, row.host_ns) for row in table.rows} == {
        name: (len(times), sum(times)) for name, times in sums.items()
    }


def test_openvino_summary_without_layers_is_refused() -> None:
    with pytest.raises(SourceError, match="without layers") as caught:
        opcost.read_profile(DATA / "openvino" / "benchmark_report.csv")
    assert "average_counters" in caught.value.hint


def test_openvino_csv_is_read_line_by_line() -> None:
    path = DATA / "openvino" / "benchmark_average_counters_report.csv"
    with path.open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file, delimiter=";") if line["execType"]]
    rows = opcost.read_profile(path).rows
    assert [row.name for row in rows] == [line["layerName"] for line in lines]
    ran = [line for line in lines if line["execStatus"] == "Status.EXECUTED"]
    assert sum(row.host_ns or 0 for row in rows) == sum(int(Decimal(line["realTime (ms)"]) * 10**6) for line in ran)
    assert sum(row.count for row in rows) == len(ran)
    assert all(row.host_ns is None for row in rows if row.attrs["status"] == "NOT_RUN")


def test_openvino_printed_counters_are_those_of_the_report_of_the_same_run() -> None:
    printed = opcost.read_profile(DATA / "openvino" / "ov_stdout_pc.txt")
    report = opcost.read_profile(DATA / "openvino" / "benchmark_average_counters_report.csv")
    assert [(row.type, row.provider, row.host_ns, row.count) for row in printed.rows] == [
        (row.type, row.provider, row.host_ns, row.count) for row in report.rows
    ]
    for row, whole in zip(printed.rows, report.rows, strict=True):
        assert whole.name.startswith(row.name.removesuffix("..."))
    assert [note.code for note in printed.notes] == ["incomplete"]


def test_openvino_detailed_json_is_the_sum_it_states() -> None:
    path = DATA / "openvino" / "ov_resnet_detailed_counters_benchmark_detailed_counters_report.json"
    stated = json.loads(path.read_text("utf-8"))["detailed_performance"]
    rows = opcost.read_profile(path).rows
    assert len(rows) == sum(len(request["nodes"]) for request in stated)
    for number, request in enumerate(stated):
        spent = sum(row.host_ns or 0 for row in rows if row.step == number)
        assert abs(spent - Decimal(request["total_real_time"]) * 10**6) <= 1000


def test_openvino_average_json_says_that_it_is_incomplete() -> None:
    path = DATA / "openvino" / "ov_resnet_average_counters_benchmark_average_counters_report.json"
    profile = opcost.read_profile(path)
    assert [note.code for note in profile.notes] == ["incomplete"]


TENSORRT = """[
  { "count" : 10 }
, { "name" : "conv1.weight + Conv_0 + Relu_1", "timeMs" : 1.2345, "averageMs" : 0.12345, "medianMs" : 0.123, "percentage" : 60 }
, { "name" : "Reformatting CopyNode for Input Tensor 0 to fc", "timeMs" : 0.8, "averageMs" : 0.08, "percentage" : 40 }
]"""


def test_tensorrt_layers_stand_for_all_iterations(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(TENSORRT, encoding="utf-8")
    first, second = opcost.read_profile(path).rows
    assert (first.name, first.device_ns, first.count) == ("conv1.weight + Conv_0 + Relu_1", 1_234_500, 10)
    assert second.device_ns == 800_000
    path.write_text(TENSORRT.replace('"timeMs" : 0.8, ', "").replace('"averageMs" : 0.08, ', ""), encoding="utf-8")
    with pytest.raises(SourceError, match="TensorRT"):
        opcost.read_profile(path)


def test_tensorrt_times_are_the_stages_of_every_iteration(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    stages = {"In": 0.25, "Compute": 1.5, "Out": 0.125}
    iterations = []
    for number in range(3):
        entry = {"startEnqMs": number * 4.0, "endEnqMs": number * 4.0 + 0.5, "latencyMs": sum(stages.values())}
        begin = number * 4.0 + 1
        for name, spent in stages.items():
            entry |= {f"start{name}Ms": begin, f"end{name}Ms": begin + spent, f"{name[0].lower()}{name[1:]}Ms": spent}
            begin += spent
        iterations.append(entry)
    path.write_text(json.dumps(iterations, indent=1), encoding="utf-8")
    profile = opcost.read_profile(path)
    assert len(profile.rows) == 9
    assert {row.step for row in profile.rows} == {0, 1, 2}
    assert sum(row.device_ns for row in profile.rows) == 3 * 1_875_000
    assert sum(row.host_ns for row in profile.rows) == 3 * 500_000
    assert profile.wall_ns == 8_000_000 + 1_875_000
    path.write_text(json.dumps(iterations)[:-30], encoding="utf-8")
    with pytest.raises(SourceError, match=r"times\.json"):
        opcost.read_profile(path)
    assert len(opcost.read_profile(path, partial=True).rows) == 6


def test_content_decides_whatever_a_file_is_called(tmp_path: Path) -> None:
    for number, source in enumerate([*ONNX, DATA / "mxnet" / "resnet18_hybrid.json.gz"]):
        for packed in (False, True):
            content = source.read_bytes() if packed else gzip.decompress(source.read_bytes())
            path = tmp_path / f"{number}.{'txt' if packed else 'gz'}"
            path.write_bytes(content)
            assert opcost.read_profile(path).rows == opcost.read_profile(source).rows
