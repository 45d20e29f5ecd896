"""A model as data: graphs of nodes whose values have names, tensors of which only small ones have content, and what is declared.

The readers of formats that hold such graphs make these; the walk over them is the same for all.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from opcost.core.shapes import Shape

MOST_CONTENT = 4096
"""Elements of a tensor whose content is read: shapes, axes, scales, and tables of such."""
MOST_AXES = 64
MOST_DEPTH = 32
"""Graphs inside graphs."""

Number: TypeAlias = "int | float | bool | None"


class Content:
    """The elements of a small tensor, in order; None where one depends on data.

    Those of a file are unpacked when somebody asks: most small tensors are biases, and nobody does.
    """

    __slots__ = ("_form", "_items", "shape")

    def __init__(self, shape: tuple[int, ...], items: tuple[Number, ...] | bytes, form: str = "") -> None:
        """`form`: the items are bytes, as `struct` calls their layout."""
        self.shape, self._items, self._form = shape, items, form

    @property
    def items(self) -> tuple[Number, ...]:
        if self._form:
            self._items, self._form = struct.unpack(self._form, self._items), ""  # type: ignore[arg-type]
        return self._items  # type: ignore[return-value]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Content) and self.shape == other.shape and self.items == other.items

    __hash__ = None  # type: ignore[assignment]


class Stored(NamedTuple):
    """A tensor that the file holds, or says where another file does."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    content: Content | None = None


class Declared(NamedTuple):
    """What a file says of a value: its element type, and its shape, whose extents may be names."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None
    tensor: bool = True
    """It is a tensor, and not a sequence, a mapping or something that may be absent."""


_NOTHING: Mapping[str, Any] = {}


class Node(NamedTuple):
    """One operator as the file has it; an empty name stands for an input or output that is left out."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = _NOTHING
    props: Mapping[str, str] = _NOTHING

    def __str__(self) -> str:
        return f"{self.op} {self.name!r}" if self.name else f"the {self.op} that makes {', '.join(self.outputs[:1])!r}"


@dataclass(frozen=True, slots=True)
class NodeGraph:
    """Nodes in the order in which they run."""

    name: str
    nodes: tuple[Node, ...]
    stored: Mapping[str, Stored]
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    declared: Mapping[str, Declared]
    props: Mapping[str, str] = field(default_factory=dict)
    """What the exporter notes of it."""


def plain(dtype: str) -> str:
    """The element type that is counted: a text counts as one byte, since nobody knows how long it is."""
    return "uint8" if dtype in ("string", "undefined", "resource", "variant") else dtype


def known_shape(declared: Declared, sizes: Mapping[str, int]) -> Shape:
    """The declared shape, with names replaced by what they stand for."""
    if declared.shape is None:
        return None
    return tuple(sizes.get(extent) if isinstance(extent, str) else extent for extent in declared.shape)
