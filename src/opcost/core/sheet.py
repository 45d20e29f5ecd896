"""What every result gives to be shown: tables with units, totals, sections and notes. Plain data.

`result.sheet()` makes one of a report, a profile, a comparison, a check, a fit, a sweep or a scan; `opcost.views` has one
renderer for each format, which knows sheets and no results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from opcost.core.graph import Cost, Note, TensorSpec
from opcost.core.rendering import Rendered, brief
from opcost.core.units import FORMATS
from opcost.errors import OpcostError, UnknownName, counted

Unit: TypeAlias = Literal[
    "name", "text", "shapes", "number", "count", "bytes", "share", "time", "flop/s", "bytes/s", "ratio"
]
Role: TypeAlias = Literal["row", "rest", "total"]  # a row, a sum of some rows, or the sum of all
LONG_LINE = 1000  # characters of one line around the tables; a note is a sentence or two


@dataclass(frozen=True, slots=True)
class Amount:
    """A number with a unit of its own, where the lines of one column are not of one unit."""

    number: int
    unit: Unit
    partial: bool = False  # it is a lower bound
    signed: bool = False  # it is a difference


Cell: TypeAlias = "str | int | float | Amount | tuple[TensorSpec, ...] | None"  # none is unknown, which is not zero


@dataclass(frozen=True, slots=True)
class Field:
    """One column: its name is what options call it, its title the header."""

    name: str
    unit: Unit = "text"
    title: str | None = None  # none is the name
    dull: bool = False  # it is left out where it is the same in every line
    blank: tuple[Cell, ...] = ()  # it is left out where its cells hold nothing but these
    has_cost: bool = False  # the value comes from cost rules, so it is a lower bound where an operator has no rule
    extra: bool = False  # formats that show all columns leave it out, unless the caller chose it

    @property
    def header(self) -> str:
        return self.name if self.title is None else self.title

    @property
    def adds(self) -> bool:
        """A sum over rows has a meaning: not where an operator may be in several of them."""
        if self.name == "overlap_flops":
            return False
        return self.unit in ("count", "bytes", "share") or self.name in ("ops", "uncounted", "count")

    @property
    def textual(self) -> bool:
        """It holds no numbers, and is aligned to the left."""
        return self.unit in ("name", "text", "shapes")


class Line(NamedTuple):
    """One line: values in the order of the fields."""

    values: tuple[Cell, ...]
    role: Role = "row"
    guides: str = ""  # the branches of the tree before its name
    partial: bool = False  # an operator in it has no cost rule, so its costs are lower bounds
    own_partial: bool = False  # the same of a module without its children
    shares: bool = False  # some of its parameters belong to another module

    @property
    def depth(self) -> int:
        """Its level in the tree."""
        return len(self.guides) // len("├─ ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Lines of cells in the order of the fields."""

    title: str = ""
    fields: tuple[Field, ...]
    lines: tuple[Line, ...]
    ranked: tuple[str, ...] | None = None
    """The columns in the order in which they are given room; None is their order, and empty shows all: the caller chose them."""
    remarks: tuple[str, ...] = ()
    main: bool = False
    """It is what the sheet is about, so text needs no title above it."""
    turns: bool = False
    """Its columns can be lines as well: all but the first hold amounts with units of their own."""

    @classmethod
    def of(
        cls, title: str, columns: str, lines: Iterable[tuple[Cell, ...]], *, total: tuple[Cell, ...] | None = None,
        remarks: Sequence[str] = (),
    ) -> Table:  # fmt: skip
        """A table of plain rows and, where given, what they add up to.

        Its columns are words `name:unit`; one with `?` behind it is left out where it is the same in every line, and one with
        `!` where no line has it.
        """
        words = [word.partition(":") for word in columns.split()]
        fields = tuple(
            Field(
                name,
                cast("Unit", unit.rstrip("?!")),
                dull=unit.endswith("?"),
                blank=(None, "") if unit.endswith("!") else (),
            )
            for name, _, unit in words
        )
        sums = () if total is None else (Line(total, "total"),)
        return cls(title=title, fields=fields, lines=(*map(Line, lines), *sums), remarks=tuple(remarks))

    def __repr__(self) -> str:
        return brief(self, [_count(self), ", ".join(field.name for field in self.fields)], self.title)

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """The lines without sums."""
        return [line.values for line in self._rows_and_sums[0]]

    @property
    def _rows_and_sums(self) -> tuple[list[Line], list[Line]]:
        rows = [line for line in self.lines if line.role == "row"]
        return rows, [line for line in self.lines if line.role != "row"]

    @property
    def total(self) -> tuple[Cell, ...] | None:
        """What the rows add up to."""
        return next((line.values for line in self.lines if line.role == "total"), None)

    @property
    def order(self) -> tuple[str, ...]:
        """The columns in the order in which they are given room; empty where the caller chose them."""
        return tuple(field.name for field in self.fields) if self.ranked is None else self.ranked

    @property
    def visible(self) -> list[int]:
        """The places of the columns that the caller chose or that are not blank."""

        def is_dull(place: int, field: Field) -> bool:
            if field.dull:
                return len({row[place] for row in self.rows}) == 1
            counted = (line.values[place] for line in self.lines if line.role == "row" or field.adds)
            return bool(field.blank) and all(value in field.blank for value in counted)

        return [place for place, field in enumerate(self.fields) if not self.order or not is_dull(place, field)]

    @property
    def turned(self) -> Table:
        """Its columns as lines and its lines as columns, which the first column names."""
        first, *others = self.fields
        heads = [Field(str(line.values[0]), "number") for line in self.lines]
        lines = [
            Line((field.name, *(line.values[place] for line in self.lines))) for place, field in enumerate(others, 1)
        ]
        return replace(self, fields=(Field("column", "name", first.header), *heads), lines=tuple(lines), turns=False)

    @property
    def narrow(self) -> Table:
        """Itself, or turned where it has more columns than lines."""
        return self.turned if self.turns and len(self.fields) - 1 > len(self.lines) else self

    def place(self, name: str) -> int | None:
        """The index of the field of this name."""
        return next((place for place, field in enumerate(self.fields) if field.name == name), None)

    def records(self) -> list[dict[str, Cell]]:
        """Each row by the names of the fields."""
        return [dict(zip((field.name for field in self.fields), row, strict=True)) for row in self.rows]

    def limited(self, top: int | None) -> Table:
        """The first rows, and how many more there are; sums stay."""
        more = 0 if top is None else len(self.rows) - top
        if more <= 0:
            return self
        rows, sums = self._rows_and_sums
        remark = f"and {more:,} more {'line' if more == 1 else 'lines'}"
        return replace(self, lines=(*rows[:top], *sums), remarks=(*self.remarks, remark))

    def select(self, names: Sequence[str]) -> Table | None:
        """Those of these columns that it has, in this order; None where it has none."""
        places = [place for name in names if (place := self.place(name)) is not None]
        if not places:
            return None
        lines = (line._replace(values=tuple(line.values[place] for place in places)) for line in self.lines)
        fields = tuple(replace(self.fields[place], dull=False) for place in places)
        return replace(self, fields=fields, lines=tuple(lines))

    def only(self, name: str, titles: Mapping[Any, str]) -> Table:
        """Of the rows those with these values in a column, under their titles; without sums, which are of all rows."""
        place = self.place(name)
        if place is None or not titles:
            return self
        fields = tuple(replace(field, unit="text") if field.name == name else field for field in self.fields)
        lines = tuple(
            line._replace(values=(*line.values[:place], titles[line.values[place]], *line.values[place + 1 :]))
            for line in self._rows_and_sums[0]
            if line.values[place] in titles
        )
        return replace(self, fields=fields, lines=lines)

    def sort(self, name: str, *, rising: bool) -> Table:
        """The rows by this column, if it has it; what is unknown comes last."""
        place = self.place(name)
        if place is None:
            return self
        rows, sums = self._rows_and_sums
        known = [line for line in rows if line.values[place] not in (None, "")]
        missing = [line for line in rows if line.values[place] in (None, "")]
        try:
            known.sort(key=lambda line: line.values[place], reverse=not rising)  # type: ignore[arg-type, return-value]
        except TypeError as exc:
            raise OpcostError(f"{name} cannot be sorted by: it holds texts and numbers") from exc
        return replace(self, lines=(*known, *missing, *sums))


