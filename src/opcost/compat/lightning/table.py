"""Lightning's table and its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

from opcost.core.harmless import printable

_UNITS = (" ", "K", "M", "B", "T")
_FIRST = 10
"""The width of the numbers below the table."""


def human_readable(number: int) -> str:
    """Up to three digits and a unit: 1.2 K, 400 T; beyond trillions more digits."""
    group = min(ceil(len(str(number)) / 3), len(_UNITS)) - 1
    shown = number / 1000**group
    text = f"{int(shown):,d}" if group < 1 or shown >= 100 else f"{shown:,.1f}"
    return f"{text} {_UNITS[group]}"


def summary_table(columns: Mapping[str, list[str]], totals: Iterable[tuple[str, str]]) -> str:
    """The rows between rules, and below them the totals."""
    cells = [[title, *map(printable, column)] for title, column in columns.items()]
    widths = [max(map(len, column)) for column in cells]
    header, *rows = (
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in zip(*cells, strict=True)
    )
    rule = "-" * (sum(widths) + 3 * (len(widths) + 1))
    return "\n".join([header, rule, *rows, rule, *(f"{number:<{_FIRST}}{title}" for number, title in totals)])
