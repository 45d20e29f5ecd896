from __future__ import annotations

import csv
import gzip
import json
from ast import literal_eval
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.core.profile import Profile
from opcost.traces.kineto.reader import read_table

DATA = Path(__file__).parent.parent / "data" / "traces" / "kineto"
CPU = sorted(path for path in DATA.glob("cpu_*.json.gz") if "key_averages" not in path.name)
CUDA = DATA / "cuda_fwd_stack.json.gz"
GRAPH = DATA / "cuda_cudagraph.json.gz"


def truth(path: Path) -> list[dict]:
    return json.loads(gzip.decompress(path.with_name(path.name.replace(".json", ".key_averages.json")).read_bytes()))


def events(path: Path) -> list[dict]:
    return json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]


def write(path: Path, events: list[dict], **fields: object) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, **fields, "traceEvents": events}), encoding="utf-8")
    return path


def by_name(profile: Profile) -> dict[str, tuple[int, int, int, int]]:
    """Executions, host, host self and device time of each name."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in profile.rows:
        entry = sums[row.type]
        entry[0] += row.count
        entry[1] += row.host_ns
        entry[2] += row.host_self_ns
        entry[3] += row.device_ns or 0
    return {name: tuple(entry) for name, entry in sums.items()}


@pytest.mark.parametrize("path", CPU, ids=lambda path: path.name)
def test_count_total_and_self_time_of_every_operator_are_those_of_the_profiler_itself(path: Path) -> None:
    python = {event["name"] for event in events(path) if event.get("cat") == "python_function"}
    annotations = {event["name"] for event in events(path) if event.get("cat") == "user_annotation"}
    expected: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for entry in truth(path):
        sums = expected[entry["key"]]
        sums[0] += entry["count"]
        sums[1] += round(entry["cpu_time_total_us"] * 1000)
        sums[2] += round(entry["self_cpu_time_total_us"] * 1000)
    found = by_name(opcost.read_profile(path))
    operators = [name for name in expected if name not in python and name not in annotations and name != "[memory]"]
    assert len(operators) > 20
    assert {name: found[name][:3] for name in operators} == {name: tuple(expected[name]) for name in operators}
    assert set(found) == set(operators) | annotations  # and nothing else is a row


def test_self_and_device_time_on_a_gpu_are_those_of_the_profiler_itself() -> None:
    expected: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for entry in truth(CUDA):
        sums = expected[entry["key"]]
        sums[0] += entry["n"]
        sums[1] += round(entry["cpu"] * 1000)
        sums[2] += round(entry["dev"] * 1000)
    found = by_name(opcost.read_profile(CUDA))
    operators = [name for name in found if name.startswith(("aten::", "cuda", "cu"))]
    assert len(operators) > 25
    for name in operators:
        assert (found[name][0], *found[name][2:]) == tuple(expected[name]), name


def test_kernel_time_of_every_operator_is_that_of_tracelens() -> None:
    profile = opcost.read_profile(CUDA)
    found = by_name(profile)
    kernels = Counter(row.type for row in profile.rows for _ in row.kernels)
    with (DATA / "tracelens" / "ops_summary.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        count, _, _, device = found[row["name"]]
        assert count >= int(row["Count"])  # it leaves out executions without a kernel
        # It subtracts starts from ends, floats with steps of half a nanosecond.
        assert abs(device - float(row["total_direct_kernel_time_sum"]) * 1000) <= kernels[row["name"]]


def test_kernel_time_by_arguments_is_that_of_tracelens() -> None:
    sums: dict[tuple, list[int]] = defaultdict(lambda: [0, 0])
    for row in opcost.read_profile(CUDA).rows:
        if row.kernels:
            entry = sums[row.type, tuple(spec.shape for spec in row.ins if spec.shape)]
            entry[0] += 1
            entry[1] += row.device_ns
    with (DATA / "tracelens" / "ops_unique_args.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["name"] == "aten::native_layer_norm"]
    assert rows
    for row in rows:
        shapes = tuple(shape for shape in literal_eval(row["Input Dims"]) if shape)
        count, device = sums[row["name"], shapes]
        assert count == int(row["operation_count"])
        assert abs(device - float(row["total_direct_kernel_time_sum"]) * 1000) <= count  # one kernel each


def test_the_products_of_tracelens_gemm_table_have_its_sizes_and_counts() -> None:
    found: dict[tuple[int, int, int], int] = defaultdict(int)
    for row in opcost.read_profile(CUDA).rows:
        if row.kind == "matmul":
            rows, columns = row.outs[0].dims[-2:]
            found[rows, columns, row.attrs["depth"]] += row.count
    expected: dict[tuple[int, int, int], int] = defaultdict(int)
    with (DATA / "tracelens" / "GEMM.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            expected[int(row["param: M"]), int(row["param: N"]), int(row["param: K"])] += int(row["name_count"])
    assert found == expected


def test_every_piece_of_device_work_is_in_a_row_or_in_unattributed() -> None:
    for path in (CUDA, GRAPH):
        work = [event for event in events(path) if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}]
        profile = opcost.read_profile(path)
        found = [kernel for row in profile.rows for kernel in row.kernels] + list(profile.unattributed)
        assert len(found) == len(work)
        assert sum(kernel.duration_ns for kernel in found) == sum(int(event["dur"] * 1000) for event in work)


def test_kernels_of_a_captured_graph_belong_to_no_operator_and_a_note_says_so() -> None:
    profile = opcost.read_profile(GRAPH)
    assert all(not row.kernels for row in profile.rows)
    assert len(profile.unattributed) == 92
    assert "captured graphs" in next(note.text for note in profile.notes if note.code == "unattributed")


def test_times_are_whole_nanoseconds_on_an_absolute_clock() -> None:
    first = min(
        (event for event in events(CUDA) if event.get("cat") in {"cpu_op", "overhead", "cuda_runtime"}),
        key=lambda event: event["ts"],
    )
    row = opcost.read_profile(CUDA).rows[0]
    base = json.loads(gzip.decompress(CUDA.read_bytes()))["baseTimeNanoseconds"]
    assert row.host_start_ns == base + int(first["ts"] * 1000)
    assert type(row.host_start_ns) is int


@pytest.mark.parametrize(
    ("ts", "nanoseconds"),
    [
        ("1700000000000000.123", 1700000000000000123),  # a float has steps of 250 ns here
        ("1621401187223005", 1621401187223005000),
        ("3851465222590.674", 3851465222590674),
        ("8796093022207.999", 8796093022207999),
        ("8796093022208.001", 8796093022208001),
        ("4398046511104.001", 4398046511104001),  # 2**42: above, a float times 1000 is a whole number and no half
        ("4503599627370.493", 4503599627370493),
        ("4450000000000.499", 4450000000000499),
    ],
)
def test_decimals_of_a_timestamp_are_never_lost(tmp_path: Path, ts: str, nanoseconds: int) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, '
        f'"ts": {ts}, "dur": 0.001}}]}}',
        encoding="utf-8",
    )
    (row,) = opcost.read_profile(path).rows
    assert (row.host_start_ns, row.host_ns) == (nanoseconds, 1)


def op(name: str, ts: float, dur: float, **fields: object) -> dict:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, **fields}


def launch(ts: float, correlation: int, name: str = "cudaLaunchKernel") -> dict:
    return op(name, ts, 1, cat="cuda_runtime", args={"correlation": correlation})


def kernel(ts: float, dur: float, correlation: int, **args: object) -> dict:
    return op(
        "k", ts, dur, cat="kernel", pid=0, tid=7, args={"device": 0, "stream": 7, "correlation": correlation, **args}
    )


def test_an_external_id_that_names_another_operator_is_not_believed(tmp_path: Path) -> None:
    # As in the traces of 2021, where the field repeats the correlation.
    trace = [
        op("aten::empty", 0, 5, args={"External id": 9}),
        op("aten::addmm", 10, 20, args={"External id": 3}),
        launch(15, 9),
        kernel(40, 7, 9, **{"External id": 9}),
    ]
    profile = opcost.read_profile(write(tmp_path / "t.json", trace))
    owner = next(row for row in profile.rows if row.kernels)
    assert (owner.type, owner.device_ns) == ("aten::addmm", 7000)
    assert any(note.code == "external-id" for note in profile.notes)


def test_a_launch_outside_the_window_and_one_outside_any_operator_are_unattributed(tmp_path: Path) -> None:
    trace = [op("aten::add", 0, 5), launch(8, 2), kernel(10, 3, 1), kernel(20, 4, 2)]
    profile = opcost.read_profile(write(tmp_path / "t.json", trace))
    assert [kernel.duration_ns for kernel in profile.unattributed] == [3000, 4000]
    texts = " ".join(note.text for note in profile.notes)
    assert "1 launched before or after the trace, 1 launched outside any operator" in texts
    assert "outside any operator" in texts


@pytest.mark.parametrize("strange", [{"ph": "Z"}, {"cat": "new_thing"}, {"cat": None}, {"ph": None}], ids=str)
def test_an_unknown_event_changes_no_other(tmp_path: Path, strange: dict) -> None:
    trace = [op("aten::addmm", 0, 20, args={"External id": 3}), launch(1, 1), kernel(30, 2, 1)]
    other = {key: value for key, value in {**op("x", 3, 1, tid=2), **strange}.items() if value is not None}
    expected = by_name(opcost.read_profile(write(tmp_path / "a.json", trace)))
    found = by_name(opcost.read_profile(write(tmp_path / "b.json", [other, *trace, other])))
    found.pop("x", None)
    assert found == expected


def test_kernels_of_several_devices_in_one_file_stay_apart(tmp_path: Path) -> None:
    trace = []
    for device in range(3):
        trace += [
            op("aten::mm", device * 10, 5),
            launch(device * 10 + 1, device),
            kernel(device * 10 + 4, device + 1, device, device=device),
        ]
    path = write(tmp_path / "t.json", trace)
    rows = [row for row in opcost.read_profile(path).rows if row.kernels]
    assert [(row.device, row.device_ns) for row in rows] == [(f"gpu:{n}", (n + 1) * 1000) for n in range(3)]
    for profile in (opcost.read_profile(path), read_table(path).profile):
        lines = opcost.query(profile, aggregate_by=("device",), sort="+time").rows
        assert [(line.labels["device"], line.time_ns) for line in lines] == [
            (f"gpu:{n}", (n + 1) * 1000) for n in range(3)
        ]
        assert [use.busy_ns for use in opcost.query(profile).devices] == [1000, 2000, 3000]


def test_an_operator_that_launches_twice_is_one_execution(tmp_path: Path) -> None:
    trace = [op("aten::addmm", 0, 20), launch(1, 1), launch(5, 2), kernel(30, 2, 1), kernel(40, 3, 2)]
    (row,) = (row for row in opcost.read_profile(write(tmp_path / "t.json", trace)).rows if row.provider == "cpu_op")
    assert (row.count, row.device_ns, len(row.kernels)) == (1, 5000, 2)


def test_categories_of_2021_are_known(tmp_path: Path) -> None:
    trace = [
        op(
            "aten::mm",
            0,
            9,
            cat="Operator",
            tid="1",
            args={"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]},
        ),
        op("cudaLaunchKernel", 1, 1, cat="Runtime", tid="1", args={"correlation": 5}),
        op("gemm", 20, 6, cat="Kernel", pid=0, tid="stream 7", args={"correlation": 5, "stream": 7, "device": 0}),
    ]
    row = opcost.read_profile(write(tmp_path / "t.json", trace)).rows[0]
    assert (row.kind, row.device_ns, row.device) == ("matmul", 6000, "gpu:0")
    assert row.outs[0].shape == (2, 4)
    assert row.attrs == {"depth": 3}


def test_the_order_of_events_in_the_file_does_not_matter(tmp_path: Path) -> None:
    trace = json.loads(gzip.decompress(CUDA.read_bytes()))["traceEvents"]
    straight = opcost.read_profile(write(tmp_path / "a.json", trace))
    turned = opcost.read_profile(write(tmp_path / "b.json", trace[::-1]))
    assert by_name(turned) == by_name(straight)


@pytest.mark.parametrize("layout", [{}, {"indent": 2}, {"separators": (",", ":")}], ids=["plain", "indented", "dense"])
@pytest.mark.parametrize("first", [True, False], ids=["events first", "events last"])
def test_a_file_written_again_by_another_program_reads_the_same(tmp_path: Path, layout: Any, first: bool) -> None:
    content = json.loads(gzip.decompress(CUDA.read_bytes()))
    trace = content.pop("traceEvents")
    content["metadata"] = {"list": [{"a": 1}, {"b": 2}], "text": '}, {"traceEvents'}
    ordered = {"traceEvents": trace, **content} if first else {**content, "traceEvents": trace}
    path = tmp_path / "again.json"
    path.write_text(json.dumps(ordered, **layout), encoding="utf-8")
    assert opcost.read_profile(path).rows == opcost.read_profile(CUDA).rows


def test_a_trace_longer_than_a_block_is_read_across_its_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opcost.traces.kineto import stream as kineto_stream

    expected = opcost.read_profile(CUDA).rows
    plain = tmp_path / "plain.json"
    plain.write_bytes(gzip.decompress(CUDA.read_bytes()))
    for size in (5000, 20011, 1 << 17):
        monkeypatch.setattr(kineto_stream, "BLOCK_BYTES", size)
        assert opcost.read_profile(CUDA).rows == expected
        assert opcost.read_profile(plain).rows == expected


def test_modules_and_steps_are_those_around_an_operator(tmp_path: Path) -> None:
    trace = [
        op("ProfilerStep#7", 0, 100, cat="user_annotation"),
        op("nn.Module: Net_0", 5, 60, cat="python_function"),
        op("nn.Module: Linear_1", 10, 30, cat="python_function"),
        op("aten::addmm", 12, 8),
        op("aten::add", 50, 5),
        op("aten::mul", 80, 5),
    ]
    rows = {row.type: row for row in opcost.read_profile(write(tmp_path / "t.json", trace)).rows}
    assert rows["aten::addmm"].module == "Net_0.Linear_1"
    assert rows["aten::add"].module == "Net_0"
    assert rows["aten::mul"].module == ""
    assert {row.step for row in rows.values()} == {7}


def test_a_backward_operator_belongs_to_the_module_of_its_forward_operator(tmp_path: Path) -> None:
    trace = [
        op("nn.Module: Linear_0", 0, 30, cat="python_function"),
        op("aten::addmm", 5, 10, args={"Sequence number": 4, "Fwd thread id": 0}),
        op(
            "autograd::engine::evaluate_function: AddmmBackward0", 50, 20, tid=2,
            args={"Sequence number": 4, "Fwd thread id": 1},
        ),
        op("aten::mm", 55, 5, tid=2),
        op("Optimizer.step#SGD.step", 80, 10, cat="user_annotation"),
        op("aten::add_", 82, 3),
    ]  # fmt: skip
    rows = {row.type: row for row in opcost.read_profile(write(tmp_path / "t.json", trace)).rows}
    assert (rows["aten::mm"].module, rows["aten::mm"].phase) == ("Linear_0", "backward")
    assert (rows["aten::add_"].module, rows["aten::add_"].phase) == ("", "update")


def test_most_of_a_real_backward_pass_finds_its_module() -> None:
    rows = opcost.read_profile(DATA / "cpu_resnet18_fwdbwd_stack.json.gz").rows
    heavy = [row for row in rows if row.phase == "backward" and row.kind == "conv"]
    assert len(heavy) == 40  # two passes through twenty convolutions
    assert all("Conv2d" in row.module for row in heavy)


def test_only_the_innermost_operator_bears_the_work(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[2, 3], [4, 3], [4]], "Input type": ["float"] * 3}
    inner = {"Input Dims": [[4], [2, 3], [3, 4]], "Input type": ["float"] * 3}
    copied = {"Input Dims": [[2, 4], [4]], "Input type": ["float"] * 2}
    trace = [
        op("aten::linear", 0, 20, args=shapes),
        op("aten::addmm", 2, 15, args=inner),
        op("aten::copy_", 4, 2, args=copied),
    ]
    rows = opcost.read_profile(write(tmp_path / "t.json", trace)).rows
    assert [row.kind for row in rows] == ["", "matmul", "copy"]


def test_convolutions_have_the_outputs_that_their_arguments_give() -> None:
    rows = opcost.read_profile(DATA / "cpu_resnet18_fwdbwd_stack.json.gz").rows
    forward = [row for row in rows if row.kind == "conv" and row.phase == "forward"]
    assert len(forward) == 40
    first = forward[0]
    batch = first.ins[0].dims[0]
    assert first.ins[0].dims[1:] == (3, 224, 224)
    assert first.outs[0].dims == (batch, 64, 112, 112)
    last = forward[-1]
    assert last.outs[0].dims == (batch, 512, 7, 7)


def test_a_number_beyond_63_bits_is_read_over(tmp_path: Path) -> None:
    args = {"correlation": 2**64 + 5, "Comms Id": 2**70, "External id": 2**63}
    trace = [op("aten::add", 0, 5, pid=2**64 - 1, args={"External id": 2**63}), op("k", 9, 1, cat="kernel", args=args)]
    profile = opcost.read_profile(write(tmp_path / "t.json", trace))
    assert len(profile.rows) == 1
    assert len(profile.unattributed) == 1
