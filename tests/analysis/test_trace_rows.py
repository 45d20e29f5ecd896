"""What the sheets about a trace say of a handful of kernels, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from opcost.analysis.breakdown import breakdown, computes, devices, gains_of
from opcost.analysis.communication import communication
from opcost.analysis.critical_path import LaunchedKernel, _launched, launches
from opcost.analysis.join import step_flops, tokens_of
from opcost.analysis.part import Part, combine, delays_of, percentile
from opcost.analysis.query import query
from opcost.core.devices import device
from opcost.core.graph import Cost, Memory, Op, TensorSpec
from opcost.core.profile import Busy, Kernel, Profile, ProfileRow, RankWait
from opcost.core.report import Coverage, Report, Row, Stats
from opcost.core.sheet import Sheet
from opcost.core.timeline import covered
from opcost.errors import InputError


def kernel(
    start: int, duration: int, launched: int | None = None, name: str = "k", device: str = "gpu:0", count: int = 1
) -> Kernel:
    return Kernel(name, device, "7", start, duration, launched, count=count)


def row(number: int, *kernels: Kernel, **more: Any) -> ProfileRow:
    spent = sum(each.duration_ns for each in kernels)
    return ProfileRow(
        **{"id": number, "name": f"n{number}", "type": "a", "device_ns": spent, "kernels": kernels, **more}
    )


def table(sheet: Sheet, title: str) -> list[dict[str, Any]]:
    found = next(each for each in sheet.tables if each.title == title)
    return found.records()


# -- numbers of many ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [
        ([(10, 1), (20, 1), (40, 1)], 50, 20), ([(10, 1), (20, 1), (40, 1)], 25, 15), ([(10, 1), (20, 1), (40, 1)], 90, 36),
        ([(10, 1), (20, 1), (40, 1)], 0, 10), ([(10, 1), (20, 1), (40, 1)], 100, 40), ([(10, 3), (40, 1)], 50, 10), ([(10, 3),
        (40, 1)], 90, 31),
        ([(7, 1)], 90, 7),
    ],
)  # fmt: skip
def test_a_percentile_lies_between_its_neighbours(
    values: list[tuple[float, int]], percent: float, found: float
) -> None:
    assert percentile(values, percent) == pytest.approx(found)


def test_spans_that_overlap_count_once() -> None:
    assert covered([(0, 10), (5, 12), (20, 25), (21, 22)]) == 12 + 5


def test_kernels_of_one_name_are_one_and_five_are_named() -> None:
    kernels = [kernel(0, 5 + place, name=f"k{place}") for place in range(6)] + [kernel(9, 100, name="k0", count=3)]
    line = combine([Part(None, 0, None, 0, None, 1, None, None, tuple(kernels))], "sum", labels={})
    assert [(use.name, use.count, use.time_ns) for use in line.kernels] == [
        ("k0", 4, 105), ("k5", 1, 10), ("k4", 1, 9), ("k3", 1, 8), ("k2", 1, 7),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "found"), [("sum", 180), ("mean", 30), ("max", 50), ("min", 25), ("median", 25), ("p90", 40)]
)
def test_several_executions_as_one_line(how: str, found: float) -> None:
    rows = (
        row(0, kernel(0, 50), host_ns=4), row(1, kernel(60, 30), host_ns=6),
        row(2, kernel(100, 100), count=4, host_ns=8),
    )  # fmt: skip
    (line,) = query(Profile(meta={}, rows=rows), aggregate_by="type", aggregate=how, top=0).lines[:1]
    assert line.count == 6
    assert line.device_ns == pytest.approx(found)
    assert line.kernels[0].time_ns == 180


# -- use of devices -------------------------------------------------------------------------------------------------------


def test_a_device_is_busy_where_a_kernel_runs() -> None:
    rows = (
        row(0, kernel(100, 20, 90), kernel(110, 30, 95)),
        row(1, kernel(200, 10, 150)),
        row(2, kernel(5, 7, device="gpu:1")),
    )
    loose = (kernel(300, 40),)
    first, second = devices(Profile(meta={}, rows=rows, unattributed=loose))
    assert (first.span_ns, first.busy_ns, first.work_ns, first.idle_ns) == (240, 40 + 10 + 40, 100, 150)
    assert (first.kernels, first.median_ns, first.launches, first.operators, first.owned) == (4, 25, 3, 2, 3)
    assert (first.delay_ns, first.delay_p90_ns) == (15, pytest.approx(15 + 0.8 * 35))
    assert (second.device, second.span_ns, second.busy_ns, second.launches, second.delay_ns) == ("gpu:1", 7, 7, 0, None)


def test_nothing_is_claimed_where_starts_are_not_known() -> None:
    assert devices(Profile(meta={}, rows=(row(0, kernel(0, 5), kernel(0, 7)),))) == ()
    assert devices(Profile(meta={}, rows=(row(0, kernel(3, 5), count=2),))) == ()
    assert len(devices(Profile(meta={}, rows=(row(0, kernel(0, 5)),)))) == 1
    assert len(devices(Profile(meta={}, rows=(row(0, kernel(0, 5), kernel(1, 7)),)))) == 1


def test_work_without_an_operator_belongs_to_the_only_rank() -> None:
    rows = (row(0, kernel(0, 5), kernel(6, 1), rank=3),)
    assert [use.rank for use in devices(Profile(meta={}, rows=rows, unattributed=(kernel(9, 1),)))] == [3]
    several = (*rows, row(1, kernel(8, 5), rank=4))
    assert [use.rank for use in devices(Profile(meta={}, rows=several, unattributed=(kernel(9, 1),)))] == [3, 4, 0]
    own = Kernel("k", "gpu:0", "7", 9, 1, None, rank=4)
    assert [use.kernels for use in devices(Profile(meta={}, rows=several, unattributed=(own,)))] == [2, 2]


USE = {
    "device": "gpu:0", "rank": 1, "span_ns": 1000, "busy_ns": 700, "work_ns": 800, "kernels": 9, "median_ns": 5.0,
        "compute_ns": 400,
    "communication_ns": 200, "copies_ns": 100, "transfers_ns": 60, "all_communication_ns": 250, "all_copies_ns": 160, "steps": 4,
    "idle_host_ns": 90, "idle_launch_ns": 50,
}  # fmt: skip


def test_the_parts_of_the_time_add_up_to_it() -> None:
    copied = [
        {"rank": 1, "device": "gpu:0", "name": "DtoH", "number": 2, "time_ns": 500, "bytes": 4000},
        {"rank": 1, "device": "gpu:0", "name": "HtoD", "number": 3, "time_ns": 2000, "bytes": None},
    ]
    sheet = breakdown(Profile(meta={}, rows=(), extra={"devices": [USE], "copies": copied}))
    lines = table(sheet, "time of each device")
    parts = {line["part"]: (line["time"], line["share"], line["per_step"]) for line in lines}
    assert parts["compute"] == (400, 0.4, 100)
    assert parts["communication, exposed"] == (200, 0.2, 50)
    assert parts["transfers, exposed"] == (60, 0.06, 15)
    assert parts["other copies, exposed"] == (40, 0.04, 10)
    assert sum(time for time, _, _ in parts.values()) == 1000
    assert parts["idle: not known why"][0] == 300 - 90 - 50
    total = next(each for each in sheet.tables if each.title == "time of each device").total
    assert total == ("", "", "total", 1000, 1.0, 250)
    beside = {line["what"]: (line["time"], line["share"]) for line in table(sheet, "beside other work")}
    assert beside == {
        "communication, overlapped": (50, 0.2),
        "copies, overlapped": (60, 0.375),
        "kernels side by side": (100, 0.125),
    }
    copies = {
        line["copy"]: (line["calls"], line["time"], line["bytes"], line["bandwidth"]) for line in table(sheet, "copies")
    }
    assert copies == {"HtoD": (3, 2000, None, None), "DtoH": (2, 500, 4000, 8e9)}
    assert [line["copy"] for line in table(sheet, "copies")] == ["HtoD", "DtoH"]  # the longer first


def test_without_knowledge_of_kernels_a_device_is_busy_or_idle() -> None:
    plain = {name: USE[name] for name in ("device", "rank", "span_ns", "busy_ns", "work_ns", "kernels", "median_ns")}
    sheet = breakdown(Profile(meta={}, rows=(), extra={"devices": [plain]}))
    assert [(line["part"], line["time"], line["per_step"]) for line in table(sheet, "time of each device")] == [
        ("busy", 700, None), ("idle: not known why", 300, None),
    ]  # fmt: skip
    assert table(sheet, "beside other work") == []


# -- communication --------------------------------------------------------------------------------------------------------


def exchanged(rank: int, **more: Any) -> dict[str, Any]:
    return {
        "device": "gpu:0", "rank": rank, "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "group": "g", "ranks": 4,
            "bytes": 8000,
            "dtype": "bfloat16", "number": 3,
        "time_ns": 900, "least_ns": 200, "median_ns": 300, "algorithm": "ring", **more,
    }  # fmt: skip


def test_collectives_of_all_ranks_are_one_line_at_the_shortest_time() -> None:
    found = [
        exchanged(0),
        exchanged(1, time_ns=1200, least_ns=160, median_ns=500),
        exchanged(0, bytes=None, time_ns=5000, number=1),
    ]
    lines = table(communication(Profile(meta={}, rows=(), extra={"collectives": found})), "collectives")
    assert [(line["bytes"], line["calls"], line["time"]) for line in lines] == [(None, 1, 5000), (8000, 6, 2100)]
    both = lines[1]
    rate = 8000 / 160e-9
    # of an all-reduce each link carries 2 (n - 1) / n of the bytes
    assert (both["algorithm_bandwidth"], both["bus_bandwidth"]) == (
        pytest.approx(rate),
        pytest.approx(rate * 2 * 3 / 4),
    )
    assert both["median"] == 400
    assert (lines[0]["algorithm_bandwidth"], lines[0]["bus_bandwidth"]) == (None, None)


def test_the_rank_that_others_waited_for_is_named() -> None:
    waited = [
        {"rank": rank, "collective_ns": 1000, "wait_ns": wait, "waited_for_ns": delay, "last": last}
        for rank, wait, delay, last in ((0, 300, 100, 1), (1, 10, 900, 7), (2, 200, 0, 0))
    ]
    sheet = communication(Profile(meta={}, rows=(), extra={"collectives": [exchanged(0)], "ranks": waited}))
    assert [line["rank"] for line in table(sheet, "ranks")] == [1, 0, 2]
    (said,) = next(each for each in sheet.tables if each.title == "ranks").remarks
    assert said.startswith("rank 1 came last in 7 collectives")
    assert said.endswith("90 % of all waiting")


# -- launches -------------------------------------------------------------------------------------------------------------

QUEUED = (
    # launched before the device was free: at 0, 10 and 20, while each runs for 100
    row(0, kernel(10, 100, 0), host_start_ns=0, host_ns=8, host_self_ns=8, type="first"),
    row(1, kernel(110, 100, 10), host_start_ns=10, host_ns=8, host_self_ns=8, type="first"),
    row(2, kernel(210, 100, 20), host_start_ns=20, host_ns=300, host_self_ns=290, type="slow"),
    # launched at 400, when the device had been free since 310
    row(3, kernel(420, 80, 400), host_start_ns=330, host_ns=90, host_self_ns=90, type="late"),
)  # fmt: skip


def test_queues_and_delays_in_tenths_of_the_time() -> None:
    lines = table(launches(Profile(meta={}, rows=QUEUED)), "queue and launches over time")
    assert [line["part"] for line in lines] == [f"{place}/10" for place in range(1, 11)]
    first = lines[0]  # from 0 to 50: one waits until 10, one from 10 on, another from 20 on
    assert (first["launches"], first["queue_max"], first["empty"]) == (3, 2, 0)
    assert first["queue"] == pytest.approx((10 * 1 + 10 * 1 + 30 * 2) / 50)
    assert (first["delay"], first["delay_p90"], first["late"]) == (100, pytest.approx(100 + 0.8 * 90), 0)
    ninth = lines[8]  # from 400 to 450: one waits from 400 to 420
    assert (ninth["launches"], ninth["queue_max"], ninth["late"], ninth["delay"]) == (1, 1, 1, 20)
    assert (ninth["queue"], ninth["empty"]) == (pytest.approx(20 / 50), pytest.approx(30 / 50))
    last = lines[9]
    assert (last["launches"], last["queue"], last["empty"], last["delay"], last["late"]) == (0, 0, 1, None, None)


def test_queues_and_delays_in_steps() -> None:
    rows = tuple(each._replace(step=place // 2) for place, each in enumerate(QUEUED))
    lines = table(launches(Profile(meta={}, rows=rows)), "queue and launches over time")
    assert [(line["part"], line["launches"]) for line in lines] == [("step 0", 2), ("step 1", 2)]
    # the first step is from 0 to 18, the second from 20 to 420
    assert lines[0]["queue"] == pytest.approx((10 + 8) / 18)
    assert lines[1]["queue"] == pytest.approx((90 * 2 + 100 * 1 + 20 * 1) / 400)
    assert (lines[1]["queue_max"], lines[1]["late"]) == (2, 0.5)


def test_where_the_host_was_behind() -> None:
    (line,) = table(launches(Profile(meta={}, rows=QUEUED)), "where the host was behind")
    assert (line["from"], line["time"], line["kernels"], line["idle"]) == (300, 190, 1, 110)
    assert (line["host_ran"], line["host_time"]) == ("late", 90)


@pytest.mark.parametrize(("between", "regions"), [(7, 1), (8, 2)])
def test_eight_kernels_in_time_end_a_region(between: int, regions: int) -> None:
    """Two late kernels, and others between them that were launched while the first ran."""
    kernels = [kernel(0, 10, 0), kernel(100, 1000, 50)]
    kernels += [kernel(1100 + 10 * place, 10, 200) for place in range(between)]
    kernels += [kernel(5000, 10, 4000)]
    lines = table(
        launches(Profile(meta={}, rows=(row(0, *kernels, host_start_ns=0, host_ns=9),))), "where the host was behind"
    )
    assert len(lines) == regions
    assert sum(line["idle"] for line in lines) == 90 + 5000 - (1100 + 10 * between)
    assert lines[0]["idle"] == max(line["idle"] for line in lines)


def test_ten_regions_are_shown_the_longest_first() -> None:
    kernels, at = [kernel(0, 10, 0)], 10
    for place in range(12):
        at += 100 + place
        kernels.append(kernel(at, 10, at - 5))
        at += 10
        for _ in range(9):
            kernels.append(kernel(at, 10, at - 12))
            at += 10
    lines = table(
        launches(Profile(meta={}, rows=(row(0, *kernels, host_start_ns=0, host_ns=9),))), "where the host was behind"
    )
    assert [line["idle"] for line in lines] == [100 + place for place in range(11, 1, -1)]


# -- potential savings ----------------------------------------------------------------------------------------------------


def waited(rank: int, wait: int, delay: int) -> RankWait:
    return RankWait(rank=rank, collective_ns=1000, wait_ns=wait, waited_for_ns=delay, last=1)


def test_what_waits_for_another_rank_is_not_communication_that_could_be_hidden() -> None:
    """Of 100 ns that the rank waited, 200 of 250 ns of collectives are not hidden: 80. The rest is 120 of 200."""
    gains = gains_of([Busy(**USE)], (), [waited(0, 900, 300), waited(1, 100, 100), waited(2, 50, 700)])
    assert [(gain.what, gain.share, gain.time_ns, gain.command) for gain in gains] == [
        ("communication that nothing hides", pytest.approx(0.12), 30, "--view breakdown"),
        ("idle: host-bound", pytest.approx(0.09), 22.5, "--view launches"),
        ("unbalanced ranks: 2 comes last most", pytest.approx(0.08), 20, "--view communication"),
    ]
    assert not any("unbalanced" in gain.what for gain in gains_of([Busy(**USE)], (), [waited(0, 900, 300)]))


@pytest.mark.parametrize(("idle", "shown"), [(5, True), (4, False)])
def test_half_a_percent_is_worth_a_line(idle: int, shown: bool) -> None:
    use = {**USE, "communication_ns": 0, "transfers_ns": 0, "idle_host_ns": idle, "idle_launch_ns": 0}
    assert bool(gains_of([Busy(**use)], ())) is shown


@pytest.mark.parametrize(
    ("alone", "fed", "share"),
    [
        (500, 600, 0.8 * 0.75),  # 400 of 500 ns run alone, 600 of 800 after work that was waiting
        (500, 1600, 0.8), (0, 600, 0),
    ],
)  # fmt: skip
def test_of_several_steps_the_first_saves_nothing(alone: int, fed: int, share: float) -> None:
    rows = tuple(row(n, kernel(100 * n, 50 + n), step=n, phase="recompute", rank=1) for n in range(3))
    use = {**USE, "steps": 2, "communication_ns": 0, "transfers_ns": 0, "idle_host_ns": 0, "idle_launch_ns": 0}
    use |= {"compute_work_ns": alone, "fed_ns": fed}
    gains = query(Profile(meta={}, rows=rows, extra={"devices": [USE], "steps": [use]})).gains
    assert [(gain.what, gain.time_ns, gain.share) for gain in gains] == [
        (
            "recomputing what a checkpoint did not keep",
            pytest.approx(103 * share / 2),
            pytest.approx(103 * share / 1000),
        )
    ][: share > 0]


def test_work_without_any_operator_is_of_the_first_rank() -> None:
    (use,) = devices(Profile(meta={}, rows=(), unattributed=(kernel(5, 1), kernel(9, 1))))
    assert (use.rank, use.kernels) == (0, 2)


def test_tokens_are_read_once_unless_gradients_are_accumulated() -> None:
    assert tokens_of(worked("forward")) == 2 * 2 * 3
    assert tokens_of(replace(worked("forward"), meta={})) == 2 * 3


def test_a_long_gap_is_an_event() -> None:
    spans = [kernel(100 + 10 * n, 10) for n in range(5)] + [kernel(250, 10)]
    (use,) = devices(Profile(meta={}, rows=(row(0, *spans),)))
    assert (use.gaps, use.gap_ns, use.longest_gap_ns, use.longest_gap_at_ns) == (1, 100, 100, 50)


def test_the_time_of_what_has_no_cost_is_a_share() -> None:
    rows = (row(0, kernel(0, 30)), row(1, kernel(40, 10), cost=Cost(0, 5, 1, 1), kind="elementwise"))
    (line,) = query(Profile(meta={}, rows=rows), aggregate_by="type", top=0).lines[:1]
    assert (line.uncosted, line.uncosted_share, line.costed_ns) == (1, 0.75, 10)


@pytest.mark.parametrize(
    ("how", "found"), [("sum", 100), ("mean", 20), ("max", 40), ("min", 5), ("median", 15), ("p75", 30)]
)
def test_single_executions_are_taken_where_they_are_known(how: str, found: float) -> None:
    """Of five executions four are known, the other one took 15."""
    known = Part(None, 85, None, 85, None, 4, None, None, (), singles=((5, 10, 30, 40), (), (5, 10, 30, 40)))
    line = combine([known, Part(None, 15, None, 15, None, 1, None, None, ())], how, labels={})
    assert (line.time_ns, line.device_ns, line.count) == (found, found, 5)


@pytest.mark.parametrize(("names", "is_work"), [(("k",), True), (("ncclKernel_AllReduce", "k"), True),
                                                (("ncclKernel_AllReduce", "Memcpy DtoH (Device -> Pinned)"), False)])  # fmt: skip
def test_collectives_and_copies_compute_nothing(names: tuple[str, ...], is_work: bool) -> None:
    assert (
        computes(Part(None, 1, None, 1, None, 1, None, None, tuple(kernel(0, 1, name=name) for name in names)))
        is is_work
    )


# -- launches at the edges ----------------------------------------------------------------------------------------------


def test_launches_that_are_not_known_or_come_too_late_are_left_out() -> None:
    rows = (
        row(0, kernel(100, 10, 90), kernel(120, 10), kernel(140, 10, 145), host_start_ns=80, host_ns=5),
        row(1, kernel(160, 10, 150), host_start_ns=150),
    )
    lines = table(launches(Profile(meta={}, rows=rows)), "queue and launches over time")
    assert sum(line["launches"] for line in lines) == 2


def test_kernels_without_an_operator_have_the_rank_of_the_first_row_unless_they_have_their_own() -> None:
    rows = (row(0, kernel(100, 10, 90), rank=3, host_start_ns=0, host_ns=9),)
    for own, ranks in ((None, {3}), (5, {3, 5})):
        loose = (kernel(200, 10, 190)._replace(rank=own),)
        found = launches(Profile(meta={}, rows=rows, unattributed=loose))
        assert {line["rank"] for line in table(found, "queue and launches over time")} == ranks


def test_a_step_whose_host_time_is_not_known_ends_where_it_starts() -> None:
    rows = (
        row(0, kernel(110, 10, 100), host_start_ns=100, step=0),
        row(1, kernel(130, 10, 120), host_start_ns=120, host_ns=40, step=1),
    )
    lines = table(launches(Profile(meta={}, rows=rows)), "queue and launches over time")
    assert [(line["part"], line["launches"]) for line in lines][-1] == ("step 1", 1)
    assert [line["queue"] for line in lines][-1] == pytest.approx(10 / 40)


def test_a_remark_is_made_where_the_host_was_behind() -> None:
    for rows, lines in ((QUEUED, 1), (QUEUED[:3], 0)):
        found = next(
            each for each in launches(Profile(meta={}, rows=rows)).tables if each.title == "where the host was behind"
        )
        assert (len(found.lines), bool(found.remarks)) == (lines, bool(lines))


# -- the share of a peak --------------------------------------------------------------------------------------------------


def worked(*phases: str) -> Report:
    """Products in two types, attention in both passes, and 10 parameters on 2 x 3 tokens, twice."""

    def product(kind: str, macs: int | None, dtype: str, repeat: int = 1, phase: Any = "forward") -> Row:
        cost = None if macs is None else Cost(macs, 2 * macs, 0, 0)
        return Row(
            Op(0, kind, kind, (0,), (1,), {}, repeat=repeat, phase=phase), (TensorSpec((4,), dtype),), (), cost, ""
        )

    rows = (
        product("matmul", 1000, "bfloat16", 3), product("matmul", 500, "float32"), product("attention", 100, "bfloat16", 2),
        product("attention", 200, "bfloat16", 1, "backward"), product("attention", None, "bfloat16"), product("elementwise",
            0, "float64"),
    )  # fmt: skip
    parameters: Any = [
        SimpleNamespace(spec=TensorSpec((10,)), trainable=True, buffer=False),
        SimpleNamespace(spec=TensorSpec((99,)), trainable=False, buffer=True),
    ]
    whole = TensorSpec((2, 3), "int64")
    inputs = (
        ("x", TensorSpec((7,))),
        ("past_key_values", TensorSpec((5,), "int64")),
        ("ids", TensorSpec(None, "int64")),
        ("y", whole),
    )
    return Report(
        meta={"accumulate": "2"}, rows=rows, modules=(), parameters=tuple(parameters), totals=Stats(), inputs=inputs,
        phases={phase: Stats() for phase in phases}, memory=Memory(peak_bytes=0, base_bytes=0, at=0, how=""),
            coverage=Coverage(6),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("convention", "phases", "flops"),
    [
        ("executed", ("forward",), 2 * (3 * 1000 + 500 + 2 * 100 + 200)),
        ("6N", ("forward", "backward"), 6 * 10 * 12), ("2N", ("forward",), 2 * 10 * 12),
        ("6N+attention", ("forward", "backward"), 6 * 10 * 12 + 3 * 2 * 2 * 100), ("2N+attention", ("forward",),
            2 * 10 * 12 + 2 * 2 * 100),
    ],
)  # fmt: skip
def test_a_step_does_the_work_of_its_convention(convention: str, phases: tuple[str, ...], flops: int) -> None:
    h200 = device("h200")
    found = step_flops(worked(*phases), h200, convention)
    seconds = 2 * (3000 + 200 + 200) / h200.flops["bfloat16"] + 2 * 500 / h200.flops["float32"]
    assert (found.convention, found.flops, found.dtypes) == (convention, flops, ("bfloat16", "float32"))
    assert found.peak == pytest.approx(2 * 3900 / seconds)
    assert found.used(2.0) == pytest.approx(flops / (2.0 * found.peak))


@pytest.mark.parametrize(
    ("convention", "phases", "said"), [("6N", ("forward",), "2N"), ("2N", ("forward", "backward"), "6N")]
)
def test_the_convention_of_the_other_pass_is_refused(convention: str, phases: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=f"say {said}"):
        step_flops(worked(*phases), device("h200"), convention)


def test_work_that_begins_with_its_launch_has_a_delay_of_nothing() -> None:
    kernels = [Kernel("k", "0", "7", start, 5, launched) for start, launched in ((9, 2), (4, 4), (3, 8), (1, None))]
    assert delays_of(kernels) == (2, 3.5, 6.3)  # the third began before its launch: two clocks


@pytest.mark.parametrize(
    ("work", "queued"),
    [
        ([], (0, 0, 1)),
        ([(2, 6)], (4 / 10, 1, 6 / 10)),  # waits from 2 to 6 of 0 to 10
        ([(2, 6), (4, 8)], (8 / 10, 2, 4 / 10)),  # both from 4 to 6; nothing before 2 and from 8 on
        ([(-3, 1), (9, 20)], (2 / 10, 1, 8 / 10)),  # from before the beginning, and beyond the end
        ([(-5, 0), (10, 12)], (0, 0, 1)),  # at the edges
    ],
    ids=str,
)
def test_what_was_launched_and_had_not_begun_is_queued(work: Any, queued: Any) -> None:
    assert (
        _launched([LaunchedKernel(launched, start, start, False, 0) for launched, start in work], 0, 10)[1:4] == queued
    )
    assert _launched([], 5, 5)[1:4] == (None, None, None)
