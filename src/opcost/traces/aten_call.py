"""One call of an operator as a trace tells it: shapes and types of its inputs, and plain arguments as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from opcost.core.graph import NO_ATTRS, Attrs, TensorSpec
from opcost.core.parsing import parse
from opcost.traces.values import is_shape

DTYPES: dict[str, str] = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "bool": "bool",
    "int": "int32", "long int": "int64", "long": "int64", "long long": "int64", "short": "int16", "short int": "int16",
    "signed char": "int8", "char": "int8", "unsigned char": "uint8", "unsigned short": "uint16", "unsigned int": "uint32",
    "unsigned long": "uint64", "__int64": "int64",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2", "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
    "c10::Float8_e5m2fnuz": "float8_e5m2fnuz", "c10::Float8_e8m0fnu": "float8_e8m0fnu",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::complex<c10::Half>": "complex32",
    "c10::qint8": "qint8", "c10::quint8": "quint8", "c10::qint32": "qint32",
}  # fmt: skip
"""The C++ names of element types, as the profiler writes them."""


class Meaning(NamedTuple):
    """An operator in our words; without results, only its kind and its tensors are known, or the latter alone."""

    kind: str
    ins: tuple[TensorSpec, ...]
    outs: tuple[TensorSpec, ...] = ()
    attrs: Attrs = NO_ATTRS


Argument: TypeAlias = "TensorSpec | None"
Translator: TypeAlias = Callable[[list[Argument], list[str]], "Meaning"]


def arguments_of(dims: bytes, types: bytes) -> list[Argument]:
    """Each argument's tensor, None where it is none; lists of tensors are spread out, their type is not recorded."""
    try:
        shapes, names = _parsed(dims), _parsed(types)
    except ValueError:
        return []
    if not isinstance(shapes, list) or not isinstance(names, list):
        return []
    found: list[Argument] = []
    for place, shape in enumerate(shapes):
        word = str(names[place]) if place < len(names) else ""
        if not isinstance(shape, list):
            found.append(None)
        elif shape and isinstance(shape[0], list):
            found.extend(TensorSpec(tuple(each), "") for each in shape if _is_shape(each))
        elif not _is_shape(shape):
            found.append(None)
        elif shape or word in DTYPES:
            found.append(TensorSpec(tuple(shape), DTYPES.get(word, "")))
        else:
            found.append(None)
    return found


def _parsed(written: bytes) -> Any:
    """What the trace spells; whatever is wrong with it is a ValueError."""
    return parse(written.decode("utf-8")) if written else []


def _is_shape(shape: object) -> bool:
    return is_shape(shape) and min(shape, default=0) >= 0  # type: ignore[call-overload]


def values_of(concrete: bytes) -> list[str]:
    """Plain arguments as the trace writes them, empty for tensors."""
    found = _parsed(concrete)
    return found if isinstance(found, list) else []


def tensor(arguments: list[Argument], place: int) -> TensorSpec:
    """The tensor at a place; a `ValueError` where there is none, which leaves the operator without a meaning."""
    found = arguments[place]
    if found is None:
        raise ValueError("no tensor stands here")
    return found


def numbers(values: list[str], place: int, rank: int) -> list[int]:
    """A list argument such as "[2, 2]"; one number stands for all axes."""
    found = parse(values[place])
    numbers = found if isinstance(found, list) else [found]
    return numbers * rank if len(numbers) == 1 else numbers


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what two tensors make together."""
    length = max(len(a), len(b))
    padded = zip((1,) * (length - len(a)) + a, (1,) * (length - len(b)) + b, strict=True)
    return tuple(n if m == 1 else m for m, n in padded)


class Told(NamedTuple):
    """What a name alone tells, its kind, and how the rest is read."""

    kind: str
    translate: Translator


def of(kind: str, table: Mapping[str, Translator]) -> dict[str, Told]:
    """Operators of one kind, by their names in the `aten` library."""
    return {f"aten::{name}": Told(kind, translate) for name, translate in table.items()}
