"""One operator with what is known about its tensors: all that a shape rule and a translation see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from opcost.core.graph import Attr
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, Unknown, broadcast, text, windows
from opcost.frontends.megengine.model import Operator

Numbers: TypeAlias = "tuple[int | float, ...]"

NOTHING: Mapping[str, Attr] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Node:
    """An operator, the shapes and element types of its inputs, the numbers of those that are known, and its outputs."""

    op: Operator
    shapes: Sequence[Shape]
    dtypes: Sequence[str]
    numbers: Sequence[Numbers | None]
    out_shapes: Sequence[Shape] = ()
    out_dtypes: Sequence[str] = ()

    def dims(self, index: int) -> Dims:
        """The shape of an input, of which the rank at least must be known."""
        if index >= len(self.shapes):
            raise Mismatch(f"it has {len(self.shapes)} inputs and needs {index + 1}")
        shape = self.shapes[index]
        if shape is None:
            raise Unknown
        return shape

    def every(self) -> list[Dims]:
        """The shapes of all inputs."""
        return [self.dims(index) for index in range(len(self.shapes))]

    def ranked(self, index: int, *ranks: int) -> Dims:
        """The shape of an input that must have one of these ranks."""
        dims = self.dims(index)
        if len(dims) not in ranks:
            raise Mismatch(f"input {index} is {text(dims)}, and needs {' or '.join(map(str, ranks))} axes")
        return dims

    def value(self, index: int) -> Numbers | None:
        """The numbers of an input, if they are known without data."""
        if index >= len(self.numbers):
            raise Mismatch(f"it has {len(self.numbers)} inputs and needs {index + 1}")
        return self.numbers[index]

    def target(self, index: int) -> Dims:
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

    def per_axis(self, name: str, axes: int = 2) -> tuple[int, ...]:
        """A parameter that is a whole number for height and width, or for depth as well."""
        return tuple([self.whole(f"{name}_{axis}") for axis in "dhw"[-axes:]])

    def sweep(self, axes: int) -> list[tuple[int, int, int]]:
        """Stride, padding and dilation along each axis."""
        dilation = [dilate or 1 for dilate in self.per_axis("dilate", axes)]
        return list(zip(self.per_axis("stride", axes), self.per_axis("pad", axes), dilation, strict=True))

    def windows(self, spatial: Sequence[Extent], kernel: Sequence[Extent]) -> list[Extent]:
        """How many windows fit along each axis, with the stride, padding and dilation of the operator."""
        return [
            windows(extent, size, stride=stride, padding=(pad, pad), dilation=dilation)
            for extent, size, (stride, pad, dilation) in zip(spatial, kernel, self.sweep(len(kernel)), strict=True)
        ]


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


def same(node: Node) -> list[Shape]:
    """The output has the shape of the first input."""
    return [node.dims(0)]


def stretched(node: Node) -> list[Shape]:
    """The output has the shape to which all inputs stretch."""
    return [broadcast(node.every())]


def alike(index: int, *, outputs: int = 1) -> Shaper:
    """All outputs have the shape of one input."""
    return lambda node: [node.dims(index)] * outputs


def means(kind: str, **attrs: Attr) -> Translator:
    """Always this kind with these attributes."""
    meaning = Meaning(kind, attrs or NOTHING)
    return lambda node: meaning
