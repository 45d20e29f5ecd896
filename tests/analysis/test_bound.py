"""What bounds operators and their potential savings, on profiles whose rates and times are known by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.analysis.breakdown import gains_of
from opcost.analysis.query import query
from opcost.core.devices import Device
from opcost.core.graph import Cost, TensorSpec
from opcost.core.profile import Busy, Kernel, Profile, ProfileRow

# A FLOP and a byte take a nanosecond each at the peak.
DEVICE = Device(name="slow", flops={"float32": 10**9}, bandwidth=10**9, source="by hand")
LAUNCH_EVERY = 50


def row(
    *times: int, name: str = "aten::mm", kind: str = "matmul", flops: int | None = 0, moved: int = 0, **more: object
) -> ProfileRow:
    kernels = tuple(Kernel("gemm", "gpu:0", "7", 0, time) for time in times)
    spec = (TensorSpec((1,), "float32"),)
    cost = None if flops is None else Cost(flops=flops, bytes_read=moved)
    known: dict[str, object] = {
        "id": 0,
        "name": name,
        "type": name,
        "kind": kind,
        "ins": spec,
        "kernels": kernels,
        "device_ns": sum(times),
        "cost": cost,
    }
    return ProfileRow(**(known | more))  # type: ignore[arg-type]


def use(**more: object) -> Busy:
    known = {
        "device": "gpu:0",
        "rank": 0,
        "span_ns": 1000,
        "busy_ns": 1000,
        "work_ns": 1000,
        "kernels": 9,
        "median_ns": 1,
    }
    return Busy(**(known | {"launch_every_ns": LAUNCH_EVERY} | more))  # type: ignore[arg-type]


def profile(*rows: ProfileRow, unattributed: tuple[Kernel, ...] = (), **of_use: object) -> Profile:
    extra = {"devices": [use(**of_use)._asdict()]}
    return Profile(meta={}, rows=rows, unattributed=unattributed, extra=extra)


@pytest.mark.parametrize(
    ("found", "bound", "ideal"),
    [
        (row(100, flops=60, moved=59), "compute", 60),
        (row(100, flops=59, moved=60), "memory", 60),
        (row(100, flops=59, moved=59), "latency", 59),
        (row(49, flops=10, moved=5), "launch", 10),  # shorter than from launch to launch
        (row(49, flops=40, moved=5), "compute", 40),  # near the peak, however short
        (row(60, 30, flops=1), "launch", 1),  # 45 for each of the kernels
        (row(70, 30, flops=1), "latency", 1),
        (
            row(100, kind="elementwise", flops=90, moved=10),
            "latency",
            10,
        ),  # only products run at the peak of matrix units
        (row(100, flops=None), "", None),
        (row(49, flops=None), "launch", None),
        (row(100, kernels=(Kernel("ncclDevKernel", "gpu:0", "7", 0, 100),)), "communication", 0),
        (row(100, kernels=(Kernel("Memcpy HtoD (Pinned -> Device)", "gpu:0", "7", 0, 100),)), "transfer", 0),
    ],
)
def test_what_bounds_an_operator(found: ProfileRow, bound: str, ideal: float | None) -> None:
    (line,) = query(profile(found), device=DEVICE).rows
    assert (line.bound, line.ideal_ns) == (bound, ideal)


def test_without_peaks_only_the_lengths_of_kernels_are_judged() -> None:
    short, long = query(profile(row(49, flops=1), row(50, flops=1)), sort="+time").rows
    assert (short.bound, long.bound, short.ideal_ns) == ("launch", "", None)


def test_a_line_is_bound_by_what_bounds_most_of_its_time_and_can_be_selected_by_it() -> None:
    measured = profile(row(100, flops=60), row(60, flops=1), row(70, flops=1))
    (line,) = query(measured, device=DEVICE, aggregate_by="type").rows
    assert (line.bound, line.ideal_ns) == ("latency", 62)
    by_bound = {line.labels["bound"]: line.time_ns for line in query(measured, device=DEVICE, aggregate_by="bound")}
    assert by_bound == {"latency": 130, "compute": 100}
    assert [line.time_ns for line in query(measured, device=DEVICE, where='bound == "compute"')] == [100]
    assert "compute" in str(query(measured, device=DEVICE))


def test_time_that_no_kernel_takes_can_be_won_whole() -> None:
    found = gains_of(
        [
            use(
                compute_ns=300,
                compute_work_ns=300,
                idle_host_ns=250,
                idle_input_ns=10,
                communication_ns=150,
                all_communication_ns=170,
                copies_ns=100,
                transfers_ns=90,
            )
        ],
        (),
    )
    assert [(gain.what, gain.share, gain.time_ns) for gain in found] == [
        ("idle: host-bound", 0.25, 250),
        ("communication that nothing hides", 0.15, 150),
        ("copies that could run beside kernels", 0.09, 90),
    ]


def test_communication_is_hidden_only_behind_computing_that_hides_none_yet() -> None:
    (gain,) = gains_of([use(compute_ns=100, communication_ns=900, all_communication_ns=940)], ())
    assert gain.time_ns == 100 - 40


def test_kernels_could_run_near_their_bound_where_the_next_work_waits_for_them() -> None:
    times = {"compute_ns": 400, "compute_work_ns": 800, "work_ns": 800, "fed_ns": 200}
    measured = profile(
        row(400, flops=60, name="aten::slow"),  # 60 / 0.6 = 100 is enough
        row(40, flops=6, name="aten::short"),  # the same with 10
        row(100, flops=60, name="aten::near"),
        row(160, phase="recompute", flops=100, name="aten::again"),
        row(100, flops=None, name="aten::unknown"),
        **times,
    )
    scale = 400 / 800 * 200 / 800
    found = {gain.what: (gain.time_ns, gain.command) for gain in query(measured, device=DEVICE).gains}
    assert found == {
        "aten::slow at 15 % of its bound": (pytest.approx(300 * scale), "--type aten::slow --aggregate-by shape"),
        "recomputing what a checkpoint did not keep": (
            pytest.approx(160 * scale),
            """--where 'phase == "recompute"'""",
        ),
    }  # of the short ones 30 * scale / 1000 of the time are not worth a line
    assert not query(measured, device=DEVICE, type="aten::slow").gains  # they are of the whole
    said = str(query(measured, device=DEVICE))
    assert (
        said.index("total") < said.index("800 ns  800 ns") < said.index("potential savings in the trace (upper bounds)")
    )


def test_a_gain_is_that_of_one_step_of_one_device() -> None:
    both = [
        use(compute_ns=1000, steps=4, step_ns=240, idle_host_ns=400),
        use(rank=1, compute_ns=1000, steps=4, step_ns=260, idle_host_ns=200),
    ]
    (gain,) = gains_of(both, ())
    assert gain.share == pytest.approx(0.3)
    assert gain.time_ns == (400 / 4 + 200 / 4) / 2  # what was lost in the steps, whatever the median of them is


PARTS = st.integers(0, 1000)


@given(
    st.lists(PARTS, min_size=8, max_size=8), st.lists(st.tuples(st.integers(1, 400), st.integers(0, 400)), max_size=5)
)
def test_no_gain_is_counted_twice(parts: list[int], kernels: list[tuple[int, int]]) -> None:
    host, synchronised, loading, launch, blocked, communication, transfers, fed = parts
    rows = [row(time, flops=flops, name=f"op{number}") for number, (time, flops) in enumerate(kernels)]
    work = sum(time for time, _ in kernels)
    computing = min(work, 500)
    span = sum(parts[:7]) + computing
    busy = use(
        span_ns=span,
        busy_ns=communication + transfers + computing,
        work_ns=work + communication + transfers,
        compute_ns=computing,
        compute_work_ns=work,
        idle_host_ns=host,
        idle_synchronised_ns=synchronised,
        idle_input_ns=loading,
        idle_launch_ns=launch,
        idle_blocked_ns=blocked,
        communication_ns=communication,
        all_communication_ns=communication,
        copies_ns=transfers,
        transfers_ns=transfers,
        fed_ns=fed,
        steps=1,
        step_ns=span,
    )
    measured = Profile(meta={}, rows=tuple(rows), extra={"devices": [busy._asdict()]})
    found = query(measured, device=DEVICE).gains
    assert sum(gain.time_ns for gain in found) <= span * (1 + 1e-9)
    assert all(0 < gain.share <= 1 and gain.time_ns <= span for gain in found)


def test_conditions_take_what_tables_show() -> None:
    # 60 FLOPs in 100 ns at a peak of one each nanosecond, and 30 bytes of what could be 100.
    found = profile(row(100, flops=60, moved=30), row(100, name="aten::odd", flops=None))
    for condition, names in (
        ("of_peak_flops == 60%", ["aten::mm"]),
        ("of_peak_bandwidth < 50%", ["aten::mm"]),
        ("uncosted > 0%", ["aten::odd"]),
        ("per_call == 1", ["aten::mm", "aten::odd"]),
        ('top_kernel == "gemm" and input == "1"', ["aten::mm", "aten::odd"]),
    ):
        lines = query(found, where=condition, device=DEVICE, aggregate_by="type").rows
        assert sorted(line.labels["type"] for line in lines) == names, condition


@pytest.mark.parametrize(("count", "view"), [(1, "--view launches"), (2, "--view breakdown")])
def test_a_loss_is_shown_over_time_where_it_is_known_when_everything_ran(count: int, view: str) -> None:
    found = profile(row(100, count=count), busy_ns=500, compute_ns=500, idle_host_ns=500)
    (gain,) = (gain for gain in query(found).gains if gain.what == "idle: host-bound")
    assert (gain.share, gain.command) == (0.5, view)
