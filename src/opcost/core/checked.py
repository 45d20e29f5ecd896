"""Fields of a saved file, each checked to be what it must be, so that a damaged or hostile file is one clear error."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal, TypeVar, overload

from opcost.core.cost import Cost
from opcost.core.graph import Attr, TensorSpec

COST_FIELDS = ("macs", "flops", "bytes_read", "bytes_written")

LARGEST = 2**128
"""No count of a real model comes near this; a larger one is damage, and could take for ever to print."""

MOST_AXES = 64

_NON_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}

T = TypeVar("T")


class Bad(Exception):
    """Something in the file is not what the schema says; the text names it."""


def read_spec(entry: object) -> TensorSpec:
    """A tensor."""
    data = instance(entry, dict)
    extents = get(data, "shape", list, optional=True)
    shape = None if extents is None else tuple(None if extent is None else count_of(extent) for extent in extents)
    if (shape is not None and prod(extent or 1 for extent in shape[:MOST_AXES]) > LARGEST) or len(
        shape or ()
    ) > MOST_AXES:
        raise Bad(f"{short(extents)} is not a shape")
    return TensorSpec(shape, get(data, "dtype", str))


def read_cost(data: dict[str, Any]) -> Cost:
    """A cost."""
    return Cost(*(count_of(get(data, name, int)) for name in COST_FIELDS))


def read_attr(value: object) -> Attr:
    """An attribute."""
    if isinstance(value, list):
        return tuple(read_attr(item) for item in value)
    if isinstance(value, dict):
        return _NON_FINITE[one_of(value.get("float"), tuple(_NON_FINITE))]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise Bad(f"{value!r} is not an attribute")


def instance(value: object, kind: type[T]) -> T:
    """The value, if it is of this type."""
    if not _is(value, kind):
        raise Bad(f"{short(value)} stands where {_WORDS[kind]} belongs")
    return value  # type: ignore[return-value]


@overload
def get(data: object, name: str, kind: type[T]) -> T: ...
@overload
def get(data: object, name: str, kind: type[T], *, optional: Literal[True]) -> T | None: ...
def get(data: object, name: str, kind: type[T], *, optional: bool = False) -> T | None:
    """The field of this name; an optional one may be null, but never be missing."""
    entries: Mapping[str, object] = instance(data, dict)
    if name not in entries:
        raise Bad(f"the field {name!r} is missing")
    value = entries[name]
    if value is None and optional:
        return None
    if not _is(value, kind):
        raise Bad(f"the field {name!r} holds {short(value)}, not {_WORDS[kind]}")
    return value  # type: ignore[return-value]


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def objects(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The field of this name, a list of objects."""
    return [instance(entry, dict) for entry in get(data, name, list)]


def columns_of(data: dict[str, Any], what: str, names: tuple[str, ...]) -> list[list[Any]]:
    """The fields of these names, lists of one length."""
    columns = [get(data, name, list) for name in names]
    if len({len(column) for column in columns}) > 1:
        raise Bad(f"the columns of {what!r} differ in length")
    return columns


def count_of(value: object) -> int:
    """A count: an integer from nought on."""
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise Bad(f"{short(value)} stands where a count belongs")
    return value


def counts_of(value: object) -> tuple[int, ...]:
    """A list of counts."""
    return tuple(count_of(item) for item in instance(value, list))


def text_of(value: object) -> str:
    """A text."""
    return instance(value, str)


def texts_of(values: list[Any]) -> tuple[str, ...]:
    """Several texts."""
    return tuple(text_of(value) for value in values)


def one_of(value: object, known: tuple[Any, ...]) -> Any:
    """A value among the known ones."""
    if value not in known:
        raise Bad(f"{short(value)} stands where one of {', '.join(map(str, known))} belongs")
    return value


def pick(table: list[T] | tuple[T, ...], number: object) -> T:
    """The entry of a table with this number."""
    if type(number) is not int or not 0 <= number < len(table):
        raise Bad(f"{short(number)} is not the number of an entry of a table of {len(table)}")
    return table[number]


def pick_all(table: list[T], numbers: object) -> tuple[T, ...]:
    """The entries of a table with these numbers."""
    return tuple(pick(table, number) for number in instance(numbers, list))


def short(value: object) -> str:
    """The value as text that fits into a message."""
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


_WORDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "an integer",
    bool: "true or false",
}
