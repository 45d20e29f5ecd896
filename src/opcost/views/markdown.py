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
