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
    """The events of each lane by their starts, about so many in all: lanes with few keep theirs, the others share the rest."""
    found: dict[str, list[Drawn]] = {}
    left = most
    for done, (name, spans) in enumerate(sorted(lanes.items(), key=lambda item: len(item[1]))):
        share = max(1, left // (len(lanes) - done))
        found[name] = _drawn(sorted(spans), share)
        left -= len(found[name])
    return {name: found[name] for name in lanes}


def _drawn(spans: Sequence[Span], most: int) -> list[Drawn]:
    if len(spans) <= most:
        return [Drawn(*span, 1, span.duration_ns) for span in spans]
    whole = max(span.start_ns + span.duration_ns for span in spans) - spans[0].start_ns
    least = 3 * whole // most + 1
    while len(merged := _merged(spans, least)) > most and least <= 2 * whole:  # only where spans of a lane overlap
        least *= 2
    return merged


def _merged(spans: Sequence[Span], least: int) -> list[Drawn]:
    """Spans in their order, those shorter than `least` gathered until they fill that, or the next is as far away.

    Where none overlap, at most three for each `least` of the whole time are left: long ones, full ones, and those before a gap.
    """
    found: list[Drawn] = []
    begin = end = busy = count = longest = 0
    name = ""
    for start, duration, called in spans:
        is_long = duration >= least
        if count and (is_long or start - end >= least or end - begin >= least):
            found.append(Drawn(begin, end - begin, name, count, busy))
            count = 0
        if is_long:
            found.append(Drawn(start, duration, called, 1, duration))
            continue
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
