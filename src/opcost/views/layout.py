"""A table fitted to a width, as lines of styled pieces: which columns have room, and how wide each of them is."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from opcost.core.graph import TensorSpec
from opcost.core.units import format_bytes, format_count
from opcost.views.columns import Column, Value
from opcost.views.listing import Line, Listing
from opcost.views.summary import Quantity, Summary

Style: TypeAlias = Literal["plain", "title", "head", "guide", "name", "text", "number", "zero", "sum", "warn", "faint"]


class Piece(NamedTuple):
    """Some text in one style; the view decides what a style looks like."""

    text: str
    style: Style = "plain"


Drawn: TypeAlias = list[list[Piece]]

GAP = "  "
NARROWEST = 40
_LEFT = ("name", "text", "shapes")
_ALWAYS = 3
"""Columns that stay however narrow the room is: the name and the two costs ranked highest."""
_COMFORT = {"name": 28, "text": 16, "shapes": 24}
_LEAST = {"name": 10, "text": 6, "shapes": 6}
_STYLES: dict[str, Style] = {"name": "name", "text": "text", "shapes": "text"}

_ASCII = str.maketrans(
    {"│": "|", "├": "|", "└": "`", "─": "-", "…": "..", "·": "-", "×": "x", "≥": ">=", "–": "-", "µ": "u", "\u00a0": " "}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How to draw: how wide, in which characters, and with which numbers."""

    width: int
    ascii: bool = False
    exact: bool = False
    """Numbers with all their digits in place of units."""


def draw(listing: Listing, summary: Summary, how: Drawing) -> Drawn:
    """Heading, table, totals and sections, separated by empty lines."""
    shown = _to_ascii if how.ascii else _as_it_is
    width = max(how.width, NARROWEST)
    blocks = [
        [[Piece(text, "title" if place == 0 else "text")] for place, text in enumerate(_wrapped(summary.heading, width))],
        _draw_table(listing, width, how, shown),
        [[Piece(line, "faint")] for remark in listing.remarks for line in _wrap(remark, width)],
        _draw_totals(summary.quantities, width, shown),
        _draw_phases(summary, shown),
        [[Piece(line, "faint")] for line in _wrap(" · ".join(summary.conventions), width)],
        *(_draw_section(section.title, section.lines, section.hint, width) for section in summary.sections),
    ]
    drawn: Drawn = []
    for block in filter(None, blocks):
        if drawn:
            drawn.append([])
        drawn.extend(block)
    return [[Piece(shown(text), style) for text, style in pieces] for pieces in drawn]


def plain(drawn: Drawn) -> str:
    """The lines without their styles."""
    return "\n".join("".join([piece[0] for piece in pieces]).rstrip() for pieces in drawn) + "\n"


# -- cells -----------------------------------------------------------------------------------------------------------


def format_value(value: Value, column: Column, *, exact: bool = False) -> str:
    """A value as a reader wants it; the unknown is a question mark, never a zero."""
    if value is None:
        return "?"
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return format_shapes(value)
    if column.unit == "share":
        return format_share(value)
    if exact or column.unit == "number":
        return f"{value:,}"
    return format_bytes(value) if column.unit == "bytes" else format_count(value)


def format_shapes(specs: Sequence[TensorSpec]) -> str:
    """`1x3x224x224, 1000`."""
    return ", ".join(map(str, specs))


def format_share(part: float) -> str:
    """`25.5`, `<0.1`, `0`: percent with one decimal, where something is never nothing."""
    if part == 0:
        return "0"
    return f"{100 * part:.1f}" if part >= 0.0005 else "<0.1"


def _cells(lines: Sequence[Line], place: int, column: Column, how: Drawing) -> list[str]:
    """The texts of one column; equal values are formatted once."""
    known: dict[object, str] = {}
    texts = []
    for line in lines:
        value = line.values[place]
        text = known.get(value)
        if text is None:
            text = known[value] = format_value(value, column, exact=how.exact)
        if column.priced and line.partial:
            text = f"≥{text}" if value else "?"
        elif column.name == "params" and value == 0 and line.shares:
            text = "(shared)"
        texts.append(text)
    return texts


# -- the table -------------------------------------------------------------------------------------------------------


class _Cut(NamedTuple):
    """One column as texts, and the widths it can have."""

    column: Column
    texts: list[str]
    title: str
    natural: int
    comfort: int
    least: int


