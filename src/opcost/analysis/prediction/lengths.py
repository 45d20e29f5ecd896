"""What many steps of a language model cost together, from a few of them.

From one token to the next only the sizes change that depend on the cache, each by the same amount. So every row of a step is on
a line between the first and the last one; that is checked in the middle, row by row, and where it does not hold (a window is
full, another kernel is chosen) the steps are split there.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from opcost.analysis.growth import SizeShares, weights
from opcost.core.graph import Cost, TensorSpec
from opcost.core.report import Report, Row
from opcost.errors import OpcostError

MOST = 120  # steps that are counted at most; a model that needs more follows no formula

Counted = Callable[[int], Report]  # A step against a cache of this many tokens


class StepRange(NamedTuple):
    """Steps whose rows are on lines, from the one against a cache of `first` tokens to that against `last`."""

    first: int
    last: int
    low: Report
    high: Report

    @property
    def steps(self) -> int:
        return self.last - self.first + 1

    def _rows(self, tokens: int) -> list[Row] | None:
        """The rows there; None where both ends are not rows of the same operators."""
        ends = (self.first, self.last) if self.first < self.last else (self.first, self.first + 1)
        on, low, high = weights(ends, tokens), self.low.rows, self.high.rows
        try:
            return [row_between(a, b, on) for a, b in zip(low, high, strict=True)] if len(low) == len(high) else None
        except NoLine:
            return None

    def at(self, tokens: int) -> Report:
        """The step against a cache of this many tokens."""
        rows = self._rows(tokens)
        if rows is None:
            raise OpcostError(f"the step against {tokens} tokens is not between those of {self.first} and {self.last}")
        return replace(self.low, rows=tuple(rows))

    def holds(self, tokens: int, report: Report) -> bool:
        """Whether a step that was counted is the one by the lines."""
        rows, same = self._rows(tokens), attrgetter("op.raw", "op.module", "op.attrs", "ins", "outs", "cost")
        return rows is not None and list(map(same, rows)) == list(map(same, report.rows))

    def samples(self, most: int) -> tuple[tuple[int, int], ...]:
        """Some of the steps with twice their weights: what is a line between each two of them adds up exactly."""
        count = min(most, self.steps)
        places = sorted({self.first + (self.steps - 1) * i // max(1, count - 1) for i in range(count)})
        weights = dict.fromkeys(places, 0)
        for a, b in pairwise(places):
            weights[a] += b - a + 1
            weights[b] += b - a - 1
        weights[places[-1]] += 2
        return tuple(weights.items())


def pieces(counted: Counted, first: int, last: int, edges: Iterable[int] = ()) -> list[StepRange]:
    """All steps from one length of the cache to another; `edges` are lengths at which something may change."""
    known: dict[int, Report] = {}

    def report(tokens: int) -> Report:
        if tokens not in known:
            if len(known) >= MOST:
                fault = f"the steps from {first} to {last} tokens follow no formula: {MOST} of them were counted"
                raise OpcostError(fault, hint="predict single steps: decode=1, cache=N")
            known[tokens] = counted(tokens)
        return known[tokens]

    inside = sorted({edge for edge in edges if first < edge <= last})
    borders = [first, *inside, last + 1]
    return [piece for low, high in pairwise(borders) for piece in _split(report, low, high - 1)]


def _split(report: Counted, first: int, last: int) -> Iterator[StepRange]:
    if first > last:
        return
    piece = StepRange(first, last, report(first), report(last))
    middle = (first + last) // 2
    if last == first:
        yield piece
    elif last - first > 1 and piece.holds(middle, report(middle)):
        if piece.steps % 2:
            yield piece
        else:  # of an odd number of steps the mean is the one in the middle, a whole number
            yield StepRange(first, last - 1, piece.low, piece.at(last - 1))
            yield StepRange(last, last, piece.high, piece.high)
    elif last - first == 1:
        yield StepRange(first, first, report(first), report(first))
        yield StepRange(last, last, report(last), report(last))
    else:
        yield from _split(report, first, middle)
        yield from _split(report, middle + 1, last)


def row_between(a: Row, b: Row, on: SizeShares) -> Row:
    """The row of an operator at another size, on the line between two; raises `NoLine` where there is none."""
    x, y = a.op, b.op
    if a.ins == b.ins and a.outs == b.outs and x.raw == y.raw and a.cost == b.cost and x.attrs == y.attrs:
        return a
    if (x.raw, x.kind, x.module, x.repeat, x.attrs.keys()) != (y.raw, y.kind, y.module, y.repeat, y.attrs.keys()):
        raise NoLine
    attrs = {name: _number(value, y.attrs.get(name), on) for name, value in x.attrs.items()}
    cost = None
    if a.cost is not None and b.cost is not None:
        names = ("macs", "flops", "bytes_read", "bytes_written")
        cost = Cost(*(_number(getattr(a.cost, name), getattr(b.cost, name), on) for name in names))
    return a._replace(
        op=x._replace(attrs=attrs), ins=_specs(a.ins, b.ins, on), outs=_specs(a.outs, b.outs, on), cost=cost
    )


def _specs(low: Sequence[TensorSpec], high: Sequence[TensorSpec], on: SizeShares) -> tuple[TensorSpec, ...]:
    if len(low) != len(high):
        raise NoLine
    found = []
    for a, b in zip(low, high, strict=True):
        if a != b:
            if a.shape is None or b.shape is None or len(a.shape) != len(b.shape) or a.dtype != b.dtype:
                raise NoLine
            extents = zip(a.shape, b.shape, strict=True)
            a = TensorSpec(tuple(_number(x, y, on) for x, y in extents), a.dtype)  # noqa: PLW2901 - that between them
        found.append(a)
    return tuple(found)


class NoLine(Exception):
    """Two rows are not ends of a line of whole numbers."""


def _number(low: Any, high: Any, on: SizeShares) -> Any:
    if low == high:
        return low
    if isinstance(low, bool) or not (isinstance(low, int) and isinstance(high, int)):
        raise NoLine
    found = on.of((low, high))
    if found is None:
        raise NoLine
    return found
