"""A model as data: graphs of nodes whose values have names, tensors of which only small ones have content, and what is declared.

The readers of formats that hold such graphs make these; the walk over them is the same for all.
"""

from __future__ import annotations

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


class Content(NamedTuple):
    """The elements of a small tensor, in order; None where one depends on data."""

    shape: tuple[int, ...]
    items: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class Stored:
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


@dataclass(frozen=True, slots=True)
class Node:
    """One operator as the file has it; an empty name stands for an input or output that is left out."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    props: Mapping[str, str] = field(default_factory=dict)

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


def plain(dtype: str) -> str:
    """The element type that is counted: a text counts as one byte, since nobody knows how long it is."""
    return "uint8" if dtype in ("string", "undefined", "resource", "variant") else dtype


def known_shape(declared: Declared, sizes: Mapping[str, int]) -> Shape:
    """The declared shape, with names replaced by what they stand for."""
    if declared.shape is None:
        return None
    return tuple(sizes.get(extent) if isinstance(extent, str) else extent for extent in declared.shape)
