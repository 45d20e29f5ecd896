"""Element types by name, and their exact size in bits."""

from __future__ import annotations

from opcost.errors import OpcostError

BITS: dict[str, int] = {
    "bool": 8,
    "uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint5": 5, "uint6": 6, "uint7": 7,
    "int1": 1, "int2": 2, "int3": 3, "int4": 4, "int5": 5, "int6": 6, "int7": 7,
    "bits8": 8, "bits16": 16, "bits32": 32, "bits64": 64, "bits128": 128,  # of which only the size is known
    "uint8": 8, "int8": 8, "uint16": 16, "int16": 16, "uint32": 32, "int32": 32, "uint64": 64, "int64": 64,
    "float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6,
    "float4_e2m1fn_x2": 8,  # torch packs two values into one element; the element is what is counted
    "float8_e4m3fn": 8, "float8_e5m2": 8, "float8_e4m3fnuz": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8,
    "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64,
    "complex32": 32, "complex64": 64, "complex128": 128,
    "qint8": 8, "quint8": 8, "qint32": 32, "quint4x2": 4, "quint2x4": 2,
    "qint1": 1, "qint4": 4, "quint4": 4, "qint16": 16,
}  # fmt: skip
"""Bits of one element. A type that is not listed is an error, never a silent four bytes."""

INTEGER = frozenset(name for name in BITS if name.lstrip("q").startswith(("uint", "int", "bool")))
COMPLEX = frozenset(name for name in BITS if name.startswith("complex"))


def bits(dtype: str) -> int:
    """Bits of one element of this type."""
    try:
        return BITS[dtype]
    except KeyError:
        raise OpcostError(f"element type {dtype!r} is not known, so its bytes cannot be counted") from None


def nbytes(numel: int, dtype: str) -> int:
    """Bytes of so many elements; types smaller than a byte are packed, the last byte rounded up."""
    return (numel * bits(dtype) + 7) // 8
