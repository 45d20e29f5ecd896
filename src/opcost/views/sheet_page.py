"""Tables about a whole profile: on a page for people, as records for spreadsheets, as data for programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opcost.core.sheet import Cell, Field, Sheet, Table
from opcost.views.comparison_page import ComparisonOptions, limited, plain_column
from opcost.views.listing import Column, Line, Listing
from opcost.views.page import Page, Titled
from opcost.views.summary import LONG_LINE, Summary
from opcost.wording import shortened, some

_NO_LISTING = Listing(columns=(), lines=())


def sheet_page(sheet: Sheet, options: ComparisonOptions) -> Page:
    """One table after another."""
    heading = f"{sheet.meta.get('source', 'profile')} ({sheet.meta.get('format', 'opcost')}): {sheet.name}"
    summary = Summary(
        heading=(shortened(heading, LONG_LINE),),
        seen_against=tuple(some([shortened(note.text, LONG_LINE) for note in sheet.notes])),
    )
    further = tuple(Titled(table.title, limited(_listing(table), options.top)) for table in sheet.tables if table.lines)
    return Page(_NO_LISTING, summary, further)


def _listing(table: Table) -> Listing:
    """A table without what says the same in every line, unless all does."""
    telling = [
        place
        for place, field in enumerate(table.fields)
        if not (field.dull and len({line[place] for line in table.lines}) == 1)
    ]
    columns = tuple(_column(table.fields[place], place) for place in telling)
    lines = [Line(tuple(line[place] for place in telling)) for line in table.lines]
    if table.total is not None:
        lines.append(Line(tuple(table.total[place] for place in telling), role="total"))
    ranked = tuple(column.name for column in columns)
    return Listing(columns=columns, lines=tuple(lines), ranked=ranked, remarks=table.remarks)


def _column(field: Field, place: int) -> Column:
    return replace(plain_column(field.name, unit=field.unit, of=lambda line: line[place]), title=field.name)


def sheet_records(sheet: Sheet) -> Listing:
    """The lines of all tables under one head, each with the title of its table; what a table does not have is empty."""
    fields = {field.name: field for table in sheet.tables for field in table.fields}
    rows: list[tuple[Cell, ...]] = [
        (table.title, *(record.get(name) for name in fields)) for table in sheet.tables for record in table.records()
    ]
    columns = (
        plain_column("table", of=lambda line: line[0]),
        *(_column(field, place) for place, field in enumerate(fields.values(), 1)),
    )
    lines = tuple(
        Line(tuple("" if cell is None and column.textual else cell for cell, column in zip(row, columns, strict=True)))
        for row in rows
    )
    return Listing(columns=columns, lines=lines)


def sheet_data(sheet: Sheet) -> dict[str, Any]:
    """All of it."""
    return {
        "schema": "opcost.sheet/1",
        "sheet": sheet.name,
        "meta": dict(sheet.meta),
        "tables": [
            {
                "title": table.title,
                "fields": [{"name": field.name, "unit": field.unit} for field in table.fields],
                "lines": table.records(),
                "remarks": list(table.remarks),
            }
            for table in sheet.tables
        ],
        "notes": [{"code": note.code, "text": note.text, "where": note.where} for note in sheet.notes],
    }
