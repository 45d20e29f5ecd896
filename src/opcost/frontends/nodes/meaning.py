"""A model as data: graphs of nodes whose values have names, and small tensors with their content; and what its operators mean.

The readers of formats that hold such graphs make these; the walk over them is the same for all.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, NamedTuple, Protocol, TypeAlias

from opcost.core.graph import NO_ATTRS, Attrs
from opcost.core.shapes import Dims, Shape, Unknown, broadcast
from opcost.frontends.nodes import MOST_CONTENT

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


class StoredValue(NamedTuple):
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
    tensor: bool = True  # It is a tensor, and not a sequence, a mapping or something that may be absent


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
    stored: Mapping[str, StoredValue]
    inputs: tuple[DeclaredValue, ...]
    outputs: tuple[DeclaredValue, ...]
    declared: Mapping[str, DeclaredValue]
    props: Mapping[str, str] = field(default_factory=dict)  # What the exporter notes of it


def plain(dtype: str) -> str:
    """The element type that is counted: a text counts as one byte, since its length is not known."""
    return "uint8" if dtype in ("string", "undefined", "resource", "variant") else dtype


# -- what an operator means: the call of a node as a handler sees it, and the operator in our words that it gives
#
# Formats whose files hold graphs of nodes (ONNX, TensorFlow Lite, Core ML) have an `OperatorTable` each: rows of text in their
# `operators.json` that name a handler, which is one of `nodes.operators` or of the format's own.


@dataclass(slots=True)
class Operand:
    """A tensor as it is known while the graph is walked; `items` are the tensors of a sequence."""

    value: int
    shape: Shape
    dtype: str
    content: Content | None = None
    items: list[Operand] | None = None
    stored: bool = False  # The file holds it

    @property
    def dims(self) -> Dims:
        """The shape, of which at least the number of axes must be known."""
        if self.shape is None:
            raise Unknown
        return self.shape

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The content, which must be known as far as elements go."""
        if self.content is None:
            raise Unknown
        return self.content.items

    @property
    def integers(self) -> tuple[int, ...]:
        """The content, of which every element must be known."""
        if None in self.numbers:
            raise Unknown
        return tuple(int(number) for number in self.numbers)  # type: ignore[arg-type]

    @property
    def first(self) -> Number:
        """The first element, None where it is not known."""
        return self.content.items[0] if self.content and self.content.items else None


Operands: TypeAlias = "Sequence[Operand | None]"  # None: an input that is left out
Names: TypeAlias = "dict[str, Operand]"  # Values by their names in a graph


class Out(NamedTuple):
    """A result. `home`: it is in the memory of that tensor."""

    shape: Shape
    dtype: str
    content: Content | None = None
    home: Operand | None = None
    items: list[Operand] | None = None


class OperatorMeaning(NamedTuple):
    """What a node does in our words, and its results; `reads` are the tensors that it reads, None: all its inputs."""

    kind: str
    attrs: Attrs
    outs: Sequence[Out]
    reads: Operands | None = None


class NodeWalk(Protocol):
    """The walk, as far as handlers use it."""

    typed: bool

    def version(self, node: GraphNode) -> int: ...
    def emit(
        self, node: GraphNode, path: str, kind: str, attrs: Attrs, reads: Operands, outs: Sequence[Out],
        names: Sequence[str],
    ) -> list[Operand]: ...  # fmt: skip


