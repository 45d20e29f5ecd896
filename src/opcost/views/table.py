"""A report or an answer as a table: for the terminal, as wide as it is and in colour where wanted; or for logs and files."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from opcost.core.report import Report
from opcost.views.answer_page import answer_page
from opcost.views.compared import page_of
from opcost.views.comparison_page import ComparisonOptions
from opcost.views.layout import Drawing, Drawn, Style
from opcost.views.memory_page import MemoryOptions, memory_page
from opcost.views.options import AnswerOptions, PageOptions
from opcost.views.page import Page, draw_page, plain
from opcost.views.report_listing import ListingOptions, list_report
from opcost.views.report_summary import summarize
from opcost.views.scan_listing import ScanTableOptions, scan_page
from opcost.views.view import ComparisonView, ProfileView, ReportView, ScanView, View

COLOURS: dict[Style, str] = {
    "plain": "",
    "title": "bold",
    "head": "bold",
    "guide": "bright_black",
    "name": "",
    "text": "bright_black",
    "number": "cyan",
    "zero": "bright_black",
    "sum": "bold",
    "warn": "yellow",
    "faint": "bright_black",
}

USUAL_WIDTH = 80
"""Of an output that is not a terminal."""


@dataclass(frozen=True, kw_only=True)
class TableOptions(ListingOptions, PageOptions):
    """The options of a listing, and how to draw it."""

    color: bool = False
    """Write the terminal's escape sequences. Off by itself, because the text may go to a file."""


@dataclass(frozen=True, kw_only=True)
class TextOptions(ListingOptions, PageOptions):
    """The same without colour, at a width that does not depend on where it is written."""

    width: int | None = 120


@dataclass(frozen=True, kw_only=True)
class AnswerTableOptions(AnswerOptions, PageOptions):
    """Which columns to draw, and how."""


@dataclass(frozen=True, kw_only=True)
class ComparisonTableOptions(ComparisonOptions, PageOptions):
    """How much of a comparison to draw, and how."""


def _of_report(report: Report, options: ListingOptions) -> Page:
    return Page(list_report(report, options), summarize(report))


def _write(page: Page, options: PageOptions) -> str:
    width = terminal_width() if options.width is None else options.width
    drawn = draw_page(page, Drawing(width=width, ascii=options.ascii, exact=options.exact))
    return _coloured(drawn) if isinstance(options, TableOptions) and options.color else plain(drawn)


def terminal_width() -> int:
    """Columns of the terminal behind any of the standard streams, or as the environment says."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and len(told) < 10 and int(told) > 0:
        return int(told)
    for stream in (sys.__stdout__, sys.__stderr__, sys.__stdin__):
        try:
            columns = os.get_terminal_size(stream.fileno()).columns  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):
            continue
        if columns > 0:
            return columns
    return USUAL_WIDTH


def _coloured(drawn: Drawn) -> str:
    from io import StringIO

    from rich.console import Console
    from rich.segment import Segment, Segments
    from rich.style import Style as RichStyle

    styles = {name: RichStyle.parse(colour) for name, colour in COLOURS.items()}
    segments = []
    for pieces in drawn:
        end = len(pieces)
        while end and not pieces[end - 1].text.strip():
            end -= 1
        segments += [Segment(text, styles[style]) for text, style in pieces[:end]]
        segments.append(Segment.line())
    console = Console(file=StringIO(), force_terminal=True, color_system="standard", legacy_windows=False)
    console.print(Segments(segments), end="", soft_wrap=True)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


REPORT: View[Report, TableOptions, Page] = View(name="table", options=TableOptions, build=_of_report, write=_write)
MEMORY: ReportView = View(name="memory", options=MemoryOptions, build=memory_page, write=_write)
TEXT: ReportView = View(name="text", suffix=".txt", options=TextOptions, build=_of_report, write=_write)
ANSWER: ProfileView = View(name="table", suffix=".txt", options=AnswerTableOptions, build=answer_page, write=_write)
COMPARISON: ComparisonView = View(
    name="table", suffix=".txt", options=ComparisonTableOptions, build=page_of, write=_write
)
SCAN: ScanView = View(name="table", suffix=".txt", options=ScanTableOptions, build=scan_page, write=_write)
