"""JSON files of opcost's own: each states its schema, and whatever else it turns out to be is one clear error.

A file is described by msgspec's structs, and msgspec checks it and names the place of a fault. What reports and
profiles have in common is here: tensors, costs, attributes, and tables whose entries are written once and referred to by number.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite, prod
from os import PathLike, fspath
from typing import Annotated, Any, Generic, TypeVar, get_args, get_type_hints

import msgspec
from msgspec.structs import asdict, astuple

from opcost.core.escaping import json_text
from opcost.core.files import keep_pipes, read_whole
from opcost.core.graph import Attr, Attrs, Cost, Phase, TensorSpec
from opcost.core.interrupts import garbage_collector_paused
from opcost.core.parsing import LARGEST, Bad, check_containers, parse, short
from opcost.errors import SourceError

T = TypeVar("T")

LARGEST_FILE = 128 << 20  # bytes of the largest file that is believed: ten times a report of 100,000 operators

MOST_AXES = 64

PHASES: tuple[Phase, ...] = get_args(Phase)

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # an entry of a table, a place, or a count
Time = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # ns: may be before the clock's zero
PhaseNumber = Annotated[int, msgspec.Meta(ge=0, le=len(PHASES) - 1)]


# -- what a file is made of --------------------------------------------------------------------------------------------


class _StoredColumns(msgspec.Struct):
    def __post_init__(self) -> None:
        if len({len(column) for column in astuple(self) if column is not msgspec.UNSET}) > 1:
            raise ValueError("the columns differ in length")


def stored_columns(title: str, /, **types: Any) -> Any:
    """A struct for a table as lists of one length, given the type of the items of each."""
    fields = [(column, list[kind]) for column, kind in types.items()]  # type: ignore[valid-type]
    return msgspec.defstruct(title, fields, bases=(_StoredColumns,))


def required(form: type, chosen: str = "", /, **types: Any) -> Any:
    """A struct with the fields of a class of ours, or those with these names, some of other types; none may be missing."""
    hints = get_type_hints(form) | types
    return msgspec.defstruct(form.__name__, [(name, hints[name]) for name in chosen.split() or hints])


CostRecord, SpecRecord = required(Cost), required(TensorSpec)


def believe(where: str, quantities: Iterable[int]) -> None:
    """Refuse quantities at this place of a file that no model has: msgspec can bound only what fits into 64 bits."""
    for quantity in quantities:
        if not 0 <= quantity <= LARGEST:
            raise Bad(f"{short(quantity)} is not a count, in {where}")


def read_cost(record: Any, where: str) -> Cost:
    """A cost."""
    believe(where, quantities := astuple(record))
    return Cost(*quantities)


def read_specs(records: Iterable[Any]) -> list[TensorSpec]:
    """The table of tensors."""
    specs = [TensorSpec(record.shape, record.dtype) for record in records]
    for number, spec in enumerate(specs):
        extents = [extent or 1 for extent in spec.shape or ()]
        if len(extents) > MOST_AXES or min(extents, default=1) < 0:
            raise Bad(f"{short(spec.shape)} is not a shape, in specs[{number}]")
        believe(f"specs[{number}]", [prod(extents)])
    return specs


_NON_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def write_attrs(attrs: Attrs) -> dict[str, Any]:
    """Attributes as an object."""
    return {name: _write_attr(value) for name, value in attrs.items()}


def _write_attr(value: Attr) -> Any:
    if isinstance(value, tuple):
        return [_write_attr(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return {"float": repr(value)}
    return value


def read_attrs(data: dict[str, Any]) -> Attrs:
    """Attributes of an object."""
    return {name: _read_attr(value) for name, value in data.items()}


def _read_attr(value: Any) -> Attr:
    if isinstance(value, list):
        return tuple(_read_attr(item) for item in value)
    if isinstance(value, dict):
        try:
            return _NON_FINITE[value["float"]]
        except (KeyError, TypeError):
            raise Bad(f"{short(value)} is not an attribute") from None
    return value  # type: ignore[no-any-return]  # JSON has nothing else


class Interned(Generic[T]):
    """Distinct entries in the order they were met, each written once."""

    def __init__(self) -> None:
        self.entries: list[T] = []
        self._numbers: dict[object, int] = {}

    def number(self, key: Any, make: Callable[[], T] | None = None) -> int:
        """The number of an entry, made from its key where it is not the key itself."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.entries)
            self.entries.append(key if make is None else make())
        return found

    def numbers(self, keys: Iterable[T]) -> list[int]:
        return [self.number(key) for key in keys]


