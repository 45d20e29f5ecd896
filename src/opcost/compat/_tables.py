"""Text tables in the layouts that the peers print, and the lines below them that several peers share."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

from opcost.core.escaping import printable
from opcost.views.view import pad, width_of

Cell: TypeAlias = "str | int | float"

_HEADER_ROOM = 2  # A column of `tabulate` is at least this much wider than its header
_LONGEST_PLAIN_NUMBER = 12
"""Characters, the sign's place included; pandas writes a column with longer numbers in exponents."""


class TableColumn(NamedTuple):
    """One column of a layout: its heading, the cell of a row, and how both are placed."""

    heading: str
    cell: Callable[[Any], object]
    align: str = "<"
    width: int | None = None  # The width of each cell; None: as wide as the longest cell, and at least `least`
    least: int = 0
    room: int = 0  # Added to the width of the longest cell
    gap: str = " "  # Between this column and the one before it


def lay_out(columns: Sequence[TableColumn], rows: Iterable[Any]) -> list[str]:
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


# -- tabulate's tables ------------------------------------------------------------------------------------------------


def _texts(
    headers: Sequence[str], rows: Iterable[Sequence[str]], align: Sequence[str], gap: str, room: int = 0
) -> tuple[list[int], str, list[str]]:
    """The widths of columns of ready texts, the line of headers, and a line for each row."""
    cells = [[printable(cell) for cell in row] for row in rows]
    columns = list(zip(*cells, strict=True)) or [()] * len(headers)
    widths = [max(len(h) + room, *map(len, column), 0) for h, column in zip(headers, columns, strict=True)]
    placed = list(zip(align, widths, strict=True))
    header, *lines = (
        gap.join(f"{text:{side}{width}}" for text, (side, width) in zip(row, placed, strict=True))
        for row in (headers, *cells)
    )
    return widths, header, lines


def pipe_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; columns of numbers and empty cells only are aligned right."""
    rows = [[printable(cell).replace("|", "\\|") for cell in row] for row in rows]
    columns = list(zip(*rows, strict=True)) or [()] * len(headers)
    align = [">" if any(column) and all(map(_is_number, filter(None, column))) else "<" for column in columns]
    widths, header, lines = _texts(headers, rows, align, " | ", _HEADER_ROOM)
    rules = (f":{'-' * (w + 1)}" if side == "<" else f"{'-' * (w + 1)}:" for w, side in zip(widths, align, strict=True))
    return "\n".join([f"| {header} |", f"|{'|'.join(rules)}|", *(f"| {line} |" for line in lines)])


def simple_table(headers: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    """Columns with a rule of dashes below their headers; `align` has a "<" or ">" for each."""
    widths, header, lines = _texts(headers, rows, align, "  ", _HEADER_ROOM)
    dashes = "  ".join("-" * width for width in widths)
    return "\n".join([header.rstrip(), dashes, *(line.rstrip() for line in lines)])


def box_table(headers: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> str:
    """A table in a frame of ASCII characters, with an optional centred title; ends with a line break."""
    widths, header, lines = _texts(headers, rows, "<" * len(headers), " | ")
    line = rule([width + 2 for width in widths], "+-++")
    titles = [f"{title:^{len(line)}}"] if title else []
    return "\n".join([*titles, line, f"| {header} |", line, *(f"| {text} |" for text in lines), line, ""])


def ruled_table(rows: Sequence[Sequence[Cell]]) -> str:
    """Columns between two rules; a header, where there is one, is the first row."""
    columns = [_column_texts(column) for column in zip(*rows, strict=True)]
    dashes = "  ".join("-" * width_of(column[0]) for column in columns)
    return "\n".join([dashes, *("  ".join(cells).rstrip() for cells in zip(*columns, strict=True)), dashes])


def boxed_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A frame around every cell; a cell may have several lines, and every column is aligned at the left."""
    tall = [[[line.strip() for line in cell.split("\n")] for cell in row] for row in rows]
    widths = [
        max(width_of(header) + _HEADER_ROOM, *(width_of(line) for row in tall for line in row[place]), 0)
        for place, header in enumerate(headers)
    ]

    looks = ("╒═╤╕", "╞═╪╡", "├─┼┤", "╘═╧╛")
    top, below_head, between, bottom = (rule([width + 2 for width in widths], look) for look in looks)
    head = _row_lines([[header] for header in headers], widths, "│")
    body = f"\n{between}\n".join("\n".join(_row_lines(row, widths, "│")) for row in tall)
    return "\n".join([top, *head, below_head, *([body] if body else []), bottom])


def rule(widths: Iterable[int], look: str) -> str:
    """A line over columns of these widths, of the look's four letters: its left end, the filling, crossings, its right end."""
    return look[0] + look[2].join(look[1] * width for width in widths) + look[3]


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
    lines = [f"| {' | '.join(head)} |", rule([width + 2 for width in widths], "|-||")]
    for cells in zip(*texts, strict=True):
        lines += _row_lines([cell.split("\n") for cell in cells], widths, "|")
    return "\n".join(lines)


def _row_lines(cells: Sequence[Sequence[str]], widths: Sequence[int], bar: str) -> list[str]:
    """A row between bars, as tall as its cell of the most lines."""
    lines = []
    for texts in zip_longest(*cells, fillvalue=""):
        placed = [pad(text, width, left=True) for text, width in zip(texts, widths, strict=True)]
        lines.append(f"{bar} " + f" {bar} ".join(placed) + f" {bar}")
    return lines


def _column_texts(column: Sequence[Cell], *, least: int = 0) -> list[str]:
    """The cells of a column, each of their lines at one width."""
    if not all(map(_is_number, column)):
        tall = [str(cell).strip().split("\n") for cell in column]
        room = max([least, *(width_of(line) for lines in tall for line in lines)])
        return ["\n".join(pad(line, room, left=True) for line in lines) for lines in tall]
    whole = all(re.fullmatch(r"\s*[+-]?\d+(_\d+)*\s*", str(cell)) for cell in column)
    texts = [str(cell) if whole else format(float(cell), "g") for cell in column]
    if not whole:
        # Characters after the decimal point, else after the exponent's letter, else one less than none
        tails = [text.partition("." if "." in text else "e")[1:] for text in texts]
        decimals = [len(tail) if mark else -1 for mark, tail in tails]
        texts = [text + " " * (max(decimals) - own) for text, own in zip(texts, decimals, strict=True)]
    room = max([least, *map(len, texts)])
    return [text.rjust(room) for text in texts]


def _is_number(cell: Cell) -> bool:
    if not isinstance(cell, str):
        return True
    try:
        number = float(cell)
    except ValueError:
        return False
    return math.isfinite(number) or cell.lower() in ("inf", "-inf", "nan")


# -- pandas' data frames ----------------------------------------------------------------------------------------------


def frame(index: Sequence[str], columns: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """A data frame as pandas prints it: a left-aligned index and right-aligned columns of (heading, cells)."""
    rows = zip(index, *(cells for _, cells in columns), strict=True)
    _, header, lines = _texts(["", *(heading for heading, _ in columns)], rows, "<" + ">" * len(columns), " ")
    return [header, *lines]


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