def _draw_table(listing: Listing, width: int, how: Drawing, shown: Callable[[str], str]) -> Drawn:
    measured = _measure(listing, how, shown)
    chosen, left_out = _fit(measured, listing.ranked, width)
    widths = _share_room(chosen, width)
    columns = [_pad(cut, listing.lines, room, shown) for cut, room in zip(chosen, widths, strict=True)]
    heads = [
        Piece(_justify(cut.title, room, left=cut.column.unit in _LEFT), "head")
        for cut, room in zip(chosen, widths, strict=True)
    ]
    rule = [Piece("─" * (sum(widths) + len(GAP) * (len(widths) - 1)), "guide")]
    drawn: Drawn = [_spaced(heads), rule]
    totals: Drawn = []
    for line, *pieces in zip(listing.lines, *columns, strict=True):
        (totals if line.role == "total" else drawn).append(_spaced(pieces))
    if totals:
        drawn += [rule, *totals]
    if left_out:
        drawn.append([Piece(f"no room for: {', '.join(left_out)}", "warn")])
    return drawn


def _measure(listing: Listing, how: Drawing, shown: Callable[[str], str]) -> list[_Cut]:
    measured = []
    for place, column in enumerate(listing.columns):
        if listing.ranked and column.dull and all(line.values[place] in column.dull for line in listing.lines):
            continue
        texts = _cells(listing.lines, place, column, how)
        if how.ascii:
            texts = [shown(text) for text in texts]
        title = shown(column.title)
        distinct = set(texts)
        natural = max(map(_width, distinct), default=0)
        if column.name == "module" and listing.by == "module":
            natural = max(len(line.guides) + _width(text) for line, text in zip(listing.lines, texts, strict=True))
        natural = max(natural, len(title))
        comfort = least = natural
        if column.unit in _LEAST:
            least = max(len(title), _LEAST[column.unit])
            if column.unit == "shapes":
                least = max(least, max(_width(_cut_list(text, 0)) for text in distinct))
            comfort = max(least, _COMFORT[column.unit])
        measured.append(_Cut(column, texts, title, natural, min(natural, comfort), min(natural, least)))
    return measured


def _fit(measured: list[_Cut], ranked: Sequence[str], width: int) -> tuple[list[_Cut], list[str]]:
    """The columns that have room, in their order, and the names of those that were asked for but have none."""
    if not ranked:
        room = width + len(GAP)
        kept = []
        for place, cut in enumerate(measured):
            room -= cut.least + len(GAP)
            if room < 0 and kept:
                return kept, [left.column.name for left in measured[place:]]
            kept.append(cut)
        return kept, []
    by_name = {cut.column.name: cut for cut in measured}
    order = [by_name[name] for name in ranked if name in by_name]
    taken = order[:_ALWAYS]
    used = sum(cut.comfort + len(GAP) for cut in taken) - len(GAP)
    for cut in order[_ALWAYS:]:
        if used + len(GAP) + cut.comfort <= width:
            used += len(GAP) + cut.comfort
            taken.append(cut)
    return [cut for cut in measured if cut in taken], []


def _share_room(chosen: list[_Cut], width: int) -> list[int]:
    """A width for each column: what is comfortable, then less or more as the room allows, names first."""
    widths = [cut.comfort for cut in chosen]
    room = width - sum(widths) - len(GAP) * (len(widths) - 1)
    names_first = sorted(range(len(chosen)), key=lambda place: _LEFT.index(chosen[place].column.unit)
                         if chosen[place].column.unit in _LEFT else len(_LEFT))  # fmt: skip
    for place in names_first if room > 0 else reversed(names_first):
        cut = chosen[place]
        change = max(min(room, cut.natural - widths[place]), cut.least - widths[place]) if room else 0
        if room < 0:
            change = max(room, cut.least - widths[place])
        widths[place] += change
        room -= change
    return widths


def _pad(cut: _Cut, lines: Sequence[Line], room: int, shown: Callable[[str], str]) -> list[Piece | tuple[Piece, Piece]]:
    """The cells of a column at their width, each with its style."""
    column = cut.column
    unit = column.unit
    left = unit in _LEFT
    base: Style = _STYLES.get(unit, "number")
    tree = column.name == "module" and any(line.guides for line in lines)
    known: dict[tuple[str, str], Piece | tuple[Piece, Piece]] = {}
    out = []
    for line, text in zip(lines, cut.texts, strict=True):
        guides = line.guides if tree else ""
        if guides:
            guides = shown(guides)[: max(room - 4, 0)]
        key = (guides, text if line.role == "row" else f"\0{text}")
        piece = known.get(key)
        if piece is None:
            style: Style = base
            if line.role != "row":
                style = "sum"
            elif text.startswith(("?", "≥", ">=")) or column.name == "note":
                style = "warn"
            elif text == "0":
                style = "zero"
            fitted = _justify(_cut(text, room - len(guides), unit), room - len(guides), left=left)
            piece = (Piece(guides, "guide"), Piece(fitted, style)) if guides else Piece(fitted, style)
            known[key] = piece
        out.append(piece)
    return out


