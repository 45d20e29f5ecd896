"""Spans of time that may overlap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest

LONG_GAP = 0.2
"""A gap of more than this part of a device's time, without longer ones, is an event and no part of a rate."""
PIECES = 5
"""For each event there are at least so many pieces of work: of fewer, or of gaps that come again, none is an exception."""


def long_gaps(spans: Iterable[tuple[int, int]], begin: int, end: int, pieces: int, most: int) -> list[tuple[int, int]]:
    """Beginning and end of the gaps in this time that are events, the longest first; spans are ordered by their starts.

    Where more than `most` of them, or too many for so many pieces of work, are as long as that, they are a habit and no events.
    """
    most = min(most, pieces // PIECES)
    longest = nlargest(most + 1, _gaps(spans, begin))
    if len(longest) > most and longest[-1][0] > LONG_GAP * (end - begin):
        return []
    left, found = end - begin, []
    for length, since in longest[:most]:
        if length <= LONG_GAP * left:
            break
        left -= length
        found.append((since, since + length))
    return found


def _gaps(spans: Iterable[tuple[int, int]], begin: int) -> Iterator[tuple[int, int]]:
    """Length and beginning of each."""
    reached = begin
    for start, end in spans:
        if start > reached:
            yield start - reached, reached
        reached = max(reached, end)


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
