"""A table on a page of text: heading, lines, totals, and what the reader must know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from opcost.views.cell import pad, wrap
from opcost.views.layout import GAP, Drawing, Drawn, Piece, Style, draw_listing
from opcost.views.listing import Listing
from opcost.views.summary import Quantity, Section, Summary, held, phase_rows

NARROWEST = 40
"""Below this many columns there is nothing left to shorten."""


class Titled(NamedTuple):
    """A further table, and what it tells of."""

    title: str
    listing: Listing


@dataclass(frozen=True, slots=True)
class Page:
    """What is on the page, as plain data; a listing without columns is not drawn."""

    listing: Listing
    summary: Summary
    further: tuple[Titled, ...] = ()
    title: str = "totals"
    """Of the first table, where tables have titles."""


def _fitted(text: str, width: int) -> str:
    """The text with the ends of words, as paths of files, that would not fit."""
    return " ".join(word if len(word) <= width else f"…{word[1 - width :]}" for word in text.split(" "))


def draw_page(page: Page, how: Drawing) -> Drawn:
    """The page as lines of styled pieces, its parts separated by empty lines."""
    how = replace(how, width=max(how.width, NARROWEST))
    summary, width = page.summary, how.width
    heading = [line for text in summary.heading for line in wrap(_fitted(text, width), width, indent=8)]
    parts: list[Drawn] = [
        [[Piece(line, "text" if place else "title")] for place, line in enumerate(heading)],
        _draw_table(page.listing, how),
        *([[Piece(title, "head")], *_draw_table(listing, how)] for title, listing in page.further),
        _draw_totals(summary.quantities, width),
        _draw_phases(summary, width),
        _lines([" · ".join(map(held, summary.conventions))], width, "faint"),
        *(_draw_section(section, width) for section in summary.sections),
        _lines(summary.seen_against, width, "text", indent=2),
    ]
    drawn: Drawn = []
    for part in filter(None, parts):
        if drawn:
            drawn.append([])
        drawn.extend(part)
    if how.ascii:
        return [[Piece(how.spell(text), style) for text, style in pieces] for pieces in drawn]
    return drawn


def plain(drawn: Drawn) -> str:
    """The lines without their styles."""
    return "\n".join("".join([piece.text for piece in pieces]).rstrip() for pieces in drawn) + "\n"


def _draw_table(listing: Listing, how: Drawing) -> Drawn:
    return draw_listing(listing, how) + _lines(listing.remarks, how.width, "faint") if listing.columns else []


def _draw_totals(quantities: Sequence[Quantity], width: int) -> Drawn:
    if not quantities:
        return []
    rows = [(quantity, quantity.human, f"{quantity.value:,}") for quantity in quantities]
    label = max(len(quantity.label) for quantity, _, _ in rows)
    human_width = max(len(human) for _, human, _ in rows)
    exact_width = max(len(exact) for _, _, exact in rows)
    drawn: Drawn = []
    for quantity, human, exact in rows:
        pieces = [
            Piece(f"{quantity.label:<{label}}{GAP}", "name"),
            Piece(f"{human:>{human_width}}{GAP}", "warn" if quantity.partial else "number"),
            Piece(f"{exact:>{exact_width}}", "text"),
        ]
        if quantity.remark and sum(len(piece.text) for piece in pieces) + len(GAP + quantity.remark) <= width:
            pieces.append(Piece(GAP + quantity.remark, "faint"))
        drawn.append(pieces)
    return drawn


def _draw_phases(summary: Summary, width: int) -> Drawn:
    """One line for each phase, with as many of its costs as have room."""
    if not summary.phases:
        return []
    columns = list(zip(*phase_rows(summary.phases), strict=True))
    drawn: Drawn = [[] for _ in columns[0]]
    for place, column in enumerate(columns):
        room = max(map(len, column))
        width -= room + len(GAP)
        if width < -len(GAP):
            break
        for number, text in enumerate(column):
            style: Style = "head" if number == 0 else "number" if place else "name"
            drawn[number].append(Piece(pad(text, room, left=place == 0) + GAP, style))
    return drawn


def _draw_section(section: Section, width: int) -> Drawn:
    drawn: Drawn = [[Piece(section.title, "warn" if section.urgent else "head")]]
    for line in section.lines:
        drawn += [[Piece(f"  {part}", "text")] for part in wrap(line, width - 2, indent=2)]
    drawn += [[Piece(f"  {part}", "faint")] for part in wrap(section.hint, width - 2)]
    return drawn


def _lines(texts: Iterable[str], width: int, style: Style, indent: int = 0) -> Drawn:
    return [[Piece(line, style)] for text in texts for line in wrap(text, width, indent)]
