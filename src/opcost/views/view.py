"""What a view is: one format in which results are shown; what callers may choose; columns; and one value as text."""

from __future__ import annotations

import textwrap
import unicodedata
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from functools import cache, cached_property
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from opcost.core.escaping import printable
from opcost.core.interrupts import garbage_collector_paused
from opcost.core.names import short_kernel_name
from opcost.core.sheet import Amount, Cell, Field, Line, Role, Table, Unit
from opcost.core.units import FORMATS, format_count
from opcost.errors import OpcostError, UnknownName, some

if TYPE_CHECKING:
    from opcost.core.profile import Answer, Profile
    from opcost.core.sheet import Sheet

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
    """How the data that a view writes is made of one kind of result, under these options, some with other defaults."""

    def __init__(self, options: str, make: Callable[[Any, ViewOptions], Any], **defaults: Any) -> None:
        self.names = options
        self.make = make
        self.defaults = defaults

    @cached_property
    def options(self) -> type[Any]:
        """The dataclass of what a caller may choose; made when it is needed, since making one takes long."""
        usual = {each.name: each.default for each in fields(ViewOptions)} | self.defaults
        named = [(name, Any, usual[name]) for name in self.names.split()]
        return make_dataclass("Options", named, frozen=True, kw_only=True)


class _Results(UserDict[str, Any]):
    """The options of each kind of result, made when they are needed."""

    def __getitem__(self, kind: str) -> type[Any]:
        options: type[Any] = self.data[kind].options
        return options


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

    def choose(self, kind: str, **options: Any) -> ViewOptions:
        """The options for this kind of result with some of them set by name."""
        check_options(self, kind, options)
        return ViewOptions(**{**self.builds[kind].defaults, **options})


def check_options(view: Renders, kind: str, options: Mapping[str, Any]) -> None:
    """Raise for an option that the view does not have for this kind of result."""
    known = option_names(view, kind)
    for name in options:
        if name not in known:
            raise UnknownName(f"option of the {view.name} view", name, known)


def option_names(view: Renders, kind: str) -> list[str]:
    """What a caller may choose."""
    return [each.name for each in fields(view.results[kind])]


