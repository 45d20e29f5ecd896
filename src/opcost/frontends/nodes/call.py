"""One node as an operator's handler sees it, and what the handler answers: results, and the operator in our words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, Protocol, TypeAlias

from opcost.core.graph import NO_ATTRS, Attrs
from opcost.core.shapes import Dims, Shape, Unknown, known
from opcost.frontends.nodes.model import MOST_CONTENT, Content, Node, NodeGraph, Number, plain


@dataclass(slots=True)
class Made:
    """A tensor as it is known while the graph is walked; of a sequence, its tensors."""

    value: int
    shape: Shape
    dtype: str
    content: Content | None = None
    items: list[Made] | None = None
    stored: bool = False
    """The file holds it."""

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


class Out(NamedTuple):
    """A result. `home`: it lies in the memory of that tensor."""

    shape: Shape
    dtype: str
    content: Content | None = None
    home: Made | None = None
    items: list[Made] | None = None


class Meaning(NamedTuple):
    """What a node does in our words, and what comes out; `reads` are the tensors that it looks at, all unless told."""

    kind: str
    attrs: Attrs
    outs: Sequence[Out]
    reads: Sequence[Made | None] | None = None


class Around(Protocol):
    """The walk, as far as a node's handler has to do with it."""

    def version(self, node: Node) -> int:
        """Of the operators of the node's domain."""

    def emit(
        self,
        node: Node,
        path: str,
        kind: str,
        attrs: Attrs,
        reads: Sequence[Made | None],
        outs: Sequence[Out],
        names: Sequence[str],
    ) -> list[Made]:
        """Make an operator."""


@dataclass(slots=True)
class Call:
    """A node with its inputs."""

    node: Node
    ins: list[Made | None]
    attrs: Mapping[str, Any]
    path: str
    graph: NodeGraph
    walk: Around

    def step(self, kind: str, attrs: Attrs, reads: Sequence[Made | None], outs: Sequence[Out]) -> list[Made]:
        """Make an operator that the node does on its way."""
        return self.walk.emit(self.node, self.path, kind, attrs, reads, outs, [""] * len(outs))

    @property
    def version(self) -> int:
        """Of the operators of its domain."""
        return self.walk.version(self.node)

    @property
    def out_dtype(self) -> str:
        """The element type that the file declares for its first result."""
        declared = self.graph.declared.get(self.node.outputs[0]) if self.node.outputs else None
        return plain(declared.dtype) if declared else "float32"

    def __getitem__(self, place: int) -> Made:
        """An input that must be there."""
        found = self.at(place)
        if found is None:
            raise IndexError(f"the input {place} is missing")
        return found

    def at(self, place: int) -> Made | None:
        """An input that may be left out."""
        return self.ins[place] if place < len(self.ins) else None

    @property
    def given(self) -> list[Made]:
        """The inputs that are there."""
        return [made for made in self.ins if made is not None]

    def integers(self, name: str, place: int | None = None) -> tuple[int, ...] | None:
        """Whole numbers that older operators have as an attribute, and newer ones as an input; None: not given."""
        if name in self.attrs:
            found = self.attrs[name]
            return tuple(found) if isinstance(found, (tuple, list)) else (int(found),)
        given = self.at(place) if place is not None else None
        return None if given is None else given.integers

    def whole(self, name: str, default: int = 0) -> int:
        """An attribute that is a whole number."""
        return int(self.attrs.get(name, default))

    def flag(self, name: str, default: int = 0) -> bool:
        """An attribute that is 0 or 1."""
        return bool(self.attrs.get(name, default))

    def text(self, name: str, default: str = "") -> str:
        """An attribute that is a text."""
        return str(self.attrs.get(name, default))


Handler: TypeAlias = "Callable[[Call], Meaning]"
Table: TypeAlias = "dict[tuple[str, str], Handler]"
"""Handlers by domain and name; the domain of a format itself is the empty text."""


def entering(table: Table) -> Callable[..., Callable[[Handler], Handler]]:
    """What enters handlers in a table: a decorator that takes the names of operators, and their domains."""

    def handles(*names: str, domains: Sequence[str] = ("",)) -> Callable[[Handler], Handler]:
        def enter(handler: Handler) -> Handler:
            table.update({(domain, name): handler for domain in domains for name in names})
            return handler

        return enter

    return handles


def numel(shape: Shape) -> int:
    """The number of elements, which must be known."""
    return prod(known(shape))


def result(
    call: Call, kind: str, attrs: Attrs, shape: Shape, dtype: str = "", content: Content | None = None
) -> Meaning:
    """One result, of the first input's type unless told."""
    return Meaning(kind, attrs, [Out(shape, dtype or call[0].dtype, content)])


def alias(call: Call, shape: Shape, content: Content | None = None) -> Meaning:
    """The first input's memory with another shape."""
    source = call[0]
    return Meaning("view", NO_ATTRS, [Out(shape, source.dtype, content, source)], [source])


def fitting(shape: Shape, items: Sequence[Number] | None) -> Content | None:
    """A content for a result, if it is small and whole."""
    if items is None or shape is None or None in shape or prod(known(shape)) != len(items) or len(items) > MOST_CONTENT:
        return None
    return Content(known(shape), tuple(items))
