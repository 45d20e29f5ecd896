"""Spans of time: gaps between them, and lanes of events few enough to be drawn."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate
from typing import Any, NamedTuple

from opcost.core.escaping import printable
from opcost.core.names import is_collective, is_copy
from opcost.errors import SourceError

LONG_GAP = 0.2  # a gap above this part of a device's time, without longer ones, is an event, no part of a rate
PIECES = 5  # the least number of pieces of work for each event: with fewer, or gaps that recur, none is an exception


def long_gaps(spans: Iterable[tuple[int, int]], begin: int, end: int, pieces: int, most: int) -> list[tuple[int, int]]:
    """Beginning and end of the gaps in this time that are events, the longest first; spans are ordered by their starts.

    Where more than `most` of them, or too many for the pieces of work, are as long as that, they are regular and no events.
    """
    gaps, reached = [], begin  # length and beginning of each
    for start, stop in spans:
        if start > reached:
            gaps.append((start - reached, reached))
        reached = max(reached, stop)
    most = min(most, pieces // PIECES)
    longest = nlargest(most + 1, gaps)
    if len(longest) > most and longest[-1][0] > LONG_GAP * (end - begin):
        return []
    left, found = end - begin, []
    for length, since in longest[:most]:
        if length <= LONG_GAP * left:
            break
        left -= length
        found.append((since, since + length))
    return found


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """Length of the time that at least one of these covers, which are ordered by their starts."""
    total = 0
    reached: int | None = None
    for start, end in spans:
        if reached is None or start >= reached:
            total += end - start
            reached = end
        elif end > reached:
            total += end - reached
            reached = end
    return total


class CoveredTime:
    """The time that some spans cover, which are ordered by their starts: how much of any other span is in it."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in spans:
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)
        lengths = (end - start for start, end in zip(self._starts, self._ends, strict=True))
        self._before = [*accumulate(lengths, initial=0)]

    def _until(self, time: int) -> int:
        """How much is covered before a moment."""
        place = bisect_right(self._starts, time)
        return self._before[place] - (max(0, self._ends[place - 1] - time) if place else 0)

    def within(self, start: int, end: int) -> int:
        """How much of a span is covered."""
        return self._until(end) - self._until(start)


# -- events of a run on lanes over time: where there are too many to draw, short neighbours become one -----------------

MOST_EVENTS = 120_000  # events of a whole timeline that a browser draws at once without a pause
DEEPEST = 10  # levels of calls inside calls that have a lane of their own


class Span(NamedTuple):
    """One event."""

    start_ns: int
    duration_ns: int
    name: str


class TimelineEvent(NamedTuple):
    """One event, or several short ones that follow each other closely."""

    start_ns: int
    duration_ns: int
    name: str  # of several, that of the one that lasted longest
    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    busy_ns: int  # the sum of their durations


@dataclass(slots=True, eq=False)
class LaneColumns:
    """Events of a lane by their starts as columns, for lanes of millions; names are numbers in a list."""

    start: Sequence[int]
    duration: Sequence[int]
    name: Sequence[int]
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[tuple[int, int, str]]:
        return zip(self.start, self.duration, map(self.names.__getitem__, self.name), strict=True)


def nested(spans: Sequence[Span]) -> list[list[Span]]:
    """Levels of spans: one that begins while others last is below them."""
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


