"""Events on lanes: none is lost, however few are drawn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.core.timeline import (
    DEEPEST,
    LaneColumns,
    Span,
    TimelineEvent,
    checked_lanes,
    lanes_as_columns,
    nested,
    thinned_lanes,
)
from opcost.errors import SourceError

SPANS = st.lists(st.builds(Span, st.integers(0, 10_000), st.integers(0, 500), st.sampled_from("abc")), max_size=200)


def test_short_neighbours_become_one_and_long_events_stay() -> None:
    short = [Span(10 * number, 5, "x" if number != 3 else "y") for number in range(100)]
    long = Span(100_000, 50_000, "long")
    (found,) = thinned_lanes({"lane": [*short, long]}, most=10).values()
    # Three tenths of 150,000 ns is what is short; a hundred of 5 ns from 0 to 995, called like the first of the longest.
    assert found == [TimelineEvent(0, 995, "x", 100, 500), TimelineEvent(100_000, 50_000, "long", 1, 50_000)]


def test_a_long_row_of_short_events_is_cut_where_it_is_full() -> None:
    (found,) = thinned_lanes({"lane": [Span(10 * number, 10, "x") for number in range(1000)]}, most=30).values()
    # 10,000 ns in pieces of at least 3 * 10,000 // 30 + 1 ns.
    assert {event.duration_ns for event in found[:-1]} == {1010}
    assert len(found) == 10


def test_few_events_are_drawn_as_they_are() -> None:
    assert thinned_lanes({"a": [Span(5, 2, "x"), Span(1, 2, "y")], "b": []}) == {
        "a": [TimelineEvent(1, 2, "y", 1, 2), TimelineEvent(5, 2, "x", 1, 2)],
        "b": [],
    }


@given(st.dictionaries(st.sampled_from("pqr"), SPANS, min_size=1), st.integers(1, 50))
def test_counts_and_times_are_kept_and_the_limit_too(lanes: dict[str, list[Span]], most: int) -> None:
    found = thinned_lanes(lanes, most)
    assert sum(map(len, found.values())) <= 2 * max(most, len(lanes)), (
        "one more for each lane, where its share is small"
    )
    for name, events in found.items():
        assert sum(event.count for event in events) == len(lanes[name])
        assert sum(event.busy_ns for event in events) == sum(span.duration_ns for span in lanes[name])
        assert [event.start_ns for event in events] == sorted(event.start_ns for event in events)


def test_what_is_called_inside_lies_below() -> None:
    outer, first, second, after = Span(0, 100, "f"), Span(0, 40, "g"), Span(50, 50, "h"), Span(100, 5, "k")
    assert nested([second, first, outer, after]) == [[outer, after], [first, second]]


def test_what_is_called_too_deep_has_no_lane() -> None:
    assert len(nested([Span(number, 100 - 2 * number, "f") for number in range(DEEPEST + 5)])) == DEEPEST


@given(SPANS, st.integers(1, 60))
def test_columns_are_drawn_as_their_events_are(spans: list[Span], most: int) -> None:
    ordered = sorted(spans)
    names = sorted({span.name for span in spans})
    columns = LaneColumns(
        [span.start_ns for span in ordered], [span.duration_ns for span in ordered],
        [names.index(span.name) for span in ordered], names,
    )  # fmt: skip
    assert thinned_lanes({"lane": columns}, most) == thinned_lanes({"lane": spans}, most)


def test_starts_are_stored_as_steps_and_names_once() -> None:
    lanes = {
        "a": [TimelineEvent(10, 5, "x", 1, 5), TimelineEvent(30, 5, "y", 2, 4)],
        "b": [TimelineEvent(20, 1, "x", 1, 1)],
        "c": [],
    }
    columns = lanes_as_columns(lanes, {"x": "conv"})
    assert columns["words"] == ["x", "y"]
    assert columns["sorts"] == ["conv", ""]
    assert [lane["step"] for lane in columns["lanes"]] == [[0, 20], [10], []]
    assert [lane.get("count") for lane in columns["lanes"]] == [[1, 2], None, None]
    assert checked_lanes(columns) == columns


@pytest.mark.parametrize(
    "change",
    [
        {"words": ["x", 1]}, {"sorts": []}, {"lanes": [{}]}, {"more": 1},
        {"lanes": [{"title": "a", "step": [0], "length": [5], "name": [2]}]},
        {"lanes": [{"title": "a", "step": [0], "length": [5, 5], "name": [0]}]},
        {"lanes": [{"title": "a", "step": [0.5], "length": [5], "name": [0]}]},
        {"lanes": [{"title": "a", "step": [0], "length": [-1], "name": [0]}]},
    ],
)  # fmt: skip
def test_a_timeline_of_a_file_that_is_not_of_this_form_is_refused(change: dict[str, object]) -> None:
    columns = lanes_as_columns({"a": [TimelineEvent(10, 5, "x", 1, 5), TimelineEvent(20, 5, "y", 1, 5)]}, {})
    with pytest.raises(SourceError, match="timeline is damaged"):
        checked_lanes({**columns, **change})
