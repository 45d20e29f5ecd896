"""Questions to a profile: filters, groups, order, shares, rates."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import opcost
from opcost.analysis.query import query
from opcost.core.devices import DEVICES
from opcost.core.graph import TensorSpec
from opcost.core.profile import AnswerLine, Kernel, ProfileRow
from opcost.errors import OpcostError, SourceError
from opcost.profiles import Profile

US = 1000
CONV_FLOPS = 2 * (1 * 2 * 8 * 8) * (4 * 3 * 3)
CONV_BYTES = 4 * (4 * 8 * 8 + 2 * 4 * 3 * 3 + 2 * 8 * 8)
FC_FLOPS = 2 * 16 * 8 * 32
FC_BYTES = 2 * (16 * 32 + 32 * 8 + 16 * 8)
DEVICE_TOTAL = (30 + 10 + 50 + 20 + 15) * US


def names(lines: object) -> list[str]:
    return [line.labels["name"] for line in lines]  # type: ignore[attr-defined]


def test_rows_come_by_time_on_the_device_and_views_that_never_ran_there_are_left_out(profile: Profile) -> None:
    answer = query(profile)
    assert answer.side == "device"
    assert names(answer) == ["b.fc", "a.conv", "b.custom", "b.conv"]
    assert [line.time_ns for line in answer] == [50 * US, 30 * US, 20 * US, 10 * US]


def test_the_host_has_its_own_order_and_counts_no_time_twice(profile: Profile) -> None:
    answer = query(profile, side="host")
    assert names(answer) == ["a.conv", "b.fc", "b.conv", "b.custom", "b.view"]
    assert answer.total_ns == (5 + 3 + 4 + 1 + 2) * US
    assert not [line for line in answer.lines if line.role == "unattributed"]


def test_unattributed_time_is_always_a_line_and_a_part_of_the_total(profile: Profile) -> None:
    for options in ({}, {"top": 1}, {"aggregate_by": "type"}, {"group_by": "module"}):
        answer = query(profile, **options)
        (loose,) = [line for line in answer.lines if line.role == "unattributed"]
        assert loose.time_ns == 15 * US
        assert answer.total_ns == DEVICE_TOTAL


def test_shares_are_of_the_whole_profile_and_the_running_sum_follows_the_printed_order(profile: Profile) -> None:
    answer = query(profile, sort="+time", kind="conv")
    assert [line.share for line in answer] == [10 * US / DEVICE_TOTAL, 30 * US / DEVICE_TOTAL]
    assert [line.cumulative_ns for line in answer] == [10 * US, 40 * US]


def test_the_rest_and_the_total_add_up(profile: Profile) -> None:
    answer = query(profile, top=1)
    (rest,) = [line for line in answer.lines if line.role == "rest"]
    assert (rest.labels["name"], rest.time_ns) == ("(3 more)", (30 + 20 + 10) * US)
    assert answer.lines[-1].role == "total"
    assert answer.lines[-1].time_ns == DEVICE_TOTAL


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"type": "aten::conv2d"}, {"a.conv", "b.conv"}),
        ({"type": ("aten::addmm", "mine::op")}, {"b.fc", "b.custom"}),
        ({"kind": "matmul"}, {"b.fc"}),
        ({"module": "b"}, {"b.conv", "b.fc", "b.custom"}),
        ({"name": "b"}, {"b.conv", "b.fc", "b.custom"}),
        ({"name": "conv"}, set()),
        ({"input_dtype": "Float16"}, {"b.fc"}),
        ({"min_time": 20e-6}, {"b.fc", "a.conv", "b.custom"}),
        ({"max_time": 20e-6}, {"b.conv", "b.custom"}),
        ({"min_time": 20e-6, "max_time": 30e-6}, {"a.conv", "b.custom"}),
        ({"where": 'time > 15us and kind == "conv"'}, {"a.conv"}),
    ],
)
def test_every_filter_must_hold(options: dict[str, object], found: set[str], profile: Profile) -> None:
    assert set(names(query(profile, **options))) == found


def test_costs_are_those_of_the_rules_and_rates_follow(profile: Profile) -> None:
    lines = {line.labels["name"]: line for line in query(profile)}
    assert (lines["a.conv"].computation, lines["a.conv"].memory) == (CONV_FLOPS, CONV_BYTES)
    assert lines["a.conv"].flops == CONV_FLOPS / 30e-6
    assert lines["b.fc"].bandwidth == FC_BYTES / 50e-6
    assert lines["b.fc"].intensity == FC_FLOPS / FC_BYTES
    assert lines["b.custom"].computation is None
    assert lines["b.custom"].flops is None
    assert lines["b.custom"].uncosted == 1


def test_rates_on_the_host_side_are_still_those_of_the_device(profile: Profile) -> None:
    on_host = {line.labels["name"]: line for line in query(profile, side="host")}
    assert on_host["a.conv"].flops == CONV_FLOPS / 30e-6


@pytest.mark.parametrize(
    ("how", "time", "flops"),
    [
        ("sum", 40 * US, 2 * CONV_FLOPS),
        ("mean", 20 * US, CONV_FLOPS),
        ("max", 30 * US, CONV_FLOPS),
        ("min", 10 * US, CONV_FLOPS),
        ("median", 20 * US, CONV_FLOPS),
        ("p90", 28 * US, CONV_FLOPS),
    ],
)
def test_aggregates_apply_to_time_and_cost_alike(how: str, time: float, flops: float, profile: Profile) -> None:
    (line,) = query(profile, kind="conv", aggregate_by="type", aggregate=how)
    assert line.labels == {"type": "aten::conv2d"}
    assert line.count == 2
    assert line.time_ns == pytest.approx(time, rel=1e-12)
    assert line.computation == flops


def test_unknown_costs_add_nothing_to_a_sum_and_have_no_maximum(profile: Profile) -> None:
    (added,) = query(profile, aggregate="sum")
    assert added.computation == 2 * CONV_FLOPS + FC_FLOPS
    assert added.uncosted == 1
    (largest,) = query(profile, aggregate="max")
    assert largest.computation is None
    (smallest,) = query(profile, aggregate="min")
    assert smallest.computation == min(CONV_FLOPS, FC_FLOPS)


@pytest.mark.parametrize(
    ("key", "times"),
    [
        ("type", {"aten::conv2d": 40, "aten::addmm": 50, "mine::op": 20}),
        ("kind", {"conv": 40, "matmul": 50, "(none)": 20}),
        ("module", {"a.conv": 30, "b.conv": 10, "b.fc": 50, "b": 20}),
        ("rank", {"0": 60, "1": 50}),
        ("step", {"0": 30, "1": 60, "(none)": 20}),
        ("kernel", {"winograd": 40, "gemm": 40, "splitk": 10, "graph": 15, "(no kernel)": 20}),
        ("stream", {"7": 80, "8": 10, "(none)": 20}),
        ("dtype", {"float32": 40, "float16": 50, "(none)": 20}),
        ("shape", {"1x4x8x8, 2x4x3x3": 40, "16x32, 32x8": 50, "(none)": 20}),
    ],
)
def test_every_key_splits_the_time_without_losing_any(key: str, times: dict[str, int], profile: Profile) -> None:
    answer = query(profile, aggregate_by=key)
    assert {line.labels[key]: line.time_ns for line in answer} == {name: time * US for name, time in times.items()}
    assert sum(line.time_ns or 0 for line in answer.lines if line.role != "total") == DEVICE_TOTAL


def test_several_keys_make_one_group_for_each_combination(profile: Profile) -> None:
    found = {tuple(line.labels.values()): line.time_ns for line in query(profile, aggregate_by="kind,rank")}
    assert found == {("conv", "0"): 40 * US, ("matmul", "1"): 50 * US, ("(none)", "0"): 20 * US}


def test_executions_are_counted_once_however_many_kernels_they_launch(profile: Profile) -> None:
    lines = {line.labels["type"]: line for line in query(profile, aggregate_by="type")}
    assert (lines["aten::addmm"].count, lines["aten::addmm"].launches) == (1, 2)
    by_kernel = query(profile, aggregate_by="type,kernel", type="aten::addmm")
    assert sum(line.count for line in by_kernel) == 1


def test_modules_are_cut_to_a_depth_and_groups_hold_their_lines(profile: Profile) -> None:
    answer = query(profile, group_by="module", depth=1, aggregate_by="kind", sort="-time")
    shown = [(line.role, tuple(line.labels.values()), line.time_ns) for line in answer.lines[:-2]]
    assert shown == [
        ("group", ("b",), 80 * US),
        ("row", ("matmul",), 50 * US),
        ("row", ("(none)",), 20 * US),
        ("row", ("conv",), 10 * US),
        ("group", ("a",), 30 * US),
        ("row", ("conv",), 30 * US),
    ]


@pytest.mark.parametrize("column", ["FLOPS", "computation", "Memory", "bandwidth", "intensity"])
@pytest.mark.parametrize("sign", ["", "-", "+"])
def test_what_is_missing_comes_last_in_every_direction(column: str, sign: str, profile: Profile) -> None:
    assert names(query(profile, sort=sign + column))[-1] == "b.custom"


def test_order_is_descending_unless_a_plus_is_before_it(profile: Profile) -> None:
    falling = names(query(profile, sort="time"))
    assert names(query(profile, sort="-time")) == falling
    assert names(query(profile, sort="+time")) == falling[::-1]
    assert names(query(profile, sort="+name")) == sorted(falling)


def test_percentiles_lie_between_the_nearest_two_executions(profile: Profile) -> None:
    (line,) = query(profile, kind="conv", aggregate_by="kind", percentiles=(0, 25, 50, 100))
    assert line.percentiles == (10 * US, 15 * US, 20 * US, 30 * US)


def test_a_row_of_many_executions_counts_as_many() -> None:
    row = ProfileRow(id=0, name="x", type="t", device_ns=90, count=9)
    single = ProfileRow(id=1, name="y", type="t", device_ns=110)
    profile = Profile(meta={}, rows=(row, single))
    (mean,) = query(profile, aggregate_by="type", aggregate="mean", percentiles=(50, 100))
    assert (mean.count, mean.time_ns) == (10, 200 / 10)
    assert mean.percentiles == (90 / 9, 110)


def test_lines_sort_by_any_requested_percentile() -> None:
    # Of the one type most executions are longer, of the other the longest.
    times = {"steady": [50, 50, 50], "jumpy": [10, 10, 90]}
    rows = [
        ProfileRow(id=number, name="n", type=name, device_ns=time)
        for number, (name, time) in enumerate((name, time) for name, found in times.items() for time in found)
    ]
    profile = Profile(meta={}, rows=tuple(rows))

    def order(column: str) -> list[str]:
        answer = query(profile, aggregate_by="type", percentiles=(50, 100), sort=column)
        return [line.labels["type"] for line in answer]

    assert order("p50") == order("+P100") == ["steady", "jumpy"]
    assert order("p100") == order("+p50") == ["jumpy", "steady"]
    with pytest.raises(OpcostError, match="was not requested"):
        order("p90")


def test_every_printed_column_sorts_by_its_title(profile: Profile) -> None:
    from opcost.views.profile import answer_columns

    for options in ({}, {"aggregate_by": "type", "aggregate": "mean"}, {"side": "host"}, {"percentiles": (50,)}):
        for column in answer_columns(query(profile, device="h200", **options)).values():
            for title in filter(None, (column.name, column.header, column.header.upper())):
                up = query(profile, device="h200", sort=f"+{title}", **options).rows
                down = query(profile, device="h200", sort=title, **options).rows
                assert Counter(map(repr, map(_bare, up))) == Counter(map(repr, map(_bare, down)))


def _bare(line: AnswerLine) -> AnswerLine:
    return replace(line, cumulative_ns=None)


def test_shapes_with_unknown_extents_sort() -> None:
    specs = [TensorSpec((None, 3)), TensorSpec((2, 3)), TensorSpec(None)]
    rows = tuple(
        ProfileRow(id=number, name=str(spec), type="t", device_ns=1, ins=(spec,)) for number, spec in enumerate(specs)
    )
    answer = query(Profile(meta={}, rows=rows), sort="in_shapes")
    assert [line.ins[0] for line in answer] == [specs[1], specs[0], specs[2]]


def test_waiting_time_is_from_the_operator_to_its_first_kernel(profile: Profile) -> None:
    waits = {line.labels["name"]: line.time_ns for line in query(profile, measure="wait")}
    assert waits == {"a.conv": 10 * US, "b.conv": (40 - 20) * US, "b.fc": (50 - 30) * US}


def test_devices_are_busy_idle_and_overlap(profile: Profile) -> None:
    by_rank = {use.rank: use for use in query(profile).devices}
    first, second = by_rank[0], by_rank[1]
    # Rank 0: winograd from 10 to 50, graph from 200 to 215 (unattributed work of several ranks is listed under the first).
    assert (first.span_ns, first.busy_ns, first.idle_ns) == (205 * US, 55 * US, 150 * US)
    # Rank 1: gemm from 50 to 90, splitk from 60 to 70 beside it.
    assert (second.span_ns, second.busy_ns, second.overlap_ns) == (40 * US, 40 * US, 10 * US)


def test_rates_are_compared_with_the_peak_of_the_element_type(profile: Profile) -> None:
    lines = {line.labels["name"]: line for line in query(profile, device="h200")}
    h200 = DEVICES["h200"]
    assert lines["b.fc"].of_peak_flops == FC_FLOPS / 50e-6 / h200.flops["float16"]
    assert lines["a.conv"].of_peak_flops == CONV_FLOPS / 30e-6 / h200.flops["float32"]
    assert lines["a.conv"].of_peak_bandwidth == CONV_BYTES / 30e-6 / h200.bandwidth
    assert not any(line.above_peak for line in lines.values())


def test_a_rate_above_the_peak_is_flagged_and_not_hidden(profile: Profile) -> None:
    quick = replace(profile, rows=tuple(row._replace(device_ns=1) if row.device_ns else row for row in profile.rows))
    answer = query(quick, device="t4", aggregate_by="kind")
    (conv,) = [line for line in answer if line.labels["kind"] == "conv"]
    assert conv.above_peak
    assert conv.of_peak_flops == 2 * CONV_FLOPS / 2e-9 / DEVICES["t4"].flops["float32"]
    assert "above_peak" in {note.code for note in answer.notes}
    assert "above peak" in answer.render(width=200)


@pytest.mark.parametrize(
    "options",
    [
        {"sort": "nothing"},
        {"aggregate_by": "colour"},
        {"aggregate_by": "type", "aggregate": "product"},
        {"aggregate_by": "type,type"},
        {"percentiles": (101,)},
        {"depth": 0},
        {"name": "("},
        {"where": "time >"},
        {"colour": "red"},
        {"device": "abacus"},
    ],
)
def test_what_is_not_understood_is_refused(options: dict[str, object], profile: Profile) -> None:
    with pytest.raises(OpcostError):
        query(profile, **options)


def test_a_profile_has_query_as_a_method(profile: Profile) -> None:
    options = {"kind": "conv", "sort": "-time", "top": 5, "aggregate_by": "type", "aggregate": "sum"}
    assert profile.query(**options) == opcost.query(profile, **options)


def test_a_profile_without_rows_is_answered() -> None:
    answer = query(Profile(meta={}, rows=()))
    assert [line.role for line in answer.lines] == ["total"]
    assert answer.render(width=60)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.one_of(st.none(), st.integers(0, 10**12)),
            st.integers(1, 5),
            st.booleans(),
        ),
        max_size=30,
    ),
    st.sampled_from(["type", "module", "kernel", "step", "type,module"]),
    st.integers(-3, 5),
)
def test_no_grouping_order_or_cut_loses_time(rows: list[tuple[str, int | None, int, bool]], key: str, top: int) -> None:
    made = tuple(
        ProfileRow(id=place, name=f"n{place}", type=kind, module="m" if deep else "", device_ns=time, count=count)
        for place, (kind, time, count, deep) in enumerate(rows)
    )
    profile = Profile(meta={}, rows=made)
    answer = query(profile, side="device", aggregate_by=key, top=top)
    total = sum(time or 0 for _, time, _, _ in rows)
    assert sum(line.time_ns or 0 for line in answer.lines if line.role != "total") == total
    assert answer.lines[-1].time_ns == total


# -- views -------------------------------------------------------------------------------------------------------------


def test_json_and_csv_hold_every_number(profile: Profile) -> None:
    answer = query(profile, aggregate_by="kind", percentiles=(50,))
    data = json.loads(answer.render("json"))
    records = list(csv.DictReader(io.StringIO(answer.render("csv"))))
    assert [line["time_ns"] for line in data["lines"]] == [line.time_ns for line in answer.lines]
    assert [int(record["time_ns"]) for record in records] == [line.time_ns for line in answer.lines]
    assert [record["role"] for record in records] == [line.role for line in answer.lines]
    assert data["unattributed_ns"] == 15 * US
    assert data["total_ns"] == DEVICE_TOTAL


def test_a_cell_that_a_spreadsheet_would_run_is_disarmed() -> None:
    row = ProfileRow(id=0, name="=1+1", type="t", host_self_ns=1)
    text = query(Profile(meta={}, rows=(row,))).render("csv")
    assert "'=1+1" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_keeps_its_width_and_shows_time_and_unattributed_work(width: int, profile: Profile) -> None:
    text = query(profile, aggregate_by="type").render("table", width=width)
    assert "device time" in text
    assert "(unattributed)" in text
    assert max(map(len, text.splitlines())) <= width


def test_markdown_rows_have_as_many_cells_as_the_head(profile: Profile) -> None:
    whole = query(profile).render("md")
    table = next(part for part in whole.split("\n\n") if part.startswith("| name")).splitlines()
    assert len(table) == 2 + 4 + 2
    assert set(Counter(line.replace("\\|", "").count("|") for line in table)) == {table[0].count("|")}


def test_names_from_a_file_do_not_steer_the_terminal() -> None:
    row = ProfileRow(id=0, name="evil\x1b[2J", type="t\n", host_self_ns=1)
    text = query(Profile(meta={"source": "x\x1b[0m"}, rows=(row,))).render("table", width=80)
    assert "\x1b" not in text


def test_lines_are_plain_data(profile: Profile) -> None:
    assert all(isinstance(line, AnswerLine) for line in query(profile))


def test_rows_of_many_executions_claim_no_idle_time_unless_their_reader_says_it() -> None:
    kernel = Kernel("k", "gpu:0", "7", 0, 60, count=6)
    row = ProfileRow(id=0, name="x", type="t", device_ns=60, count=3, kernels=(kernel,))
    profile = Profile(meta={}, rows=(row,))
    assert query(profile).devices == ()
    use = {"device": "gpu:0", "rank": 0, "span_ns": 100, "busy_ns": 55, "work_ns": 60, "kernels": 6, "median_ns": 10}
    found = query(replace(profile, extra={"devices": [use]}))
    for damage in ({"device": 1}, {"colour": 1}, {"span_ns": "long"}):
        with pytest.raises(SourceError, match="devices"):
            query(replace(profile, extra={"devices": [use | damage]}))
    (use,) = found.devices
    assert (use.idle_ns, use.overlap_ns) == (100 - 55, 60 - 55)
    (line,) = found
    assert (line.count, line.launches) == (3, 6)


def test_operators_below_a_group_say_what_they_are(profile: Profile) -> None:
    lines = query(profile, group_by="kind").render(width=160).splitlines()
    (line,) = [line for line in lines if "b.fc" in line]
    assert line.split()[:3] == ["matmul", "b.fc", "aten::addmm"]


@pytest.mark.parametrize("side", ["device", "host"])
def test_every_header_is_a_name_that_columns_and_order_take(profile: Profile, side: str) -> None:
    from opcost.analysis.part import sort_key
    from opcost.views.profile import answer_columns, list_answer

    answer = query(profile, side=side, percentiles=(50,), device="h200")
    for name, column in answer_columns(answer).items():
        for spelt in filter(None, (name, column.header, column.header.upper())):
            assert [each.name for each in list_answer(answer, [spelt]).fields] == [name]
            sort_key(spelt, (50,))


def test_columns_are_those_of_every_format(profile: Profile) -> None:
    answer = query(profile, top=2)
    wanted = "name,time,share,in_shapes"
    (head, first, *_) = list(csv.reader(io.StringIO(answer.render("csv", columns=wanted))))
    assert (head, first) == (wanted.split(","), ["b.fc", "50000", "0.4", "16x32 32x8"])
    lines = json.loads(answer.render("json", columns=wanted))["lines"]
    assert lines[0] == {"role": "row", "name": "b.fc", "time": 50000, "share": 0.4, "in_shapes": ["16x32", "32x8"]}
    assert [line["role"] for line in lines] == ["row", "row", "rest", "unattributed", "total"]
    assert "\n| name | device time | % | input |\n" in answer.render("md", columns=wanted)


@pytest.mark.parametrize("option", [{"top": "5"}, {"top": 2.5}, {"top": True}, {"depth": "1"}])
def test_what_is_no_number_is_refused_by_name(profile: Profile, option: dict[str, object]) -> None:
    (name,) = option
    with pytest.raises(OpcostError, match=f"{name} .*not a whole number"):
        query(profile, **option)  # type: ignore[arg-type]
