"""Events of a run on lanes over time, few enough to be drawn: where there are too many, short neighbours become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

MOST_EVENTS = 120_000
"""Events of a whole timeline; a browser draws so many at once without a pause."""
DEEPEST = 10
"""Levels of calls inside calls that have a lane of their own."""


class Span(NamedTuple):
    """One event."""

    start_ns: int
    duration_ns: int
    name: str


class Drawn(NamedTuple):
    """One event, or several short ones that follow each other closely."""

    start_ns: int
    duration_ns: int
    name: str
    """Of several, that of the one that lasted longest."""
    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    busy_ns: int
    """The sum of their durations."""


def nested(spans: Sequence[Span]) -> list[list[Span]]:
    """Levels of spans: one that begins while others last lies below them."""
    levels: list[list[Span]] = []
    ends: list[int] = []
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.duration_ns)):
        while ends and ends[-1] <= span.start_ns:
            ends.pop()
        if len(ends) < DEEPEST:
            if len(ends) == len(levels):
                levels.append([])
            levels[len(ends)].append(span)
        ends.append(span.start_ns + span.duration_ns)
    return levels


def drawn(lanes: Mapping[str, Sequence[Span]], most: int = MOST_EVENTS) -> dict[str, list[Drawn]]:
    """The events of each lane by their starts, at most so many in all (or as many as there are lanes)."""
    ordered = {name: sorted(spans) for name, spans in lanes.items()}
    count = sum(map(len, ordered.values()))
    if count <= most:
        return {name: [Drawn(*span, 1, span.duration_ns) for span in spans] for name, spans in ordered.items()}
    first = min(spans[0].start_ns for spans in ordered.values() if spans)
    last = max(span.start_ns + span.duration_ns for spans in ordered.values() for span in spans)
    least = max(1, (last - first) // (8 * most))
    while True:
        found = {name: _merged(spans, least) for name, spans in ordered.items()}
        if sum(map(len, found.values())) <= max(most, len(found)) or least > last - first:
            return found
        least *= 2


def _merged(spans: Sequence[Span], least: int) -> list[Drawn]:
    """Spans in their order, those shorter than `least` merged with neighbours that are no farther away than that."""
    found: list[Drawn] = []
    begin = end = busy = count = longest = 0
    name = ""
    for span in spans:
        start, duration, called = span
        if duration >= least:
            if count:
                found.append(Drawn(begin, end - begin, name, count, busy))
                count = 0
            found.append(Drawn(start, duration, called, 1, duration))
            continue
        if count and start - end >= least:
            found.append(Drawn(begin, end - begin, name, count, busy))
            count = 0
        if not count:
            begin, end, busy, longest = start, start, 0, -1
        if duration > longest:
            longest, name = duration, called
        end = max(end, start + duration)
        busy += duration
        count += 1
    if count:
        found.append(Drawn(begin, end - begin, name, count, busy))
    return found
