"""Spans of time that may overlap."""

from __future__ import annotations

from collections.abc import Iterable


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
