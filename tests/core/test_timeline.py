"""Events on lanes: none is lost, however few are drawn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opcost.core.timeline import DEEPEST, Drawn, Span, drawn, nested

SPANS = st.lists(st.builds(Span, st.integers(0, 10_000), st.integers(0, 500), st.sampled_from("abc")), max_size=200)


def test_short_neighbours_become_one_and_long_events_stay() -> None:
    short = [Span(10 * number, 5, "x" if number != 3 else "y") for number in range(8)]
    long = Span(100_000, 50_000, "long")
    (found,) = drawn({"lane": [*short, long]}, most=2).values()
    # Eight of 5 ns from 0 to 75; the name is that of the first of the longest.
    assert found == [Drawn(0, 75, "x", 8, 40), Drawn(100_000, 50_000, "long", 1, 50_000)]


def test_few_events_are_drawn_as_they_are() -> None:
    assert drawn({"a": [Span(5, 2, "x"), Span(1, 2, "y")], "b": []}) == {
        "a": [Drawn(1, 2, "y", 1, 2), Drawn(5, 2, "x", 1, 2)],
        "b": [],
    }


@given(st.dictionaries(st.sampled_from("pqr"), SPANS, min_size=1), st.integers(1, 50))
def test_counts_and_times_are_kept_and_the_limit_too(lanes: dict[str, list[Span]], most: int) -> None:
    found = drawn(lanes, most)
    assert sum(map(len, found.values())) <= max(most, len(lanes))
    for name, events in found.items():
        assert sum(event.count for event in events) == len(lanes[name])
        assert sum(event.busy_ns for event in events) == sum(span.duration_ns for span in lanes[name])
        assert [event.start_ns for event in events] == sorted(event.start_ns for event in events)


def test_what_is_called_inside_lies_below() -> None:
    outer, first, second, after = Span(0, 100, "f"), Span(0, 40, "g"), Span(50, 50, "h"), Span(100, 5, "k")
    assert nested([second, first, outer, after]) == [[outer, after], [first, second]]


def test_what_is_called_too_deep_has_no_lane() -> None:
    assert len(nested([Span(number, 100 - 2 * number, "f") for number in range(DEEPEST + 5)])) == DEEPEST
