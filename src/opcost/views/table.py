"""The report as a table for the terminal, as wide as it is and in colour where wanted."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import ClassVar

from opcost.core.report import Report
from opcost.views.layout import Drawing, Drawn, Style
from opcost.views.listing import ListingOptions, whole_number
from opcost.views.page import Page, build_page, draw_page, plain
from opcost.views.view import View

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
"""Of an output that is no terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions(ListingOptions):
    """The options of a listing, and how to draw it."""

    width: int | None = None
    """Columns; None is as many as the terminal has."""
    color: bool = False
    """Write the terminal's escape sequences. Off by itself, because the text may go to a file."""
    exact: bool = False
    """Numbers with all their digits in place of units."""

    def __post_init__(self) -> None:
        ListingOptions.__post_init__(self)
        whole_number("width", self.width, least=1)


class TableView(View[TableOptions, Page]):
    """What `print(report)` shows."""

    name: ClassVar[str] = "table"
    options = TableOptions

    def build(self, report: Report, options: TableOptions) -> Page:
        return build_page(report, options)

    def write(self, data: Page, options: TableOptions) -> str:
        width = terminal_width() if options.width is None else options.width
        drawn = draw_page(data, Drawing(width=width, exact=options.exact))
        return _coloured(drawn) if options.color else plain(drawn)


def terminal_width() -> int:
    """Columns of the terminal behind any of the standard streams, or as the environment says."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) > 0:
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


VIEW = TableView()
