"""What a prompt and a debugger show of our objects: one short line, however much stands behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from itertools import islice
from typing import Any, TypeVar

from opcost.core.harmless import printable

T_co = TypeVar("T_co", covariant=True)

SHORT = 180
"""Characters of one object."""
SHORT_VALUE = 48
"""Characters of one of its fields."""
FEW = 3
"""Items of a sequence that are shown."""


def brief(thing: object, said: Iterable[str], name: str = "") -> str:
    """`<Report resnet50: 25.56 M params, 4.09 G MACs>`: the kind of object, its name, and what there is to say of it."""
    told = ", ".join(word for word in said if word)
    head = f"{type(thing).__name__} {_cut(printable(name), SHORT_VALUE)}".rstrip()
    return f"<{_cut(f'{head}: {printable(told)}' if told else head, SHORT)}>"


def brief_record(thing: Any) -> str:
    """`ProfileRow(id=3, name='conv1', …)`: those fields of a record that are not what they usually are."""
    shown = [f"{name}={_value(value)}" for name, value, usual in _fields(thing) if not _same(value, usual)]
    return f"{type(thing).__name__}({_cut(', '.join(shown), SHORT)})"


class Listed(tuple[T_co, ...]):
    """A tuple of which a prompt shows the first items and how many follow."""

    __slots__ = ()

    def __repr__(self) -> str:
        return brief_sequence(self)


def brief_sequence(items: Sequence[Any]) -> str:
    """The first items of a sequence, and how many more there are."""
    shown = [repr(item) for item in islice(items, FEW)]
    if len(items) > FEW:
        shown.append(f"... {len(items) - FEW:,} more")
    return f"({', '.join(shown)}{',' if len(items) == 1 else ''})"


def _fields(thing: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, value and usual value of each field of a named tuple or a dataclass."""
    if isinstance(thing, tuple):
        usual = thing._field_defaults  # type: ignore[attr-defined]
        yield from ((name, getattr(thing, name), usual.get(name, MISSING)) for name in thing._fields)  # type: ignore[attr-defined]
        return
    for field in fields(thing):
        if field.repr:
            made = field.default_factory
            yield field.name, getattr(thing, field.name), field.default if made is MISSING else made()


def _same(value: Any, usual: Any) -> bool:
    return type(value) is type(usual) and bool(value == usual)


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
