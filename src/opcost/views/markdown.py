"""A report or an answer as a GitHub table, with everything else to know below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opcost.core.harmless import markdown_text
from opcost.core.report import Report
from opcost.views.answer_page import answer_page
from opcost.views.cell import listing_texts
from opcost.views.compared import page_of
from opcost.views.comparison_page import ComparisonOptions
from opcost.views.listing import Listing
from opcost.views.options import AnswerOptions, NumberOptions
from opcost.views.page import Page
from opcost.views.report_columns import SHOWN
from opcost.views.report_listing import ListingOptions, list_report
from opcost.views.report_summary import summarize
from opcost.views.scan_listing import ScanOptions, scan_page
from opcost.views.summary import phase_rows
from opcost.views.view import ComparisonView, ProfileView, ReportView, ScanView, View

_LEFT_OUT = ("bytes", "param_bytes", "own_params", "own_macs")
"""Columns that a page on the web has no room for; they can be asked for."""


@dataclass(frozen=True, kw_only=True)
class MarkdownOptions(ListingOptions, NumberOptions):
    """The options of a listing, and how to write its numbers."""


def _of_report(report: Report, options: MarkdownOptions) -> Page:
    usual = [name for name in SHOWN[options.by] if name not in _LEFT_OUT]
    return Page(list_report(report, options, default=usual), summarize(report))


def _write(page: Page, options: NumberOptions) -> str:
    summary = page.summary
    totals = [
        (quantity.label.replace("  ", "&emsp;"), quantity.human, f"{quantity.value:,}")
        for quantity in summary.quantities
    ]
    parts = [
        [f"**{markdown_text(summary.heading[0])}**"],
        _bullets(" ".join(line.split()) for line in summary.heading[1:]),
        *_listing(page.listing, exact=options.exact),
        *(
            part
            for title, listing in page.further
            for part in ([f"**{markdown_text(title)}**"], *_listing(listing, exact=options.exact))
        ),
        _table([("total", "", "exact"), *totals], "lrr") if totals else [],
        _table(phase_rows(summary.phases), "lrrrr") if summary.phases else [],
        [markdown_text(" · ".join(summary.conventions))] if summary.conventions else [],
    ]
    for section in summary.sections:
        parts.append([f"**{markdown_text(section.title)}**"])
        parts.append(_bullets(section.lines))
        parts.append([markdown_text(section.hint)] if section.hint else [])
    parts.append(_bullets(summary.seen_against))
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _bullets(lines: Iterable[str]) -> list[str]:
    return [f"- {markdown_text(line)}" for line in lines]


def _table(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """The first row as the head, and at which side the cells of each column stand: `lrr`."""
    rules = [":---" if side == "l" else "---:" for side in sides]
    return ["| " + " | ".join(row) + " |" for row in (rows[0], rules, *rows[1:])]


def _listing(listing: Listing, *, exact: bool) -> list[list[str]]:
    """The table, and what must be said about it."""
    if not listing.columns:
        return []
    places = listing.telling
    columns = [listing.columns[place] for place in places]
    cells = [_cells(listing, place, exact=exact) for place in places]
    rows = [[markdown_text(column.title) for column in columns], *zip(*cells, strict=True)]
    drawn = _table(rows, "".join("l" if column.textual else "r" for column in columns))
    return [drawn, [f"*{markdown_text(remark)}*" for remark in listing.remarks]]


def _cells(listing: Listing, place: int, *, exact: bool) -> list[str]:
    """The cells of one column; equal ones are made once."""
    column = listing.columns[place]
    code = column.unit == "name" or column.name == "op"
    tree = column.name == "module"
    known: dict[tuple[str, str, str], str] = {}
    cells = []
    for line, text in zip(listing.lines, listing_texts(listing, place, exact=exact), strict=True):
        key = (line.guides if tree else "", text, line.role)
        cell = known.get(key)
        if cell is None:
            if not text:
                cell = ""
            elif line.role != "row":
                cell = f"**{markdown_text(text)}**"
            elif code and not set(text) & set("`|\\"):  # which code cannot hold in a table
                cell = f"`{text}`"
            else:
                cell = markdown_text(text)
            # A web page drops leading blanks, and the guides of a tree do not meet there; a level is a wide blank.
            cell = known[key] = "&emsp;" * (len(key[0]) // len("├─ ")) + cell
        cells.append(cell)
    return cells


REPORT: ReportView = View(name="md", suffix=".md", options=MarkdownOptions, build=_of_report, write=_write)
ANSWER: ProfileView = View(name="md", suffix=".md", options=AnswerOptions, build=answer_page, write=_write)
COMPARISON: ComparisonView = View(name="md", suffix=".md", options=ComparisonOptions, build=page_of, write=_write)
SCAN: ScanView = View(name="md", suffix=".md", options=ScanOptions, build=scan_page, write=_write)
