"""The report as a GitHub table, with the totals and everything else to know below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from opcost.core.harmless import markdown_text
from opcost.core.report import Report
from opcost.core.units import format_bytes, format_count
from opcost.views.cell import listing_texts
from opcost.views.columns import SHOWN
from opcost.views.listing import Listing, ListingOptions
from opcost.views.page import Page, build_page
from opcost.views.view import View

_LEFT_OUT = ("bytes", "param_bytes", "own_params", "own_macs")
"""Columns that a page on the web has no room for; they can be asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownOptions(ListingOptions):
    """The options of a listing, and how to write its numbers."""

    exact: bool = False
    """Numbers with all their digits in place of units."""


class MarkdownView(View[MarkdownOptions, Page]):
    """For issues, pull requests and READMEs."""

    name: ClassVar[str] = "md"
    suffix: ClassVar[str] = ".md"
    options = MarkdownOptions

    def build(self, report: Report, options: MarkdownOptions) -> Page:
        return build_page(report, options, default=[name for name in SHOWN[options.by] if name not in _LEFT_OUT])

    def write(self, data: Page, options: MarkdownOptions) -> str:
        summary = data.summary
        parts = [
            [f"**{markdown_text(summary.heading[0])}**"],
            [f"- {markdown_text(' '.join(line.split()))}" for line in summary.heading[1:]],
            _table(data, options),
            [f"*{markdown_text(remark)}*" for remark in data.listing.remarks],
            _totals(data),
            _phases(data),
            [markdown_text(" · ".join(summary.conventions))],
        ]
        for section in summary.sections:
            parts.append([f"**{markdown_text(section.title)}**"])
            parts.append([f"- {markdown_text(line)}" for line in section.lines])
            parts.append([markdown_text(section.hint)] if section.hint else [])
        return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _table(page: Page, options: MarkdownOptions) -> list[str]:
    listing = page.listing
    places = [place for place in range(len(listing.columns)) if not listing.is_dull(place)]
    columns = [listing.columns[place] for place in places]
    heads = [column.title for column in columns]
    rules = [":---" if column.unit in ("name", "text", "shapes") else "---:" for column in columns]
    cells = [_cells(listing, place, options) for place in places]
    return ["| " + " | ".join(row) + " |" for row in (heads, rules, *zip(*cells, strict=True))]


def _cells(listing: Listing, place: int, options: MarkdownOptions) -> list[str]:
    """The cells of one column; equal ones are made once."""
    column = listing.columns[place]
    code = column.unit == "name" or column.name == "op"
    tree = column.name == "module"
    known: dict[tuple[str, str, str], str] = {}
    cells = []
    for line, text in zip(listing.lines, listing_texts(listing, place, exact=options.exact), strict=True):
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


def _totals(page: Page) -> list[str]:
    rows = ["| total | | exact |", "| :--- | ---: | ---: |"]
    for quantity in page.summary.quantities:
        human = format_bytes(quantity.value) if quantity.unit == "bytes" else format_count(quantity.value)
        bound = "≥" if quantity.partial else ""
        label = quantity.label.replace("  ", "&emsp;")
        rows.append(f"| {label} | {bound}{human} | {quantity.value:,} |")
    return rows


def _phases(page: Page) -> list[str]:
    if not page.summary.phases:
        return []
    rows = ["| phase | MACs | FLOPs | read | written |", "| :--- | ---: | ---: | ---: | ---: |"]
    for phase, cost in page.summary.phases:
        counts = f"{format_count(cost.macs)} | {format_count(cost.flops)}"
        rows.append(f"| {phase} | {counts} | {format_bytes(cost.bytes_read)} | {format_bytes(cost.bytes_written)} |")
    return rows


VIEW = MarkdownView()
