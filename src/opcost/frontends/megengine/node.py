"""One operator with what is known about its tensors: all that a shape rule and a translation see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from opcost.core.graph import Attr
from opcost.frontends.megengine.model import Operator

Extent: TypeAlias = "int | None"
Shape: TypeAlias = "tuple[Extent, ...] | None"
Numbers: TypeAlias = "tuple[int | float, ...]"

NOTHING: Mapping[str, Attr] = MappingProxyType({})


class Mismatch(Exception):
    """The inputs of an operator do not fit each other, or the file."""


class Unknown(Exception):
    """A shape is asked for that depends on data."""


class Node:
    """An operator, the shapes and element types of its inputs, the numbers of those that are known, and its outputs."""

    __slots__ = ("dtypes", "numbers", "op", "out_dtypes", "out_shapes", "shapes")

    def __init__(
        self, op: Operator, shapes: Sequence[Shape], dtypes: Sequence[str], numbers: Sequence[Numbers | None]
    ) -> None:
        self.op = op
        self.shapes = shapes
        self.dtypes = dtypes
        self.numbers = numbers
        self.out_shapes: Sequence[Shape] = ()
        self.out_dtypes: Sequence[str] = ()

    def dims(self, index: int) -> tuple[Extent, ...]:
        """The shape of an input, of which the rank at least must be known."""
        if index >= len(self.shapes):
            raise Mismatch(f"it has {len(self.shapes)} inputs and needs {index + 1}")
        shape = self.shapes[index]
        if shape is None:
            raise Unknown
        return shape

    def ranked(self, index: int, *ranks: int) -> tuple[Extent, ...]:
        """The shape of an input that must have one of these ranks."""
        dims = self.dims(index)
        if len(dims) not in ranks:
            raise Mismatch(f"input {index} is {shape_text(dims)}, and needs {' or '.join(map(str, ranks))} axes")
        return dims

    def value(self, index: int) -> Numbers | None:
        """The numbers of an input, if they are known without data."""
        if index >= len(self.numbers):
            raise Mismatch(f"it has {len(self.numbers)} inputs and needs {index + 1}")
        return self.numbers[index]

    def target(self, index: int) -> tuple[Extent, ...]:
        """An input that holds a shape: its numbers, or as many unknown extents."""
        numbers = self.value(index)
        if numbers is not None:
            return tuple(int(number) for number in numbers)
        (length,) = self.ranked(index, 1)
        if length is None or length > 7:
            raise Unknown
        return (None,) * length

    def whole(self, name: str) -> int:
        """A parameter that is a whole number."""
        found = self.op.get(name, 0)
        return found if isinstance(found, int) else 0

    def word(self, name: str) -> str:
        """A parameter that is a word."""
        found = self.op.get(name, "")
        return found if isinstance(found, str) else ""

    def flag(self, name: str) -> bool:
        return bool(self.op.get(name))


class Meaning(NamedTuple):
    """An operator in our words: kind, attributes, and the tensors that the kind asks for, in its order."""

    kind: str
    attrs: Mapping[str, Attr] = NOTHING
    inputs: tuple[int, ...] | None = None
    """Which inputs of the operator, None for all in their own order."""
    outputs: tuple[int, ...] | None = None
    """The results that the kind speaks of; others (kept for a backward pass) count only if somebody reads them."""


Shaper: TypeAlias = Callable[[Node], "list[Shape]"]
Typer: TypeAlias = Callable[[Node], "list[str]"]
Translator: TypeAlias = Callable[[Node], Meaning]


class Rule(NamedTuple):
    """What is known about a type of operators. Without `dtypes` every output has the first input's element type."""

    shapes: Shaper
    meaning: Translator
    dtypes: Typer | None = None


def shape_text(shape: Shape) -> str:
    """A shape as people write it."""
    if shape is None:
        return "?"
    return "x".join("?" if extent is None else str(extent) for extent in shape) or "scalar"


def same(node: Node) -> list[Shape]:
    """The output has the shape of the first input."""
    return [node.dims(0)]


def alike(index: int, *, outputs: int = 1) -> Shaper:
    """All outputs have the shape of one input."""
    return lambda node: [node.dims(index)] * outputs


def means(kind: str, **attrs: Attr) -> Translator:
    """Always this kind with these attributes."""
    meaning = Meaning(kind, attrs or NOTHING)
    return lambda node: meaning


def product(extents: Sequence[Extent]) -> Extent:
    """The product of extents, unknown if one of them is; an axis of extent 0 decides alone."""
    if 0 in extents:
        return 0
    known = [extent for extent in extents if extent is not None]
    return prod(known) if len(known) == len(extents) else None


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    found = axis + rank if axis < 0 else axis
    if not 0 <= found < rank:
        raise Mismatch(f"axis {axis} does not exist in {rank} axes")
    return found


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The common shape of tensors that are stretched along axes of extent 1, aligned at the last axis."""
    if any(shape is None for shape in shapes):
        raise Unknown
    known = [shape for shape in shapes if shape is not None]
    rank = max((len(shape) for shape in known), default=0)
    result: list[Extent] = []
    for axis in range(-rank, 0):
        extents = {shape[axis] for shape in known if len(shape) >= -axis} - {1}
        certain = extents - {None}
        if len(certain) > 1:
            raise Mismatch(f"{', '.join(map(shape_text, known))} do not fit each other")
        result.append(certain.pop() if certain else None if extents else 1)
    return tuple(result)


def window_count(extent: Extent, *, size: int, stride: int, pad: int, dilate: int = 1) -> Extent:
    """How many windows fit along an axis."""
    if extent is None:
        return None
    if stride < 1:
        raise Mismatch("its stride is 0")
    span = (size - 1) * dilate + 1
    padded = extent + 2 * pad
    if padded < span:
        raise Mismatch(f"a window of {span} does not fit into {padded}")
    return (padded - span) // stride + 1