def known_options(view: Renders, kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that the view has, and that are set."""
    known = option_names(view, kind)
    return {name: value for name, value in given.items() if name in known and value is not None}


# -- options --------------------------------------------------------------------------------------------------------------

_LEAST = {"top": 1, "depth": 0, "width": 1}
_WORDS = {"depth": ("auto", "notebook")}


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """All that callers can choose of views; each view takes some of it. Whole numbers are checked."""

    by: Any = (
        "module"  # what a line is about: of a report module, op, kind, type or collective, of a scan layer, module, ...
    )
    depth: Any = "auto"
    """Levels below the root; None: all, "auto": readable, "notebook": as many as a cell holds. Of a scan words of a name:
    after the number of a layer (1), or of the path of a module (2)."""
    merge: bool | None = None  # draw runs of identical blocks once; None does it where the tree would be long
    sort: str | None = None  # a column: `macs` largest first, `+macs` smallest first; modules under their parent
    top: int | None = (
        None  # only this number of lines; of a report the most expensive, and a line with the sum of the rest
    )
    columns: Columns = None  # None: by the room, or those that are not blank, and for programs all
    exact: bool = False  # numbers with all their digits in place of units
    width: int | None = None  # columns of the text; None is as many as the terminal has
    ascii: bool = False  # use no character outside ASCII
    color: bool = False  # write the terminal's escape sequences. Off by default, because the text may go to a file
    indent: int | None = None  # spaces for each level of JSON; None writes one line
    quantity: str | None = None  # what a chart is of: macs, flops, peak_bytes, latency, ...
    others: Sequence[Answer] = ()  # further answers on the page of the first, as the host's times
    profile: Profile | None = None  # with costs: the page of an answer then has its modules, operators and timeline
    sheets: Sequence[Sheet] = ()  # tables about the profile as a whole, such as its collectives and its allocations

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name, None)
            if value is None or value in _WORDS.get(name, ()):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise OpcostError(f"{name}={value!r} is not a whole number of at least {least}")


# -- columns --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column(Field):
    """A field that reads its value from what a line is about."""

    of: Callable[[Any], Cell] = field(kw_only=True)


def reading(text: str) -> tuple[Column, ...]:
    """Columns as words `name:unit=attribute`: a text without a unit, and without the last the attribute of its name."""
    found = []
    for word in text.split():
        head, _, attribute = word.partition("=")
        name, _, unit = head.partition(":")
        found.append(Column(name, cast("Unit", unit or "text"), of=attrgetter(attribute or name)))
    return tuple(found)


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


def listing(
    columns: Sequence[Column], items: Iterable[Any], *, role: Callable[[Any], Role] = lambda _: "row", **about: Any
) -> Table:
    """A table of what each column reads of each item; `about` are its title and the like."""
    lines = tuple(Line(tuple(column.of(item) for column in columns), role(item)) for item in items)
    return Table(fields=tuple(columns), lines=lines, **about)


def fields_data(value: Any) -> Any:
    """Dataclasses and named tuples by their fields, and what is in them, for JSON."""
    if is_dataclass(value) or hasattr(value, "_fields"):
        names = getattr(value, "_fields", None) or [field.name for field in fields(value)]
        return {name: fields_data(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [fields_data(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


def keep_together(text: str) -> str:
    """The text with non-breaking spaces, where lines are broken."""
    return printable(text).replace(" ", "\u00a0")


def whole_percent(share: float) -> str:
    """The share in whole percent; something never looks like nothing, and a part never like the whole."""
    whole = round(100 * share)
    text = "<1" if share > 0 and whole == 0 else ">99" if share < 1 and whole == 100 else f"{whole}"
    return keep_together(f"{text} %")


# -- one value as text, and text cut or padded to a width -----------------------------------------------------------------

MANY_SHAPES = 24  # shapes of one cell; a module that gets a pyramid of features has about ten
NOTHING = "–"  # a zero in a column of quantities: it is counted, and it is nothing


def format_cell(value: Cell, field: Field, *, exact: bool = False) -> str:
    """A value as text; the unknown is a question mark, never a zero."""
    if value is None:
        return "?"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, tuple):
        # `1x3x224x224, 2 × 1000`: a run of equal shapes is written once
        return ", ".join(some(in_runs(map(str, value)), MANY_SHAPES))
    if isinstance(value, Amount):
        return format_amount(value, exact=exact)
    if value == 0 and field.adds and not exact:
        return NOTHING
    if field.name in ("calls", "repeat") and field.unit == "number" and value <= 1:
        return ""
    if field.unit == "share":
        # `25.5`, `-3.1`, `<0.1`, `0`: percent with one decimal, where something never looks like nothing
        return f"{100 * value:.1f}" if abs(value) >= 0.0005 else "<0.1" if value > 0 else ">-0.1" if value else "0"
    return f"{value:,}" if exact or field.unit == "number" else FORMATS.get(field.unit, format_count)(value)


def format_amount(amount: Amount, *, exact: bool = False) -> str:
    """An amount in its own unit: a zero difference is none, and a lower bound of zero is unknown."""
    if not amount.number and not exact:
        return "?" if amount.partial else NOTHING
    plain = exact or amount.unit == "number"
    text = f"{amount.number:,}" if plain else FORMATS.get(amount.unit, format_count)(amount.number)
    sign = "+" if amount.signed and amount.number > 0 else ""
    return f"{'≥' if amount.partial else ''}{sign}{text}"


def column_texts(table: Table, place: int, *, exact: bool = False) -> list[str]:
    """The texts of one column; equal values are formatted once."""
    field = table.fields[place]
    own = field.name.startswith("own_")
    shown = cache(lambda value: format_cell(value, field, exact=exact))
    texts = []
    for line in table.lines:
        value = line.values[place]
        text = shown(value)
        partial = line.own_partial if own else line.partial
        if partial and not value and (field.has_cost or field.unit == "share"):
            text = "?"
        elif partial and field.has_cost:
            text = f"≥{text}"
        elif line.shares and field.name == "params" and value == 0:
            text = "(shared)"
        texts.append(text)
    return texts


def ranked_places(table: Table, most: int) -> tuple[list[int], list[str]]:
    """The places of at most this many columns, and the names of the others; all places where the caller chose the columns."""
    places = table.visible
    if not table.order:
        return places, []
    seen = {table.fields[place].name for place in places}
    ranked = [name for name in table.order if name in seen]
    return [place for place in places if table.fields[place].name in ranked[:most]], ranked[most:]


def in_runs(words: Iterable[str]) -> list[str]:
    """The words, where a run of equal ones is written `3 × word`."""
    counted = ((word, sum(1 for _ in run)) for word, run in groupby(words))
    return [f"{count} × {word}" if count > 1 else word for word, count in counted]


def cut(text: str, room: int, unit: Unit) -> str:
    """The text within the room: a path keeps its end, a kernel its distinctive words, and a number is never cut."""
    if width_of(text) <= room:
        return text
    if unit == "shapes":
        return cut_shapes(text, room)
    if unit not in ("name", "text"):
        return text
    text = short_kernel_name(text)
    if width_of(text) <= room:
        return text
    keeps_end = unit == "name" and "." in text
    left, kept = room - 1, 0
    for letter in reversed(text) if keeps_end else text:
        left -= width_of(letter)
        if left < 0:
            break
        kept += 1
    return "…" + text[len(text) - kept :] if keeps_end else text[:kept] + "…"


def cut_shapes(text: str, room: int) -> str:
    """As many whole shapes as fit, at least the first."""
    first, *others = text.split(", ")
    kept = first
    for shape in others:
        if len(kept) + len(shape) + len(", , …") > room:
            return f"{kept}, …"
        kept += f", {shape}"
    return kept


def pad(text: str, room: int, *, left: bool) -> str:
    """The text at the left or at the right of this number of columns."""
    blank = " " * (room - width_of(text))
    return text + blank if left else blank + text


def width_of(text: str) -> int:
    """Columns of a terminal that the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def wrap(text: str, width: int, indent: int = 0) -> list[str]:
    """The text in lines that break between words only; a non-breaking space keeps a number and its unit together."""
    text = printable(text, keep="\u00a0")
    lines = textwrap.wrap(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]
