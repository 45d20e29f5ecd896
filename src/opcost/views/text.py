"""Sheets as text: for the terminal, as wide as it is and in colour where wanted; or for logs and files."""

import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from opcost.core.escaping import ASCII
from opcost.core.graph import Cost
from opcost.core.sheet import Field, Line, Sheet, Table, Total
from opcost.core.units import format_bytes, format_count
from opcost.errors import some
from opcost.views.results import sheet_view
from opcost.views.summary import memory_sheet
from opcost.views.view import (
    NOTHING,
    Build,
    View,
    ViewOptions,
    column_texts,
    cut,
    cut_shapes,
    keep_together,
    pad,
    width_of,
    wrap,
)

PLAIN, BOLD, GREY, NUMBER, WARNING = "", "bold", "bright_black", "cyan", "yellow"  # styles as rich calls them


Piece: TypeAlias = tuple[str, str]  # some text and its style
Drawn: TypeAlias = list[list[Piece]]  # lines of pieces

NARROWEST = 40  # below this many columns there is nothing left to shorten
USUAL_WIDTH = 80  # of an output that is not a terminal
GAP = "  "
HANGING = 8  # columns before further lines of a condition: its name has as many
_LEFT = ("name", "text", "shapes")
_ALWAYS = 3  # columns that stay however narrow the room is: the name and what is ranked next to it
_COMFORT = {"name": 28, "text": 13, "shapes": 24}  # a column with longer texts gives way to another
_LEAST = {"name": 12, "text": 8, "shapes": 0}
_STYLES = {"name": PLAIN, "text": GREY, "shapes": GREY}  # of columns; others are of numbers


class _Candidate(NamedTuple):
    """One column as texts, and the widths that it can have."""

    field: Field
    texts: list[str]
    natural: int
    comfort: int
    least: int


def phase_rows(phases: Iterable[tuple[str, Cost]]) -> list[tuple[str, ...]]:
    """The costs of each phase, below their titles."""
    rows: list[tuple[str, ...]] = [("phase", "MACs", "FLOPs", "read", "written")]
    for phase, cost in phases:
        counts, moved = (cost.macs, cost.flops), (cost.bytes_read, cost.bytes_written)
        rows.append((phase, *map(format_count, counts), *map(format_bytes, moved)))
    return rows


def _width(rooms: Sequence[int]) -> int:
    """Of columns of these widths, with the gaps between them."""
    return sum(rooms) + len(GAP) * (len(rooms) - 1)


