"""Results for programs: CSV, JSON, and columns for data frames. Numbers are exact, the unknown is empty or null."""

from __future__ import annotations

import csv
from collections.abc import Iterable
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
    columns = [
        _texts(values) if field.textual else map(plain_cell, values)
        for field, values in zip(table.fields, zip(*(line.values for line in table.lines), strict=True), strict=False)
    ]
    writer.writerows(zip(*columns, strict=True))  # the writer leaves the unknown empty
    return out.getvalue()


def _texts(values: Iterable[Cell]) -> list[str]:
    """The names, texts or shapes of one column; equal ones are made once."""
    known: dict[Cell, str] = {}
    texts = []
    for value in values:
        text = known.get(value)
        if text is None:
            text = known[value] = plain_cell(value) if isinstance(value, tuple) else csv_cell(str(value))
        texts.append(text)
    return texts


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


CSV = View(
    name="csv", suffix=".csv", builds={kind: result.records for kind, result in RESULTS.items()}, write=_write_csv
)
COLUMNS = View(
    name="columns", builds={kind: _columns(result.columns) for kind, result in RESULTS.items()}, write=_write_columns
)
JSON = View(
    name="json", suffix=".json", builds={kind: result.data for kind, result in RESULTS.items()}, write=_write_json
)
