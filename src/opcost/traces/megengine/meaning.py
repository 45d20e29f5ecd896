"""MegEngine's operators in our words, from what a profile records of them: type, parameters, shapes, element types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opcost.core.graph import Attr, TensorSpec
from opcost.core.shapes import Mismatch, Unknown
from opcost.frontends.megengine.model import SOURCES, Operator
from opcost.frontends.megengine.names import plain
from opcost.frontends.megengine.node import Node
from opcost.frontends.megengine.operators import rules
from opcost.frontends.megengine.params import Param

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
    rule = rules().get(name)
    if rule is None:
        return Translated("", dict(param), tuple(ins), tuple(outs))
    op = Operator(0, name, "", Param(name, dict(param)), tuple(range(len(ins))), tuple(range(len(outs))), ())
    node = Node(op, [spec.shape for spec in ins], [spec.dtype for spec in ins] or ["float32"], [None] * len(ins))
    node.out_shapes = [spec.shape for spec in outs]
    node.out_dtypes = [spec.dtype for spec in outs]
    try:
        meaning = rule.meaning(node)
        chosen = tuple(ins) if meaning.inputs is None else tuple(ins[place] for place in meaning.inputs)
        first = tuple(outs[place] for place in meaning.outputs or ())
    except (Unknown, Mismatch, *_FLAWS):
        return Translated("", dict(param), tuple(ins), tuple(outs))
    others = tuple(spec for place, spec in enumerate(outs) if place not in (meaning.outputs or ()))
    return Translated(meaning.kind, {**param, **meaning.attrs}, chosen, (*first, *others))
