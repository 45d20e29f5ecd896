"""MegEngine's element types and ours."""

from __future__ import annotations

from typing import NamedTuple

from opcost.frontends.flatbuffer import F32, I8, U8, Table

NAMES = (
    "float32", "uint8", "int8", "int16", "int32", "int1", "int2", "int4", "uint8", "float16", "uint4", "quint8",
    "qint32", "qint8", "quint4", "qint4", "qint16", "bfloat16", "bool", "uint16", "qint1", "complex64",
)  # fmt: skip
"""In the order of MegEngine's enumeration; `Byte` is read as uint8."""

QUANTIZED = frozenset(name for name in NAMES if name.startswith("q"))
FLOATING = frozenset(("float32", "float16", "bfloat16", "complex64"))


class DType(NamedTuple):
    """An element type; a quantized one has the scale (and zero point) by which numbers are stored."""

    name: str
    scale: float | None = None
    zero_point: int | None = None


def read_dtype(table: Table | None) -> DType | None:
    """The type that a DType table describes."""
    if table is None:
        return None
    name = name_of(table.number(0, I8), table)
    linear = table.table(2) if table.number(1, U8) == 1 else None
    if linear is None or name not in QUANTIZED:
        return DType(name)
    zero_point = linear.number(1, U8) if name.startswith("quint") else None
    return DType(name, linear.real(0, F32, 0.0), zero_point)


def name_of(number: int, table: Table) -> str:
    """Our name of the type with this number."""
    if not 0 <= number < len(NAMES):
        raise table.buffer.broken(f"an element type of number {number} does not exist", table.at)
    return NAMES[number]
