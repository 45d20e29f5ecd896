"""Results for programs: CSV, JSON, and columns for data frames. Numbers are exact, the unknown is empty or null."""

from __future__ import annotations

import csv
from functools import cache
from io import StringIO
from typing import Any

from opcost.core.escaping import csv_cell, json_text
from opcost.core.sheet import Cell, Table, plain_cell
from opcost.views.results import RESULTS, JsonOptions
from opcost.views.view import Build, View


def _write_csv(table: Table, options: object) -> str:
    """A head line and all lines; shapes are written 1x3x224x224, several of them with a blank between."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(csv_cell(field.name) for field in table.fields)

    def text(value: Cell) -> str:
        return str(plain_cell(value)) if isinstance(value, tuple) else csv_cell(str(value))

    columns = [
        map(cache(text) if field.textual else plain_cell, values)  # equal ones are written once
        for field, values in zip(table.fields, zip(*(line.values for line in table.lines), strict=True), strict=False)
    ]
    writer.writerows(zip(*columns, strict=True))  # the writer leaves the unknown empty
    return out.getvalue()


def _columns(build: Build) -> Build:
    """Every column by its name, as after `--columns`, with one value for each row; sums are left out, and unknown is None."""

    def make(result: Any, options: Any) -> dict[str, list[Any]]:
        table: Table = build.make(result, options)
        rows = table.rows

        def value(cell: Cell, *, textual: bool) -> Any:
            return None if cell == "" and not textual else plain_cell(cell)

        return {
            field.name: [value(row[place], textual=field.textual) for row in rows]
            for place, field in enumerate(table.fields)
        }

    return Build(build.options, make)


def _write_columns(columns: dict[str, list[Any]], options: object) -> str:
    return json_text(columns, allow_nan=False) + "\n"


def _write_json(data: dict[str, Any], options: JsonOptions) -> str:
    separators = (",", ":") if options.indent is None else (",", ": ")
    return json_text(data, allow_nan=False, indent=options.indent, separators=separators) + "\n"


_KINDS = RESULTS.items()
CSV = View(name="csv", suffix=".csv", builds={kind: each.records for kind, each in _KINDS}, write=_write_csv)
COLUMNS = View(name="columns", builds={kind: _columns(each.columns) for kind, each in _KINDS}, write=_write_columns)
JSON = View(name="json", suffix=".json", builds={kind: each.data for kind, each in _KINDS}, write=_write_json)
