"""Lines as columns, for data frames: every column by its name, as after `--columns`, with one value for each line.

Numbers are exact, times are nanoseconds, the unknown is None, and shapes are written 1x3x224x224, several with a blank between.
Sums are left out: who adds a column up must get them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from opcost.core.answer import Answer
from opcost.core.harmless import json_text
from opcost.core.report import Report
from opcost.core.scan import Scan
from opcost.views.answer_listing import answer_columns, list_answer
from opcost.views.compared import records_of
from opcost.views.csv import CsvOptions, RecordOptions, records_of_report
from opcost.views.listing import Amount, Columns, Listing, Value
from opcost.views.options import ViewOptions
from opcost.views.scan_listing import ScanOptions, list_scan
from opcost.views.view import Subject, View

Data: TypeAlias = dict[str, list[Any]]


@dataclass(frozen=True, kw_only=True)
class AnswerColumns(ViewOptions):
    """Which columns; all of them unless told."""

    columns: Columns = None


@dataclass(frozen=True, kw_only=True)
class ScanColumns(ScanOptions):
    """The options of a listing of tensors; one line per tensor unless told."""

    by: Any = "tensor"


def _of_report(report: Report, options: CsvOptions) -> Data:
    return _columns(records_of_report(report, options))


def _of_answer(answer: Answer, options: AnswerColumns) -> Data:
    return _columns(list_answer(answer, options.columns or list(answer_columns(answer))))


def _of_comparison(subject: Subject, options: RecordOptions) -> Data:
    return _columns(records_of(subject))


def _of_scan(scan: Scan, options: ScanColumns) -> Data:
    return _columns(list_scan(scan, options))


def _columns(listing: Listing) -> Data:
    rows = [line.values for line in listing.lines if line.role == "row"]
    return {
        column.name: [_value(row[place], textual=column.textual) for row in rows]
        for place, column in enumerate(listing.columns)
    }


def _value(value: Value, *, textual: bool) -> Any:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, Amount):
        return value.number
    return None if value == "" and not textual else value


def _write(columns: Data, options: object) -> str:
    return json_text(columns, allow_nan=False) + "\n"


REPORT: View[Report, CsvOptions, Data] = View(name="columns", options=CsvOptions, build=_of_report, write=_write)
ANSWER: View[Answer, AnswerColumns, Data] = View(name="columns", options=AnswerColumns, build=_of_answer, write=_write)
COMPARISON: View[Subject, RecordOptions, Data] = View(
    name="columns", options=RecordOptions, build=_of_comparison, write=_write
)
SCAN: View[Scan, ScanColumns, Data] = View(name="columns", options=ScanColumns, build=_of_scan, write=_write)
