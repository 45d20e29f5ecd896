"""What launches tell: how many, how long kernels waited, and which device work no operator launched."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from statistics import median, quantiles

import pytest

from opcost.analysis.query import query
from opcost.core.devices import DEVICES, device, measured
from opcost.core.graph import TensorSpec
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.errors import UnknownName
from opcost.traces.registry import read

KINETO = Path(__file__).resolve().parent.parent / "data" / "traces" / "kineto"


def kernel(start: int, launched: int | None, *, name: str = "k", duration: int = 10, why: str = "") -> Kernel:
    return Kernel(name, "gpu:0", "7", start, duration, launched, why)


def row(number: int, *kernels: Kernel, type: str = "a") -> ProfileRow:  # noqa: A002 - the field's name
    spent = sum(each.duration_ns for each in kernels)
    return ProfileRow(id=number, name=f"n{number}", type=type, device_ns=spent, kernels=kernels)


PROFILE = Profile(
    meta={},
    rows=(
        row(0, kernel(10, 0), kernel(40, 10)),
        row(1, kernel(100, 80)),
        row(2, kernel(200, 160), type="b"),
    ),
    unattributed=(kernel(300, None, why="graph"), kernel(400, None, why="outside"), kernel(500, 490)),
)


def test_delays_are_from_the_launch_to_the_beginning() -> None:
    lines = {line.labels["type"]: line for line in query(PROFILE, aggregate_by="type", top=0)}
    # Of type a: 10 - 0, 40 - 10 and 100 - 80.
    assert (lines["a"].launches, lines["a"].count, lines["a"].delay_ns) == (3, 2, 20)
    assert lines["a"].launches_per_call == 3 / 2
    assert lines["a"].delay_p90_ns == 20 + (30 - 20) * 0.8
    assert lines["b"].delay_ns == 40


def test_a_device_has_the_number_and_delay_of_its_launches() -> None:
    (use,) = query(PROFILE).devices
    # 10, 20, 30 and 40 of operators, and 10 of a kernel that none launched.
    assert (use.launches, use.delay_ns) == (5, 20)
    assert (use.operators, use.owned, use.kernels) == (3, 4, 7)
    assert "5 launches by 3 operators (1.33 kernels each)" in str(query(PROFILE))


def test_lines_sort_and_are_chosen_by_their_delay() -> None:
    assert [line.labels["name"] for line in query(PROFILE, sort="delay")] == ["n2", "n0", "n1"]
    assert [line.labels["name"] for line in query(PROFILE, where="delay > 25ns", sort="+delay")] == ["n0", "n2"]


def test_device_work_without_an_operator_has_a_line_for_each_reason() -> None:
    for options in ({}, {"aggregate_by": "type"}, {"top": 1}):
        loose = [line for line in query(PROFILE, **options).lines if line.role == "unattributed"]
        # It is much of the time, and so its kernels are named too.
        assert {line.labels["name"]: line.time_ns for line in loose} == {
            "(graph) k": 10,
            "(outside) k": 10,
            "(unattributed) k": 10,
        }


def test_delays_of_a_real_trace_are_those_between_its_events() -> None:
    path = KINETO / "cuda_fwd_stack.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    launches: dict[int, float] = {}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            correlation = event["args"]["correlation"]
            launches[correlation] = min(event["ts"], launches.get(correlation, event["ts"]))
    work = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    delays = [round(1000 * (event["ts"] - launches[event["args"]["correlation"]])) for event in work]
    (use,) = query(read(path)).devices
    assert use.launches == len(delays)
    assert use.delay_ns == pytest.approx(median(delays), abs=1)
    assert use.delay_p90_ns == pytest.approx(quantiles(delays, n=10, method="inclusive")[-1], abs=1)


def test_a_replayed_graph_has_no_launches_of_its_own() -> None:
    answer = query(read(KINETO / "cuda_cudagraph.json.gz"))
    (use,) = answer.devices
    assert use.launches == 0
    lines = [line for line in answer.lines if line.role == "unattributed"]
    assert len(lines) == 5 + 1
    assert all(line.labels["name"].startswith("(graph) ") for line in lines[:5])
    assert lines[5].labels["name"] == "(unattributed: captured graph)"
    assert sum(line.count for line in lines) == use.kernels


# -- which peak --------------------------------------------------------------------------------------------------------


def product(dtype: str, kernel_name: str) -> Profile:
    spec = TensorSpec((256, 256), dtype)
    ran = ProfileRow(
        id=0, name="mm", type="aten::mm", kind="matmul", attrs={"depth": 256}, ins=(spec, spec), outs=(spec,),
        device_ns=1000, kernels=(kernel(0, None, name=kernel_name, duration=1000),),
    )  # fmt: skip
    return Profile(meta={}, rows=(ran,))


FLOPS = 2 * 256**3 / 1e-6


@pytest.mark.parametrize(
    ("dtype", "name", "peak"),
    [
        ("float32", "ampere_sgemm_128x64_tn", "float32"),
        ("float32", "sm80_xmma_gemm_tf32tf32_tf32f32_f32_tn_n_tilesize128x128x16", "tf32"),
        ("float32", "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", "tf32"),
        ("float16", "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_tn", "float16"),
        ("bfloat16", "ampere_bf16_s16816gemm_bf16_128x128", "bfloat16"),
        ("int8", "igemm", "int8"),
    ],
)
def test_the_peak_is_that_of_the_precision_in_which_kernels_ran(dtype: str, name: str, peak: str) -> None:
    (line,) = query(product(dtype, name), device="a100")
    assert line.of_peak_flops == pytest.approx(FLOPS / DEVICES["a100"].flops[peak])


def test_a_type_that_a_device_does_not_have_is_compared_with_no_peak() -> None:
    (line,) = query(product("bfloat16", "gemm"), device="v100")
    assert line.of_peak_flops is None
    (line,) = query(product("float8_e4m3fn", "gemm"), device="h100")
    assert line.of_peak_flops == pytest.approx(FLOPS / DEVICES["h100"].flops["float8"])


def test_measured_peaks_hold_for_every_type() -> None:
    for dtype in ("float32", "bfloat16", "int8"):
        (line,) = query(product(dtype, "gemm"), device=measured(10**12, None))
        assert line.of_peak_flops == pytest.approx(FLOPS / 10**12)
        assert line.above_peak
        assert line.of_peak_bandwidth is None


@pytest.mark.parametrize("name", ["NVIDIA H200", "h200", "H200", "nvidia_h200"])
def test_a_device_may_be_called_with_its_maker(name: str) -> None:
    assert device(name) is DEVICES["h200"]


def test_an_unknown_device_is_answered_with_some_that_are_known_and_where_all_are() -> None:
    with pytest.raises(UnknownName) as fault:
        device("gtx9000")
    assert "a100" in fault.value.message
    assert f"and {len(DEVICES) - 20} more" in fault.value.message
    assert "--help lists all" in fault.value.hint


def test_an_operator_without_what_its_rule_needs_has_no_cost() -> None:
    spec = TensorSpec((4, 4))
    bare = ProfileRow(id=0, name="mm", type="aten::mm", kind="matmul", ins=(spec, spec), outs=(spec,), host_self_ns=5)
    answer = query(Profile(meta={}, rows=(bare,)))
    assert answer.rows[0].computation is None
    assert "uncosted" in {note.code for note in answer.notes}


def test_the_documented_peaks_are_those_of_the_table() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "options.md").read_text(encoding="utf-8")
    lines = [line.strip("| \n").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    heads = next(cells for cells in lines if cells[:2] == ["device", "float64"])
    documented = {cells[0]: dict(zip(heads, cells, strict=True)) for cells in lines if cells[0] in DEVICES}
    assert documented.keys() == DEVICES.keys()
    for name, known in DEVICES.items():
        for dtype in heads[1:-2]:
            assert documented[name][dtype].strip() == (f"{known.flops[dtype] / 1e12:g}" if dtype in known.flops else "")
        assert float(documented[name]["memory"]) == known.bandwidth / 1e9
        assert known.url in documented[name]["source"]
