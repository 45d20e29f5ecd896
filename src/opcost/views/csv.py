"""The report as comma-separated values with a head line: exact integers, shapes as 1x3x224x224 (several with a blank between), the unknown empty."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import ClassVar

from opcost.core.report import Report
from opcost.errors import UnknownName
from opcost.views.columns import EVERY_BY, By, Value
from opcost.views.listing import Listing, ListingOptions, column_names, list_report
from opcost.views.tree import Depth
from opcost.views.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """What to list; one line per operator and every column unless told."""

    by: By = "op"
    depth: Depth = None
    sort: str | None = None
    top: int | None = None
    columns: str | Sequence[str] | None = None


class CsvView(View[CsvOptions, Listing]):
    """For spreadsheets and data frames."""

    name: ClassVar[str] = "csv"
    suffix: ClassVar[str] = ".csv"
    options = CsvOptions

    def build(self, report: Report, options: CsvOptions) -> Listing:
        if options.by not in EVERY_BY:
            raise UnknownName("way to list a report", str(options.by), EVERY_BY)
        chosen = ListingOptions(
            by=options.by,
            depth=options.depth,
            merge=False,
            sort=options.sort,
            top=options.top,
            columns=options.columns,
        )
        listed = [name for name in column_names(options.by) if name not in ("module", "note") or options.by == "op"]
        return list_report(report, chosen, default=listed)

    def write(self, data: Listing, options: CsvOptions) -> str:
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(column.name for column in data.columns)
        # The total is left out: a reader who adds the column up must get it, not twice of it.
        writer.writerows([_field(value) for value in line.values] for line in data.lines if line.role != "total")
        return out.getvalue()


def _field(value: Value) -> str | int | float:
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


VIEW = CsvView()
