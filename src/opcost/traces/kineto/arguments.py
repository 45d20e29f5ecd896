"""The arguments of an operator call as the profiler writes them, read by a schema.

The profiler writes shapes, types and, of numbers and short lists of numbers, the values. Texts, lists of tensors that may be
absent and long lists are not written; nor are the element types in a list of tensors. What is not written is not told.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from opcost.core.parsing import parse
from opcost.frontends.aten.schema import Argument, Schema
from opcost.frontends.aten.tensor import Described, Tensor
from opcost.frontends.aten.told import UNTOLD, NotTold, Unplaced
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

SCALAR_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 8: "complex32",
    9: "complex64", 10: "complex128", 11: "bool", 12: "qint8", 13: "quint8", 14: "qint32", 15: "bfloat16",
    23: "float8_e5m2", 24: "float8_e4m3fn", 25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz", 27: "uint16", 28: "uint32",
    29: "uint64", 44: "float8_e8m0fnu",
}  # fmt: skip
"""Element types by the number under which PyTorch passes them."""

TENSOR, TENSORS, NUMBER, NUMBERS, NOTHING, UNSURE = range(6)
"""What stands in the place of an argument; nothing is None, or what the profiler does not write. Where it writes no values
at all, it is not sure either that there was no list."""

_WRITTEN = {"TensorList": TENSORS, "Scalar": NUMBER, "ScalarList": NUMBERS, "": NOTHING}
_TYPE = re.compile(r"([\w.]+)(?:\([^()]*\))?(\?)?(\[\d*\])?(\?)?$")
_UNWRITTEN = frozenset({"str", "Device", "Generator", "Stream", "Storage"})
_INTEGER = re.compile(r"-?\d{1,19}$")
_TRUTHS = ("True", "False")

_MODES = {"rounding_mode": "floor"}
"""Texts that are not written and still taken for known: all that round cost the same, and who writes `rounding_mode` wants one
of them, though it may be None."""
_TAKES_NUMBERS = frozenset(
    f"aten::{name}" for name in "add sub subtract mul multiply div divide true_divide floor_divide".split()
)
"""Operators to which a program may give a number in the place of the second tensor."""
_NUMBERS = {"int64": 0, "float64": 0.0, "complex128": 0j}
"""As what such a number reaches the profiler: a tensor without axes of the widest type of its category."""
_ONE_TYPE = frozenset(
    f"aten::{name}"
    for name in "lstm gru rnn_tanh rnn_relu lstm_cell _cudnn_rnn _cudnn_rnn_backward miopen_rnn miopen_rnn_backward".split()
)
"""Operators whose tensors are all of one type, those in lists too."""


class Entry(NamedTuple):
    """What the trace says about one argument."""

    holds: int
    tensors: tuple[Tensor, ...] = ()
    text: str = ""


def entries_of(dims: bytes, types: bytes, concrete: bytes, strides: bytes) -> list[Entry]:
    """The arguments in order; nothing where the trace has no shapes, or they are damaged."""
    try:
        shapes, names, values, steps = (
            parse(part.decode("utf-8")) if part else [] for part in (dims, types, concrete, strides)
        )
    except ValueError:
        return []
    if not all(isinstance(part, list) for part in (shapes, names, values, steps)):
        return []
    found = [_entry(shape, _at(names, i), _at(values, i), _at(steps, i)) for i, shape in enumerate(shapes)]
    return found if values else [Entry(UNSURE) if entry.holds == NOTHING else entry for entry in found]


def _at(part: list[Any], place: int) -> Any:
    return part[place] if place < len(part) else ""


def _entry(shape: Any, name: Any, value: Any, steps: Any) -> Entry:
    if not isinstance(shape, list):
        return Entry(NOTHING)
    word = name if isinstance(name, str) else str(name)
    if shape and isinstance(shape[0], list):
        listed = steps if isinstance(steps, list) and len(steps) == len(shape) else [None] * len(shape)
        found = (_tensor(each, "", by) for each, by in zip(shape, listed, strict=True))
        return Entry(TENSORS, tuple(each for each in found if each is not None))
    if word in DTYPES or (shape and word not in _WRITTEN):
        tensor = _tensor(shape, DTYPES.get(word, ""), steps)
        return Entry(NOTHING) if tensor is None else Entry(TENSOR, (tensor,))
    return Entry(_WRITTEN.get(word, NUMBER), text=value if isinstance(value, str) else "")


def _tensor(shape: Any, dtype: str, strides: Any) -> Tensor | None:
    if not is_shape(shape) or min(shape, default=0) < 0:
        return None
    extents = tuple(shape)
    placed = isinstance(strides, list) and len(strides) == len(extents) and all(type(step) is int for step in strides)
    return Described(extents, tuple(strides), dtype) if placed else Unplaced(extents, dtype)


class Wanted(NamedTuple):
    """What a schema wants in one place."""

    base: str
    several: bool
    optional: bool
    has_gaps: bool
    """It is a list of tensors that may be absent."""


@cache
def wanted(type_text: str) -> Wanted:
    """A type such as `SymInt[2]?` or `Tensor(a!)[]`, taken apart."""
    found = _TYPE.match(type_text)
    if found is None:
        raise NotTold(type_text)
    base, first, several, last = found.groups()
    return Wanted(base, bool(several), bool(last or (first and not several)), bool(first and several))


def named(schema: Schema, entries: list[Entry]) -> dict[str, Any] | None:
    """The arguments by name; None where these are not the arguments of this overload."""
    found: dict[str, Any] = {}
    for argument, entry in zip(schema.arguments, entries, strict=True):
        want = wanted(argument.type)
        if not _fits(want, entry):
            return None
        found[argument.name] = _value(schema, argument, want, entry)
    if schema.name in _ONE_TYPE:
        _share_type(found)
    return found


def _fits(want: Wanted, entry: Entry) -> bool:
    """Whether what was written may stand for an argument of this type."""
    if entry.holds in (NOTHING, UNSURE):
        nothing = (
            want.optional or want.has_gaps or want.base in _UNWRITTEN or (want.base == "Tensor" and not want.several)
        )
        return nothing or (want.several and entry.holds == UNSURE)
    if want.base == "Tensor":
        return entry.holds == (TENSORS if want.several else TENSOR) and not want.has_gaps
    if want.base in _UNWRITTEN or entry.holds != (NUMBERS if want.several else NUMBER):
        return False
    return want.several or not entry.text or _is_of(want.base, entry.text)


def _is_of(base: str, text: str) -> bool:
    """Whether a number may be of this type; a truth is a number only by name, and only some types hold fractions."""
    if text in _TRUTHS:
        return base in ("bool", "Scalar")
    return base != "bool" and (base in ("Scalar", "float") or _INTEGER.match(text) is not None)


def _value(schema: Schema, argument: Argument, want: Wanted, entry: Entry) -> Any:
    if entry.holds == TENSOR:
        return _perhaps_number(schema, argument, entry.tensors[0])
    if entry.holds == TENSORS:
        return list(entry.tensors)
    if entry.holds in (NOTHING, UNSURE):
        return _MODES.get(argument.name, None if _is_absent(want, entry) else UNTOLD)
    if not entry.text:
        return UNTOLD
    if entry.holds == NUMBERS:
        return [_number(text) for text in entry.text.strip("[]").split(", ") if text]
    number = _number(entry.text)
    return SCALAR_TYPES.get(number, UNTOLD) if want.base == "ScalarType" else number


def _is_absent(want: Wanted, entry: Entry) -> bool:
    """Whether nothing was given: it is not only something that the profiler does not write."""
    if want.several:
        return want.optional and entry.holds == NOTHING
    return want.base == "Tensor" or (want.optional and want.base != "str")


def _perhaps_number(schema: Schema, argument: Argument, tensor: Tensor) -> Any:
    """A tensor, or the number that it was made of."""
    takes_numbers = schema.name.removesuffix("_") in _TAKES_NUMBERS and argument.name == "other"
    return _NUMBERS.get(tensor.dtype, tensor) if takes_numbers and not tensor.dim() else tensor


def _number(text: str) -> Any:
    if text in _TRUTHS:
        return text == "True"
    try:
        return int(text) if _INTEGER.match(text) else float(text)
    except ValueError:
        return UNTOLD


def _share_type(arguments: dict[str, Any]) -> None:
    """Give the tensors in lists the type of the first argument."""
    first = next(iter(arguments.values()))
    if not isinstance(first, Tensor):
        raise NotTold("the type of tensors in lists")
    for value in arguments.values():
        if isinstance(value, list):
            for tensor in value:
                if isinstance(tensor, Tensor):
                    tensor.dtype = first.dtype
