"""What one of two sequences has more than the other, where it repeats what is beside it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from typing import NamedTuple


class NotRepeating(Exception):
    """The two graphs do not determine others."""


class Chunk(NamedTuple):
    """Records that are as many in both graphs (`period` 0), or that repeat."""

    first: tuple[int, int]  # in either graph
    period: int
    times: tuple[int, int]


class Alignment:
    """Where one sequence of records has one repetition more than the other."""

    def __init__(self, fewer: Sequence[Hashable], more: Sequence[Hashable]) -> None:
        a, b = _numbered(fewer, more)
        self.chunks: list[Chunk] = []
        at, inserted, from_ = (
            0,
            0,
            (0, 0),
        )  # the place in `a`, what `b` has more up to there, where the open chunk began
        while True:
            while at < len(a) and at + inserted < len(b) and a[at] == b[at + inserted]:
                at += 1
            there = at + inserted
            if at == len(a) and there == len(b):
                break
            period = _period(a, b, at, there)
            first = there
            while first - period >= from_[1] and b[first - period : first] == b[first : first + period]:
                first -= period
            times = (there - first) // period + 1
            self._add((from_[0], from_[1]), 0, (first - from_[1],) * 2)
            self._add((from_[0] + first - from_[1], first), period, (times - 1, times))
            inserted += period
            from_ = (at, there + period)
        self._add(from_, 0, (len(b) - from_[1],) * 2)
        self._firsts = [[chunk.first[graph] for chunk in self.chunks] for graph in (0, 1)]

    def _add(self, first: tuple[int, int], period: int, times: tuple[int, int]) -> None:
        if times[1]:
            self.chunks.append(Chunk(first, period, times))

    def place(self, graph: int, place: int) -> tuple[int, int, int]:
        """The chunk of a record, its place there, and in which repetition."""
        number = bisect_right(self._firsts[graph], place) - 1
        chunk = self.chunks[number]
        inside = place - chunk.first[graph]
        repetition, offset = divmod(inside, chunk.period) if chunk.period else (0, inside)
        return number, offset, repetition


def _numbered(*sequences: Sequence[Hashable]) -> list[list[int]]:
    """Numbers in place of keys, which are compared often."""
    known: dict[Hashable, int] = {}
    return [[known.setdefault(key, len(known)) for key in keys] for keys in sequences]


def _period(a: list[int], b: list[int], at: int, there: int) -> int:
    """How much was inserted here: it repeats what is before it, and after it both go on alike for the longest time.

    Of several, all of what remains: what repeats within it, such as equal numbers one by one, is no block.
    """
    best, longest = 0, -1
    for period in range(1, min(there, len(b) - there, len(b) - len(a) - (there - at)) + 1):
        if b[there - period : there] == b[there : there + period]:
            alike = next(
                (n for n, (x, y) in enumerate(zip(a[at:], b[there + period :], strict=False)) if x != y), len(a) - at
            )
            if alike >= longest:
                best, longest = period, alike
    if not best:
        raise NotRepeating
    return best