@dataclass(frozen=True, slots=True)
class Total:
    """One number of the whole."""

    label: str
    value: float
    unit: Literal["count", "bytes", "time", "share", "flop/s", "number"]
    partial: bool = False  # it is a lower bound
    remark: str = ""
    large: bool = False  # it is one of the few that are shown first, where not all have room

    @property
    def human(self) -> str:
        """The value with a unit, marked where it is a lower bound."""
        if self.unit == "share":
            text = f"{100 * self.value:.1f} %"
        else:
            text = f"{self.value:,}" if self.unit == "number" else FORMATS[self.unit](self.value)
        return f"≥{text}" if self.partial else text

    @property
    def exact(self) -> str:
        """The whole number; times are in nanoseconds. Shares and rates have none."""
        return (
            f"{round(self.value):,}{' ns' * (self.unit == 'time')}" if self.unit in ("count", "bytes", "time") else ""
        )


class Remedy(NamedTuple):
    """What to do about a line of a section, the view of a page or the table that shows it, and what to find there."""

    text: str
    view: str
    find: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Something to know: a title, lines, and what to do about it."""

    title: str
    lines: tuple[str, ...]
    hint: str = ""
    urgent: bool = False  # a number is wrong until something is done
    is_plot: bool = False  # lines of bars, for a terminal
    advice: tuple[Remedy, ...] = ()  # on each of the lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet(Rendered):
    """Tables with a heading, totals, sections and notes. Print it, save it, or read its tables."""

    name: str = ""
    answer: str = ""
    """One sentence with the answer, the first line of every format."""
    meta: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    notes: tuple[Note, ...] = ()
    heading: tuple[str, ...] = ()
    """Lines below the answer: the source, its inputs, and other conditions."""
    totals: tuple[Total, ...] = ()
    phases: tuple[tuple[str, Cost], ...] = ()
    """The cost of each phase; empty where there is only the forward pass."""
    conventions: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    facts: tuple[str, ...] = ()
    """Lines below the tables: times of the whole, use of devices, peaks, notes."""
    alike: Mapping[int, str] = field(default_factory=dict)
    """Of many ranks those shown for all that are alike, and the numbers of these: people read the lines of these alone."""

    @property
    def figures(self) -> tuple[Total, ...]:
        """The few totals that are shown first."""
        return tuple(total for total in self.totals if total.large)

    def __repr__(self) -> str:
        lines = [f"{table.title} ({_count(table)})" for table in self.tables]
        return brief(self, lines, f"{self.name} of {self.meta.get('source', 'a profile')}")

    @property
    def shown(self) -> tuple[Table, ...]:
        """The tables for people: those that have rows, and of ranks that are alike the lines of one."""
        return tuple(table.only("rank", self.alike) for table in self.tables if table.rows or table.main)

    @property
    def unplotted(self) -> tuple[Section, ...]:
        """The sections, without those that draw with letters."""
        return tuple(section for section in self.sections if not section.is_plot)

    def table(self, title: str) -> Table:
        """The table of this title."""
        for table in self.tables:
            if table.title == title:
                return table
        raise UnknownName("table", title, [table.title for table in self.tables])

    def __getitem__(self, title: str) -> list[dict[str, Cell]]:
        """The rows of the table of this title, by the names of their fields."""
        return self.table(title).records()

    def select(self, columns: Sequence[str]) -> Sheet:
        """Only these columns in this order, of the tables that have all of them; where none has, of those that have some."""
        names = [name.strip().lower().replace(" ", "_") for name in columns]
        known = list(dict.fromkeys(field.name for table in self.tables for field in table.fields))
        for name in names:
            if name not in known:
                raise UnknownName("column", name, known)
        whole = [table for table in self.tables if all(table.place(name) is not None for name in names)]
        return replace(self, tables=tuple(found for table in whole or self.tables if (found := table.select(names))))

    def sort(self, order_by: str) -> Sheet:
        """The rows of tables that have this column by it, the largest first; `+column` the smallest first."""
        name = order_by.strip().lstrip("+-").strip().lower().replace(" ", "_")
        if all(table.place(name) is None for table in self.tables):
            raise UnknownName("column", name, {field.name for table in self.tables for field in table.fields})
        rising = order_by.strip().startswith("+")
        return replace(self, tables=tuple(table.sort(name, rising=rising) for table in self.tables))


def _count(table: Table) -> str:
    return counted(len(table.rows), "line")


def plain_cell(cell: Cell) -> Any:
    """A cell for programs: nothing rounded, the unknown None, shapes as `1x3x224x224` with a blank between."""
    if isinstance(cell, tuple):
        return " ".join(map(str, cell))
    return cell.number if isinstance(cell, Amount) else cell
