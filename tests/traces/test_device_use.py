"""What a device lost its time to: the causes of gaps, and what ran alone, on traces whose clock is known by hand."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.analysis.breakdown import devices
from opcost.analysis.query import query
from opcost.core.profile import Busy, extra_entries
from opcost.traces.kineto.reader import read_table
from opcost.traces.ranks import read_ranks

US = 1000
UPDATE = "Optimizer.step#SGD.step"


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
    assert devices(read_table(path).profile) == (use,)
    return use


def test_a_gap_is_the_host_s_until_the_launch_and_the_launch_s_from_there(tmp_path: Path) -> None:
    events = [launch(1, 0), kernel(1, 10, 20), launch(2, 50), kernel(2, 57, 60)]
    use = use_of(events, tmp_path / "t.json")
    assert (use.span_ns, use.busy_ns, use.idle_ns) == (50 * US, 13 * US, 37 * US)
    assert (use.idle_host_ns, use.idle_launch_ns) == (30 * US, 7 * US)
    assert use.idle_synchronised_ns == use.idle_input_ns == 0
    assert use.gaps == use.gap_ns == use.longest_gap_ns == use.longest_gap_at_ns == 0


def test_what_was_launched_in_time_waits_for_no_host(tmp_path: Path) -> None:
    use = use_of([launch(1, 0), launch(2, 5), kernel(1, 10, 20), kernel(2, 24, 30)], tmp_path / "t.json")
    assert (use.idle_host_ns, use.idle_launch_ns, use.idle_ns) == (0, 4 * US, 4 * US)


def test_after_the_host_waited_for_the_device_the_gap_is_of_that(tmp_path: Path) -> None:
    wait = host("cuda_runtime", "cudaDeviceSynchronize", 12, 25)
    events = [launch(1, 0), kernel(1, 10, 20), wait, launch(2, 50), kernel(2, 57, 60), launch(3, 90), kernel(3, 91, 95)]
    use = use_of(events, tmp_path / "t.json")
    assert (use.idle_synchronised_ns, use.idle_host_ns, use.idle_launch_ns) == (30 * US, 30 * US, 8 * US)


def test_the_wait_for_the_next_batch_has_a_cause_of_its_own(tmp_path: Path) -> None:
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


def test_the_first_step_is_reported_by_itself(tmp_path: Path) -> None:
    steps = [
        host("user_annotation", f"ProfilerStep#{n}", 100 * n, 100 * n + length)
        for n, length in enumerate((90, 10, 20, 30))
    ]
    use = use_of([*steps, launch(1, 0), kernel(1, 1, 2)], tmp_path / "t.json")
    assert (use.steps, use.first_step_ns, use.step_ns) == (4, 90 * US, 20 * US)
    assert (use.least_step_ns, use.most_step_ns) == (10 * US, 30 * US)
    assert "step 20.00 µs (4 steps, 10.00 µs to 30.00 µs, the first 90.00 µs)" in opcost.read_profile(
        tmp_path / "t.json"
    ).query().render(width=200).replace("\u00a0", " ")


def test_what_does_not_begin_long_after_its_launch_waits_for_something_else(tmp_path: Path) -> None:
    use = use_of([launch(1, 0), launch(2, 5), kernel(1, 10, 20), kernel(2, 100, 130)], tmp_path / "t.json")
    assert (use.idle_launch_ns, use.idle_blocked_ns, use.idle_ns) == (50 * US, 30 * US, 80 * US)


def call(number: int, start: int, end: int, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    return host("cuda_runtime", name, start, end, correlation=number)


def test_time_in_a_long_launch_call_is_of_that_call(tmp_path: Path) -> None:
    # The host is behind from 20 to 30, the call loads a module until 4030, and the kernel begins 3 later.
    use = use_of([launch(1, 0), kernel(1, 10, 20), call(2, 30, 4030), kernel(2, 4033, 5000)], tmp_path / "t.json")
    assert (use.idle_host_ns, use.idle_call_ns, use.idle_launch_ns, use.idle_blocked_ns) == (
        10 * US,
        4000 * US,
        3 * US,
        0,
    )
    assert use.idle_call == "cudaLaunchKernel"
    answer = opcost.read_profile(tmp_path / "t.json").query()
    assert "long launch calls (cudaLaunchKernel)" in str(answer).replace("\n", " ").replace("        ", "")
    (gain,) = (gain for gain in answer.gains if "launch calls" in gain.what)
    assert (gain.what, gain.time_ns) == ("idle: long launch calls (cudaLaunchKernel)", 4000 * US)
    assert gain.command == "--side host --type cudaLaunchKernel"


def test_a_kernel_is_blocked_from_the_end_of_its_launch_call(tmp_path: Path) -> None:
    # 40 of the call and 50 after it are those of a launch; 30 more are not.
    use = use_of([launch(1, 0), kernel(1, 10, 20), call(2, 20, 60), kernel(2, 140, 150)], tmp_path / "t.json")
    assert (use.idle_launch_ns, use.idle_blocked_ns, use.idle_call_ns) == (90 * US, 30 * US, 0)


def test_a_call_that_returns_after_its_work_began_counts_until_then(tmp_path: Path) -> None:
    # A copy from pageable memory: the call waits for it, but the device was idle for 30 only.
    use = use_of(
        [launch(1, 0), kernel(1, 10, 20), call(2, 20, 900, "cudaMemcpyAsync"), kernel(2, 50, 890)], tmp_path / "t.json"
    )
    assert (use.idle_launch_ns, use.idle_call_ns) == (30 * US, 0)


def steps_of_forty(path: Path) -> opcost.Profile:
    """A first step of 1000 µs, four of 100 in which the device waits 38 for the host and 2 for the launch, and a late kernel."""
    events = [host("user_annotation", "ProfilerStep#0", 0, 1000), launch(0, 0), kernel(0, 900, 1000)]
    for number in range(1, 5):
        start = 900 + 100 * number
        events.append(host("user_annotation", f"ProfilerStep#{number}", start, start + 100))
        events += [launch(number, start + 38), kernel(number, start + 40, start + 100)]
    events += [launch(9, 1898), kernel(9, 1900, 1910)]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    return opcost.read_profile(path)


def test_potential_savings_per_step_are_those_of_the_steps(tmp_path: Path) -> None:
    profile = steps_of_forty(tmp_path / "t.json")
    found = {gain.what: (gain.time_ns, gain.share) for gain in profile.query().gains}
    assert found == {
        "idle: host-bound": (38 * US, pytest.approx(0.38)),
        "idle: launch latency": (2 * US, pytest.approx(0.02)),
    }
    lines = {line["part"]: line["per_step"] for line in profile.breakdown()["time of each device"]}
    assert lines["idle: host-bound"] == 38 * US  # the same page says the same
    assert lines["compute"] == 60 * US
    assert "potential savings per step" in str(profile.query())


def test_one_long_gap_is_an_event_and_no_rate(tmp_path: Path) -> None:
    # Ten kernels of 93 µs every 100, and one long before them: 990 of the rest's 1083 are busy, as is the first.
    events = [launch(0, 0), kernel(0, 0, 90)]
    for number in range(1, 11):
        start = 49_900 + 100 * number
        events += [launch(number, start - 7), kernel(number, start, start + 93)]
    use = use_of(events, tmp_path / "t.json")
    assert (use.gaps, use.gap_ns, use.longest_gap_ns) == (1, (50_000 - 90) * US, (50_000 - 90) * US)
    assert (use.longest_gap_at_ns, use.longest_gap_cause) == (90 * US, "host-bound")
    assert (use.rated_ns, use.busy_ns) == ((90 + 993) * US, (90 + 930) * US)
    assert (use.idle_host_ns, use.idle_launch_ns) == (0, 9 * 7 * US)
    answer = opcost.read_profile(tmp_path / "t.json").query().render(width=400).replace("\u00a0", " ")
    rate = 100 * 63 / 1083
    assert f"busy 1.02 ms of 1.08 ms, idle {rate:.1f} % (launch latency {rate:.1f} %)" in answer
    assert "left out of the rates: a gap of 49.91 ms, 90.00 µs after the first kernel (host-bound)" in answer
    parts = {line["part"]: line for line in opcost.read_profile(tmp_path / "t.json").breakdown()["time of each device"]}
    assert (parts["long gaps"]["time"], parts["long gaps"]["share"]) == (49_910 * US, None)
    assert sum(line["time"] for line in parts.values()) == use.span_ns
    assert sum(line["share"] or 0 for line in parts.values()) == pytest.approx(1)


def test_gaps_that_every_step_has_are_a_rate(tmp_path: Path) -> None:
    events = []
    for number in range(3):
        start = 1000 * number
        events.append(host("user_annotation", f"ProfilerStep#{number}", start, start + 1000))
        for place in range(2):
            at = start + 600 + 200 * place
            events += [launch(10 * number + place, at - 1), kernel(10 * number + place, at, at + 200)]
    use = use_of(events, tmp_path / "t.json")
    assert (use.gaps, use.idle_host_ns, use.idle_ns) == (0, 2 * 599 * US, 2 * 600 * US)
    (gain,) = opcost.read_profile(tmp_path / "t.json").query().gains
    assert (gain.what, gain.time_ns) == ("idle: host-bound", 599 * US)


def test_what_runs_beside_other_work_is_reported_too(tmp_path: Path) -> None:
    events = [
        kernel(1, 0, 10),
        kernel(2, 5, 30, "ncclDevKernel_AllReduce", 20),
        kernel(3, 20, 35, "Memcpy HtoD (Pinned -> Device)", 21),
        kernel(4, 35, 38, "Memset (Device)", 21),
        kernel(5, 6, 12, stream=8),
    ]
    use = use_of(events, tmp_path / "t.json")
    assert (use.compute_ns, use.compute_work_ns) == (12 * US, 16 * US)
    assert (use.communication_ns, use.all_communication_ns) == (18 * US, 25 * US)
    assert (use.copies_ns, use.transfers_ns, use.all_copies_ns) == (8 * US, 5 * US, 18 * US)
    assert use.busy_ns == (12 + 18 + 8) * US


def test_work_is_fed_where_the_next_was_launched_before_it_began(tmp_path: Path) -> None:
    events = [launch(1, 0), launch(2, 9), launch(3, 21), launch(4, 33)]
    events += [kernel(1, 10, 20), kernel(2, 20, 27), kernel(3, 30, 32), kernel(4, 40, 41)]
    use = use_of(events, tmp_path / "t.json")
    assert use.fed_ns == 10 * US  # the third was launched at 21, after the second had begun, and the fourth at 33
    assert use.launch_every_ns == 12 * US  # of 9, 12 and 12


def test_the_forward_pass_in_a_backward_pass_is_recomputed(tmp_path: Path) -> None:
    thread = {"Fwd thread id": 1, "Sequence number": 4}
    node = "autograd::engine::evaluate_function: MulBackward0"
    events = [
        host("cpu_op", "aten::mul", 0, 10, **{"Sequence number": 4, "Fwd thread id": 0}),
        host("cpu_op", node, 20, 60, **thread),
        host("cpu_op", "aten::mul", 21, 40, **{"Sequence number": 9, "Fwd thread id": 0}),
        host("cpu_op", node, 30, 39, **thread),  # a checkpoint of the old sort runs a backward pass inside
        host("cpu_op", "aten::mul", 41, 50),
    ]
    for number, at in enumerate((5, 25, 35, 45), 1):
        events += [launch(number, at), kernel(number, 100 * number, 100 * number + 2**number)]
    use = use_of(events, tmp_path / "t.json")
    assert use.recomputed_ns == 4 * US
    rows = opcost.read_profile(tmp_path / "t.json").rows
    phases = [(row.phase, row.device_ns) for row in rows if row.device_ns]
    assert phases == [("forward", 2 * US), ("recompute", 4 * US), ("backward", 8 * US), ("backward", 16 * US)]


@pytest.mark.parametrize(
    ("marks", "lengths"),
    [
        # From update to update; what came before the first was not all in the trace.
        ([(UPDATE, 90, 100), (UPDATE, 190, 205), (UPDATE, 290, 300)], [105, 95]),
        ([("iteration 1", 0, 40), ("iteration 2", 50, 80), ("loss", 10, 12), ("loss", 60, 61)], [40, 30]),
        ([("work", 0, 10), ("work", 90, 100)], []),  # a fifth of the time
        ([("outer", 0, 90), ("outer", 10, 20)], []),  # one in the other
        ([("enumerate(DataLoader)#next", 0, 40), ("enumerate(DataLoader)#next", 40, 80)], []),
        ([("once", 0, 90)], []),
    ],
)  # fmt: skip
def test_steps_that_no_schedule_marked(tmp_path: Path, marks: list[tuple[str, int, int]], lengths: list[int]) -> None:
    events = [host("user_annotation", *mark) for mark in marks]
    use = use_of([*events, launch(1, 0), kernel(1, 1, 2)], tmp_path / "t.json")
    assert use.steps == len(lengths)
    if lengths:
        assert (use.first_step_ns, use.step_ns) == (lengths[0] * US, lengths[1] * US)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100-pcie"), ("NVIDIA H200", "h200"), ("NVIDIA H200 NVL", None),
        ("NVIDIA B200", "b200"), ("NVIDIA GB200", "gb200"), ("NVIDIA H20", "h20"), ("NVIDIA H20-3e", None),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"), ("AMD Instinct MI300X OAM", "mi300x"), ("AMD Instinct MI300X HF", "mi300x"),
        ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"), ("NVIDIA A100-PG509-200", "a100-40gb"), ("Tesla V100-SXM2-32GB", "v100"),
        ("AMD Instinct MI300X", "mi300x"), ("AMD Instinct MI300X VF", "mi300x"), ("AMD Instinct MI250X", None),
        ("NVIDIA L4", "l4"), ("NVIDIA L40S", "l40s"), ("NVIDIA L40", "l40"), ("Tesla T4", "t4"), ("NVIDIA A10G", None),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx3090ti"), ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("AMD Radeon Graphics", None), ("", None),
    ],
)  # fmt: skip
def test_the_peaks_are_those_of_the_device_that_the_trace_names(tmp_path: Path, name: str, known: str | None) -> None:
    path = tmp_path / "t.json"
    fields = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": name}] * 2}
    path.write_text(json.dumps({**fields, "traceEvents": [kernel(1, 0, 1)]}), encoding="utf-8")
    profile = opcost.read_profile(path)
    assert query(profile).peak.partition(":")[0] == (known or "")
    assert query(profile, device="t4").peak.startswith("t4")


def test_idle_time_without_a_cause_is_reported_beside_that_with_one(tmp_path: Path) -> None:
    # 30 µs until a launch that is there, 40 µs before work whose launch is not in the trace: of a span of 100 µs.
    events = [kernel(1, 0, 10), launch(2, 40), kernel(2, 40, 50), kernel(3, 90, 100)]
    use_of(events, tmp_path / "t.json")
    said = opcost.read_profile(tmp_path / "t.json").query().render(width=200).replace("\u00a0", " ")
    assert "idle 70.0 % (not known why 40.0 %, host-bound 30.0 %)" in said
    assert "3 kernels, median 10.00 µs, 1 launch, from" in said


def test_how_far_kernels_fill_the_device_is_the_mean_over_their_time(tmp_path: Path) -> None:
    full, thin, unsaid = kernel(1, 10, 40), kernel(2, 50, 60), kernel(3, 70, 75)
    full["args"] |= {"est. achieved occupancy %": 80, "blocks per SM": 12.0}
    thin["args"] |= {"est. achieved occupancy %": 20, "blocks per SM": 0.5}
    unsaid["args"] |= {"est. achieved occupancy %": 0, "blocks per SM": "many"}
    path = tmp_path / "rank0.json"
    use_of(
        [host("cpu_op", "aten::mm", 0, 9), *(launch(number, number) for number in (1, 2, 3)), full, thin, unsaid], path
    )
    profile = opcost.read_profile(path)
    profile.save(tmp_path / "saved.json")
    saved = opcost.read_profile(tmp_path / "saved.json")
    assert saved.rows == profile.rows
    # 30 µs with 80 % and 10 µs with 20 %; of the third the profiler does not know, which is not 0.
    for found in (profile, saved, read_table(path).profile, read_ranks([path], cache="none")):
        (line,) = query(found, aggregate_by="type").rows
        assert (line.occupancy, line.blocks_per_sm) == pytest.approx(
            ((30 * 0.8 + 10 * 0.2) / 40, (30 * 12 + 10 * 0.5) / 40)
        )
    assert [(k.occupancy, k.blocks_per_sm) for row in profile.rows for k in row.kernels][-1] == (None, None)
    assert not query(profile, where="occupancy < 50%").rows
    assert len(query(profile, where="blocks_per_sm > 9").rows) == 1


def test_a_trace_without_shapes_says_how_to_record_them(tmp_path: Path) -> None:
    operator = host("cpu_op", "aten::mm", 0, 5)
    use_of([operator, launch(1, 1), kernel(1, 10, 20)], tmp_path / "t.json")
    hint = "record with record_shapes=True"
    assert any(hint in note.text for note in opcost.read_profile(tmp_path / "t.json").notes)
    operator["args"] = {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}
    use_of([operator, launch(1, 1), kernel(1, 10, 20)], tmp_path / "t.json")
    assert not any(hint in note.text for note in opcost.read_profile(tmp_path / "t.json").notes)


def test_an_operator_that_runs_as_another_has_its_cost_where_its_kernel_is(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[8, 16]], "Input type": ["float"], "Concrete Inputs": [""]}
    inner = {"Input Dims": [[8, 16], []], "Input type": ["float", "Scalar"], "Concrete Inputs": ["", "0"]}
    events = [
        host("cpu_op", "aten::relu_", 0, 9, **shapes),
        host("cpu_op", "aten::clamp_min_", 1, 8, **inner),
        launch(1, 2),
        kernel(1, 10, 20),
    ]
    use_of(events, tmp_path / "t.json")
    (line,) = query(opcost.read_profile(tmp_path / "t.json"), aggregate_by="type").rows
    assert (line.labels["type"], line.computation, line.uncosted) == ("aten::clamp_min_", 8 * 16, 0)


_LISTED = "void at::native::(anonymous namespace)::CatArrayBatchedCopy"
_OPAQUE = "_contig<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 2>(int)"
_GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)"
_JOINED = {
    "Input Dims": [[[2, 3], [2, 5]], []],
    "Input type": ["TensorList", "Scalar"],
    "Concrete Inputs": ["", "1"],
    "Input Strides": [[[3, 1], [5, 1]], []],
}
_BENT = {"Input Dims": [[4, 8], []], "Input type": ["float", ""], "Concrete Inputs": ["", ""]}


@pytest.mark.parametrize(
    ("name", "words", "kernel_name", "flops", "moved"),
    [
        # Two tensors of 2x3 and 2x5 elements, of two bytes or of four, and what is made of them.
        ("aten::cat", _JOINED, _LISTED + _OPAQUE, 0, 2 * 2 * 16),
        ("aten::cat", _JOINED, _LISTED + "<float, unsigned int, 2, 128, 1>(float*)", 0, 2 * 4 * 16),
        ("aten::cat", _JOINED, "some_cat", None, None),
        ("aten::gelu", _BENT, _GELU + "::{lambda()#1}::operator()() const>(int)", 13 * 32, 2 * 4 * 32),
        ("aten::gelu", _BENT, _GELU + "::{lambda()#2}::operator()() const>(int)", 5 * 32, 2 * 4 * 32),
        ("aten::gelu", _BENT, "some_gelu_of_another_library", None, None),
    ],
)
def test_what_arguments_do_not_tell_the_names_of_kernels_may(
    tmp_path: Path, name: str, words: dict[str, Any], kernel_name: str, flops: int | None, moved: int | None
) -> None:
    use_of([host("cpu_op", name, 0, 5, **words), launch(1, 1), kernel(1, 10, 20, kernel_name)], tmp_path / "t.json")
    for found in (opcost.read_profile(tmp_path / "t.json"), read_table(tmp_path / "t.json").profile):
        (line,) = query(found, aggregate_by="type").rows
        assert (line.computation, line.memory) == (flops, moved)


# -- steps, gaps and launches by hand ----------------------------------------------------------------------------------


def step(number: int, start: int, end: int) -> dict[str, Any]:
    return host("user_annotation", f"ProfilerStep#{number}", start, end)


@pytest.mark.parametrize(
    ("marks", "second", "span", "kernels"),
    [
        # from the end of what was launched before, at 150, to 330
        ([(0, 100), (100, 300), (300, 400)], (110, 150), 180, 3),
        # which is still under way when the first kernel of the steps begins, at 160
        ([(0, 100), (100, 300), (300, 400)], (110, 170), 170, 3),
        ([(0, 100), (100, 400)], (110, 150), 180, 3),
        ([(100, 400)], (110, 150), 170, 3),  # what was launched before the only step is not of the loop
        ([(0, 100), (100, 300), (300, 401)], (110, 150), 275, 4),
    ],
)
def test_the_steps_begin_where_the_work_before_them_ended(
    marks: list[tuple[int, int]], second: tuple[int, int], span: int, kernels: int, tmp_path: Path
) -> None:
    events = [step(number, *mark) for number, mark in enumerate(marks)]
    events += [launch(1, 10), launch(2, 90), launch(3, 100), launch(4, 250), launch(6, 400)]
    # the second was launched before the second step, the third as it began, the sixth as the last ended; the fifth has no launch
    events += [kernel(1, 20, 60), kernel(2, *second, stream=8), kernel(3, 160, 180), kernel(4, 260, 270)]
    events += [kernel(5, 310, 330), kernel(6, 405, 425)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    (use,) = extra_entries(read_table(path).profile.extra, "steps", Busy)
    assert (use.span_ns, use.kernels) == (span * US, kernels)
    assert (use.busy_ns, use.steps) == ((50 if kernels == 3 else 70) * US, len(marks[1:] or marks))


@pytest.mark.parametrize(
    ("steps", "gaps", "whole", "of_steps"),
    [
        # events are no more than the steps but for two, and one at least; without steps any number
        (0, 2, 2, None), (1, 2, 2, 0), (2, 1, 1, 0), (2, 2, 0, 0), (3, 1, 1, 1), (3, 2, 0, 0), (4, 2, 2, 2), (4, 3, 0, 0),
        (5, 3, 3, 3),
    ],
)  # fmt: skip
def test_gaps_that_come_with_every_step_are_no_events(
    steps: int, gaps: int, whole: int, of_steps: int | None, tmp_path: Path
) -> None:
    """Blocks of ten kernels of 1 µs, with gaps of 100 between them, after a first step without work."""
    events = [
        kernel(20 * block + n, 5 + 110 * block + n, 6 + 110 * block + n) for block in range(gaps + 1) for n in range(10)
    ]
    end = 5 + 110 * gaps + 10
    marks = [0, *(5 + (end - 5) * n // max(1, steps - 1) for n in range(steps))] if steps > 1 else [0, end][: steps + 1]
    events += [step(number, *mark) for number, mark in enumerate(pairwise(marks))]
    use = use_of(events, tmp_path / "t.json")
    assert (use.steps, use.gaps, use.gap_ns) == (steps, whole, 100 * whole * US)
    assert use.longest_gap_ns == (100 * US if whole else 0)
    found = extra_entries(read_table(tmp_path / "t.json").profile.extra, "steps", Busy)
    assert [each.gaps for each in found] == ([] if of_steps is None else [of_steps])


@pytest.mark.parametrize(
    ("delays", "middle", "ninth"), [([7], 7, 7), ([10, 20], 15, 19), (list(range(0, 110, 10)), 50, 90)]
)
def test_delays_after_launches(delays: list[int], middle: float, ninth: float, tmp_path: Path) -> None:
    events = [host("cpu_op", "aten::first", 900, 1150), host("cpu_op", "aten::others", 1190, 9000)]
    for number, delay in enumerate(delays):
        at = 1000 + 200 * number
        events += [launch(number, at), kernel(number, at + delay, at + delay + 5)]
    use = use_of(events, tmp_path / "t.json")
    assert (use.launches, use.delay_ns, use.delay_p90_ns) == (len(delays), middle * US, pytest.approx(ninth * US))
    assert use.launch_every_ns == (200 * US if len(delays) > 1 else None)
    assert (use.owned, use.operators) == (len(delays), min(2, len(delays)))


def test_what_was_launched_as_the_work_before_it_began_is_fed(tmp_path: Path) -> None:
    use = use_of([launch(1, 0), launch(2, 10), kernel(1, 10, 20), kernel(2, 20, 27)], tmp_path / "t.json")
    assert use.fed_ns == 10 * US


@pytest.mark.parametrize(
    ("events", "causes"),
    [
        # a call of 50 µs is a launch, a longer one is itself
        ([call(2, 20, 70), kernel(2, 70, 75)], {"launch": 50}),
        ([call(2, 20, 71), kernel(2, 71, 75)], {"call": 51}),
        ([call(2, 10, 71), kernel(2, 71, 75)], {"call": 51}),  # it began while the device was busy
        ([call(2, 30, 130, "b"), kernel(2, 130, 135), call(3, 135, 195, "a"), kernel(3, 195, 200)], {"host": 10, "call": 160}),
        # work that begins 50 µs after the call was launched, what is beyond is blocked
        ([call(2, 20, 21), kernel(2, 71, 75)], {"launch": 51}),
        ([call(2, 20, 21), kernel(2, 72, 75)], {"launch": 51, "blocked": 1}),
        # the host came back from a wait as the device ran dry, or as it launched
        ([host("cuda_runtime", "cudaStreamSynchronize", 5, 20), call(2, 30, 31), kernel(2, 31, 35)],
         {"synchronised": 10, "launch": 1}),
        ([host("cuda_runtime", "cudaStreamSynchronize", 5, 30), call(2, 30, 31), kernel(2, 31, 35)],
         {"synchronised": 10, "launch": 1}),
        ([host("cuda_runtime", "cudaStreamSynchronize", 5, 19), call(2, 30, 31), kernel(2, 31, 35)], {"host": 10, "launch": 1}),
        ([host("cuda_runtime", "cudaStreamSynchronize", 30, 31), call(2, 30, 32), kernel(2, 32, 35)], {"host": 10, "launch": 2}),
        # three loads: the first began before, the last ends after
        ([*(host("user_annotation", "enumerate(DataLoader)#x.__next__", *span) for span in ((15, 22), (24, 25), (29, 45))),
          call(2, 32, 33), kernel(2, 33, 35)], {"input": 2 + 1 + 3, "host": 6, "launch": 1}),
        ([host("user_annotation", "enumerate(DataLoader)#x.__next__", 2, 4), call(2, 32, 33), kernel(2, 33, 35)],
         {"host": 12, "launch": 1}),
        ([host("user_annotation", "enumerate(DataLoader)#x.__next__", 22, 25),
          host("cuda_runtime", "cudaStreamSynchronize", 26, 28), call(2, 32, 33), kernel(2, 33, 35)],
         {"input": 3, "synchronised": 9, "launch": 1}),
    ],
)  # fmt: skip
def test_every_gap_has_its_causes(events: list[dict[str, Any]], causes: dict[str, int], tmp_path: Path) -> None:
    """The device is free from 20 on."""
    use = use_of([launch(1, 9), kernel(1, 10, 20), *events], tmp_path / "t.json")
    found = {name: getattr(use, f"idle_{name}_ns") for name in "host synchronised input launch blocked call".split()}
    assert {name: time for name, time in found.items() if time} == {name: time * US for name, time in causes.items()}
    assert use.idle_call == ("" if "call" not in causes else "b" if causes["call"] == 160 else "cudaLaunchKernel")


@pytest.mark.parametrize(
    ("launched", "begins", "cause"),
    [
        (500, 1000, "host-bound 50 %, blocked after launch 45 %"),  # the launch is a twentieth
        (400, 500, "host-bound 80 %, launch latency 10 %, blocked after launch 10 %"),  # a tenth is said
        (900, 1000, "host-bound"),
    ],
)
def test_the_longest_gap_names_the_causes_of_a_tenth(launched: int, begins: int, cause: str, tmp_path: Path) -> None:
    events = [kernel(n, 10 * n - 100, 10 * n - 90) for n in range(10)]  # until 0
    events += [call(20, launched, launched), kernel(20, begins, begins + 50)]
    use = use_of([{**each, "ts": each["ts"] + 1000} for each in events], tmp_path / "t.json")
    assert (use.gaps, use.longest_gap_ns, use.longest_gap_at_ns) == (1, begins * US, 100 * US)
    assert use.longest_gap_cause == cause