class RowTables:
    """What rows of measured operators have in common: texts, tensors and attributes, to which their columns refer."""

    def __init__(self) -> None:
        self.texts, self.specs, self.attrs = Interned[str](), Interned[TensorSpec](), Interned[dict[str, Any]]()

    def columns(self, rows: Sequence[Any], names: Iterable[str], texts: Iterable[str]) -> dict[str, list[Any]]:
        """The rows as columns, some of them of texts."""
        found: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in names}
        for name in texts:
            found[name] = self.texts.numbers(found[name])
        for name in ("ins", "outs"):
            found[name] = list(map(self.specs.numbers, found[name]))
        written = list(map(write_attrs, found["attrs"]))
        found["attrs"] = [self.attrs.number(repr(attrs), attrs.copy) for attrs in written]
        return found


def read_columns(data: Any, texts: Iterable[str]) -> dict[str, Any]:
    """The columns of the rows of a file, with what their numbers refer to."""
    columns, specs = asdict(data.rows), read_specs(data.specs)
    tables = {**dict.fromkeys(texts, data.texts), "attrs": list(map(read_attrs, data.attrs))}
    for name, table in tables.items():
        columns[name] = entries(table, columns[name], f"rows.{name}")
    for name in ("ins", "outs"):
        columns[name] = [entries(specs, numbers, f"rows.{name}") for numbers in columns[name]]
    return columns


def entry(table: Sequence[T], number: int, where: str) -> T:
    """The entry of a table with this number."""
    if number >= len(table):
        raise Bad(f"{where} refers to entry {number} of a table of {len(table)}")
    return table[number]


def entries(table: Sequence[T], numbers: Sequence[int], where: str) -> tuple[T, ...]:
    """The same of several numbers."""
    if numbers:
        entry(table, max(numbers), where)
    return tuple(map(table.__getitem__, numbers))


# -- the file ----------------------------------------------------------------------------------------------------------


class _Head(msgspec.Struct):
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Generic[T]):
    """One kind of file: what it is called, its schema, and how its records become data."""

    noun: str
    schema: str
    again: str  # how to make such a file anew, for the hints
    form: type[Any]  # the struct that describes it
    read: Callable[[Any], T]  # from that struct; `Bad` where its parts do not fit together
    write: Callable[[T], Any] = lambda data: data  # to such a struct

    def dumps(self, data: T) -> str:
        """It as the text of such a file."""
        return json_text(self.to_dict(data), allow_nan=False, separators=(",", ":"))

    def to_dict(self, data: T) -> dict[str, Any]:
        """It as dictionaries, lists, strings and integers."""

        def plain_one(value: Any) -> object:  # of a framework's own kind of text or number, such as its version
            return str(value) if isinstance(value, str) else value.real

        plain: dict[str, Any] = msgspec.to_builtins(self.write(data), str_keys=True, enc_hook=plain_one)
        return plain

    def load(self, path: str | PathLike[str]) -> T:
        """What is saved in this file."""
        try:
            with keep_pipes():
                text = read_whole(path, LARGEST_FILE, f"saved {self.noun}").decode("utf-8")
        except UnicodeDecodeError as exc:
            raise SourceError(f"the {self.noun} {fspath(path)!r} cannot be read: {exc}") from exc
        try:
            return self.loads(text)
        except SourceError as exc:
            raise SourceError(f"{fspath(path)}: {exc.message}", hint=exc.hint) from exc

    def loads(self, text: str) -> T:
        """What is saved in this text; anything else raises `SourceError`."""
        with garbage_collector_paused():
            try:
                check_containers(text)
                # A half of a character that takes two may be part of a name, and msgspec reads none.
                halves = r"\ud" in text or r"\uD" in text
                decode = partial(msgspec.convert, parse(text)) if halves else partial(msgspec.json.decode, text)
                return self._decoded(decode)
            except (msgspec.DecodeError, ValueError) as exc:
                raise SourceError(f"this is not a saved {self.noun}: the JSON cannot be read ({exc})") from exc

    def from_dict(self, data: object) -> T:
        """What is saved in these dictionaries; anything else raises `SourceError`."""
        return self._decoded(partial(msgspec.convert, data))

    def _decoded(self, decode: Callable[..., Any]) -> T:
        try:
            schema = decode(type=_Head).schema
        except (msgspec.ValidationError, UnicodeEncodeError, RecursionError):
            hint = f"to make one: {self.again}"
            raise SourceError(f'this is not a saved {self.noun}: it has no "schema"', hint=hint) from None
        if schema != self.schema:
            raise SourceError(
                f"this file has the schema {short(schema)}, and this version of opcost reads {self.schema!r}",
                hint=f"use a newer opcost, or make the file again: {self.again}",
            )
        try:
            return self.read(decode(type=self.form))
        except (msgspec.ValidationError, UnicodeEncodeError, Bad, RecursionError) as exc:
            raise SourceError(f"this saved {self.noun} is damaged: {exc}", hint=f"make it again: {self.again}") from exc
