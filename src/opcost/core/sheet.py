"""Tables about a whole profile, such as where each device's time went: plain data, for every view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from opcost.core.brief import brief
from opcost.core.graph import Note
from opcost.core.plugin import COMPARISON_VIEWS
from opcost.core.shown import Shown
from opcost.errors import OpcostError, UnknownName

Unit: TypeAlias = Literal["name", "text", "number", "count", "bytes", "share", "time", "bytes/s", "ratio"]
Cell: TypeAlias = "str | int | float | None"
"""None is unknown."""


class Field(NamedTuple):
    """One column: its name is its header, and what options call it."""

    name: str
    unit: Unit
    dull: bool = False
    """It is left out where it says the same in every line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Lines of cells in the order of the fields."""

    title: str
    fields: tuple[Field, ...]
    lines: tuple[tuple[Cell, ...], ...]
    total: tuple[Cell, ...] | None = None
    """What the lines add up to."""
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return brief(self, [_lines(self), ", ".join(field.name for field in self.fields)], self.title)

    def place(self, name: str) -> int | None:
        """Where the field of this name is."""
        return next((place for place, field in enumerate(self.fields) if field.name == name), None)

    def records(self) -> list[dict[str, Cell]]:
        """Each line by the names of the fields."""
        return [dict(zip((field.name for field in self.fields), line, strict=True)) for line in self.lines]


def _lines(table: Table) -> str:
    return "1 line" if len(table.lines) == 1 else f"{len(table.lines):,} lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet(Shown):
    """What was asked about a profile as a whole. Print it, save it, or read its tables."""

    views: ClassVar[str] = COMPARISON_VIEWS

    name: str
    meta: Mapping[str, str]
    tables: tuple[Table, ...]
    notes: tuple[Note, ...] = ()

    def __repr__(self) -> str:
        lines = [f"{table.title} ({_lines(table)})" for table in self.tables]
        return brief(self, lines, f"{self.name} of {self.meta.get('source', 'a profile')}")

    def table(self, title: str) -> Table:
        """The table of this title."""
        for table in self.tables:
            if table.title == title:
                return table
        raise UnknownName("table", title, [table.title for table in self.tables])

    def __getitem__(self, title: str) -> list[dict[str, Cell]]:
        """The lines of the table of this title, by the names of their fields."""
        return self.table(title).records()

    def select(self, columns: Sequence[str]) -> Sheet:
        """Only these columns in this order, of the tables that have all of them; where none has, of those that have some."""
        wanted = [name.strip().lower().replace(" ", "_") for name in columns]
        known = list(dict.fromkeys(field.name for table in self.tables for field in table.fields))
        for name in wanted:
            if name not in known:
                raise UnknownName("column", name, known)
        whole = [table for table in self.tables if all(table.place(name) is not None for name in wanted)]
        return replace(
            self, tables=tuple(found for table in whole or self.tables if (found := _selected(table, wanted)))
        )

    def sort(self, order_by: str) -> Sheet:
        """The lines of tables that have this column by it, the largest first; `+column` the smallest first."""
        name = order_by.strip().lstrip("+-").strip().lower().replace(" ", "_")
        if all(table.place(name) is None for table in self.tables):
            raise UnknownName("column", name, {field.name for table in self.tables for field in table.fields})
        rising = order_by.strip().startswith("+")
        return replace(self, tables=tuple(_sorted(table, name, rising=rising) for table in self.tables))


def _selected(table: Table, wanted: Sequence[str]) -> Table | None:
    places = [place for name in wanted if (place := table.place(name)) is not None]
    if not places:
        return None

    def cut(line: tuple[Cell, ...]) -> tuple[Cell, ...]:
        return tuple(line[place] for place in places)

    return replace(
        table,
        fields=tuple(table.fields[place]._replace(dull=False) for place in places),
        lines=tuple(map(cut, table.lines)),
        total=None if table.total is None else cut(table.total),
    )


def _sorted(table: Table, name: str, *, rising: bool) -> Table:
    place = table.place(name)
    if place is None:
        return table
    known = [line for line in table.lines if line[place] not in (None, "")]
    missing = [line for line in table.lines if line[place] in (None, "")]
    try:
        known.sort(key=lambda line: line[place], reverse=not rising)  # type: ignore[arg-type, return-value]
    except TypeError as exc:
        raise OpcostError(f"{name} cannot be sorted by: it holds texts and numbers") from exc
    return replace(table, lines=(*known, *missing))