class _Drawing:
    """Draws sheets as lines of styled pieces, at a width and in the characters that are allowed."""

    def __init__(self, options: ViewOptions) -> None:
        self._width = max(terminal_width() if options.width is None else options.width, NARROWEST)
        self._ascii, self._exact = options.ascii, options.exact

    def _spell(self, text: str) -> str:
        """The text in the characters that are allowed, one for one."""
        if not self._ascii or text.isascii():
            return text
        return text.translate(ASCII).encode("ascii", "replace").decode("ascii")

    def sheet(self, sheet: Sheet) -> Drawn:
        """The sheet as lines of styled pieces, its parts separated by empty lines."""
        width, room = self._width, self._width - HANGING

        def fitted(text: str) -> str:
            """The text with the ends of words, as paths of files, that would not fit."""
            return " ".join(word if len(word) <= room else f"…{word[1 - room :]}" for word in text.split(" "))

        parts: list[Drawn] = [
            self._lines([fitted(sheet.answer)], BOLD, indent=2)
            + self._lines(map(fitted, sheet.heading), indent=HANGING),
            *([*([] if table.main else [[(table.title, BOLD)]]), *self._table(table)] for table in sheet.tables),
            self._totals(sheet.totals),
            self._phases(sheet.phases),
            self._lines([" · ".join(map(keep_together, sheet.conventions))]),
        ]
        for section in sheet.sections:
            texts = [part for line in section.lines for part in wrap(line, width - 2, indent=2)]
            style = WARNING if section.urgent else BOLD
            drawn = [[(part, style)] for part in wrap(section.title, width, indent=2)]
            drawn += ([(f"  {text}", GREY)] for text in texts)
            parts.append(drawn + [[(f"  {part}", GREY)] for part in wrap(section.hint, width - 2)])
        parts.append(self._lines(sheet.facts, indent=2))
        spaced = [line for part in parts if part for line in ([], *part)][1:]
        if not self._ascii:
            return spaced
        return [[(self._spell(text), style) for text, style in pieces] for pieces in spaced]

    def _totals(self, totals: Sequence[Total]) -> Drawn:
        rows = [(total.label, total.human, total.exact) for total in totals]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        drawn: Drawn = []
        for total, (label, human, exact) in zip(totals, rows, strict=True):
            pieces = [
                (label.ljust(widths[0]) + GAP, PLAIN),
                (human.rjust(widths[1]) + GAP, WARNING if total.partial else NUMBER),
                (exact.rjust(widths[2]), GREY),
            ]
            if total.remark and sum(len(text) for text, _ in pieces) + len(GAP + total.remark) <= self._width:
                pieces.append((GAP + total.remark.replace("\u00a0", " "), GREY))
            drawn.append(pieces)
        return drawn

    def _phases(self, phases: Sequence[tuple[str, Cost]]) -> Drawn:
        """One line for each phase, with as many of its costs as have room."""
        if not phases:
            return []
        columns, width = list(zip(*phase_rows(phases), strict=True)), self._width
        drawn: Drawn = [[] for _ in columns[0]]
        for place, column in enumerate(columns):
            room = max(map(len, column))
            width -= room + len(GAP)
            if width < -len(GAP):
                break
            for number, text in enumerate(column):
                style = BOLD if number == 0 else NUMBER if place else PLAIN
                drawn[number].append((pad(text, room, left=place == 0) + GAP, style))
        return drawn

    def _table(self, table: Table) -> Drawn:
        """The columns that have room; all of them where the caller chose them, then below each other. Then remarks."""
        # Every visible column, with its widths
        measured = []
        for place in table.visible:
            field = table.fields[place]
            texts = [self._spell(text) for text in column_texts(table, place, exact=self._exact)]
            distinct = set(texts)
            natural = max(map(width_of, distinct), default=0)
            if field.name == "module":
                natural = max(len(line.guides) + width_of(text) for line, text in zip(table.lines, texts, strict=True))
            natural = max(natural, len(field.header))
            comfort = least = natural
            if field.unit in _LEAST:
                least = max(len(field.header), _LEAST[field.unit])
                if field.unit == "shapes":
                    least = max(least, *(width_of(cut_shapes(text, 0)) for text in distinct))
                comfort = max(least, _COMFORT[field.unit])
            measured.append(_Candidate(field, texts, natural, min(natural, comfort), min(natural, least)))
        if table.order:
            chosen, left_out = self._fit(measured, table.order)
            drawn = self._block(chosen, table.lines)
            if left_out:
                drawn += self._lines([f"no room for {', '.join(some(left_out))}"])
        elif table.turns and _width([candidate.natural for candidate in measured]) > self._width:
            return self._table(table.turned)
        else:
            blocks = [self._block(block, table.lines) for block in self._blocks(measured)]
            drawn = [line for block in blocks for line in ([], *block)][1:]
        return drawn + self._lines(table.remarks)

    def _block(self, chosen: list[_Candidate], lines: Sequence[Line]) -> Drawn:
        """Columns beside each other: heads, lines and totals, between rules."""
        widths = self._share_room(chosen)
        heads = [
            (pad(candidate.field.header, room, left=candidate.field.textual) + GAP, BOLD)
            for candidate, room in zip(chosen, widths, strict=True)
        ]
        rule = [(self._spell("─") * _width(widths), GREY)]
        drawn: Drawn = [heads, rule]
        totals: Drawn = []
        columns = [self._cells(candidate, lines, room) for candidate, room in zip(chosen, widths, strict=True)]
        for line, *cells in zip(lines, *columns, strict=True):
            (totals if line.role == "total" else drawn).append([piece for cell in cells for piece in cell])
        return [*drawn, rule, *totals] if totals else drawn

    def _blocks(self, measured: list[_Candidate]) -> list[list[_Candidate]]:
        """All columns, in as many blocks as their least widths need; each begins with the columns that name its lines."""
        if _width([candidate.least for candidate in measured]) <= self._width:
            return [measured]
        named = [*takewhile(lambda candidate: candidate.field.unit in ("name", "text"), measured[:-1])] or measured[:1]
        used = [candidate.comfort for candidate in named]
        if _width(used) > self._width // 2:
            used = [candidate.least for candidate in named]
        blocks: list[list[_Candidate]] = []
        widths: list[int] = []
        for candidate in measured[len(named) :]:
            if not blocks or _width([*widths, candidate.least]) > self._width:
                blocks.append([*named])
                widths = [*used]
            blocks[-1].append(candidate)
            widths.append(candidate.least)
        return blocks

    def _fit(self, measured: list[_Candidate], ranked: Sequence[str]) -> tuple[list[_Candidate], list[str]]:
        """The columns that have room, in their order, and the names of those that have none."""
        by_name = {candidate.field.name: candidate for candidate in measured}
        order = [name for name in ranked if name in by_name]
        taken = set(order[:_ALWAYS])
        used = sum(by_name[name].comfort + len(GAP) for name in taken) - len(GAP)
        for name in order[_ALWAYS:]:
            more = len(GAP) + by_name[name].comfort
            if used + more <= self._width:
                used += more
                taken.add(name)
        left_out = [name for name in order if name not in taken]
        return [candidate for candidate in measured if candidate.field.name in taken], left_out

    def _share_room(self, chosen: list[_Candidate]) -> list[int]:
        """A width for each column: what is comfortable, then more where there is room (names first) or less (names last)."""
        widths = [candidate.comfort for candidate in chosen]
        room = self._width - _width(widths)
        elastic = sorted(
            (place for place, candidate in enumerate(chosen) if candidate.field.textual),
            key=lambda place: _LEFT.index(chosen[place].field.unit),
            reverse=room < 0,
        )
        for place in elastic:
            candidate = chosen[place]
            most, least = candidate.natural - widths[place], candidate.least - widths[place]
            change = min(room, most) if room > 0 else max(room, least)
            widths[place] += change
            room -= change
        return widths

    def _cells(self, candidate: _Candidate, lines: Sequence[Line], room: int) -> list[tuple[Piece, ...]]:
        """The cells of a column at their width, with the gap to the next; equal cells are made once."""
        field = candidate.field
        base = _STYLES.get(field.unit, NUMBER)

        @cache
        def cell(guides: str, text: str, role: str) -> tuple[Piece, ...]:
            style = base
            if role != "row":
                style = BOLD
            elif field.name == "note" or text.startswith(("?", self._spell("≥"))):
                style = WARNING
            elif base == NUMBER and text in ("0", self._spell(NOTHING)):
                style = GREY
            # However deep the tree is, some of the name must remain.
            drawn = self._spell(guides)[max(0, len(guides) + min(width_of(text), 6) - room) :]
            fitted = self._spell(cut(text, room - len(drawn), field.unit))
            own = (pad(fitted, room - len(drawn), left=field.textual) + GAP, style)
            return ((drawn, GREY), own) if drawn else (own,)

        named = field.name == "module"
        pairs = zip(lines, candidate.texts, strict=True)
        return [cell(line.guides if named else "", text, line.role) for line, text in pairs]

    def _lines(self, texts: Iterable[str], style: str = GREY, indent: int = 0) -> Drawn:
        return [[(line, style)] for text in texts for line in wrap(text, self._width, indent)]


