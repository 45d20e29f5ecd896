"""What PyTorch's profiler writes of an operator call, made without running the profiler; a test holds it against the real one."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import torch

SCALAR_TYPES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
    torch.float64: 7, torch.complex32: 8, torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.qint8: 12,
    torch.quint8: 13, torch.qint32: 14, torch.bfloat16: 15,
}  # fmt: skip
C_TYPES = {
    torch.float32: "float", torch.float64: "double", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16",
    torch.bool: "bool", torch.uint8: "unsigned char", torch.int8: "signed char", torch.int16: "short int",
    torch.int32: "int", torch.int64: "long int", torch.complex32: "c10::complex<c10::Half>",
    torch.complex64: "c10::complex<float>", torch.complex128: "c10::complex<double>", torch.qint8: "c10::qint8",
    torch.quint8: "c10::quint8", torch.qint32: "c10::qint32",
}  # fmt: skip
FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2, torch.channels_last_3d: 3}
NUMBERS = {bool: "bool", int: "long int", float: "double", complex: "c10::complex<double>"}
"""A number in the place of a tensor is made one without axes."""
LONGEST_LIST = 30


class Written(NamedTuple):
    """The four lists of an event; each has an entry for every argument of the schema."""

    dims: list[Any]
    types: list[str]
    concrete: list[str]
    strides: list[Any]

    def spelled(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The lists as JSON, as they stand in a trace."""
        dims, types, concrete, strides = (json.dumps(part).encode() for part in self)
        return dims, types, concrete, strides


def event_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Written:
    """The event of one call of an operator overload."""
    written = Written([], [], [], [])
    for place, argument in enumerate(func._schema.arguments):
        default = argument.default_value if argument.has_default_value() else None
        value = args[place] if place < len(args) else kwargs.get(argument.name, default)
        for part, entry in zip(written, _entry(value, str(argument.type)), strict=True):
            part.append(entry)
    return written


def _entry(value: Any, kind: str) -> tuple[Any, str, str, Any]:
    """Shape, type, text and strides of one argument."""
    if isinstance(value, torch.Tensor):
        strides = list(value.stride()) if value.layout is torch.strided else []
        return list(value.shape), C_TYPES[value.dtype], "", strides
    if kind in ("Tensor", "Optional[Tensor]") and type(value) in NUMBERS:
        return [], NUMBERS[type(value)], "", []
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, torch.Tensor) for item in value) and "Optional" not in kind:
            return [list(item.shape) for item in value], "TensorList", "", [list(item.stride()) for item in value]
        if len(value) <= LONGEST_LIST and all(isinstance(item, (int, float)) for item in value):
            return [], "ScalarList", "[" + ", ".join(map(_text, value)) + "]", []
        return [], "", "", []
    text = _text(value)
    return [], "Scalar" if text else "", text, []


def _text(value: Any) -> str:
    """A number in words; nothing for what the profiler does not write: texts, devices, generators."""
    if isinstance(value, float):
        return f"{value:g}." if value.is_integer() else f"{value:.17g}"
    if isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, torch.dtype):
        return str(SCALAR_TYPES[value])
    if isinstance(value, torch.memory_format):
        return str(FORMATS[value])
    return "0" if value is torch.strided else ""
