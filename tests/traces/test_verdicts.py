"""What a trace must not be taken for: other processes' launches, other clocks, the host's time, another unit's peak."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.core.devices import Device

US = 1000
FIELDS = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
MM = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"]}
FLOPS = 2 * 64 * 32 * 16


def event(
    category: str, name: str, place: tuple[object, object], start: float, end: float, **args: object
) -> dict[str, Any]:
    pid, tid = place
    found = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": end - start}
    return {**found, "args": args}


def kernel(number: int, start: float, end: float, device: int = 0) -> dict[str, Any]:
    return event("kernel", "gemm", (device, 7), start, end, device=device, stream=7, correlation=number)


def launch(number: int, start: float, pid: int = 1) -> dict[str, Any]:
    return event("cuda_runtime", "cudaLaunchKernel", (pid, pid), start, start + 1, correlation=number)


def product(number: int, start: float, pid: int = 1) -> list[dict[str, Any]]:
    """An operator of 10 µs that launches one kernel."""
    return [event("cpu_op", "aten::mm", (pid, pid), start, start + 10, **MM), launch(number, start + 1, pid)]


def read(path: Path, events: list[dict[str, Any]], **fields: object) -> opcost.Profile:
    path.write_text(json.dumps({**FIELDS, **fields, "traceEvents": events}), encoding="utf-8")
    return opcost.read_profile(path)


@pytest.mark.parametrize("devices", [(0, 1), (0, 0)])
@pytest.mark.parametrize("lag", [3, 300])
def test_each_process_launches_its_own_work(tmp_path: Path, devices: tuple[int, int], lag: int) -> None:
    # Two processes launch the same three correlations, the second one a little later, or when the first has ended.
    events = []
    for process, device in enumerate(devices):
        for number in range(3):
            start = 100 * number + lag * process
            events += product(number, start, pid=10 + process)
            events.append(kernel(number, start + 20, start + 22 + process, device))
        events.append(event("user_annotation", "ProfilerStep#1", (10 + process, 1), lag * process, lag * process + 299))
    profile = read(tmp_path / "t.json", events)
    (line,) = profile.query(aggregate_by="type").rows
    assert (line.count, line.computation, line.time_ns) == (6, 6 * FLOPS, 3 * (2 + 3) * US)
    by_thread = {row.kernels[0].duration_ns for row in profile.rows if row.kernels and row.host_start_ns == lag * US}
    assert by_thread == {3 * US}  # the second process' operators have the second process' kernels
    assert all(note.code != "unattributed" for note in profile.notes)
    assert {use.steps for use in profile.query().devices} == ({1} if lag < 299 else {2})


def test_the_host_uses_nothing_of_a_device_s_peak(tmp_path: Path) -> None:
    (line,) = read(tmp_path / "t.json", product(1, 0)[:1]).query().rows
    assert line.computation == FLOPS
    assert (line.of_peak_flops, line.of_peak_bandwidth) == (None, None)
    assert not read(tmp_path / "t.json", product(1, 0)[:1]).query().peak


@pytest.mark.parametrize("apart", [-5_000_000, 5_000_000])
def test_clocks_that_differ_give_no_causes(tmp_path: Path, apart: int) -> None:
    events = []
    for number in range(6):
        events += [*product(number, 100 * number), kernel(number, 100 * number + 20 + apart, 100 * number + 50 + apart)]
    profile = read(tmp_path / "t.json", events)
    answer = profile.query()
    (use,) = answer.devices
    assert (use.busy_ns, use.idle_ns) == (6 * 30 * US, 5 * 70 * US)
    assert not any(use.idle_causes.values())
    assert (use.delay_ns, use.launches, answer.wall_ns) == (None, 0, None)
    assert [line.wait_ns for line in answer.rows] == [None] * 6
    assert sum(line.count for line in answer.rows) == 6  # correlations still say whose kernels they are
    assert "the clocks of host and device are at least 5" in str(answer)
    assert not answer.gains


def test_one_launch_that_seems_late_says_nothing_about_clocks(tmp_path: Path) -> None:
    events = []
    for number in range(30):
        events += [*product(number, 100 * number), kernel(number, 100 * number + 20, 100 * number + 50)]
    events += [*product(99, 90_000), kernel(99, 3000, 3010)]
    (use,) = read(tmp_path / "t.json", events).query().devices
    assert use.idle_host_ns > 0


@pytest.mark.parametrize(
    ("category", "place", "args"),
    [
        ("hpu_op", (0, "MME"), {}),
        ("privateuse1_runtime", (0, 3), {}),
        ("privateuse1_driver", (0, 3), {"correlation": 1}),
        ("privateuse1_runtime", (1, 1), {"device": 0, "stream": 3, "correlation": 1}),
        ("hpu_op", (1, 1), {"device": 0, "stream": 3, "correlation": 1}),
    ],
)
def test_work_of_other_backends_is_on_their_device(
    tmp_path: Path, category: str, place: tuple[object, object], args: dict[str, object]
) -> None:
    call = event(category, "launchKernel", (1, 1), 1, 2, correlation=1)
    events = [event("cpu_op", "aten::mm", (1, 1), 0, 10, **MM), call, event(category, "gemm", place, 20, 27, **args)]
    profile = read(tmp_path / "t.json", events)
    answer = profile.query()
    assert (answer.device_ns, answer.host_ns) == (7 * US, 10 * US)
    owned = [row.type for row in profile.rows if row.device_ns]
    assert owned == (["aten::mm"] if "correlation" in args else [])


def test_times_between_quotes_are_read_to_the_nanosecond(tmp_path: Path) -> None:
    start = "1700000000000123.457"
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": start, "dur": 10.5, "args": MM},
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::mul",
            "pid": 1,
            "tid": 1,
            "ts": "1700000000000200.001",
            "dur": "2.003",
        },
        {"ph": "s", "cat": "async_npu", "name": "async_npu", "id": 1, "pid": 1, "tid": 1, "ts": start},
        {"ph": "X", "cat": "cpu_op", "name": "aten::bad", "pid": 1, "tid": 1, "ts": "nan", "dur": "1"},
        {"ph": "X", "cat": "cpu_op", "name": "aten::far", "pid": 1, "tid": 1, "ts": "-1e99999999", "dur": "1"},
    ]
    task = {"Task Type": "AI_CORE", "Task Id": 3}
    events.append(
        {"ph": "X", "name": "MatMul", "pid": 9, "tid": 2, "ts": "1700000000000150.5", "dur": 7.5, "args": task}
    )
    path = tmp_path / "t.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    rows = opcost.read_profile(path).rows
    assert [(row.type, row.host_start_ns, row.host_ns) for row in rows] == [
        ("aten::mm", 1_700_000_000_000_123_457, 10_500),
        ("aten::mul", 1_700_000_000_000_200_001, 2_003),
    ]
    notes = {note.code: note.text for note in opcost.read_profile(path).notes}
    assert "2 with a time beyond" in notes["faulty"]
    assert notes["unread"].startswith("1 tasks on a device have no category and are left out")


FAST = Device(name="fast", flops={"float32": 10**12, "bfloat16": 10**12}, bandwidth=10**12, source="by hand")


@pytest.mark.parametrize(
    ("n", "share", "bound"),
    [
        (1024, 0.38, "compute"),  # 2147 µs at the peak: 5.65 ms are no latency
        (1024, 0.2, "latency"),  # neither unit is used
        (64, 0.38, "latency"),  # 0.5 µs at the peak
    ],
)
def test_large_products_below_the_peak_are_still_bound_by_it(tmp_path: Path, n: int, share: float, bound: str) -> None:
    dims = {"Input Dims": [[n, n], [n, n]], "Input type": ["float", "float"]}
    spent = 2 * n**3 / 10**12 * 1e6 / share
    events = [event("cpu_op", "aten::mm", (1, 1), 0, 10, **dims), launch(1, 1), kernel(1, 20, 20 + spent)]
    answer = read(tmp_path / "t.json", events).query(device=FAST)
    (line,) = answer.rows
    assert line.bound == bound
    assert line.of_peak_flops == pytest.approx(share, rel=1e-3)


def test_a_large_product_below_its_bound_can_still_save_time(tmp_path: Path) -> None:
    dims = {"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]}
    events = []
    for number in range(2):
        events += [
            event("cpu_op", "aten::mm", (1, 1), 10 * number, 10 * number + 9, **dims),
            launch(number, 10 * number + 1),
        ]
        events.append(kernel(number, 100 + 5000 * number, 5100 + 5000 * number))
    answer = read(tmp_path / "t.json", events).query(device=FAST)
    (gain,) = answer.gains
    assert gain.what == "aten::mm at 43 % of its bound"
    saved = 2 * (5_000_000 - 2 * 1024**3 / 1000 / 0.6)
    assert gain.time_ns == pytest.approx(saved * 0.5)  # only the successor of the first was launched before it began


def test_softmax_is_not_compared_with_the_peak_of_products(tmp_path: Path) -> None:
    b, h, length, d = 1, 2, 256, 64
    shape = [b, h, length, d]
    dims = {
        "Input Dims": [shape, shape, shape, [], [], [], []],
        "Input type": ["c10::BFloat16"] * 3 + ["Scalar"] * 3 + [""],
        "Concrete Inputs": ["", "", "", "0.", "False", "False", ""],
    }
    name = "aten::_scaled_dot_product_flash_attention"
    events = [event("cpu_op", name, (1, 1), 0, 10, **dims), launch(1, 1), kernel(1, 20, 120)]
    (line,) = read(tmp_path / "t.json", events).query(device=FAST).rows
    products = 2 * 2 * b * h * length * length * d
    assert line.computation is not None
    assert line.computation > products
    assert line.of_peak_flops == pytest.approx(products / (100e-6 * 10**12), rel=1e-12)
    assert line.ideal_ns == pytest.approx(products / 1000)


def test_unknown_peaks_are_said_with_the_options_that_give_them(tmp_path: Path) -> None:
    events = [*product(1, 0), kernel(1, 20, 30)]
    profile = read(tmp_path / "t.json", events, deviceProperties=[{"id": 0, "name": "NVIDIA Imaginary 9"}])
    said = [note.text for note in profile.query().notes if note.code == "peaks"]
    assert said == [
        (
            "the peaks of NVIDIA Imaginary 9 are not known, so no rate is compared with them; "
            "give --device NAME of a device like it, or --peak-flops and --peak-bandwidth"
        )
    ]
    assert not [note for note in profile.query(device="h100").notes if note.code == "peaks"]