@dataclass(slots=True)
class NodeCall:
    """A node with its inputs, which have a place and, where the operator's row or the file gives them one, a name."""

    node: GraphNode
    ins: Operands
    attrs: Mapping[str, Any]
    places: Mapping[str, Sequence[int]]  # The places of the inputs that are an argument, by its name
    path: str
    graph: NodeGraph
    walk: NodeWalk

    @property
    def version(self) -> int:
        """The version of the operators of its domain."""
        return self.walk.version(self.node)

    @property
    def out_dtype(self) -> str:
        """The element type that the file declares for its first result."""
        declared = self.graph.declared.get(self.node.outputs[0]) if self.node.outputs else None
        return plain(declared.dtype) if declared else "float32"

    def __getitem__(self, name: int | str) -> Operand:
        """An input that must be there."""
        found = self.at(name)
        if found is None:
            raise IndexError(f"the {'input' if type(name) is int else 'argument'} {name!r} is missing")
        return found

    def at(self, name: int | str) -> Operand | None:
        """An input that may be left out."""
        if isinstance(name, str):
            places = self.places.get(name)
            if not places:
                return None
            name = places[0]
        return self.ins[name] if name < len(self.ins) else None

    def several(self, name: str) -> list[Operand]:
        """The inputs of an argument that may be several."""
        count = len(self.ins)
        places = self.places.get(name, ())[:count]
        return [found for place in places if place < count and (found := self.ins[place]) is not None]

    @property
    def given(self) -> list[Operand]:
        """The inputs that are there."""
        return [found for found in self.ins if found is not None]

    def numbers(self, name: str) -> tuple[Number, ...] | None:
        """Numbers that are an input or an attribute, with None where one is not known; None: not given."""
        if name in self.places and (given := self.at(name)) is not None:
            return given.numbers
        found = self.attrs.get(name)
        return found if found is None or type(found) is tuple else tuple(found) if type(found) is list else (found,)

    def extents(self, name: str) -> Dims | None:
        """Sizes that are an input or an attribute, with None where one is not known; None: not given."""
        found = self.numbers(name)
        return None if found is None else tuple([None if number is None else int(number) for number in found])

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Whole numbers that are an input or an attribute, all of which must be known; None: not given."""
        found = self.numbers(name)
        if found is None:
            return None
        if None in found:
            raise Unknown
        return tuple(map(int, found))  # type: ignore[arg-type]

    def whole(self, name: str, default: int = 0) -> int:
        """One whole number."""
        found = self.integers(name)
        return found[0] if found else default

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Yes or no."""
        found = self.numbers(name)
        return bool(found[0]) if found else default

    def text(self, name: str, default: str = "") -> str:
        """An attribute that is a text."""
        return str(self.attrs.get(name, default))

    def step(self, kind: str, attrs: Attrs, reads: Operands, outs: Sequence[Out]) -> list[Operand]:
        """Make an operator that is a part of what the node does, and give its results."""
        return self.walk.emit(self.node, self.path, kind, attrs, reads, outs, [""] * len(outs))

    def one(self, kind: str, attrs: Attrs, reads: Operands, shape: Shape | None = None, dtype: str = "") -> Operand:
        """The same with one result, which is like the first tensor that is read unless given."""
        first = next(each for each in reads if each is not None)
        return self.step(kind, attrs, reads, [Out(first.shape if shape is None else shape, dtype or first.dtype)])[0]

    def elementwise(self, fn: str, *ins: Operand | None) -> Operand:
        """The result of a function of each element that is a part of what the node does."""
        given = [each for each in ins if each is not None]
        shape = None if any(each.shape is None for each in given) else broadcast([each.dims for each in given])
        return self.step("elementwise", {"fn": fn}, given, [Out(shape, given[0].dtype)])[0]

    def viewed(self, x: Operand, shape: Shape) -> Operand:
        """The same memory with another shape."""
        return self.step("view", NO_ATTRS, [x], [Out(shape, x.dtype, home=x)])[0]


Handler: TypeAlias = "Callable[[NodeCall], OperatorMeaning]"


class OperatorRow(NamedTuple):
    """How one operator of a format is read: by a handler, which finds inputs and attributes under its own names for them."""

    handler: Handler
    places: dict[str, Sequence[int]]
    constants: dict[str, Any]
    renamed: dict[str, str]  # Attributes of the node by the names that the handler has for them

    @classmethod
    def parsed(cls, handler: Handler, words: Iterable[str]) -> OperatorRow:
        """An operator from the words of its row.

        `x`: the next input; `x|scale`: it has two names; `*x`: all from here on; `axis<dim`: the node calls this attribute dim;
        `axis=-1`: it is always -1.
        """
        row, at = cls(handler, {}, {}, {}), 0
        for word in words:
            name, equals, value = word.partition("=")
            own, less, old = word.partition("<")
            if equals:
                row.constants[name] = int(value) if value.lstrip("-").isdigit() else value
            elif less:
                row.renamed[own] = old
            else:
                for each in word.lstrip("*").split("|"):
                    row.places[each] = range(at, 1 << 16) if word.startswith("*") else (*row.places.get(each, ()), at)
                at += 1
        return row

    def call(self, node: GraphNode, ins: Operands, path: str, graph: NodeGraph, walk: NodeWalk) -> NodeCall:
        """A node in the handler's words; a file that names inputs itself has their places in the attribute `@`."""
        attrs, places = node.attrs, node.attrs.get("@", self.places)
        if self.constants:
            attrs = {**self.constants, **attrs} if attrs else self.constants
        for name, old in self.renamed.items():
            if old in attrs:
                attrs = {**attrs, name: attrs[old]}
            elif old in places:
                places = {**places, name: places[old]}
        return NodeCall(node, ins, attrs, places, path, graph, walk)


OperatorTable: TypeAlias = "dict[tuple[str, str], OperatorRow]"
"""What the operators of a format mean, by domain and name; the domain of the format itself is the empty text."""
