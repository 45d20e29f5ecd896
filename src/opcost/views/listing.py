"""Lines and columns, whatever they tell of: a report, an answer about a profile. Plain data, for every kind of table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from opcost.core.graph import TensorSpec
from opcost.errors import OpcostError, UnknownName

Unit: TypeAlias = Literal[
    "name", "text", "shapes", "number", "count", "bytes", "share", "time", "flop/s", "bytes/s", "ratio"
]
Value: TypeAlias = "str | int | float | Amount | tuple[TensorSpec, ...] | None"
"""What a cell holds; None is unknown, which is not zero."""
Role: TypeAlias = Literal["row", "rest", "total"]
Columns: TypeAlias = "str | Sequence[str] | None"
"""Names in the order wanted, also as one text with commas; None lets the room decide."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A number with a unit of its own, where the lines of one column are not of one unit."""

    number: int
    unit: Unit
    partial: bool = False
    """It is a lower bound."""
    signed: bool = False
    """It is a difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: `of` reads its value from what a line is about."""

    name: str
    title: str
    unit: Unit
    of: Callable[[Any], Value]
    dull: tuple[Value, ...] = ()
    """The column is not shown by itself where its cells hold nothing but these."""
    priced: bool = False
    """The value comes from cost rules, so it is a lower bound where an operator has no price."""

    @property
    def adds(self) -> bool:
        """A sum over rows has a meaning."""
        return self.unit in ("count", "bytes", "share") or self.name in ("ops", "uncounted", "count")

    @property
    def textual(self) -> bool:
        """It holds no numbers, and stands at the left."""
        return self.unit in ("name", "text", "shapes")


class Line(NamedTuple):
    """One line: values in the order of the columns."""

    values: tuple[Value, ...]
    role: Role = "row"
    guides: str = ""
    partial: bool = False
    """Some operator in it has no price, so what is priced is a lower bound."""
    own_partial: bool = False
    """The same of a module without what is below it."""
    shares: bool = False
    """Parameters of another module stand in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Columns, lines, and what must be said about them."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    ranked: tuple[str, ...] = ()
    """The columns in the order in which they are given room; empty where the caller chose them."""
    remarks: tuple[str, ...] = ()

    @property
    def telling(self) -> list[int]:
        """The places of the columns that were asked for or have something to tell."""
        return [place for place in range(len(self.columns)) if not self._is_dull(place)]

    def _is_dull(self, place: int) -> bool:
        column = self.columns[place]
        if not self.ranked or not column.dull:
            return False
        return all(line.values[place] in column.dull for line in self.lines if line.role == "row" or column.adds)


def by_name(*columns: Column) -> dict[str, Column]:
    """The columns as they are asked for."""
    return {column.name: column for column in columns}


def choose_columns(wanted: str | Sequence[str], known: Mapping[str, Column]) -> tuple[Column, ...]:
    """The columns that a caller names."""
    names = wanted.split(",") if isinstance(wanted, str) else wanted
    if not names:
        raise OpcostError("no column is named", hint="leave columns out to see the usual ones")
    return tuple(find_column(name, known) for name in names)


def find_column(name: str, known: Mapping[str, Column]) -> Column:
    """The column of this name, or with this header, however it is spelt."""
    key = _spelt(name)
    if key not in known:
        key = next((each for each, column in known.items() if _spelt(column.title) == key), key)
    if key not in known:
        raise UnknownName("column", name.strip(), known)
    return known[key]


def _spelt(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")
