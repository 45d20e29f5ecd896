"""Sheets as GitHub tables, with everything else to know below them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from opcost.core.escaping import markdown_text
from opcost.core.sheet import Sheet, Table
from opcost.views.cell import column_texts
from opcost.views.results import sheet_view
from opcost.views.text import phase_rows
from opcost.views.view import NumberOptions


def _write(sheet: Sheet, options: NumberOptions) -> str:
    totals = [(total.label.replace("  ", "&emsp;"), total.human, f"{total.value:,}") for total in sheet.totals]
    parts = [[f"**{markdown_text(sheet.heading[0])}**"], _bullets(" ".join(line.split()) for line in sheet.heading[1:])]
    for table in sheet.tables:
        if not table.main:
            parts.append([f"**{markdown_text(table.title)}**"])
        parts += [_table(table, exact=options.exact), [f"*{markdown_text(remark)}*" for remark in table.remarks]]
    parts += [
        _rows([("total", "", "exact"), *totals], "lrr") if totals else [],
        _rows(phase_rows(sheet.phases), "lrrrr") if sheet.phases else [],
        [markdown_text(" · ".join(sheet.conventions))] if sheet.conventions else [],
    ]
    for section in sheet.sections:
        parts.append([f"**{markdown_text(section.title)}**"])
        parts.append(_bullets(section.lines))
        parts.append([markdown_text(section.hint)] if section.hint else [])
    parts.append(_bullets(sheet.facts))
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _bullets(lines: Iterable[str]) -> list[str]:
    return [f"- {markdown_text(line)}" for line in lines]


def _rows(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """The first row as the head; `sides` aligns the columns: `lrr`."""
    rules = [":---" if side == "l" else "---:" for side in sides]
    return ["| " + " | ".join(row) + " |" for row in (rows[0], rules, *rows[1:])]


def _table(table: Table, *, exact: bool) -> list[str]:
    places = [place for place in table.visible if not (table.order and table.fields[place].extra)]
    fields = [table.fields[place] for place in places]
    cells = [_cells(table, place, exact=exact) for place in places]
    rows = [[markdown_text(field.header) for field in fields], *zip(*cells, strict=True)]
    return _rows(rows, "".join("l" if field.textual else "r" for field in fields))


def _cells(table: Table, place: int, *, exact: bool) -> list[str]:
    """The cells of one column; equal ones are made once."""
    field = table.fields[place]
    code = field.unit == "name" or field.name == "op"
    tree = field.name == "module"

    @cache
    def cell(guides: str, text: str, role: str) -> str:
        # A web page drops leading blanks, and the guides of a tree do not meet there; a level is a wide blank.
        before = "&emsp;" * (len(guides) // len("├─ ")) if tree else ""
        if not text:
            return before
        if role != "row":
            return f"{before}**{markdown_text(text)}**"
        is_code = code and not set(text) & set("`|\\")  # which code cannot hold in a table
        return f"{before}`{text}`" if is_code else before + markdown_text(text)

    texts = column_texts(table, place, exact=exact)
    return [cell(line.guides, text, line.role) for line, text in zip(table.lines, texts, strict=True)]


MD = sheet_view("md", _write, NumberOptions, suffix=".md")
