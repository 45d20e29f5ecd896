"""The laws that hold for every profile: however it is grouped, ordered and cut, nothing is lost and nothing counted twice."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.analysis.part import LABELS
from opcost.analysis.query import query
from opcost.core.graph import Cost
from opcost.core.profile import Answer, AnswerLine, Kernel, Profile, ProfileRow

AMOUNTS = st.integers(0, 10**6)
KERNELS = st.builds(
    Kernel,
    name=st.sampled_from(["gemm", "splitk", "Memset (Device)", "Memcpy DtoD (Device -> Device)"]),
    device=st.sampled_from(["gpu:0", "gpu:1"]),
    stream=st.sampled_from(["7", "20"]),
    start_ns=AMOUNTS,
    duration_ns=st.integers(0, 999),
)
SUMS = ("time_ns", "host_ns", "device_ns", "count", "computation", "memory", "costed_ns", "launches")


@st.composite
def rows(draw: st.DrawFn) -> ProfileRow:
    kernels = tuple(draw(st.lists(KERNELS, max_size=4)))
    total = sum(kernel.duration_ns for kernel in kernels)
    has_cost = draw(st.booleans())
    return ProfileRow(
        id=0,
        name=draw(st.sampled_from(["a", "b"])),
        type=draw(st.sampled_from(["aten::mm", "aten::add"])),
        kind=draw(st.sampled_from(["matmul", "elementwise", ""])),
        module=draw(st.sampled_from(["", "a", "a.b"])),
        phase=draw(st.sampled_from(["forward", "backward"])),
        device="cpu",
        rank=draw(st.integers(0, 1)),
        step=draw(st.sampled_from([None, 0, 1])),
        host_start_ns=draw(AMOUNTS),
        host_self_ns=draw(AMOUNTS),
        device_ns=draw(st.sampled_from([total, total, max((kernel.duration_ns for kernel in kernels), default=0)])),
        kernels=kernels,
        cost=Cost(flops=draw(AMOUNTS), bytes_read=draw(AMOUNTS)) if has_cost else None,
        count=draw(st.integers(1, 3)),
    )


PROFILES = st.builds(
    Profile,
    meta=st.just({}),
    rows=st.lists(rows(), min_size=1, max_size=8).map(tuple),
    unattributed=st.lists(KERNELS, max_size=2).map(tuple),
)


def sums_of(lines: list[AnswerLine]) -> dict[str, float]:
    return {name: sum(getattr(line, name) or 0 for line in lines) for name in SUMS}


def shown(answer: Answer) -> list[AnswerLine]:
    """The lines that together are the whole."""
    return [line for line in answer.lines if line.role not in ("total", "group")]


@given(PROFILES, st.sampled_from(["device", "host"]), st.sampled_from([0, 1, 2]))
def test_the_sums_over_any_grouping_are_equal(profile: Profile, side: str, top: int) -> None:
    plain = query(profile, side=side)
    expected = sums_of(shown(plain))
    for key in LABELS:
        inner = "rank" if key != "rank" else "kernel"
        for options in ({"aggregate_by": key}, {"group_by": key}, {"group_by": key, "aggregate_by": inner}):
            answer = query(profile, side=side, top=top, **options)
            assert sums_of(shown(answer)) == sums_of([answer.lines[-1]]) == expected, options


@given(PROFILES, st.sampled_from(sorted(LABELS)))
def test_a_rate_is_the_known_work_over_the_time_of_the_rows_with_a_cost(profile: Profile, key: str) -> None:
    for side in ("device", "host"):
        for line in (query(profile, side=side, aggregate_by=key)).lines:
            if line.flops is not None:
                assert line.flops == pytest.approx(float(Fraction(line.computation) * 10**9 / Fraction(line.costed_ns)))
            if line.uncosted_share is not None:
                spent = line.device_ns
                assert line.uncosted_share == pytest.approx(1 - (line.costed_ns or 0) / spent)


def test_the_cost_of_an_operator_goes_with_the_kernels_that_do_its_work() -> None:
    kernels = (
        Kernel("Memset (Device)", "gpu:0", "7", 0, 60),
        Kernel("gemm", "gpu:0", "7", 60, 30),
        Kernel("splitk", "gpu:0", "8", 90, 10),
    )
    cost = Cost(flops=1001, bytes_read=40)
    row = ProfileRow(id=0, name="a", type="aten::mm", kind="matmul", device_ns=100, kernels=kernels, cost=cost)
    profile = Profile(meta={}, rows=(row,))
    by_kernel = {line.labels["kernel"]: line for line in query(profile, aggregate_by="kernel")}
    assert {name: (line.computation, line.memory) for name, line in by_kernel.items()} == {
        "Memset (Device)": (0, 0),
        "gemm": (1001 * 3 // 4, 30),
        "splitk": (1001 - 1001 * 3 // 4, 10),
    }
    copies = row._replace(kernels=kernels[:1] * 2, device_ns=120)
    assert [line.computation for line in query(Profile(meta={}, rows=(copies,)), aggregate_by="stream")] == [1001]
    instant = row._replace(kernels=tuple(kernel._replace(duration_ns=0) for kernel in kernels), device_ns=0)
    found = {
        line.labels["kernel"]: line.computation
        for line in query(Profile(meta={}, rows=(instant,)), aggregate_by="kernel")
    }
    assert found == {"Memset (Device)": 0, "gemm": 1001, "splitk": 0}


def test_the_share_without_a_cost_is_reported_and_does_not_dilute_the_rate() -> None:
    rows = tuple(
        ProfileRow(id=number, name="x", type="x", device_ns=time, cost=cost)
        for number, (time, cost) in enumerate([(30, Cost(flops=600, bytes_read=90)), (10, None)])
    )
    (line,) = query(Profile(meta={}, rows=rows), aggregate_by="type")
    assert (line.flops, line.bandwidth) == (600 / 30 * 1e9, 90 / 30 * 1e9)
    assert (line.costed_ns, line.uncosted_share) == (30, 10 / 40)
    table = str(query(Profile(meta={}, rows=rows), aggregate_by="type"))
    assert "% uncosted" in table
    assert "25.0" in table


def test_operators_that_wait_at_the_same_time_wait_once() -> None:
    def row(start: int, first: int) -> ProfileRow:
        kernels = (Kernel("k", "gpu:0", "7", first, 1),)
        return ProfileRow(id=0, name="x", type="x", host_start_ns=start, host_self_ns=1, device_ns=1, kernels=kernels)

    profile = Profile(meta={}, rows=(row(0, 100), row(10, 101), row(20, 102), row(200, 230)))
    assert query(profile, aggregate_by="type").lines[-1].wait_ns == 102 + 30
    waits = query(profile, aggregate_by="type", measure="wait")
    assert [line.time_ns for line in waits.lines] == [102 + 30] * 2
    assert query(profile, aggregate_by="type", aggregate="mean").rows[0].wait_ns == (100 + 91 + 82 + 30) / 4
    waiting = tuple(
        ProfileRow(id=0, name="x", type="x", host_ns=1, device_ns=1, attrs={"wait_ns": wait}) for wait in (5, 7)
    )
    assert query(Profile(meta={}, rows=waiting), aggregate_by="type").lines[-1].wait_ns == 12


def test_several_recorded_runs_are_reported_per_run_unless_each_is_requested() -> None:
    runs, flops = 3, 70
    rows = tuple(
        ProfileRow(id=0, name="a", type="x", kind="matmul", step=step, host_self_ns=30 + step, cost=Cost(flops=flops))
        for step in range(runs)
    )
    profile = Profile(meta={"format": "opcost"}, rows=rows, wall_ns=300)
    answer = query(profile, aggregate_by="type")
    (line,) = answer
    total = answer.lines[-1]
    assert (
        (line.count, line.computation, line.time_ns) == (total.count, total.computation, total.time_ns) == (1, 70, 31)
    )
    assert (answer.wall_ns, answer.host_ns, answer.runs, answer.is_per_run) == (100, 31, runs, True)
    assert line.flops == flops * 1e9 / 31
    assert "3 runs, per run" in str(answer)
    apart = query(profile, aggregate_by="step,type")
    assert [line.time_ns for line in apart] == [32, 31, 30]
    assert apart.lines[-1].computation == runs * flops
    assert query(profile, aggregate_by="type", where="step == 1").lines[-1].computation == flops
    longest = query(profile, aggregate_by="type", aggregate="max")
    assert (longest.rows[0].time_ns, longest.lines[-1].time_ns) == (32, 31)
    # Steps of other tools' traces are not known to be runs of one model.
    assert (
        query(Profile(meta={"format": "kineto"}, rows=rows), aggregate_by="type").lines[-1].computation == runs * flops
    )


def test_profiles_of_different_numbers_of_runs_are_compared_run_by_run() -> None:
    from opcost.analysis.compare import diff_profiles

    def recorded(runs: int, time: int) -> Profile:
        rows = (ProfileRow(id=0, name="a", type="x", step=step, host_self_ns=time) for step in range(runs))
        return Profile(meta={"format": "opcost"}, rows=tuple(rows))

    assert not diff_profiles(recorded(2, 50), recorded(5, 50))
    total = diff_profiles(recorded(2, 50), recorded(5, 60)).total("time")
    assert total is not None
    assert total.amounts == (50, 60)


LOST = tuple(
    Kernel(name, "gpu:0", "7", 0, time, why="graph" if name == "f" or time == 50 else "")
    for name, time in [("a", 50), ("b", 40), ("a", 5), ("c", 4), ("d", 3), ("e", 2), ("f", 1)]
)


def row_of(time: int) -> ProfileRow:
    return ProfileRow(
        id=0, name="x", type="x", kind="conv", device_ns=time, kernels=(Kernel("k", "gpu:0", "7", 0, time),)
    )


def test_much_device_work_without_an_operator_is_opened_into_its_kernels() -> None:
    answer = query(Profile(meta={}, rows=(row_of(95),), unattributed=LOST), aggregate_by="type")
    lost = {line.labels["name"]: line.time_ns for line in answer.lines if line.role == "unattributed"}
    assert lost == {
        "(graph) a": 50,
        "(unattributed) b": 40,
        "(unattributed) a": 5,
        "(unattributed) c": 4,
        "(unattributed) d": 3,
        "(unattributed: captured graph)": 1,
        "(unattributed)": 2,
    }
    little = query(Profile(meta={}, rows=(row_of(10**4),), unattributed=LOST), aggregate_by="type")
    assert {line.labels["name"]: line.time_ns for line in little.lines if line.role == "unattributed"} == {
        "(unattributed: captured graph)": 51,
        "(unattributed)": 54,
    }


def test_device_work_without_an_operator_is_filtered_like_any_other() -> None:
    profile = Profile(meta={}, rows=(row_of(95),), unattributed=LOST)
    for options in ({"kind": "conv"}, {"type": "x"}, {"name": "x"}, {"where": 'kind == "conv"'}):
        answer = query(profile, **options)
        assert [line.role for line in answer.lines] == ["row", "total"], options
        assert answer.lines[-1].time_ns == 95
    assert query(profile, where="time >= 40ns").lines[-1].time_ns == 95 + 50 + 40


def test_where_no_operator_launched_anything_kernels_are_the_lines() -> None:
    called = ProfileRow(id=0, name="cudaLaunchKernel", type="cudaLaunchKernel", host_ns=1)
    for rows in ((), (called,), (called, called)):
        profile = Profile(meta={}, rows=rows, unattributed=LOST)
        assert profile.usual_keys == ("kernel",)
        answer = query(profile, aggregate_by=profile.usual_keys)
        assert [line.labels["kernel"] for line in answer] == ["a", "b", "c", "d", "e", "f"]
        assert "unattributed" not in {line.role for line in answer.lines}
    assert "captured graph" in str(query(profile, aggregate_by="type", where="time < 2ns"))