def thinned_lanes(
    lanes: Mapping[str, Sequence[Span] | LaneColumns], most: int = MOST_EVENTS
) -> dict[str, list[TimelineEvent]]:
    """The events of each lane by their starts, about `most` in all: lanes with few keep theirs, the others share the rest."""
    found: dict[str, list[TimelineEvent]] = {}
    left = most
    for done, (name, spans) in enumerate(sorted(lanes.items(), key=lambda item: len(item[1]))):
        share = max(1, left // (len(lanes) - done))
        found[name] = _drawn(spans if isinstance(spans, LaneColumns) else sorted(spans), share)
        left -= len(found[name])
    return {name: found[name] for name in lanes}


def _drawn(spans: Sequence[Span] | LaneColumns, most: int) -> list[TimelineEvent]:
    if len(spans) <= most:
        return [TimelineEvent(start, duration, name, 1, duration) for start, duration, name in spans]
    first = next(iter(spans))[0]
    whole = max(start + duration for start, duration, _ in spans) - first
    least = 3 * whole // most + 1
    while len(merged := _merged(spans, least)) > most and least <= 2 * whole:  # only where spans of a lane overlap
        least *= 2
    return merged


def _merged(spans: Iterable[tuple[int, int, str]], least: int) -> list[TimelineEvent]:
    """Spans in their order, those shorter than `least` gathered until they fill that, or the next is as far away.

    Where none overlap, at most three for each `least` of the whole time are left: long ones, full ones, and those before a gap.
    """
    found: list[TimelineEvent] = []
    begin = end = busy = count = longest = 0
    name = ""
    for start, duration, called in spans:
        is_long = duration >= least
        if count and (is_long or start - end >= least or end - begin >= least):
            found.append(TimelineEvent(begin, end - begin, name, count, busy))
            count = 0
        if is_long:
            found.append(TimelineEvent(start, duration, called, 1, duration))
            continue
        if not count:
            begin, end, busy, longest = start, start, 0, -1
        if duration > longest:
            longest, name = duration, called
        end = max(end, start + duration)
        busy += duration
        count += 1
    if count:
        found.append(TimelineEvent(begin, end - begin, name, count, busy))
    return found


# -- as plain data -----------------------------------------------------------------------------------------------------


def kernel_sort(kernel: str, sort: str) -> str:
    """What a kernel is: collectives and copies have it in their names, others get it from the operators that launched them."""
    return "collective" if is_collective(kernel) else "copy" if is_copy(kernel) else sort


def lane_title(device: str, stream: str, kernels: Iterable[str]) -> str:
    """The title of a stream of a device, of collectives where it has nothing else."""
    return f"{device} {'collectives' if all(map(is_collective, kernels)) else 'stream'} {stream}"


def lanes_as_columns(lanes: Mapping[str, Sequence[TimelineEvent]], sorts: Mapping[str, str]) -> dict[str, Any]:
    """Lanes as columns: starts as differences from one to the next, names once each, and the sort of event of each name."""
    words: dict[str, int] = {}
    first = min(events[0].start_ns for events in lanes.values() if events)
    columns = []
    for title, events in lanes.items():
        starts = [event.start_ns for event in events]
        lane: dict[str, Any] = {
            "title": printable(title),
            "step": [start - before for start, before in zip(starts, [first, *starts], strict=False)],
            "length": [event.duration_ns for event in events],
            "name": [words.setdefault(event.name, len(words)) for event in events],
        }
        if any(event.count > 1 for event in events):
            lane |= {"count": [event.count for event in events], "busy": [event.busy_ns for event in events]}
        columns.append(lane)
    named = list(words)
    return {
        "words": list(map(printable, named)),
        "sorts": [printable(sorts.get(word, "")) for word in named],
        "lanes": columns,
    }


def checked_lanes(found: object) -> dict[str, Any]:
    """The same from a file, checked."""
    if not isinstance(found, dict) or set(found) != {"words", "sorts", "lanes"}:
        raise _DAMAGED
    words, sorts, lanes = found["words"], found["sorts"], found["lanes"]
    if not (_all_of(words, str) and _all_of(sorts, str) and len(words) == len(sorts) and _all_of(lanes, dict)):
        raise _DAMAGED
    for lane in lanes:
        columns = {name: column for name, column in lane.items() if name != "title"}
        if not isinstance(lane.get("title"), str) or not {"step", "length", "name"} <= set(columns) <= _COLUMNS:
            raise _DAMAGED
        if not all(_all_of(column, int) for column in columns.values()) or len(set(map(len, columns.values()))) > 1:
            raise _DAMAGED
        if any(not 0 <= name < len(words) for name in lane["name"]) or any(number < 0 for number in lane["length"]):
            raise _DAMAGED
    return found


_COLUMNS = {"step", "length", "name", "count", "busy"}
_DAMAGED = SourceError("what the profile says about its timeline is damaged", hint="record the profile again")


def _all_of(found: object, kind: type) -> bool:
    return isinstance(found, list) and all(type(each) is kind for each in found)
