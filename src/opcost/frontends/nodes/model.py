"""A model as data: graphs of nodes whose values have names, tensors of which only small ones have content, and what is declared.

The readers of formats that hold such graphs make these; the walk over them is the same for all.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeAlias

from opcost.core.shapes import Shape

MOST_CONTENT = 4096
"""Elements of a tensor whose content is read: shapes, axes, scales, and tables of such."""
MOST_AXES = 64
MOST_DEPTH = 32
"""Graphs inside graphs."""

Number: TypeAlias = "int | float | bool | None"

_FORMS = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q",
    "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
"""How `struct` reads the elements of a type."""


class Content:
    """The elements of a small tensor, in order; None where one depends on data.

    Those of a file are unpacked at first use: most small tensors are biases, whose elements are never used.
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

    @classmethod
    def stored(cls, shape: tuple[int, ...], dtype: str, raw: bytes) -> Content | None:
        """The elements in bytes of a file; None: they are not plain numbers, or too few or too many."""
        form, count = _FORMS.get(dtype), prod(shape)
        if form is None or len(raw) != count * struct.calcsize(form):
            return None
        return cls(shape, raw, f"<{count}{form}")

    @classmethod
    def unknown(cls, shape: tuple[int, ...]) -> Content:
        """A tensor of which no element is known, to be joined to others of which some are."""
        return cls(shape, (None,) * prod(shape))

    @classmethod
    def joined(cls, parts: Sequence[Content], axis: int) -> Content:
        """Tensors one behind the other along an axis."""
        shape = parts[0].shape
        before = prod(shape[:axis])
        items: list[Number] = []
        for block in range(before if any(part.items for part in parts) else 0):
            for part in parts:
                size = len(part.items) // before if before else 0
                items += part.items[block * size : (block + 1) * size]
        return cls((*shape[:axis], sum(part.shape[axis] for part in parts), *shape[axis + 1 :]), tuple(items))

    def permuted(self, order: Sequence[int]) -> Content:
        """The axes in another order."""
        steps = _strides(self.shape)
        return self._strided(tuple(self.shape[axis] for axis in order), [steps[axis] for axis in order])

    def stretched(self, shape: tuple[int, ...]) -> Content:
        """As if it had this larger shape, aligned at the last axis."""
        if self.shape == shape:
            return self
        own = (*(1,) * (len(shape) - len(self.shape)), *self.shape)
        steps = [0 if extent == 1 else step for extent, step in zip(own, _strides(own), strict=True)]
        return self._strided(shape, steps)

    def _strided(self, shape: tuple[int, ...], steps: Sequence[int]) -> Content:
        if 0 in shape:  # its other extents may be any
            return Content(shape, ())
        items = [self.items[sum(map(operator.mul, at, steps))] for at in product(*map(range, shape))]
        return Content(shape, tuple(items))

    def taken(self, axis: int, indices: Sequence[int]) -> Content | None:
        """The elements at some places along an axis; None: there are too many."""
        shape = (*self.shape[:axis], len(indices), *self.shape[axis + 1 :])
        if 0 in shape:
            return Content(shape, ())
        if prod(shape) > MOST_CONTENT:
            return None
        before, extent, after = prod(self.shape[:axis]), self.shape[axis], prod(self.shape[axis + 1 :])
        chosen = [at % extent if extent else at for at in indices]
        items: list[Number] = []
        for block in range(before):
            for at in chosen:
                begin = (block * extent + at) * after
                items += self.items[begin : begin + after]
        return Content(shape, tuple(items))


def _strides(shape: Sequence[int]) -> list[int]:
    found, step = [], 1
    for extent in reversed(shape):
        found.append(step)
        step *= extent
    return found[::-1]


class StoredTensor(NamedTuple):
    """A tensor that is stored in the file, or in another one that it names."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    content: Content | None = None


class DeclaredValue(NamedTuple):
    """What a file declares of a value: its element type, and its shape, whose extents may be names."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None
    tensor: bool = True
    """It is a tensor, and not a sequence, a mapping or something that may be absent."""


_NOTHING: Mapping[str, Any] = {}


class GraphNode(NamedTuple):
    """One operator as the file has it; an empty name is an input or output that is left out."""

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
    nodes: tuple[GraphNode, ...]
    stored: Mapping[str, StoredTensor]
    inputs: tuple[DeclaredValue, ...]
    outputs: tuple[DeclaredValue, ...]
    declared: Mapping[str, DeclaredValue]
    props: Mapping[str, str] = field(default_factory=dict)
    """What the exporter notes of it."""


def plain(dtype: str) -> str:
    """The element type that is counted: a text counts as one byte, since its length is not known."""
    return "uint8" if dtype in ("string", "undefined", "resource", "variant") else dtype


def known_shape(declared: DeclaredValue, sizes: Mapping[str, int]) -> Shape:
    """The declared shape, with names replaced by their sizes."""
    if declared.shape is None:
        return None
    return tuple(sizes.get(extent) if isinstance(extent, str) else extent for extent in declared.shape)
