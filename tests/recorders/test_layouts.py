"""A profile written for others: MegEngine's layout and a Chrome trace."""

from __future__ import annotations

import json

import pytest

from opcost.core.graph import Cost, TensorSpec
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.recorders import layouts

EPOCH = 1_794_767_352_396_378_556
X, Y = TensorSpec((2, 3)), TensorSpec((2, 4), "float16")


def row(number: int, step: int, **words: object) -> ProfileRow:
    start = EPOCH + 1000 * number
    fields: dict[str, object] = {
        "id": number, "name": f"fc.{number}", "type": "aten::linear", "module": "fc", "device": "cpu", "step": step,
        "host_start_ns": start, "host_ns": 700, "host_self_ns": 500, "ins": (X,), "outs": (Y,), "cost": Cost(12, 24, 24, 16),
    }  # fmt: skip
    return ProfileRow(**{**fields, **words})  # type: ignore[arg-type]


CPU = Profile(meta={"host_only": "False"}, rows=(row(0, 0), row(1, 1), row(2, 1, cost=None, outs=())))
KERNELS = (Kernel("memset", "gpu:0", "7", EPOCH + 9000, 10), Kernel("gemm", "gpu:0", "7", EPOCH + 9050, 300))
GPU = Profile(
    meta={},
    rows=(row(0, 0, device="gpu:0", device_ns=310, kernels=KERNELS), row(1, 0, device_ns=0)),
    unattributed=(Kernel("stray", "gpu:0", "8", EPOCH + 9900, 5),),
)


def test_megengine_keeps_the_last_execution() -> None:
    document = layouts.layout(CPU)
    operators = document["graph_exec"]["operator"]
    assert [entry["name"] for entry in operators.values()] == ["fc.1", "fc.2"]
    assert document["graph_exec"]["comp_seq"] == list(operators)
    assert all(number == entry["id"] and int(number) >= 0 for number, entry in operators.items())


def test_megengines_times_are_seconds_from_the_first_event() -> None:
    document = layouts.layout(CPU)
    first, second = document["graph_exec"]["comp_seq"]
    (times,) = document["profiler"]["device"][first].values()
    assert times == {"start": 0.0, "kern": 0.0, "end": pytest.approx(500e-9, rel=1e-12)}
    (times,) = document["profiler"]["host"][second].values()
    assert times["start"] == pytest.approx(1000e-9, rel=1e-12)


def test_megengines_footprint_is_flops_and_traffic() -> None:
    document = layouts.layout(CPU)
    known, unknown = (document["profiler"]["opr_footprint"][number] for number in document["graph_exec"]["comp_seq"])
    assert (known["computation"], known["memory"]) == (24, 24 + 16)
    assert (known["in_shapes"], known["out_shapes"]) == ([[2, 3]], [[2, 4]])
    assert (unknown["computation"], unknown["memory"]) == (None, 2 * 3 * 4)


def test_every_variable_has_a_layout_with_megengines_word_for_its_type() -> None:
    graph = layouts.layout(CPU)["graph_exec"]
    (first, *_) = graph["operator"].values()
    (inside,), (out,) = first["input"], first["output"]
    assert graph["var"][inside]["mem_plan"]["layout"] == {"dtype": "Float32", "shape": [2, 3], "stride": [3, 1]}
    assert graph["var"][out]["mem_plan"]["layout"]["dtype"] == "Float16"
    assert not graph["var"].keys() & graph["operator"].keys()


def test_device_time_is_the_sum_of_the_kernels() -> None:
    document = layouts.layout(GPU)
    launching, quiet, _ = document["graph_exec"]["comp_seq"]
    (node,) = document["profiler"]["device"][launching]
    times = document["profiler"]["device"][launching][node]
    assert node == 'CompNode("gpu0:0" from "xpux:0")'
    assert times["end"] - times["start"] == pytest.approx(310e-9, rel=1e-6)
    assert quiet not in document["profiler"]["device"]
    assert quiet in document["profiler"]["host"]


def test_device_work_without_an_operator_is_an_operator_of_its_own() -> None:
    document = layouts.layout(GPU)
    stray = next(n for n, entry in document["graph_exec"]["operator"].items() if entry["type"] == "(unattributed)")
    (times,) = document["profiler"]["device"][stray].values()
    assert times["end"] - times["start"] == pytest.approx(5e-9, rel=1e-6)
    assert stray not in document["profiler"]["host"]


def test_a_profile_of_the_host_alone_has_no_device_times() -> None:
    document = layouts.layout(Profile(meta={"host_only": "True"}, rows=CPU.rows))
    assert document["profiler"]["device"] == {}
    assert len(document["profiler"]["host"]) == 2


def test_a_chrome_trace_has_every_operator_every_kernel_and_what_is_unattributed() -> None:
    trace = json.loads(layouts.chrome_json(GPU))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [event["name"] for event in spans] == ["fc.0", "memset", "gemm", "fc.1", "stray"]
    assert trace["baseTimeNanoseconds"] == EPOCH
    gemm = spans[2]
    assert (gemm["ts"], gemm["dur"], gemm["pid"], gemm["tid"]) == (9.05, 0.3, "gpu:0", "7")
    assert spans[0]["args"]["flops"] == 24


def test_every_flow_of_a_chrome_trace_has_both_ends() -> None:
    events = json.loads(layouts.chrome_json(GPU))["traceEvents"]
    assert {e["id"] for e in events if e["ph"] == "s"} == {e["id"] for e in events if e["ph"] == "f"} == {"0.0", "0.1"}