def _write(sheet: Sheet, options: ViewOptions) -> str:
    drawn = _Drawing(options).sheet(sheet)
    if options.color:
        from io import StringIO

        from rich.console import Console
        from rich.segment import Segment, Segments
        from rich.style import Style

        segments = []
        for pieces in drawn:
            end = len(pieces)
            while end and not pieces[end - 1][0].strip():
                end -= 1
            segments += [Segment(text, Style.parse(style)) for text, style in pieces[:end]]
            segments.append(Segment.line())
        console = Console(file=StringIO(), force_terminal=True, color_system="standard", legacy_windows=False)
        console.print(Segments(segments), end="", soft_wrap=True)
        return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]
    return "\n".join("".join([text for text, _ in pieces]).rstrip() for pieces in drawn) + "\n"


def terminal_width() -> int:
    """Columns of the terminal behind any of the standard streams, or as the environment says."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and len(columns) < 10 and int(columns) > 0:
        return int(columns)
    for stream in (sys.__stdout__, sys.__stderr__, sys.__stdin__):
        try:
            width = os.get_terminal_size(stream.fileno()).columns  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):
            continue
        if width > 0:
            return width
    return USUAL_WIDTH


_OPTIONS = "exact width ascii color"
TABLE = sheet_view("table", _write, _OPTIONS, suffix=".txt")
TEXT = sheet_view("text", _write, _OPTIONS, suffix=".txt", kinds=("report",), for_reports={"width": 120})
MEMORY = View(name="memory", builds={"report": Build(f"top {_OPTIONS}", memory_sheet, top=10)}, write=_write)
