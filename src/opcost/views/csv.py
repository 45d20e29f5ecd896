"""Lines as comma-separated values with a head line.

Integers are exact, the unknown is empty, and shapes are written 1x3x224x224, several of them with a blank between.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, replace
from io import StringIO

from opcost.core.answer import Answer
from opcost.core.harmless import csv_cell
from opcost.core.report import Report
from opcost.core.scan import Scan
from opcost.views.answer_listing import list_answer, list_records
from opcost.views.compared import records_of
from opcost.views.listing import Columns, Listing, Value
from opcost.views.report_columns import By, columns_of
from opcost.views.report_listing import ListingOptions, list_report
from opcost.views.scan_listing import list_tensors
from opcost.views.tree import Depth
from opcost.views.view import ComparisonView, ProfileView, ReportView, ScanView, Subject, View


@dataclass(frozen=True, kw_only=True)
class CsvOptions(ListingOptions):
    """The options of a listing; one line per operator and every column unless told."""

    by: By = "op"
    depth: Depth = None
    merge: bool | None = False


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """There is nothing to choose: all lines with all that is known of them."""


def records_of_report(report: Report, options: CsvOptions) -> Listing:
    """All columns of every line, unless told otherwise."""
    # A path says what a label in a tree and a note say, and each of these can still be asked for.
    left_out = ("module", "note") if options.by == "module" else ()
    usual = [name for name in columns_of(options.by, 0) if name not in left_out]
    listing = list_report(report, options, default=usual)
    # The total is left out: a reader who adds the column up must get it, not twice of it.
    return replace(listing, lines=tuple(line for line in listing.lines if line.role != "total"))


@dataclass(frozen=True, kw_only=True)
class AnswerRecordOptions:
    """Which columns of an answer; without a word all that is known of every line."""

    columns: Columns = None


def _of_answer(answer: Answer, options: AnswerRecordOptions) -> Listing:
    return list_records(answer) if options.columns is None else list_answer(answer, options.columns)


def _of_comparison(subject: Subject, options: RecordOptions) -> Listing:
    return records_of(subject)


def _of_scan(scan: Scan, options: RecordOptions) -> Listing:
    return list_tensors(scan)


def _write(listing: Listing, options: object) -> str:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(csv_cell(column.name) for column in listing.columns)
    lines = [line.values for line in listing.lines]
    columns = [
        _texts(values) if column.textual else values
        for column, values in zip(listing.columns, zip(*lines, strict=True), strict=False)
    ]
    writer.writerows(zip(*columns, strict=True))  # the writer leaves the unknown empty
    return out.getvalue()


def _texts(values: Iterable[Value]) -> list[str]:
    """The names, texts or shapes of one column; equal ones are made once."""
    known: dict[Value, str] = {}
    texts = []
    for value in values:
        text = known.get(value)
        if text is None:
            text = known[value] = " ".join(map(str, value)) if isinstance(value, tuple) else csv_cell(str(value))
        texts.append(text)
    return texts


REPORT: ReportView = View(name="csv", suffix=".csv", options=CsvOptions, build=records_of_report, write=_write)
ANSWER: ProfileView = View(name="csv", suffix=".csv", options=AnswerRecordOptions, build=_of_answer, write=_write)
COMPARISON: ComparisonView = View(name="csv", suffix=".csv", options=RecordOptions, build=_of_comparison, write=_write)
SCAN: ScanView = View(name="csv", suffix=".csv", options=RecordOptions, build=_of_scan, write=_write)
