"""The report as a GitHub table, with the totals and everything else to know below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from opcost.core.report import Report
from opcost.core.units import format_bytes, format_count
from opcost.views.cell import format_value
from opcost.views.columns import Column, Value
from opcost.views.listing import Line, ListingOptions
from opcost.views.page import Page, build_page
from opcost.views.view import View


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
        return build_page(report, options)

    def write(self, data: Page, options: MarkdownOptions) -> str:
        summary = data.summary
        parts = [
            [f"**{_escaped(summary.heading[0])}**", *map(_escaped, summary.heading[1:])],
            _table(data, options),
            [f"*{_escaped(remark)}*" for remark in data.listing.remarks],
            _totals(data),
            _phases(data),
            [_escaped(" · ".join(summary.conventions))],
        ]
        for section in summary.sections:
            parts.append([f"**{_escaped(section.title)}**"])
            parts.append([f"- {_escaped(line)}" for line in section.lines])
            parts.append([_escaped(section.hint)] if section.hint else [])
        return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _table(page: Page, options: MarkdownOptions) -> list[str]:
    listing = page.listing
    places = [place for place in range(len(listing.columns)) if not listing.is_dull(place)]
    columns = [listing.columns[place] for place in places]
    heads = [_escaped(column.title) for column in columns]
    rules = [":---" if column.unit in ("name", "text", "shapes") else "---:" for column in columns]
    rows = [
        [_cell(line, line.values[place], column, options) for place, column in zip(places, columns, strict=True)]
        for line in listing.lines
    ]
    return ["| " + " | ".join(row) + " |" for row in (heads, rules, *rows)]


def _cell(line: Line, value: Value, column: Column, options: MarkdownOptions) -> str:
    text = format_value(value, column, exact=options.exact)
    if column.priced and line.partial:
        text = f"≥{text}" if value else "?"
    elif column.name == "params" and value == 0 and line.shares:
        text = "(shared)"
    if not text:
        return ""
    if line.role != "row":
        return f"**{_escaped(text)}**"
    # GitHub drops leading blanks, and guides of a tree do not meet there; a level is a wide blank.
    indent = "&emsp;" * (len(line.guides) // 3) if column.name == "module" else ""
    code = column.unit == "name" or column.name == "op"
    return f"{indent}`{text.replace('`', '')}`".replace("|", "\\|") if code else f"{indent}{_escaped(text)}"


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


def _escaped(text: str) -> str:
    for letter in "\\|*_<`":
        text = text.replace(letter, "&lt;" if letter == "<" else f"\\{letter}")
    return text.replace("\n", " ").replace("\u00a0", " ")


VIEW = MarkdownView()
