"""Text tables in the layouts that the peers print, and the lines below them that several peers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from opcost.core.escaping import printable

_HEADER_ROOM = 2
"""A column of `tabulate` is at least this much wider than its header."""
_LONGEST_PLAIN_NUMBER = 12
"""Characters, the sign's place included; pandas writes a column with longer numbers in exponents."""


class Column(NamedTuple):
    """One column of a layout: its heading, the cell of a row, and how both are placed."""

    heading: str
    cell: Callable[[Any], object]
    align: str = "<"
    width: int | None = None
    """The width of each cell; None: as wide as the longest cell, and at least `least`."""
    least: int = 0
    room: int = 0
    """Added to the width of the longest cell."""
    gap: str = " "
    """Between this column and the one before it."""


def lay_out(columns: Sequence[Column], rows: Iterable[Any]) -> list[str]:
    """The line of headings, then a line for each row."""
    rows = list(rows)
    cells = [[column.heading, *(printable(str(column.cell(row))) for row in rows)] for column in columns]
    lines = [""] * (len(rows) + 1)
    for at, (column, texts) in enumerate(zip(columns, cells, strict=True)):
        longest = max(column.least, *map(len, texts)) + column.room
        width = longest if column.width is None else column.width
        gap = column.gap if at else ""
        lines = [f"{line}{gap}{text:{column.align}{width}}" for line, text in zip(lines, texts, strict=True)]
    return lines


def _columns(headers: Sequence[str], align: Sequence[str], gap: str, room: int = 0) -> list[Column]:
    """Columns over rows of ready texts."""
    return [
        Column(header, lambda row, at=at: row[at], align[at], least=len(header) + room, gap=gap)  # type: ignore[misc]
        for at, header in enumerate(headers)
    ]


# -- tabulate's tables ------------------------------------------------------------------------------------------------


def pipe_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; columns of numbers and empty cells only are aligned right."""
    rows = [[printable(cell).replace("|", "\\|") for cell in row] for row in rows]
    align = ["<"] * len(headers)
    for at, column in enumerate(zip(*rows, strict=True)):
        if any(column) and all(map(_is_number, filter(None, column))):
            align[at] = ">"
    header, *lines = (f"| {line} |" for line in lay_out(_columns(headers, align, " | ", _HEADER_ROOM), rows))
    widths = _widths(headers, rows, _HEADER_ROOM)
    rules = (f":{'-' * (w + 1)}" if side == "<" else f"{'-' * (w + 1)}:" for w, side in zip(widths, align, strict=True))
    return "\n".join([header, f"|{'|'.join(rules)}|", *lines])


def simple_table(headers: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    """Columns with a rule of dashes below their headers; `align` has a "<" or ">" for each."""
    header, *lines = (line.rstrip() for line in lay_out(_columns(headers, align, "  ", _HEADER_ROOM), rows))
    rule = "  ".join("-" * width for width in _widths(headers, rows, _HEADER_ROOM))
    return "\n".join([header, rule, *lines])


def box_table(headers: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> str:
    """A table in a frame of ASCII characters, with an optional centred title; ends with a line break."""
    header, *lines = (f"| {line} |" for line in lay_out(_columns(headers, "<" * len(headers), " | "), rows))
    rule = "+" + "+".join("-" * (width + 2) for width in _widths(headers, rows)) + "+"
    titles = [f"{title:^{len(rule)}}"] if title else []
    return "\n".join([*titles, rule, header, rule, *lines, rule, ""])


def _widths(headers: Sequence[str], rows: Sequence[Sequence[str]], room: int = 0) -> list[int]:
    cells = [[printable(cell) for cell in row] for row in rows]
    return [
        max(len(header) + room, *(len(row[at]) for row in cells), 0)  # the 0 is for a table without rows
        for at, header in enumerate(headers)
    ]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


# -- pandas' data frames ----------------------------------------------------------------------------------------------


def frame(index: Sequence[str], columns: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """A data frame as pandas prints it: a left-aligned index and right-aligned columns of (heading, cells)."""
    rows = list(zip(index, *(cells for _, cells in columns), strict=True))
    headers = ["", *(heading for heading, _ in columns)]
    return lay_out(_columns(headers, "<" + ">" * len(columns), " "), rows)


def float_cells(values: Iterable[float]) -> list[str]:
    """A column of floats as pandas writes it, with a place for the sign in front."""
    values = [float(value) for value in values]
    cells = [f" {value:.1f}" for value in values]
    if max(map(len, cells), default=0) > _LONGEST_PLAIN_NUMBER:
        return [f"{value: .6e}" for value in values]
    return cells


# -- lines below a table ----------------------------------------------------------------------------------------------


def parameter_lines(total: int, trainable: int) -> Iterator[str]:
    yield f"Total params: {total:,}"
    yield f"Trainable params: {trainable:,}"
    yield f"Non-trainable params: {total - trainable:,}"


def size_lines(inputs: int, activations: int, params: int, unit: float) -> Iterator[str]:
    """Sizes in bytes, shown in a unit that every peer calls MB."""
    yield f"Input size (MB): {inputs / unit:0.2f}"
    yield f"Forward/backward pass size (MB): {activations / unit:0.2f}"
    yield f"Params size (MB): {params / unit:0.2f}"
    yield f"Estimated Total Size (MB): {(inputs + activations + params) / unit:0.2f}"
