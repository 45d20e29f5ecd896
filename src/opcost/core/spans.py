"""Spans of time that may overlap."""

from __future__ import annotations

from collections.abc import Iterable


LONG_GAP = 0.2
"""A gap of more than this part of a device's time is an event with a time and a length, and no part of a rate."""
FEWEST = 5
"""Of fewer pieces of work no gap is an exception."""


def longest_rated(span: int, pieces: int) -> float:
    """The longest gap between so many pieces of work that is part of a rate."""
    return LONG_GAP * span if pieces >= FEWEST else span


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
