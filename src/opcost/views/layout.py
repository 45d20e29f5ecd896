"""A listing fitted to a width: which columns have room, how wide each is, and every cell with its style."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from opcost.core.spelling import ASCII
from opcost.views.cell import NOTHING, cut, cut_shapes, listing_texts, pad, width_of, wrap
from opcost.views.listing import Column, Line, Listing
from opcost.wording import some

Style: TypeAlias = Literal["plain", "title", "head", "guide", "name", "text", "number", "zero", "sum", "warn", "faint"]


class Piece(NamedTuple):
    """Some text in one style; the view decides what a style looks like."""

    text: str
    style: Style = "plain"


Drawn: TypeAlias = list[list[Piece]]
"""Lines of pieces."""

GAP = "  "

_LEFT = ("name", "text", "shapes")
_ALWAYS = 3
"""Columns that stay however narrow the room is: the name and what is ranked next to it."""
_COMFORT = {"name": 28, "text": 14, "shapes": 24}
"""A column whose texts are longer than this gives way to another column."""
_LEAST = {"name": 12, "text": 8, "shapes": 0}
_STYLES: dict[str, Style] = {"name": "name", "text": "text", "shapes": "text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How to draw: how wide, in which characters, and with which numbers."""

    width: int
    ascii: bool = False
    exact: bool = False
    """Numbers with all their digits in place of units."""

    def spell(self, text: str) -> str:
        """The text in the characters that are allowed, one for one."""
        if not self.ascii or text.isascii():
            return text
        return text.translate(ASCII).encode("ascii", "replace").decode("ascii")


class _Candidate(NamedTuple):
    """One column as texts, and the widths that it can have."""

    column: Column
    texts: list[str]
    natural: int
    comfort: int
    least: int


def draw_listing(listing: Listing, how: Drawing) -> Drawn:
    """Heads, lines and totals, between rules."""
    chosen, left_out = _fit(_measure(listing, how), listing.ranked, how.width)
    widths = _share_room(chosen, how.width)
    heads = [
        Piece(pad(candidate.column.title, room, left=candidate.column.textual) + GAP, "head")
        for candidate, room in zip(chosen, widths, strict=True)
    ]
    rule = [Piece(how.spell("─") * (sum(widths) + len(GAP) * (len(widths) - 1)), "guide")]
    drawn: Drawn = [heads, rule]
    totals: Drawn = []
    columns = [_cells(candidate, listing.lines, room, how) for candidate, room in zip(chosen, widths, strict=True)]
    for line, *cells in zip(listing.lines, *columns, strict=True):
        (totals if line.role == "total" else drawn).append([piece for cell in cells for piece in cell])
    if totals:
        drawn += [rule, *totals]
    if left_out:
        asked: Style = "faint" if listing.ranked else "warn"
        drawn += [[Piece(line, asked)] for line in wrap(f"no room for {', '.join(some(left_out))}", how.width)]
    return drawn


def _measure(listing: Listing, how: Drawing) -> list[_Candidate]:
    """Every column that has something to tell, with its widths."""
    measured = []
    for place in listing.telling:
        column = listing.columns[place]
        texts = listing_texts(listing, place, exact=how.exact)
        if how.ascii:
            texts = [how.spell(text) for text in texts]
        distinct = set(texts)
        natural = max(map(width_of, distinct), default=0)
        if column.name == "module":
            natural = max(len(line.guides) + width_of(text) for line, text in zip(listing.lines, texts, strict=True))
        natural = max(natural, len(column.title))
        comfort = least = natural
        if column.unit in _LEAST:
            least = max(len(column.title), _LEAST[column.unit])
            if column.unit == "shapes":
                least = max(least, *(width_of(cut_shapes(text, 0)) for text in distinct))
            comfort = max(least, _COMFORT[column.unit])
        measured.append(_Candidate(column, texts, natural, min(natural, comfort), min(natural, least)))
    return measured


def _fit(measured: list[_Candidate], ranked: Sequence[str], width: int) -> tuple[list[_Candidate], list[str]]:
    """The columns that have room, in their order, and the names of those that have none."""
    if not ranked:
        used = -len(GAP)
        for place, candidate in enumerate(measured):
            used += len(GAP) + candidate.least
            if used > width and place:
                return measured[:place], [left.column.name for left in measured[place:]]
        return measured, []
    by_name = {candidate.column.name: candidate for candidate in measured}
    order = [name for name in ranked if name in by_name]
    taken = set(order[:_ALWAYS])
    used = sum(by_name[name].comfort + len(GAP) for name in taken) - len(GAP)
    for name in order[_ALWAYS:]:
        more = len(GAP) + by_name[name].comfort
        if used + more <= width:
            used += more
            taken.add(name)
    left_out = [name for name in order if name not in taken]
    return [candidate for candidate in measured if candidate.column.name in taken], left_out


def _share_room(chosen: list[_Candidate], width: int) -> list[int]:
    """A width for each column: what is comfortable, then more where there is room (names first) or less (names last)."""
    widths = [candidate.comfort for candidate in chosen]
    room = width - sum(widths) - len(GAP) * (len(widths) - 1)
    elastic = sorted(
        (place for place, candidate in enumerate(chosen) if candidate.column.textual),
        key=lambda place: _LEFT.index(chosen[place].column.unit),
        reverse=room < 0,
    )
    for place in elastic:
        candidate = chosen[place]
        most, least = candidate.natural - widths[place], candidate.least - widths[place]
        change = min(room, most) if room > 0 else max(room, least)
        widths[place] += change
        room -= change
    return widths


def _cells(candidate: _Candidate, lines: Sequence[Line], room: int, how: Drawing) -> list[tuple[Piece, ...]]:
    """The cells of a column at their width, with the gap to the next; equal cells are made once."""
    column = candidate.column
    base: Style = _STYLES.get(column.unit, "number")
    known: dict[object, tuple[Piece, ...]] = {}
    named = column.name == "module"
    cells = []
    for line, text in zip(lines, candidate.texts, strict=True):
        guides = line.guides if named else ""
        key = text if not guides and line.role == "row" else (guides, text, line.role)
        cell = known.get(key)
        if cell is None:
            style: Style = base
            if line.role != "row":
                style = "sum"
            elif column.name == "note" or text.startswith(("?", how.spell("≥"))):
                style = "warn"
            elif base == "number" and text in ("0", how.spell(NOTHING)):
                style = "zero"
            # However deep the tree is, some of the name must remain.
            drawn = how.spell(guides)[max(0, len(guides) + min(width_of(text), 6) - room) :]
            fitted = how.spell(cut(text, room - len(drawn), column.unit))
            own = Piece(pad(fitted, room - len(drawn), left=candidate.column.textual) + GAP, style)
            cell = known[key] = (Piece(drawn, "guide"), own) if drawn else (own,)
        cells.append(cell)
    return cells
