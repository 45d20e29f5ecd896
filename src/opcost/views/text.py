"""The report as plain text for logs and files: the table view without colour, at a fixed width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from opcost.core.report import Report
from opcost.views.layout import Drawing
from opcost.views.listing import ListingOptions, whole_number
from opcost.views.page import Page, build_page, draw_page, plain
from opcost.views.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions(ListingOptions):
    """The options of a listing, and how to draw it."""

    width: int = 120
    ascii: bool = False
    """Use no character outside ASCII."""
    exact: bool = False
    """Numbers with all their digits in place of units."""

    def __post_init__(self) -> None:
        ListingOptions.__post_init__(self)
        whole_number("width", self.width, least=1)


class TextView(View[TextOptions, Page]):
    """Needs nothing but the standard library."""

    name: ClassVar[str] = "text"
    suffix: ClassVar[str] = ".txt"
    options = TextOptions

    def build(self, report: Report, options: TextOptions) -> Page:
        return build_page(report, options)

    def write(self, data: Page, options: TextOptions) -> str:
        return plain(draw_page(data, Drawing(width=options.width, ascii=options.ascii, exact=options.exact)))


VIEW = TextView()
