"""The three layouts of text tables that MegEngine's profile tool prints: ruled, boxed with tall cells, and wiki.

A column of numbers stands with its decimal points below each other, any other column at the left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeAlias

from opcost.views.cell import pad, width_of

Cell: TypeAlias = "str | int | float"

_HEADER_ROOM = 2
"""A column is at least this much wider than its header."""


def ruled_table(rows: Sequence[Sequence[Cell]]) -> str:
    """Columns between two rules, without a header."""
    columns = [_column_texts(column) for column in zip(*rows, strict=True)]
    rule = "  ".join("-" * width_of(column[0]) for column in columns)
    return "\n".join([rule, *("  ".join(cells).rstrip() for cells in zip(*columns, strict=True)), rule])


def boxed_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A frame around every cell; a cell may have several lines, and every column stands at the left."""
    tall = [[[line.strip() for line in cell.split("\n")] for cell in row] for row in rows]
    widths = [
        max(width_of(header) + _HEADER_ROOM, *(width_of(line) for row in tall for line in row[place]), 0)
        for place, header in enumerate(headers)
    ]

    def line(cells: Sequence[str]) -> str:
        placed = (pad(cell, width, left=True) for cell, width in zip(cells, widths, strict=True))
        return "│ " + " │ ".join(placed) + " │"

    def rule(left: str, fill: str, cross: str, right: str) -> str:
        return left + cross.join(fill * (width + 2) for width in widths) + right

    lines = [rule("╒", "═", "╤", "╕"), line(headers), rule("╞", "═", "╪", "╡")]
    for number, row in enumerate(tall):
        if number:
            lines.append(rule("├", "─", "┼", "┤"))
        lines += map(line, zip_longest(*row, fillvalue=""))
    return "\n".join([*lines, rule("╘", "═", "╧", "╛")])


def wiki_table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Columns between vertical bars, as a wiki takes them."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(headers)
    numeric = [bool(column) and all(map(_is_number, column)) for column in columns]
    texts = [
        _column_texts(column, least=width_of(header) + _HEADER_ROOM)
        for header, column in zip(headers, columns, strict=True)
    ]
    widths = [
        width_of(column[0].partition("\n")[0]) if column else width_of(header) + _HEADER_ROOM
        for header, column in zip(headers, texts, strict=True)
    ]
    head = [pad(header, width, left=not right) for header, width, right in zip(headers, widths, numeric, strict=True)]
    rule = "|".join("-" * (width + 2) for width in widths)
    lines = [f"| {' | '.join(head)} |", f"|{rule}|"]
    for cells in zip(*texts, strict=True):
        tall = [cell.split("\n") for cell in cells]
        for number in range(max(map(len, tall))):
            placed = (
                parts[number] if number < len(parts) else " " * width for parts, width in zip(tall, widths, strict=True)
            )
            lines.append(f"| {' | '.join(placed)} |")
    return "\n".join(lines)


def _column_texts(column: Sequence[Cell], *, least: int = 0) -> list[str]:
    """The cells of a column, each of their lines at one width."""
    if not all(map(_is_number, column)):
        tall = [str(cell).strip().split("\n") for cell in column]
        room = max([least, *(width_of(line) for lines in tall for line in lines)])
        return ["\n".join(pad(line, room, left=True) for line in lines) for lines in tall]
    whole = all(_is_whole(cell) for cell in column)
    texts = [str(cell) if whole else format(float(cell), "g") for cell in column]
    if not whole:
        decimals = [_decimals(text) for text in texts]
        most = max(decimals, default=0)
        texts = [text + " " * (most - own) for text, own in zip(texts, decimals, strict=True)]
    room = max([least, *map(len, texts)])
    return [text.rjust(room) for text in texts]


def _decimals(text: str) -> int:
    """Characters after the decimal point, else after the exponent's letter, else one less than none."""
    place = text.rfind(".")
    if place < 0:
        place = text.rfind("e")
    return len(text) - place - 1 if place >= 0 else -1


def _is_number(cell: Cell) -> bool:
    if not isinstance(cell, str):
        return True
    try:
        number = float(cell)
    except ValueError:
        return False
    return math.isfinite(number) or cell.lower() in ("inf", "-inf", "nan")


def _is_whole(cell: Cell) -> bool:
    if not isinstance(cell, str):
        return isinstance(cell, int)
    try:
        int(cell)
    except ValueError:
        return False
    return True
