"""MegEngine's operators in our words, from what a profile records of them: type, parameters, shapes, element types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opcost.core.graph import Attr, TensorSpec
from opcost.core.shapes import Mismatch, Unknown
from opcost.frontends.megengine.model import SOURCES
from opcost.frontends.megengine.operators import ROWS
from opcost.frontends.megengine.operators.table import OperatorCall
from opcost.frontends.megengine.schema import plain
from opcost.frontends.nodes.meaning import Operand, Out

DTYPES = {
    "Float32": "float32", "Uint8": "uint8", "Int8": "int8", "Int16": "int16", "Int32": "int32", "IntB1": "int1",
    "IntB2": "int2", "IntB4": "int4", "Byte": "uint8", "Float16": "float16", "UintB4": "uint4", "Quantized8Asymm": "quint8",
    "QuantizedS32": "qint32", "QuantizedS8": "qint8", "Quantized4Asymm": "quint4", "QuantizedS4": "qint4",
    "QuantizedS16": "qint16", "BFloat16": "bfloat16", "Bool": "bool", "Uint16": "uint16", "QuantizedS1": "qint1",
    "Complex64": "complex64",
}  # fmt: skip
"""MegEngine's element types as its tools write them, and ours."""

_NO_WORK = (*SOURCES, "InputCallback", "OutputCallback", "ComputingGraphImpl::CallbackCaller", "DeviceTensor")
"""Operators that only hand tensors in and out."""

_FLAWS = (IndexError, KeyError, TypeError, ValueError, ArithmeticError)
"""What a translation may run into where a trace tells less than a dump."""


class Translated(NamedTuple):
    """An operator in our words, with its tensors in the order that the kind asks for."""

    kind: str
    attrs: Mapping[str, Attr]
    ins: tuple[TensorSpec, ...]
    outs: tuple[TensorSpec, ...]


def dtype_of(name: str) -> str | None:
    """Our name of an element type; a quantized one is written with its scale, as in `QuantizedS8(0.1)`."""
    found = re.match(r"\w+", name)
    return DTYPES.get(found[0]) if found else None


def translate(
    type_name: str, param: Mapping[str, Attr], ins: Sequence[TensorSpec], outs: Sequence[TensorSpec]
) -> Translated:
    """Kind, attributes and tensors; the kind is empty where the operator is not known."""
    name = plain(type_name)
    if name in _NO_WORK or type_name in _NO_WORK:
        return Translated("view", {}, tuple(ins), tuple(outs))
    row = ROWS.get(name)
    if row is None:
        return Translated("", dict(param), tuple(ins), tuple(outs))
    given = [Operand(place, spec.shape, spec.dtype) for place, spec in enumerate(ins)]
    call = OperatorCall(name, param, given, len(outs), [Out(spec.shape, spec.dtype) for spec in outs])
    try:
        kind, attrs = row.meaning(call)
        reads, results = row.read(call), row.made(call) or ()
        chosen = tuple(ins) if reads is None else tuple(ins[place] for place in reads)
        first = tuple(outs[place] for place in results)
    except (Unknown, Mismatch, *_FLAWS):
        return Translated("", dict(param), tuple(ins), tuple(outs))
    others = tuple(spec for place, spec in enumerate(outs) if place not in results)
    return Translated(kind, {**param, **attrs}, chosen, (*first, *others))
