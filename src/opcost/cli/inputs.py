"""What is typed on the command line about the model's inputs and arguments, as data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import NamedTuple

from opcost.core.dtype import BITS
from opcost.errors import InputError, UnknownName
from opcost.wording import shortened

ALIASES = {
    "fp16": "float16", "half": "float16", "f16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32", "float": "float32", "f32": "float32",
    "fp64": "float64", "double": "float64", "f64": "float64",
    "long": "int64", "i64": "int64", "int": "int32", "i32": "int32", "short": "int16",
}  # fmt: skip
"""Short names that people type for element types."""

GRAMMAR = "write [name:]SIZExSIZE...[:type], such as 1x3x224x224, input_ids:1x128:int64 or scalar:float32"
_SHAPE = re.compile(r"\d+(?:[x×,]\d+)*|scalar")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_DIMENSIONS = 64
"""PyTorch indexes no more of them."""
_DIGITS = 18
"""More of them are more than a signed 64-bit number holds."""


class InputSpec(NamedTuple):
    """One `--input`: a shape, and a name and an element type where they were given."""

    shape: tuple[int, ...]
    name: str = ""
    dtype: str = ""


def parse_input(text: str) -> InputSpec:
    """One input from `[name:]1x3x224x224[:float16]`; `scalar` stands for the empty shape."""
    fields = text.strip().split(":")
    at = next((i for i, part in enumerate(fields) if _SHAPE.fullmatch(part)), None)
    if at is None or at > 1 or len(fields) - at > 2:
        raise InputError(f"--input {shortened(repr(text))} is not understood", hint=GRAMMAR)
    name = fields[0] if at else ""
    if at and not _NAME.fullmatch(name):
        raise InputError(
            f"--input {shortened(repr(text))}: {shortened(repr(name))} cannot be the name of an argument", hint=GRAMMAR
        )
    sizes = [] if fields[at] == "scalar" else re.split("[x×,]", fields[at])
    if len(sizes) > _DIMENSIONS:
        raise InputError(f"--input {shortened(repr(text))}: no tensor has {len(sizes):,} dimensions")
    for size in sizes:
        if len(size.lstrip("0")) > _DIGITS:
            raise InputError(f"--input {shortened(repr(text))}: no tensor has a size of {len(size):,} digits")
    shape = tuple(int(size.lstrip("0") or "0") for size in sizes)
    return InputSpec(shape, name, parse_dtype(fields[at + 1]) if len(fields) > at + 1 else "")


def parse_dtype(name: str) -> str:
    """An element type by its name or a short name."""
    name = ALIASES.get(name, name)
    if name not in BITS:
        raise UnknownName("element type", name, (*BITS, *ALIASES))
    return name


def parse_settings(pairs: Iterable[str], option: str) -> dict[str, object]:
    """`name=value` pairs; a value is a Python literal where it is one, else the text itself."""
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not all(part.isidentifier() for part in name.split(".")):
            raise InputError(f"{option} {shortened(repr(pair))} is not understood", hint=f"write {option} name=value")
        if name in settings:
            raise InputError(f"{option} gives {shortened(name)} twice")
        settings[name] = _literal(value)
    return settings


def _literal(text: str) -> object:
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
