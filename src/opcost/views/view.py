"""What a view is: one format in which results are shown; what callers may choose; and columns that read their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from opcost.core.escaping import printable
from opcost.core.interrupts import garbage_collector_paused
from opcost.core.sheet import Cell, Field, Line
from opcost.errors import OpcostError, UnknownName

Columns: TypeAlias = "str | Sequence[str] | None"  # in this order, also with commas; None: by the room


# -- views --------------------------------------------------------------------------------------------------------------


class Renders(Protocol):
    """One format. A view of a third-party package has these too."""

    @property
    def name(self) -> str:
        """What it is called after `--view`, or in `render`."""

    @property
    def suffix(self) -> str:
        """Of the files that it writes, with the dot; empty where there are none."""

    @property
    def results(self) -> Mapping[str, type[Any]]:
        """The kinds of results that it shows: report, profile, scan, tables; each with the dataclass of what a caller may choose.

        A flag of the command line that has the name of a field sets it.
        """

    def render(self, result: Any, /, **options: Any) -> str:
        """The result as text, under fields of its options by their names."""


class Build:
    """How the data that a view writes is made of one kind of result, under options: those of `bases`, with other defaults."""

    def __init__(
        self, bases: type[Any] | tuple[type[Any], ...], make: Callable[[Any, Any], Any], **defaults: Any
    ) -> None:
        self.bases = bases if isinstance(bases, tuple) else (bases,)
        self.make = make
        self.defaults = defaults

    @cached_property
    def options(self) -> type[Any]:
        """The dataclass of what a caller may choose; made when it is needed, since making one takes long."""
        if len(self.bases) == 1 and not self.defaults:
            return self.bases[0]
        fields = [(name, Any, default) for name, default in self.defaults.items()]
        return make_dataclass("Options", fields, bases=self.bases, frozen=True, kw_only=True)


class _Results(Mapping[str, Any]):
    """The options of each kind of result, made when they are needed."""

    def __init__(self, builds: Mapping[str, Build]) -> None:
        self._builds = builds

    def __getitem__(self, kind: str) -> type[Any]:
        return self._builds[kind].options

    def __iter__(self) -> Iterator[str]:
        return iter(self._builds)

    def __len__(self) -> int:
        return len(self._builds)


@dataclass(frozen=True, kw_only=True)
class View:
    """One of the project's own views: plain data is built of a result, and then written."""

    name: str
    suffix: str = ""
    builds: Mapping[str, Build]  # by the kind of result
    write: Callable[[Any, Any], str]  # the data as text

    @property
    def results(self) -> Mapping[str, type[Any]]:
        return _Results(self.builds)

    def render(self, result: Any, /, **options: Any) -> str:
        """It as text under these options; a misspelt option is an error."""
        chosen = self.choose(result.kind, **options)
        with garbage_collector_paused():
            return self.write(self.builds[result.kind].make(result, chosen), chosen)

    def data(self, result: Any, /, **options: Any) -> Any:
        """It as the plain data that is written."""
        return self.builds[result.kind].make(result, self.choose(result.kind, **options))

    def choose(self, kind: str, **options: Any) -> Any:
        """The options for this kind of result with some of them set by name."""
        check_options(self, kind, options)
        return self.builds[kind].options(**options)


def check_options(view: Renders, kind: str, options: Mapping[str, Any]) -> None:
    """Raise for an option that the view does not have for this kind of result."""
    known = option_names(view, kind)
    for name in options:
        if name not in known:
            raise UnknownName(f"option of the {view.name} view", name, known)


def option_names(view: Renders, kind: str) -> list[str]:
    """What a caller may choose."""
    return [each.name for each in fields(view.results[kind])]


# -- options --------------------------------------------------------------------------------------------------------------

_LEAST = {"top": 1, "depth": 0, "width": 1}
_WORDS = {"depth": ("auto", "notebook")}


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """What a caller chose; whole numbers are checked."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name, None)
            if value is None or value in _WORDS.get(name, ()):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise OpcostError(f"{name}={value!r} is not a whole number of at least {least}")


@dataclass(frozen=True, kw_only=True)
class NumberOptions(ViewOptions):
    """How numbers are written."""

    exact: bool = False  # numbers with all their digits in place of units


# -- columns --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column(Field):
    """A field that reads its value from what a line is about."""

    of: Callable[[Any], Cell] = field(kw_only=True)


def by_name(*columns: Column) -> dict[str, Column]:
    """The columns by the names that options use."""
    return {column.name: column for column in columns}


def choose_columns(wanted: str | Sequence[str], known: Mapping[str, Column]) -> tuple[Column, ...]:
    """The columns that a caller names."""
    names = wanted.split(",") if isinstance(wanted, str) else wanted
    if not names:
        raise OpcostError("no column is named", hint="leave columns out to see the usual ones")
    return tuple(find_column(name, known) for name in names)


def find_column(name: str, known: Mapping[str, Column]) -> Column:
    """The column of this name, or with this header, whatever its case, blanks and hyphens."""

    def spelt(text: str) -> str:
        return text.strip().lower().replace(" ", "_").replace("-", "_")

    key = spelt(name)
    if key not in known:
        key = next((each for each, column in known.items() if spelt(column.header) == key), key)
    if key not in known:
        raise UnknownName("column", name.strip(), known)
    return known[key]


def read_lines(columns: Sequence[Column], items: Iterable[Any]) -> tuple[Line, ...]:
    """What each column reads of each item."""
    return tuple(Line(tuple(column.of(item) for column in columns)) for item in items)


def keep_together(text: str) -> str:
    """The text with non-breaking spaces, where lines are broken."""
    return printable(text).replace(" ", "\u00a0")
