"""Branches of which data takes one: the dearest counts, and the others are shown as run no times."""

from __future__ import annotations

from collections.abc import Iterable

from opcost.core.graph import Graph
from opcost.core.report import Row, stats_of


def decided(graph: Graph, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """The rows, of which those of all but the dearest branches have no repetition. Choices inside of branches come first."""
    found = list(rows)
    for branches in graph.choices:
        prices = [_price(found[begin:end]) for begin, end in branches]
        dearest = prices.index(max(prices))
        for place, (begin, end) in enumerate(branches):
            if place != dearest:
                found[begin:end] = [row._replace(op=row.op._replace(repeat=0)) for row in found[begin:end]]
    return tuple(found)


def _price(rows: Iterable[Row]) -> tuple[int, int, int]:
    """By arithmetic, then by bytes moved."""
    sums = stats_of(rows)
    return sums.macs, sums.flops, sums.bytes_read + sums.bytes_written
