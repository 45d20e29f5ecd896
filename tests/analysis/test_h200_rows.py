"""Predictions beside what an H200 took, and the numbers that were fitted to such models."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import opcost
from opcost.analysis.costing import cost_graph
from opcost.analysis.prediction.host import Host
from opcost.analysis.prediction.predict import (
    Predicted,
    multi_tensor_launches,
    multi_tensor_ns,
    predict_report,
    predict_steps,
)
from opcost.analysis.prediction.speeds import Speeds, fit_laws
from opcost.core.devices import HOST, device
from opcost.core.graph import Graph, Module, Op, TensorSpec, Value
from opcost.core.report import Report
from opcost.core.report import Row as CostedRow
from opcost.devices.calibration import Calibration, Measured
from opcost.rules import default_rules

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MEASURED = json.loads((BENCHMARKS / "h200_models.json").read_text())["rows"]


class Row(NamedTuple):
    """A model as it was measured, and which of its times are compared."""

    name: str
    batch: int
    dtype: str
    times: str


SAVED = {row[0]: row for row in json.loads((BENCHMARKS / "results/left_out.json").read_text())["rows"]}
WORDS = {"graph": "CUDA graph", "kernel": "kernels of an eager run", "train_kernel": "kernels of a training step"}
MISS = {name: float(SAVED[words][3].rstrip("%")) / 100 for name, words in WORDS.items()}
"""By which share of the measured time predictions miss it, the mean of all measured rows: benchmarks/predict.py left_out."""
ROWS = [
    Row("resnet18", 8, "bfloat16", "train_kernel"),
    Row("alexnet", 8, "float32", "train_kernel"),
    Row("alexnet", 32, "bfloat16", "graph kernel"),
    Row("alexnet", 32, "float32", "graph kernel train_kernel"),
    Row("resnet18", 32, "bfloat16", "graph kernel train_kernel"),
    Row("resnet18", 64, "float32", "graph kernel"),
    Row("squeezenet1_1", 1, "float32", "graph"),
    Row("squeezenet1_1", 64, "bfloat16", "graph kernel"),
    Row("vgg11", 16, "float32", "graph kernel"),
    Row("vgg11", 1, "bfloat16", "kernel"),
    Row("vit_b_32", 1, "bfloat16", "graph"),
]


@lru_cache(maxsize=4)
def counted(row: Row, *, training: bool = False) -> Report:
    from torchvision.models import get_model

    with torch.device("meta"):
        model = get_model(row.name).to(getattr(torch, row.dtype)).train(training)
        x = torch.empty(row.batch, 3, 224, 224, dtype=getattr(torch, row.dtype))
    with torch.set_grad_enabled(training):
        return opcost.count(model, x, optimizer="Adam" if training else None, device="h200")


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.name}-{row.batch}-{row.dtype}" for row in ROWS])
def test_a_prediction_is_as_near_to_what_was_measured_as_the_results_say(row: Row) -> None:
    real = next(
        each for each in MEASURED if (each["name"], each["batch"], each["dtype"]) == (f"tv/{row.name}", *row[1:3])
    )
    graph = opcost.predict(counted(row), device="h200")
    predicted = {"graph": graph.latency_ns, "kernel": graph.kernel_ns}
    if "train_kernel" in row.times:
        predicted["train_kernel"] = opcost.predict(counted(row, training=True), device="h200").kernel_ns
    for name in row.times.split():
        assert predicted[name] / 1e6 == pytest.approx(real[f"{name}_ms"], rel=MISS[name]), name


# -- the band, and what is between kernels -------------------------------------------------------------------------------

H200 = device("h200")
SPREAD = 0.04


def calibrated(name: str = "h200", **more: Any) -> Speeds:
    """Additions that take 5 µs, products that take 20 µs, whatever their size; both are off by the same share."""
    x = TensorSpec((64, 64), "bfloat16")
    rows = (
        Measured("elementwise", "aten::add", {"fn": "add"}, (x, x), (x,), 5_000, 3_000),
        Measured("matmul", "aten::mm", {"depth": 64}, (x, x), (x,), 20_000, 8_000),
    )
    fitted = fit_laws(Calibration(device=name, meta={}, position=2, rows=rows), default_rules())
    speeds = Speeds(fitted, more.get("device"))
    speeds.laws = {key: law._replace(spread=SPREAD) for key, law in speeds.laws.items()}
    return speeds


def model(*ops: str, phase: str = "forward") -> Report:
    """Operators on matrices of 64 by 64, each of which takes the result of the one before; `a`dd, `m`ultiply, `v`iew."""
    x = TensorSpec((64, 64), "bfloat16")
    known: dict[str, tuple[str, str, dict[str, Any]]] = {
        "a": ("elementwise", "aten::add", {"fn": "add"}),
        "m": ("matmul", "aten::mm", {"depth": 64}),
        "v": ("view", "aten::view", {}),
        "s": ("sort", "aten::sort", {"length": 64}),
    }
    values = tuple(Value(i, f"v{i}", x, "input" if i == 0 else "activation", i) for i in range(len(ops) + 1))
    made = tuple(
        Op(i, kind, raw, (i,) if name in "vs" else (i, 0), (i + 1,), attrs, phase=phase)  # type: ignore[arg-type]
        for i, (name, (kind, raw, attrs)) in enumerate((name, known[name]) for name in ops)
    )
    graph = Graph(source="", framework="torch", values=values, ops=made, modules=(Module(path="", type="M"),))
    return cost_graph(graph, default_rules())


def band(found: Any) -> float:
    """Half of its width, and that it lies around the latency."""
    low, high = found.band_ns
    assert low == pytest.approx(max(found.ideal_ns, 2 * found.latency_ns - high), abs=1)
    return float(high - found.latency_ns)


VARIANCE = 1.6 * SPREAD**2
ADD, MM = 5_000 + 300, 20_000 + 900
"""What an addition and a product take in a model, where they start later."""
ADDS = 3 * ADD


def test_a_product_starts_later_in_a_model_and_kernels_have_gaps() -> None:
    found = predict_report(model("a", "m", "a"), calibrated(), {"device": "h200"}, calibrated=True)
    assert found.latency_ns == pytest.approx(2 * ADD + MM, abs=2)
    assert found.latency_ns - found.kernel_ns == 3 * 400 + 2 * 300 + 900


@pytest.mark.parametrize(
    ("phase", "known", "share"),
    [
        ("forward", True, 0.09),
        ("backward", True, 0.09),
        ("forward", False, 0.09 + 0.25),
        ("backward", False, 0.09 + 0.25),
    ],
)
def test_the_band_has_the_width_that_holds_four_of_five(phase: str, known: bool, share: float) -> None:
    found = predict_report(model("a", phase=phase), calibrated(), {"device": "h200"}, calibrated=known)
    assert found.latency_ns == pytest.approx(ADD, abs=1)
    assert band(found) == pytest.approx(sqrt((share * ADD) ** 2 + VARIANCE * 5_000**2), abs=2)


def test_what_a_compiler_merges_is_less_sure() -> None:
    found = predict_report(model("m"), calibrated(), {"device": "h200"}, calibrated=True, execution="compiled")
    taken = 20_000 + 500  # it starts later, but not as much as between other kernels
    assert found.latency_ns == pytest.approx(taken, abs=1)
    assert band(found) == pytest.approx(sqrt((0.09**2 + 0.2**2) * taken**2 + VARIANCE * 20_000**2), abs=2)


def test_misses_of_single_operators_add_up_by_their_squares() -> None:
    found = predict_report(model("a", "a", "a"), calibrated(), {"device": "h200"}, calibrated=True)
    assert band(found) == pytest.approx(sqrt((0.09 * ADDS) ** 2 + VARIANCE * 3 * 5_000**2), abs=2)


STARTS = {"aten::add": 3_000.0, "aten::mm": 8_000.0, "elementwise": 4_000.0, "": 5_500.0}
PARTS = {"aten::add": 2_000, "aten::mm": 6_000, "view": 1_000, "module": 700, "record": 200, "update": 300}


def host(**parts: int) -> Host:
    """One on which the operators of `STARTS` were timed, but for these parts."""
    return Host(
        STARTS, PARTS, {**PARTS, **{name.replace("__", "::"): taken for name, taken in parts.items()}}, spread=0.2
    )


def eagerly(report: Report, on: Host) -> Predicted:
    return predict_report(report, calibrated(), {"device": "h200"}, calibrated=True, execution="eager", host=on)


def test_the_host_starts_every_operator_and_its_own_time_is_less_sure() -> None:
    """1.47 times what each part alone needs; the device waits."""
    found = eagerly(model("a", "v", "a"), host())
    needed = 1.47 * (2 * 3_000 + 1_000)
    assert found.latency_ns == pytest.approx(needed + ADD, abs=3)
    assert found.bounds["host"] == pytest.approx(needed + ADD - 2 * ADD, abs=3)
    expected = sqrt((0.09 * 2 * ADD) ** 2 + VARIANCE * 2 * 5_000**2 + (0.2 * found.bounds["host"]) ** 2)
    assert band(found) == pytest.approx(expected, abs=2)
    busy = eagerly(model("a", "m", "m", "m"), host())
    # The first product is started after 4.41 + 11.76 µs; from there on the device is never idle.
    assert busy.latency_ns == pytest.approx(4_410 + 11_760 + 3 * MM, abs=3)
    assert [row.host_ns for row in busy.profile.rows] == [4_410, 11_760, 11_760, 11_760]


def test_another_host_starts_operators_by_as_much_slower_as_it_calls_its_own() -> None:
    slower = host(aten__add=4_000, aten__mm=12_000, view=3_000)
    found = eagerly(model("a", "v", "a"), slower)
    assert found.latency_ns == pytest.approx(1.47 * (2 * 2 * 3_000 + 3_000) + ADD, abs=3)
    mixed = host(aten__add=4_000, aten__mm=3_000)  # twice as slow and twice as fast
    assert eagerly(model("a"), mixed).latency_ns == pytest.approx(1.47 * 3_000 + ADD, abs=3)


def test_the_host_of_a_training_step_is_less_sure() -> None:
    found = eagerly(model("a", phase="backward"), host())
    assert found.bounds["host"] == pytest.approx(1.47 * 3_000, abs=2)
    expected = (0.09 * ADD) ** 2 + VARIANCE * 5_000**2 + (0.2**2 + 0.3**2) * found.bounds["host"] ** 2
    assert band(found) == pytest.approx(sqrt(expected), abs=2)


def row(kind: str, raw: str, phase: str = "forward", outs: int = 1) -> CostedRow:
    x = TensorSpec((64, 64))
    return CostedRow(Op(0, kind, raw, (), (), {}, phase=phase), (), (x,) * outs, None, "")  # type: ignore[arg-type]


def test_an_operator_that_was_never_timed_needs_the_usual_time_of_its_kind_or_of_any() -> None:
    one = host()
    assert one.operator_ns(row("elementwise", "aten::mul"), recorded=False) == pytest.approx(1.47 * 4_000)
    assert one.operator_ns(row("sort", "aten::sort"), recorded=False) == pytest.approx(1.47 * 5_500)
    assert Host({}, {}, {}, spread=1).operator_ns(row("sort", "aten::sort"), recorded=False) == 1.47 * 12_000


def test_a_step_also_records_in_its_forward_pass_and_updates_each_parameter() -> None:
    """What is recorded takes three times the record: once in the forward pass, and its node, with views, in the backward pass."""
    one = host()
    add, view = row("elementwise", "aten::add"), row("view", "aten::t")
    assert one.operator_ns(add, recorded=True) == pytest.approx(1.47 * (3_000 + 3 * 200))
    assert one.operator_ns(view, recorded=True) == pytest.approx(1.47 * (1_000 + 3 * 200))
    assert one.operator_ns(row("elementwise", "aten::add", "backward"), recorded=True) == pytest.approx(1.47 * 3_000)
    assert one.operator_ns(row("view", "aten::t", "backward"), recorded=True) == 0
    lists = row("elementwise", "aten::_foreach_add_", "update", outs=7)
    assert one.operator_ns(lists, recorded=True) == pytest.approx(1.47 * 7 * 300)
    assert one.operator_ns(row("elementwise", "aten::add_", "update"), recorded=True) == pytest.approx(1.47 * 4_000)
    # The state of an optimizer is made in the first step.
    assert one.operator_ns(row("create", "aten::zeros_like", "update"), recorded=True) == 0


def test_the_host_calls_modules_before_their_operators() -> None:
    nested = torch.nn.Sequential(torch.nn.Sequential(torch.nn.ReLU()), torch.nn.ReLU())
    with torch.no_grad():
        report = opcost.count(nested, torch.empty(64, 64))
    called = eagerly(report, host(module=50_000))
    # Four modules are called, the last two of which wait for the device.
    assert called.latency_ns == pytest.approx(1.47 * (4 * 50_000 + 2 * 4_000) + called.profile.rows[1].device_ns, abs=3)


def test_a_processor_starts_nothing_and_is_less_sure() -> None:
    found = predict_report(model("a", "m"), calibrated(HOST), {"device": HOST}, calibrated=True)
    assert found.latency_ns == pytest.approx(25_000, abs=2)
    expected = sqrt(((0.09 + 0.1) * 25_000) ** 2 + VARIANCE * (5_000**2 + 20_000**2))
    assert band(found) == pytest.approx(expected, abs=2)


def test_what_was_never_timed_is_half_as_sure() -> None:
    speeds = calibrated()
    found = predict_report(model("s"), speeds, {"device": "h200"}, calibrated=True)
    taken = found.latency_ns
    assert band(found) == pytest.approx(sqrt((0.09**2 + 0.5**2) * taken**2), abs=3)
    assert found.likened_ns == taken


def test_an_update_of_all_parameters_is_off_by_a_tenth() -> None:
    found = predict_report(model("a", phase="update"), calibrated(), {"device": "h200"}, calibrated=True)
    taken = 2_500 + 15_000 * 64 * 64 / 65_536  # a kernel starts, and goes through a sixteenth of a chunk
    assert found.latency_ns == round(taken)
    assert band(found) == pytest.approx(sqrt((0.09**2 + 1.6 * 0.1**2) * taken**2), abs=3)
    assert found.ideal_ns == round(3 * 2 * 64 * 64 / H200.bandwidth * 1e9)


def test_a_model_without_operators_takes_nothing() -> None:
    found = predict_report(model(), calibrated(), {"device": "h200"}, calibrated=True)
    assert found[1:] == (0, 0, (0, 0), 0, {"compute": 0, "memory": 0, "launch": 0, "host": 0}, 0, None)
    assert found.profile.meta["device"] == "h200"


def test_the_peaks_that_an_estimate_lacks_are_those_of_products() -> None:
    """A V100 has none for bfloat16."""
    for ops, said in (("a", ["estimate"]), ("am", ["estimate", "estimate"])):
        found = predict_report(model(*ops), calibrated(device=device("v100")), {"device": "v100"}, calibrated=False)
        assert [note.code for note in found.profile.notes if note.code == "estimate"] == said


def updates(raw: str, ins: tuple[TensorSpec, ...], outs: tuple[TensorSpec, ...], count: int) -> Report:
    """An optimizer that does the same to this many parameters."""
    report = model("a", phase="update")
    (row,) = report.rows
    return replace(
        report, rows=tuple(row._replace(op=row.op._replace(raw=raw, id=n), ins=ins, outs=outs) for n in range(count))
    )


TWO, NUMBER, OPEN = TensorSpec((2,)), TensorSpec(()), TensorSpec(None)


@pytest.mark.parametrize(
    ("raw", "ins", "kernels"),
    [
        # 109 tensors: in one list 110 fit into a kernel, in two 64, in three 48, in four 36
        ("aten::mul_", (TWO,), 1), ("aten::mul_", (TWO, NUMBER, OPEN), 1), ("aten::add_", (TWO, TWO), 2), ("aten::mul",
            (TWO,), 2),
        ("aten::add", (TWO, TWO), 3), ("aten::addcmul_", (TWO, TWO, TWO), 3), ("aten::addcmul", (TWO, TWO, TWO), 4),
        ("aten::fill_", (NUMBER,), 1),
    ],
)  # fmt: skip
def test_an_update_has_as_many_kernels_as_its_lists_are_cut_into(
    raw: str, ins: tuple[TensorSpec, ...], kernels: int
) -> None:
    found = predict_report(updates(raw, ins, (TWO,), 109), calibrated(), {"device": "h200"}, calibrated=True)
    assert found.latency_ns == pytest.approx(kernels * (2_500 + 15_000 * 2 / 65_536), abs=109)  # each row is rounded
    bitsandbytes = updates("bitsandbytes::optimizer_update_32bit", ins, (TWO,), 3)
    single = predict_report(bitsandbytes, calibrated(), {"device": "h200"}, calibrated=True)
    assert single.latency_ns > 3 * 4_000  # each starts on its own, as an addition of 5 µs


@pytest.mark.parametrize(
    ("dtypes", "reached"), [(("float32",), 0.8), (("bfloat16",), 0.6), (("bfloat16", "float32"), 0.8)]
)
def test_an_update_reaches_what_its_largest_elements_reach(dtypes: tuple[str, ...], reached: float) -> None:
    count = 320 * 65_536
    given = TensorSpec((count,), dtypes[0])
    rows = [updates("aten::mul_", (given,), (TensorSpec((count,), dtype),), 1).rows[0] for dtype in dtypes]
    report = replace(model("a", phase="update"), rows=tuple(rows))
    found = predict_report(report, calibrated(), {"device": "h200"}, calibrated=True)
    moved = sum(spec.nbytes for row in rows for spec in (*row.ins, *row.outs))
    assert found.latency_ns == pytest.approx(moved / (reached * H200.bandwidth) * 1e9, rel=0.001)


class Steps:
    """Five steps, of which the first and the last are samples: twice the sum is four of the one and six of the other."""

    steps = 5

    def samples(self, most: int) -> list[tuple[int, int]]:
        assert most == 9
        return [(1, 4), (5, 6)]

    def at(self, tokens: int) -> Report:
        return model(*"am") if tokens == 1 else model(*"mm")


@pytest.mark.parametrize("execution", ["graph", "eager"])
def test_many_steps_are_the_weighted_sum_of_their_samples(execution: Any) -> None:
    how: Any = {"calibrated": True, "execution": execution, "host": host() if execution == "eager" else None}
    found = predict_steps([Steps()], calibrated(), {"device": "h200"}, **how)  # type: ignore[list-item]
    parts = [predict_report(Steps().at(tokens), calibrated(), {"device": "h200"}, **how) for tokens in (1, 5)]
    assert found.latency_ns == (4 * parts[0].latency_ns + 6 * parts[1].latency_ns) // 2
    assert found.kernel_ns == (4 * parts[0].kernel_ns + 6 * parts[1].kernel_ns) // 2
    assert found.band_ns == tuple((4 * a + 6 * b) // 2 for a, b in zip(parts[0].band_ns, parts[1].band_ns, strict=True))
    assert found.ideal_ns == (4 * parts[0].ideal_ns + 6 * parts[1].ideal_ns) // 2
    assert found.bounds["launch"] == (4 * parts[0].bounds["launch"] + 6 * parts[1].bounds["launch"]) // 2
    first, second = found.profile.rows
    assert (first.count, second.count) == (5, 5)
    assert first.type == "aten::mm"  # as in the last step
    assert first.device_ns == first.device_total_ns == (4 * ADD + 6 * MM) // 2
    assert second.device_ns == (4 + 6) * MM // 2
    if execution == "eager":
        assert (first.host_ns, second.host_ns) == ((4 * 4_410 + 6 * 11_760) // 2, 5 * 11_760)
        assert first.host_self_ns == first.host_ns
    else:
        assert first.host_ns is None
    # costs are those of one execution: of the additions and products of 64 by 64, four of ten and six of ten
    assert first.cost is not None
    cells = 64 * 64
    assert first.cost.macs == 6 * cells * 64 // 10
    assert first.cost.flops == (4 * cells + 6 * 2 * cells * 64) // 10
    assert second.cost is not None
    assert (first.cost.bytes_read, first.cost.bytes_written) == (2 * cells, 2 * cells)  # the same tensor twice
    assert (second.cost.bytes_read, second.cost.bytes_written) == (2 * 2 * cells, 2 * cells)
    ideals = [row.attrs["ideal_ns"] for part in parts for row in part.profile.rows[:1]]
    assert first.attrs["ideal_ns"] == (4 * ideals[0] + 6 * ideals[1]) // 2  # type: ignore[operator]


CHUNK = 65_536


def reached_of_h200(share: float) -> float:
    return share * 4.8e12


@pytest.mark.parametrize(
    ("raw", "itemsize", "block", "reached"),
    [
        ("aten::_foreach_mul_", 4, 15_000, 0.8), ("aten::_foreach_mul_", 2, 15_000, 0.6), ("aten::_foreach_sqrt", 4, 26_000,
        0.7),
        ("aten::_foreach_addcdiv_", 2, 26_000, 0.4), ("aten::_foreach_add_", 1, 15_000, 0.6),
    ],
)  # fmt: skip
def test_a_kernel_over_many_tensors_takes_a_block_or_its_bytes(
    raw: str, itemsize: int, block: int, reached: float
) -> None:
    assert multi_tensor_ns(raw, [CHUNK // 2], 1, 8, itemsize, reached_of_h200) == 2_500 + block / 2
    whole = 320 * CHUNK
    assert multi_tensor_ns(raw, [whole], 1, 12 * whole, itemsize, reached_of_h200) == pytest.approx(
        12 * whole / (reached * 4.8e12) * 1e9
    )


@pytest.mark.parametrize(("lists", "room"), [(1, 110), (2, 64), (3, 48), (4, 36), (5, 30), (6, 30)])
def test_a_kernel_has_room_for_this_many_tensors(lists: int, room: int) -> None:
    assert list(multi_tensor_launches([2] * room, lists)) == [(2 * room, 2)]
    assert list(multi_tensor_launches([2] * room + [3], lists)) == [(2 * room, 2), (3, 3)]
