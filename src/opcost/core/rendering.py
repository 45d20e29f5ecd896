"""How our objects show themselves: one short line in a prompt or a debugger, and results in views."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from importlib import import_module
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from opcost.core.escaping import printable, shows_unicode
from opcost.core.files import write_text
from opcost.core.plugin import load_view, view_for_suffix
from opcost.core.showing import show_page
from opcost.core.tracebacks import TrimsTracebacks
from opcost.errors import MissingFramework

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

SHORT = 180  # characters of one object
SHORT_VALUE = 48  # characters of one of its fields
FEW = 3  # items of a sequence that are shown


def brief(thing: object, facts: Iterable[str], name: str = "") -> str:
    """`<Report resnet50: 25.56 M params, 4.09 G MACs>`: the kind of object, its name, and facts about it."""
    text = ", ".join(fact for fact in facts if fact)
    head = f"{type(thing).__name__} {_cut(printable(name), SHORT_VALUE)}".rstrip()
    return f"<{_cut(f'{head}: {printable(text)}' if text else head, SHORT)}>"


def brief_record(thing: Any) -> str:
    """`ProfileRow(id=3, name='conv1', …)`: those fields of a record that differ from their defaults."""
    shown = [
        f"{name}={_value(value)}"
        for name, value, usual in _fields(thing)
        if type(value) is not type(usual) or not bool(value == usual)
    ]
    return f"{type(thing).__name__}({_cut(', '.join(shown), SHORT)})"


def brief_repr(cls: type[T]) -> type[T]:
    """Let a named tuple show itself as `brief_record` does."""
    cls.__repr__ = brief_record  # type: ignore[method-assign]
    return cls


class Listed(tuple[T_co, ...]):
    """A tuple of which a prompt shows the first items and how many follow."""

    __slots__ = ()

    def __repr__(self) -> str:
        return brief_sequence(self)


class ListsTuples(TrimsTracebacks):
    """A dataclass whose tuples are `Listed`; other sequences, as the rows of a long run, are made on demand."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            if type(found := getattr(self, field.name)) is tuple:
                object.__setattr__(self, field.name, Listed(found))


def brief_sequence(items: Sequence[Any]) -> str:
    """The first items of a sequence, and how many more there are."""
    shown = [repr(item) for item in islice(items, FEW)]
    if len(items) > FEW:
        shown.append(f"... {len(items) - FEW:,} more")
    return f"({', '.join(shown)}{',' if len(items) == 1 else ''})"


def _fields(thing: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, value and usual value of each field of a named tuple or a dataclass."""
    if (usual := getattr(thing, "_field_defaults", None)) is not None:
        yield from ((name, getattr(thing, name), usual.get(name, MISSING)) for name in thing._fields)
        return
    for field in fields(thing):
        if field.repr:
            made = field.default_factory
            yield field.name, getattr(thing, field.name), field.default if made is MISSING else made()


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _cut(repr(value), SHORT_VALUE)
    if isinstance(value, Mapping):
        return f"{{{len(value)} entries}}" if value else "{}"
    if isinstance(value, Sequence) and not isinstance(value, bytes) and not hasattr(value, "_fields"):
        whole = repr(tuple(value)) if len(value) <= FEW else ""
        return whole if 0 < len(whole) <= SHORT_VALUE else f"({len(value):,} items)"
    return _cut(repr(value), SHORT_VALUE)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 3]}..."


# -- results that views render ------------------------------------------------------------------------------------------


class Rendered(ListsTuples):
    """A result that views show: as a table, Markdown, CSV, JSON or a page, and as columns for data frames."""

    __slots__ = ()

    kind: ClassVar[str] = "tables"  # what views know it by: report, profile, scan or tables

    def __str__(self) -> str:
        return self.render("table", ascii=not shows_unicode(sys.stdout))

    def _repr_html_(self) -> str:
        return self.render("notebook")

    @property
    def answer(self) -> str:
        """One sentence with the answer, with which every format begins."""
        return self.render("answer").rstrip("\n")

    def render(self, view: str = "table", **options: Any) -> str:
        """It as text in a named view: table, md, csv, json, ... (`opcost doctor` lists them)."""
        return str(load_view(view, self.kind).render(self, **options))

    def sheet(self, **options: Any) -> Any:
        """Its tables with their units, totals and notes as an `opcost.core.sheet.Sheet`; options as those of `render`."""
        return load_view("table", self.kind).data(self, **options)

    def save(self, path: str | PathLike[str], **options: Any) -> None:
        """Write it to a file; the suffix chooses the view. If writing fails, the old file stays as it was."""
        write_text(path, str(view_for_suffix(path, self.kind).render(self, **options)))

    def view(self) -> Path | None:
        """Show its page, in a notebook below the cell, else in a browser; the file that the browser shows."""
        return show_page(self.render("html"))

    def to_dict(self, **options: Any) -> dict[str, list[Any]]:
        """Its lines as columns, called as after `--columns`: nothing rounded, times in nanoseconds, the unknown None.

        The options are those of the `columns` view: of a report `by="op"`, "module", "kind" or "type"; of an answer about a
        profile and of a scan `columns`.
        """
        columns: dict[str, list[Any]] = load_view("columns", self.kind).data(self, **options)
        return columns

    def to_pandas(self, **options: Any) -> Any:
        """The same as a `pandas.DataFrame`."""
        return pandas_frame(self.to_dict(**options))

    def to_polars(self, **options: Any) -> Any:
        """The same as a `polars.DataFrame`."""
        return polars_frame(self.to_dict(**options))


class Picture(str):
    """A picture as the text of an SVG, which a notebook draws."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return brief(self, [f"SVG of {len(self):,} characters"])

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a file."""
        write_text(path, self)


# -- columns as data frames of pandas and polars, which are imported only when one is made ------------------------------

LARGEST = 1 << 63  # the integers of a data frame are below this; a column with larger ones becomes floats


def pandas_frame(columns: dict[str, list[Any]]) -> Any:
    """A `pandas.DataFrame`; a column of whole numbers with unknown ones among them stays one of whole numbers."""
    pandas = _library("pandas")
    return pandas.DataFrame(
        {name: pandas.array(values, dtype="Int64") if _whole(values) else values for name, values in columns.items()}
    )


def polars_frame(columns: dict[str, list[Any]]) -> Any:
    """A `polars.DataFrame`."""

    def fitting(values: list[Any]) -> list[Any]:
        if any(isinstance(value, int) and abs(value) >= LARGEST for value in values):
            return [None if value is None else float(value) for value in values]
        return values

    found = {name: fitting(values) for name, values in columns.items()}
    return _library("polars").DataFrame(found, strict=False, infer_schema_length=None)


def _whole(values: list[Any]) -> bool:
    """Whether these are whole numbers that fit, as far as they are known."""
    known = [value for value in values if value is not None]
    return bool(known) and all(type(value) is int and abs(value) < LARGEST for value in known)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name != name:
            raise
        missing = f"a data frame of {name} needs the package {name}, which is not installed"
        raise MissingFramework(missing, hint=f"pip install {name}; to_dict() needs no package") from exc