def _spaced(cells: Sequence[Piece | tuple[Piece, Piece]]) -> list[Piece]:
    pieces: list[Piece] = []
    for cell in cells:
        if pieces:
            pieces.append(_GAP)
        if isinstance(cell, Piece):
            pieces.append(cell)
        else:
            pieces.extend(cell)
    return pieces


_GAP = Piece(GAP)


def _cut(text: str, room: int, unit: str) -> str:
    """The text within the room: a path keeps its end, a list of shapes whole shapes, and a number is never cut."""
    if _width(text) <= room:
        return text
    if unit == "shapes":
        return _cut_list(text, room)
    kept = list(text)
    at = 0 if unit == "name" and "." in text else -1
    while kept and _width("".join(kept)) > room - 1:
        kept.pop(at)
    return "…" + "".join(kept) if at == 0 else "".join(kept) + "…"


def _cut_list(text: str, room: int) -> str:
    """As many whole shapes as fit, at least the first."""
    first, *others = text.split(", ")
    if not others:
        return first
    kept = first
    for shape in others:
        if len(kept) + len(shape) + 5 > room:
            break
        kept += f", {shape}"
    return f"{kept}, …"


def _justify(text: str, room: int, *, left: bool) -> str:
    blank = " " * (room - _width(text))
    return text + blank if left else blank + text


def _width(text: str) -> int:
    """Columns of a terminal that the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text
    )


# -- below the table -------------------------------------------------------------------------------------------------


def _draw_totals(quantities: Sequence[Quantity], width: int, shown: Callable[[str], str]) -> Drawn:
    rows = []
    for quantity in quantities:
        human = format_bytes(quantity.value) if quantity.unit == "bytes" else format_count(quantity.value)
        exact = f"{quantity.value:,}"
        bound = shown("≥") if quantity.partial else ""
        rows.append((quantity.label, bound + human, exact, quantity.remark, quantity.partial))
    label, human, exact = (max((len(row[place]) for row in rows), default=0) for place in range(3))
    drawn: Drawn = []
    for row in rows:
        pieces = [
            Piece(f"{row[0]:<{label}}{GAP}", "name"),
            Piece(f"{row[1]:>{human}}{GAP}", "warn" if row[4] else "number"),
            Piece(f"{row[2]:>{exact}}", "text"),
        ]
        if row[3] and label + human + exact + 3 * len(GAP) + len(row[3]) <= width:
            pieces.append(Piece(GAP + row[3], "faint"))
        drawn.append(pieces)
    return drawn


def _draw_phases(summary: Summary, shown: Callable[[str], str]) -> Drawn:
    if not summary.phases:
        return []
    rows = [("phase", "MACs", "FLOPs", "read", "written")]
    rows += [
        (
            phase,
            format_count(cost.macs),
            format_count(cost.flops),
            format_bytes(cost.bytes_read),
            format_bytes(cost.bytes_written),
        )
        for phase, cost in summary.phases
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(5)]
    return [
        [
            Piece(_justify(text, room, left=place == 0) + GAP, "head" if row is rows[0] else "number" if place else "name")
            for place, (text, room) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]


def _draw_section(title: str, lines: Sequence[str], hint: str, width: int) -> Drawn:
    drawn: Drawn = [[Piece(title, "head")]]
    for line in lines:
        drawn.extend([Piece(f"  {part}", "text")] for part in _wrap(line, width - 2, indent="  "))
    drawn.extend([Piece(f"  {part}", "faint")] for part in _wrap(hint, width - 2))
    return drawn


def _wrapped(texts: Sequence[str], width: int) -> list[str]:
    return [line for text in texts for line in _wrap(text, width, indent="        ")]


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    """The text in lines that break between words only; a non-breaking space holds a number and its unit together."""
    lines = textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return [line.replace("\u00a0", " ") for line in lines]


def _to_ascii(text: str) -> str:
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def _as_it_is(text: str) -> str:
    return text
