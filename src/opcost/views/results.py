"""Every kind of result, how it becomes a sheet for people, records for spreadsheets and data for JSON; and CSV and JSON of it.

Formats know none of them: `sheet_view` makes a view of a function that writes sheets.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from io import StringIO
from typing import Any, NamedTuple, TypeAlias

from opcost.core import schema
from opcost.core.escaping import csv_cell, json_text
from opcost.core.report import Report
from opcost.core.results import Comparison, Fit, LayoutPlan, Recomputation, Sweep, Verdict
from opcost.core.sheet import LONG_LINE, Cell, Field, Line, Sheet, Table, plain_cell
from opcost.errors import shortened, some
from opcost.views import comparison, planning, profile, report, scan, sizing
from opcost.views.answers import answer_of, plain_answer
from opcost.views.view import Build, View, ViewOptions, fields_data


class ResultViews(NamedTuple):
    """How one kind of result is shown; each with the options that it alone has."""

    sheet: Build  # for people
    records: Build  # for spreadsheets: a table with every value as it is
    columns: Build  # for data frames: a table with the names of `--columns`
    data: Build  # for JSON: nothing is rounded, and nothing is left out


# -- sheets of their own, as those about a whole profile ------------------------------------------------------------------


def _sheet_sheet(sheet: Sheet, options: ViewOptions) -> Sheet:
    """The tables that have rows, with the notes."""
    tables = tuple(table.limited(options.top) for table in sheet.shown)
    notes = some([shortened(note.text, LONG_LINE) for note in sheet.notes])
    return replace(
        sheet,
        tables=tables,
        facts=sheet.facts or tuple(notes),
    )


def _sheet_records(sheet: Sheet) -> Table:
    """The rows of all tables under one head, each with the title of its table; what a table does not have is empty."""
    fields = {field.name: field for table in sheet.tables for field in table.fields}
    missing = {name: "" if field.textual else None for name, field in fields.items()}
    lines = [
        (table.title, *(usual if record.get(name) is None else record[name] for name, usual in missing.items()))
        for table in sheet.tables
        for record in table.records()
    ]
    return Table(fields=(Field("table"), *fields.values()), lines=tuple(map(Line, lines)))


def _sheet_data(sheet: Sheet) -> dict[str, Any]:
    tables = [
        {
            "title": table.title,
            "fields": [{"name": field.name, "unit": field.unit} for field in table.fields],
            "lines": [{name: plain_cell(cell) for name, cell in record.items()} for record in table.records()],
            "remarks": list(table.remarks),
        }
        for table in sheet.tables
    ]
    head = {"schema": "opcost.sheet/1", "sheet": sheet.name, "meta": dict(sheet.meta), "tables": tables}
    return {**head, "notes": fields_data(sheet.notes)}


# -- the kinds of results -----------------------------------------------------------------------------------------------


def _report_data(report: Report) -> dict[str, Any]:
    active = {} if report.active_params is None else {"active_params": report.active_params}
    collectives = {"collectives": list(map(fields_data, found))} if (found := report.collectives) else {}
    return schema.to_dict(report) | active | collectives


_Of: TypeAlias = Callable[..., Any]
_TABLES: dict[type, tuple[_Of, _Of, _Of]] = {
    Comparison: (comparison.comparison_sheet, comparison.comparison_records, comparison.comparison_data),
    Verdict: (sizing.verdict_sheet, sizing.verdict_records, sizing.verdict_data),
    Fit: (sizing.fit_sheet, sizing.fit_records, lambda fit: {"schema": "opcost.fit/1", **fields_data(fit)}),
    Recomputation: (
        sizing.recomputation_sheet,
        sizing.recomputation_records,
        lambda found: {"schema": "opcost.recomputation/1", **fields_data(found)},
    ),
    Sweep: (sizing.sweep_sheet, sizing.sweep_records, sizing.sweep_data),
    LayoutPlan: (planning.plan_sheet, planning.plan_records, planning.plan_data),
    Sheet: (_sheet_sheet, _sheet_records, _sheet_data),
}
"""Results that are tables: the sheet, the records and the data of each."""


_RECORDS = Build(report.LISTING, report.report_records, by="op", depth=None, merge=False)
_TABLE_RECORDS = Build("", lambda result, _: _TABLES[type(result)][1](result))
_LISTING = "by depth sort top columns"

_BUILT: dict[str, ResultViews] = {
    "report": ResultViews(
        sheet=Build(report.LISTING, report.report_sheet),
        records=_RECORDS,
        columns=_RECORDS,
        data=Build("indent", lambda result, _: _report_data(result)),
    ),
    "profile": ResultViews(
        sheet=Build("columns", profile.answer_sheet),
        records=Build("columns", profile.answer_records),
        columns=Build("columns", lambda answer, options: profile.list_answer(answer, options.columns, every=True)),
        data=Build("columns indent", profile.answer_data, indent=2),
    ),
    "scan": ResultViews(
        sheet=Build(_LISTING, scan.scan_sheet, by="layer", depth=None),
        records=Build("", scan.scan_records),
        columns=Build(f"{_LISTING} exact", scan.list_scan, by="tensor", depth=None),
        data=Build("indent", scan.scan_data),
    ),
    "tables": ResultViews(
        sheet=Build("top", lambda result, options: _TABLES[type(result)][0](result, options)),
        records=_TABLE_RECORDS,
        columns=_TABLE_RECORDS,
        data=Build("indent", lambda result, _: _TABLES[type(result)][2](result), indent=2),
    ),
}


def _answered(build: Build) -> Build:
    """Sheets with the sentence that answers."""

    def make(result: Any, options: ViewOptions) -> Sheet:
        sheet: Sheet = build.make(result, options)
        return replace(sheet, answer=answer_of(result))

    return Build(build.names, make, **build.defaults)


def _answered_data(build: Build) -> Build:
    """Data for JSON with the same sentence, behind the schema."""

    def make(result: Any, options: ViewOptions) -> dict[str, Any]:
        data = build.make(result, options)
        return {"schema": data["schema"], "answer": plain_answer(result), **data}

    return Build(build.names, make, **build.defaults)


RESULTS = {
    kind: each._replace(sheet=_answered(each.sheet), data=_answered_data(each.data)) for kind, each in _BUILT.items()
}
"""By the kind that a result has: `Report.kind`, ..."""


def sheet_view(
    name: str, write: Callable[[Sheet, ViewOptions], str], options: str, *, suffix: str = "",
    kinds: Sequence[str] = tuple(RESULTS), for_reports: Mapping[str, Any] | None = None,
) -> View:  # fmt: skip
    """A view that writes sheets, with the options of the result and of the format; `for_reports` has other defaults."""
    builds = {}
    for kind in kinds:
        defaults = (for_reports or {}) if kind == "report" else {}
        build = RESULTS[kind].sheet
        builds[kind] = Build(f"{build.names} {options}", build.make, **{**build.defaults, **defaults})
    return View(name=name, suffix=suffix, builds=builds, write=write)


# -- for programs: CSV, JSON, and columns for data frames; numbers are exact, the unknown is empty or null -----------------


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
        return {
            field.name: [None if row[place] == "" and not field.textual else plain_cell(row[place]) for row in rows]
            for place, field in enumerate(table.fields)
        }

    return Build(build.names, make, **build.defaults)


def _write_columns(columns: dict[str, list[Any]], options: object) -> str:
    return json_text(columns, allow_nan=False) + "\n"


def _write_json(data: dict[str, Any], options: ViewOptions) -> str:
    separators = (",", ":") if options.indent is None else (",", ": ")
    return json_text(data, allow_nan=False, indent=options.indent, separators=separators) + "\n"


_KINDS = RESULTS.items()
CSV = View(name="csv", suffix=".csv", builds={kind: each.records for kind, each in _KINDS}, write=_write_csv)
COLUMNS = View(name="columns", builds={kind: _columns(each.columns) for kind, each in _KINDS}, write=_write_columns)
ANSWER = View(
    name="answer",
    builds={kind: Build("", lambda result, _: plain_answer(result)) for kind in RESULTS},
    write=lambda text, _: f"{text}\n",
)
"""The one sentence that answers, alone."""
JSON = View(name="json", suffix=".json", builds={kind: each.data for kind, each in _KINDS}, write=_write_json)
