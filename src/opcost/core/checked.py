"""Fields of a saved file, each checked to be what it must be, so that a damaged or hostile file is one clear error."""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import Repr
from typing import Any, Literal, TypeVar, overload

LARGEST = 2**128  # no count of a real model comes near this; a larger one is damage, and could take for ever to print

T = TypeVar("T")


class Bad(Exception):
    """Something in the file is not what the schema says; the text names it."""


def instance(value: object, kind: type[T]) -> T:
    """The value, if it is of this type."""
    if not _is(value, kind):
        raise Bad(f"{short(value)} is not {_WORDS[kind]}")
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


def short(value: object) -> str:
    """The value as text that fits into a message; of what is large or nested only a part is looked at."""
    text = _SHORT.repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 4, 60, 60, 60
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = _SHORT.maxfrozenset = 12
_WORDS: dict[type, str] = {dict: "an object", list: "a list", str: "a text", int: "an integer", bool: "true or false"}
