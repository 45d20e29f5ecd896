"""The element type of what tensors and numbers of several types make together, as PyTorch decides it."""

from __future__ import annotations

from opcost.core.graph import BITS, COMPLEX
from opcost.frontends.aten.call import Tensor, type_name

_BOOL, _INTEGER, _REAL, _COMPLEX = range(4)
_DEFAULTS = {_BOOL: "bool", _INTEGER: "int64", _REAL: "float32", _COMPLEX: "complex64"}
"""The type that a number brings with it where no tensor is of its category."""
_SMALL_FLOATS = frozenset({"float16", "bfloat16"})


def promoted(*operands: Tensor | complex | None) -> str:
    """The common type: tensors with axes decide, then those without, then numbers, each only by a higher category."""
    ranks: list[list[str]] = [[], [], []]
    for operand in operands:
        if isinstance(operand, Tensor):
            ranks[0 if operand.dim() else 1].append(type_name(operand))
        elif operand is not None:
            ranks[2].append(_DEFAULTS[_category_of_number(operand)])
    found = ""
    for types in ranks:
        for dtype in types:
            if not found or types is ranks[0] or (types is ranks[1] and not ranks[0]):
                found = _common(found, dtype) if found else dtype
            elif _category(dtype) > _category(found):
                found = complex_of(found) if dtype in COMPLEX and not is_integer(found) else dtype
    return found


def floating(dtype: str) -> str:
    """The type of a function's values that are no integers."""
    return dtype if _category(dtype) >= _REAL else _DEFAULTS[_REAL]


def real_of(dtype: str) -> str:
    """The type of one part of a complex number; others stay what they are."""
    return f"float{BITS[dtype] // 2}" if dtype in COMPLEX else dtype


def complex_of(dtype: str) -> str:
    """The complex type whose parts hold this type; no parts are as coarse as those of `bfloat16`."""
    parts = "float32" if dtype == "bfloat16" else floating(dtype)
    return dtype if dtype in COMPLEX else f"complex{2 * BITS[parts]}"


def summed(dtype: str) -> str:
    """The type of a sum: integers are added up in the largest type."""
    return "int64" if _category(dtype) <= _INTEGER else dtype


def is_integer(dtype: str) -> bool:
    """Whether no value of this type has a fraction; truths have none."""
    return _category(dtype) <= _INTEGER


def _category(dtype: str) -> int:
    if dtype == "bool":
        return _BOOL
    if dtype in COMPLEX:
        return _COMPLEX
    return _INTEGER if dtype.startswith(("int", "uint")) else _REAL


def _category_of_number(number: complex) -> int:
    if isinstance(number, bool):
        return _BOOL
    return _INTEGER if isinstance(number, int) else _REAL if isinstance(number, float) else _COMPLEX


def _common(a: str, b: str) -> str:
    """The smallest type that holds both."""
    if _category(a) != _category(b):
        low, high = sorted((a, b), key=_category)
        if high in COMPLEX and _category(low) == _REAL:
            return max(complex_of(low), high, key=BITS.__getitem__)
        return high
    if a == b:
        return a
    if {a, b} == _SMALL_FLOATS:
        return "float32"
    if "uint8" in (a, b) and BITS[a] == BITS[b]:
        return "int16"
    return max(a, b, key=BITS.__getitem__)
