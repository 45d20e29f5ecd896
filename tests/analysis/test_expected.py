"""What operators of a trace should take, and how much of its peak the steps use: by hand, and on a trace of an H200."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

import opcost
from opcost.analysis.expected import compared
from opcost.analysis.prediction.predict import GAP_NS
from opcost.analysis.prediction.speeds import shipped_speeds
from opcost.analysis.prediction.work import work_of
from opcost.core.devices import DEVICES
from opcost.core.graph import Cost, TensorSpec
from opcost.core.profile import Busy, Kernel, Profile, ProfileRow
from opcost.profiles import askable
from opcost.traces.ranks import read_ranks

US = 1000
SIZE = 4096
"""Of square matrices in bfloat16."""
FLOPS = 2 * SIZE**3
SQUARE = TensorSpec((SIZE, SIZE), "bfloat16")
COST = Cost(SIZE**3, FLOPS, 2 * SQUARE.nbytes, SQUARE.nbytes)
STEP = 1000 * US
WHERE = "gpu:0"


def product(step: int | None, time: int, count: int = 1, **more: Any) -> ProfileRow:
    """A product, executed `count` times."""
    kernel = Kernel("gemm", WHERE, "7", 0, time, count=count)
    known = {
        "cost": COST,
        "ins": (SQUARE, SQUARE),
        "outs": (SQUARE,),
        "kind": "matmul",
        "attrs": {"depth": SIZE},
    } | more
    return ProfileRow(0, "aten::mm", "aten::mm", step=step, device_ns=time, kernels=(kernel,), count=count, **known)


def profile(*rows: ProfileRow, device: str = "NVIDIA H200", **more: Any) -> opcost.Profile:
    """Rows that ran on one device, in steps of one millisecond."""
    numbers = {row.step for row in rows} - {None}
    work = sum(row.device_ns or 0 for row in rows)
    use: dict[str, Any] = {
        "device": WHERE, "rank": 0, "span_ns": 4 * STEP, "busy_ns": work, "work_ns": work, "kernels": 1, "median_ns": 1,
        "compute_ns": work, "compute_work_ns": work, "steps": len(numbers), "step_ns": STEP if numbers else None,
    } | more  # fmt: skip
    extra = {"devices": [Busy(**use)._asdict()]}
    numbered = tuple(row._replace(id=number) for number, row in enumerate(rows))
    return askable(Profile(meta={"device": device}, rows=numbered, extra=extra))


def predicted_ns(device: str = "h200") -> int:
    """One of the products, alone."""
    work = work_of("matmul", "aten::mm", {"depth": SIZE}, (SQUARE, SQUARE), (SQUARE,), COST)
    return round(shipped_speeds(device).time(work).device_ns - GAP_NS)


def test_an_operator_is_beside_what_it_should_take() -> None:
    (line,) = profile(product(None, 900 * US, 3)).query(aggregate_by="type").rows
    assert line.predicted_ns == 3 * predicted_ns()
    assert (
        140 * US < predicted_ns() < 300 * US
    )  # at 70 to 100 % of its peak of 989 TFLOP/s the product takes 139 to 198 us


def test_what_has_no_prediction_counts_as_measured() -> None:
    other = ProfileRow(1, "mine", "mine", device_ns=70 * US, kernels=(Kernel("mine", WHERE, "7", 0, 70 * US),))
    found = profile(product(None, 300 * US), other).query(aggregate_by="device")
    assert found.rows[0].predicted_ns == predicted_ns() + 70 * US
    assert profile(other).query(aggregate_by="type").rows[0].predicted_ns is None
    # A product without the attribute that says how deep it is
    assert profile(product(None, 300 * US, attrs={})).query(aggregate_by="type").rows[0].time_ns == 300 * US


def test_two_kernels_of_an_operator_share_its_prediction() -> None:
    kernels = (Kernel("gemm", WHERE, "7", 0, 100 * US), Kernel("sum", WHERE, "7", 100 * US, 300 * US))
    lines = profile(product(None, 400 * US)._replace(kernels=kernels)).query(aggregate_by="kernel").rows
    expected = predicted_ns()
    assert {line.labels["kernel"]: line.predicted_ns for line in lines} == {
        "sum": expected * 3 / 4,
        "gemm": expected / 4,
    }


def test_a_device_that_is_not_known_has_no_prediction() -> None:
    for device in ("Some Accelerator", "NVIDIA GeForce GTX 1080"):
        found = profile(product(1, 300 * US), device=device)
        assert found.query().rows[0].predicted_ns is None
        assert (compared(found)[0].mfu, compared(found)[0].of_predicted) == (None, None)


@pytest.mark.parametrize(("device", "name"), [("h200", "NVIDIA H200"), ("h100", "NVIDIA H100 80GB HBM3")])
def test_the_use_of_the_peak_is_that_of_the_steps_but_the_first(device: str, name: str) -> None:
    rows = [product(1, 900 * US, 9), product(2, 400 * US, 2), product(3, 600 * US, 3)]
    (use,) = compared(profile(*rows, device=name))
    peak = DEVICES[device].peak_flops("bfloat16")
    assert peak is not None
    assert use.mfu == pytest.approx((2 + 3) * FLOPS / peak / (2 * STEP / 1e9))
    measured = (900 + 400 + 600) * US
    assert use.of_predicted == pytest.approx(measured / (14 * predicted_ns(device)))


def test_of_one_step_the_whole_is_taken_and_what_is_recomputed_is_no_work() -> None:
    rows = [product(1, 400 * US, 2), product(1, 200 * US, 1, phase="recompute")]
    (use,) = compared(profile(*rows))
    assert use.mfu == pytest.approx(2 * FLOPS / 989.4e12 / (STEP / 1e9), rel=1e-3)  # the printed peak of an H200
    assert compared(profile(product(None, 400 * US)))[0].mfu is None  # without steps


def test_without_numbered_steps_it_is_the_use_of_the_whole_time() -> None:
    (use,) = compared(profile(product(None, 400 * US, 2), steps=4, step_ns=STEP))
    assert use.mfu == pytest.approx(2 * FLOPS / 989.4e12 / (4 * STEP / 1e9), rel=1e-3)


def test_where_most_kernels_have_no_cost_nothing_is_said() -> None:
    other = ProfileRow(
        1, "mine", "mine", step=1, device_ns=500 * US, kernels=(Kernel("mine", WHERE, "7", 0, 500 * US),)
    )
    (use,) = compared(profile(product(1, 400 * US, 2), other))
    assert (use.mfu, use.of_predicted) == (None, None)
    (use,) = compared(profile(product(1, 600 * US, 3), other))
    assert use.mfu is not None
    assert use.of_predicted == pytest.approx(200 * US / predicted_ns())  # of those that have one


def test_the_verdict_has_both() -> None:
    found = profile(product(1, 600 * US, 3), product(2, 600 * US, 3), first_step_ns=STEP)
    text = " ".join(str(found).split())
    share = 3 * FLOPS / 989.4e12 / (STEP / 1e9)
    assert f"step 1.00 ms (2 steps, the first 1.00 ms), MFU {100 * share:.1f} %" in text
    assert f"kernels {200 * US / predicted_ns():.2f} × their predicted time" in text
    assert f"1.00 ms a step, MFU {100 * share:.0f} %" in found.answer.replace("\u00a0", " ")
    (line,) = found.breakdown()["computing"]
    assert line["mfu"] == pytest.approx(share, rel=1e-3)
    assert line["ratio"] == pytest.approx(200 * US / predicted_ns())
    assert (line["time"], line["predicted"]) == (1200 * US, round(1200 * US / line["ratio"]))


EXAMPLES = Path(__file__).parents[2] / "examples"


def test_kernels_of_an_h200_take_about_what_is_predicted() -> None:
    """A forward pass of a small GPT, whose times no calibration or fit has seen."""
    (use,) = compared(opcost.read_profile(EXAMPLES / "trace.json.gz"))
    assert use.of_predicted == pytest.approx(1, abs=0.1)


def test_a_slower_rank_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    example = run_path(str(EXAMPLES / "ranks.py"))
    whole = json.loads(gzip.decompress((EXAMPLES / "trace.json.gz").read_bytes()))
    for rank in (0, example["LATE"]):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(example["trace_of"](whole, rank)), encoding="utf-8")
    usual, late = compared(read_ranks([tmp_path], cache="none"))
    assert late.rank == example["LATE"]
    assert usual.of_predicted is not None
    assert late.of_predicted == pytest.approx(example["SLOWER"] * usual.of_predicted, rel=1e-3)


def test_the_use_of_devices_does_not_depend_on_the_lines() -> None:
    trace = opcost.read_profile(EXAMPLES / "trace.json.gz")
    ratios = {trace.query(aggregate_by=key).devices[0].of_predicted for key in ("type", "kernel", "stream", "shape")}
    assert len(ratios) == 1
