"""The parameters of operators as the file stores them: which table holds which fields, in the order of their slots.

`format.json` lists the tables. A field is written `name:type=default`; types are u (uint32), i (int32), q (uint64), f, d
(floats), b (bool), t (element type) and the name of an enumeration. Enumerations travel as uint32 and are shown by name.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple

from opcost.core.graph import Attr
from opcost.core.resources import table as packaged
from opcost.frontends.flatbuffer import F32, F64, I8, I32, U8, U32, U64, Table
from opcost.frontends.megengine.dtypes import name_of, read_dtype

FORMAT: dict[str, Any] = packaged(__package__, "format.json")
"""What MegEngine 1.13 writes: the members of enumerations, the fields of tables, the names of operators."""
ENUMS: dict[str, tuple[str, ...]] = {name: tuple(members) for name, members in FORMAT["enumerations"].items()}
NO_AXIS = 2147483647
"""Stands where an axis is not given (Reduce, Cumsum)."""

_TABLES: dict[int, tuple[str, list[str]]] = {
    int(tag): (name, fields) for tag, (name, *fields) in FORMAT["tables"].items()
}
"""Tables with plain fields by their tag in the union; the others have functions of their own below."""

_DIMSHUFFLE, _AXIS_ADD_REMOVE, _INDEX_MASK, _SERIALIZED_DTYPE = 64, 65, 66, 67
_MODIFY_ADD, _MODIFY_REMOVE = "add", "remove"


class Param(NamedTuple):
    """The parameters of an operator: the table's name and its fields."""

    table: str
    fields: dict[str, Attr]


class _Field(NamedTuple):
    name: str
    form: struct.Struct
    default: float
    members: tuple[str, ...] | None
    kind: str


_FORMS = {"u": U32, "i": I32, "q": U64, "f": F32, "d": F64, "b": U8, "t": I8}


@cache
def _fields(tag: int) -> tuple[_Field, ...]:
    found = []
    for text in _TABLES[tag][1]:
        name, _, rest = text.partition(":")
        kind, _, default = rest.partition("=")
        members = ENUMS.get(kind)
        number = float(default) if kind in ("f", "d") else int(default)
        found.append(_Field(name, U32 if members else _FORMS[kind], number, members, kind))
    return tuple(found)


def read_param(tag: int, table: Table) -> Param:
    """The fields of a parameter table; a table that is not known has none, and its name says which it was."""
    if tag == _DIMSHUFFLE:
        return Param("Dimshuffle", {"pattern": table.numbers(0, "i", 4), "ndim": table.number(1, U32)})
    if tag == _AXIS_ADD_REMOVE:
        return Param("AxisAddRemove", {"desc": _axis_changes(table)})
    if tag == _INDEX_MASK:
        return Param("IndexDescMaskDump", {"items": _index_masks(table)})
    if tag == _SERIALIZED_DTYPE:
        found = read_dtype(table)
        return Param("DType", {"dtype": found.name, "scale": found.scale} if found else {})
    if tag not in _TABLES:
        return Param(f"tag{tag}", {})
    return Param(_TABLES[tag][0], {field.name: _value(field, slot, table) for slot, field in enumerate(_fields(tag))})


def _value(field: _Field, slot: int, table: Table) -> Attr:
    if field.kind in ("f", "d"):
        return table.real(slot, field.form, field.default)
    number = table.number(slot, field.form, int(field.default))
    if field.members is not None:
        return field.members[number] if number < len(field.members) else f"mode{number}"
    if field.kind == "b":
        return number != 0
    return name_of(number, table) if field.kind == "t" else number


def _axis_changes(table: Table) -> tuple[tuple[str, int], ...]:
    """Axes that are added or removed one after the other: structs of a method, three bytes of padding and an axis."""
    found = table.vector(0, 8)
    if found is None:
        return ()
    at, count = found
    buffer = table.buffer
    return tuple(
        (_MODIFY_REMOVE if buffer.number(I8, at + 8 * i) else _MODIFY_ADD, buffer.number(I32, at + 8 * i + 4))
        for i in range(count)
    )


_MASK = struct.Struct("<b4B")


def _index_masks(table: Table) -> tuple[tuple[int, bool, bool, bool, bool], ...]:
    """For each indexed axis: the axis, and whether begin, end, step and an index come as inputs."""
    found = table.vector(0, 5)
    if found is None:
        return ()
    at, count = found
    buffer = table.buffer
    masks = []
    for start in range(at, at + 5 * count, 5):
        axis, begin, end, step, index = buffer.data.unpack(_MASK, buffer.check(start, 5))
        masks.append((axis, begin != 0, end != 0, step != 0, index != 0))
    return tuple(masks)
