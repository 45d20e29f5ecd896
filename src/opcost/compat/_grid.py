"""Plain text tables in the layouts that the peers print: Markdown, boxed, and columns below a rule."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.core.harmless import printable

_HEADER_ROOM = 2
"""A Markdown column is at least this much wider than its header."""


def pipe_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a column that holds nothing but numbers and empty cells stands right."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in _printable(rows)]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(headers)
    numeric = [all(map(_is_number, filter(None, column))) and any(column) for column in columns]
    widths = [
        max(len(header) + _HEADER_ROOM, *map(len, column)) if column else len(header) + _HEADER_ROOM
        for header, column in zip(headers, columns, strict=True)
    ]

    def line(cells: Sequence[str]) -> str:
        placed = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        return "| " + " | ".join(placed) + " |"

    rule = "|".join(
        "-" * (width + 1) + ":" if right else ":" + "-" * (width + 1)
        for width, right in zip(widths, numeric, strict=True)
    )
    return "\n".join([line(headers), f"|{rule}|", *map(line, rows)])


def box_table(headers: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> str:
    """A table in a frame of ASCII characters, with an optional title centred above it; ends with a line break."""
    rows = _printable(rows)
    columns = zip(headers, *rows, strict=True)
    widths = [max(map(len, column)) for column in columns]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = [rule, line(headers), rule, *map(line, rows), rule]
    if title:
        lines.insert(0, _centred(title, len(rule)))
    return "\n".join(lines) + "\n"


def simple_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[bool]) -> str:
    """Columns with a rule of dashes below their headers; `right` says which of them stand right."""
    rows = _printable(rows)
    columns = list(zip(*rows, strict=True))
    widths = [
        max(len(header) + _HEADER_ROOM, *map(len, column)) for header, column in zip(headers, columns, strict=True)
    ]

    def line(cells: Sequence[str]) -> str:
        placed = zip(cells, widths, right, strict=True)
        return "  ".join(cell.rjust(width) if last else cell.ljust(width) for cell, width, last in placed).rstrip()

    return "\n".join([line(headers), "  ".join("-" * width for width in widths), *map(line, rows)])


def _printable(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[printable(cell) for cell in row] for row in rows]


def _centred(text: str, width: int) -> str:
    room = max(width - len(text), 0)
    return " " * (room // 2) + text + " " * (room - room // 2)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
