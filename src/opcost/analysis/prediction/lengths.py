"""What many steps of a language model cost together, from a few of them.

From one token to the next only the sizes change that depend on the cache, each by the same amount. So every row of a step lies on
a line between the first and the last one; that is checked in the middle, row by row, and where it does not hold (a window is
full, another kernel is chosen) the steps are split there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from opcost.analysis.growth import Weights, weights
from opcost.core.graph import Cost, Op, TensorSpec
from opcost.core.report import Report, Row
from opcost.errors import OpcostError

MOST = 120  # steps that are counted at most; a model that needs more follows no formula

Counted = Callable[[int], Report]  # A step against a cache of so many tokens


class Piece(NamedTuple):
    """Steps whose rows lie on lines, from the one against a cache of `first` tokens to that against `last`."""

    first: int
    last: int
    low: Report
    high: Report

    @property
    def steps(self) -> int:
        return self.last - self.first + 1

    def at(self, tokens: int) -> Report:
        """The step against a cache of so many tokens."""
        rows = _between(self.low.rows, self.high.rows, self._weights(tokens))
        if rows is None:
            raise OpcostError(f"the step against {tokens} tokens is not between those of {self.first} and {self.last}")
        return replace(self.low, rows=tuple(rows))

    def _weights(self, tokens: int) -> Weights:
        return weights((self.first, self.last) if self.first < self.last else (self.first, self.first + 1), tokens)

    def holds(self, tokens: int, report: Report) -> bool:
        """Whether a step that was counted is the one that the lines tell."""
        rows = _between(self.low.rows, self.high.rows, self._weights(tokens))
        return rows is not None and _alike(rows, report.rows)

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


def pieces(counted: Counted, first: int, last: int, edges: Iterable[int] = ()) -> list[Piece]:
    """All steps from one length of the cache to another; `edges` are lengths at which something may change."""
    known: dict[int, Report] = {}

    def report(tokens: int) -> Report:
        if tokens not in known:
            if len(known) >= MOST:
                raise OpcostError(
                    f"the steps from {first} to {last} tokens follow no formula: {MOST} of them were counted",
                    hint="predict single steps: decode=1, cache=N",
                )
            known[tokens] = counted(tokens)
        return known[tokens]

    inside = sorted({edge for edge in edges if first < edge <= last})
    borders = [first, *inside, last + 1]
    return [piece for low, high in pairwise(borders) for piece in _split(report, low, high - 1)]


def _split(report: Counted, first: int, last: int) -> Iterator[Piece]:
    if first > last:
        return
    piece = Piece(first, last, report(first), report(last))
    middle = (first + last) // 2
    if last == first:
        yield piece
    elif last - first > 1 and piece.holds(middle, report(middle)):
        if piece.steps % 2:
            yield piece
        else:  # of an odd number of steps the mean is the one in the middle, a whole number
            yield Piece(first, last - 1, piece.low, piece.at(last - 1))
            yield Piece(last, last, piece.high, piece.high)
    elif last - first == 1:
        yield Piece(first, first, report(first), report(first))
        yield Piece(last, last, report(last), report(last))
    else:
        yield from _split(report, first, middle)
        yield from _split(report, middle + 1, last)


def _parts(cost: Cost) -> tuple[int, ...]:
    return (cost.macs, cost.flops, cost.bytes_read, cost.bytes_written)


def _alike(told: Sequence[Row], counted: Sequence[Row]) -> bool:
    return len(told) == len(counted) and all(
        (a.op.raw, a.op.module, a.op.attrs, a.ins, a.outs, a.cost)
        == (b.op.raw, b.op.module, b.op.attrs, b.ins, b.outs, b.cost)
        for a, b in zip(told, counted, strict=True)
    )


def _between(low: Sequence[Row], high: Sequence[Row], on: Weights) -> list[Row] | None:
    """The rows there; None where both are not rows of the same operators."""
    if len(low) != len(high):
        return None
    found = []
    for a, b in zip(low, high, strict=True):
        row = a if _same(a, b) else _row(a, b, on)
        if row is None:
            return None
        found.append(row)
    return found


def _same(a: Row, b: Row) -> bool:
    return (
        a.ins == b.ins and a.outs == b.outs and a.op.raw == b.op.raw and a.cost == b.cost and a.op.attrs == b.op.attrs
    )


class _NoLine(Exception):
    """Two rows are not ends of a line of whole numbers."""


def _row(a: Row, b: Row, on: Weights) -> Row | None:
    if _identity(a.op) != _identity(b.op):
        return None
    try:
        attrs = {name: _number(value, b.op.attrs.get(name), on) for name, value in a.op.attrs.items()}
        cost = None
        if a.cost is not None and b.cost is not None:
            cost = Cost(*(_number(x, y, on) for x, y in zip(_parts(a.cost), _parts(b.cost), strict=True)))
        return a._replace(
            op=a.op._replace(attrs=attrs), ins=_specs(a.ins, b.ins, on), outs=_specs(a.outs, b.outs, on), cost=cost
        )
    except _NoLine:
        return None


def _identity(op: Op) -> tuple[Any, ...]:
    return op.raw, op.kind, op.module, op.repeat, op.attrs.keys()


def _specs(low: Sequence[TensorSpec], high: Sequence[TensorSpec], on: Weights) -> tuple[TensorSpec, ...]:
    if len(low) != len(high):
        raise _NoLine
    return tuple(a if a == b else _spec(a, b, on) for a, b in zip(low, high, strict=True))


def _spec(low: TensorSpec, high: TensorSpec, on: Weights) -> TensorSpec:
    if low.shape is None or high.shape is None or len(low.shape) != len(high.shape) or low.dtype != high.dtype:
        raise _NoLine
    extents = zip(low.shape, high.shape, strict=True)
    return TensorSpec(tuple(_number(a, b, on) for a, b in extents), low.dtype)


def _number(low: Any, high: Any, on: Weights) -> Any:
    if low == high:
        return low
    if isinstance(low, bool) or not (isinstance(low, int) and isinstance(high, int)):
        raise _NoLine
    found = on.of((low, high))
    if found is None:
        raise _NoLine
    return found
