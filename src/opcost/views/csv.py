"""The report as comma-separated values with a head line.

Integers are exact, the unknown is empty, and shapes are written 1x3x224x224, several of them with a blank between.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO
from typing import ClassVar

from opcost.core.harmless import csv_cell
from opcost.core.report import Report
from opcost.views.columns import By, Value, columns_of
from opcost.views.listing import Listing, ListingOptions, list_report
from opcost.views.tree import Depth
from opcost.views.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions(ListingOptions):
    """The options of a listing; one line per operator and every column unless told."""

    by: By = "op"
    depth: Depth = None
    merge: bool | None = False


class CsvView(View[CsvOptions, Listing]):
    """For spreadsheets and data frames."""

    name: ClassVar[str] = "csv"
    suffix: ClassVar[str] = ".csv"
    options = CsvOptions

    def build(self, report: Report, options: CsvOptions) -> Listing:
        # A path says what a label in a tree and a note say, and each of these can still be asked for.
        left_out = ("module", "note") if options.by == "module" else ()
        usual = [name for name in columns_of(options.by, 0) if name not in left_out]
        return list_report(report, options, default=usual)

    def write(self, data: Listing, options: CsvOptions) -> str:
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(column.name for column in data.columns)
        # The total is left out: a reader who adds the column up must get it, not twice of it.
        lines = [line.values for line in data.lines if line.role != "total"]
        columns = [
            _texts(values) if column.unit in ("name", "text", "shapes") else values
            for column, values in zip(data.columns, zip(*lines, strict=True), strict=False)
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


VIEW = CsvView()
