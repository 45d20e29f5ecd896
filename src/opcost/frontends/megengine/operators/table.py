"""One operator of a dump with what is known of its tensors, and the row of data that says what a type of operators does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, TypeAlias

from opcost.core.graph import NO_ATTRS, Attr, Attrs
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, Unknown, broadcast, text, windows
from opcost.frontends.nodes.meaning import Operand, Out

Numbers: TypeAlias = "tuple[int | float, ...]"


@dataclass(slots=True, eq=False)
class OperatorCall:
    """An operator: its parameters, its input tensors, how many results it makes, and the results once they are known."""

    type: str
    params: Mapping[str, Attr]
    ins: Sequence[Operand]
    count: int
    outs: list[Out] = field(default_factory=list)

    # -- inputs -------------------------------------------------------------------------------------------------------

    def _input(self, index: int) -> Operand:
        if index >= len(self.ins):
            raise Mismatch(f"it has {len(self.ins)} inputs and needs {index + 1}")
        return self.ins[index]

    def dims(self, index: int) -> Dims:
        """The shape of an input, of which the rank at least must be known."""
        return self._input(index).dims

    def every(self) -> list[Dims]:
        """The shapes of all inputs."""
        return [made.dims for made in self.ins]

    def ranked(self, index: int, *ranks: int) -> Dims:
        """The shape of an input that must have one of these ranks."""
        dims = self.dims(index)
        if len(dims) not in ranks:
            raise Mismatch(f"input {index} is {text(dims)}, and needs {' or '.join(map(str, ranks))} axes")
        return dims

    def dtype(self, index: int = 0) -> str:
        """The element type of an input; float32 where there are no inputs."""
        return self.ins[index].dtype if self.ins or index else "float32"

    def value(self, index: int) -> Numbers | None:
        """The numbers of an input, if they are known without data."""
        content = self._input(index).content
        return None if content is None else content.items  # type: ignore[return-value]

    def first(self, index: int) -> int | None:
        """The first number of an input, as a whole number."""
        numbers = self.value(index)
        return int(numbers[0]) if numbers else None

    def target(self, index: int) -> Dims:
        """An input that holds a shape: its numbers, or as many unknown extents."""
        numbers = self.value(index)
        if numbers is not None:
            return tuple(int(number) for number in numbers)
        (length,) = self.ranked(index, 1)
        if length is None or length > 7:
            raise Unknown
        return (None,) * length

    # -- parameters ---------------------------------------------------------------------------------------------------

    def whole(self, name: str) -> int:
        """A parameter that is a whole number."""
        found = self.params.get(name, 0)
        return found if isinstance(found, int) else 0

    def word(self, name: str) -> str:
        """A parameter that is a word."""
        found = self.params.get(name, "")
        return found if isinstance(found, str) else ""

    def flag(self, name: str) -> bool:
        return bool(self.params.get(name))

    @property
    def format(self) -> str:
        """The layout of images."""
        return self.word("format") or "NCHW"

    @property
    def grouped(self) -> bool:
        return self.word("sparse") == "GROUP"

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


Means: TypeAlias = "tuple[str, Attrs]"  # Kind and attributes of an operator
Shaper: TypeAlias = Callable[[OperatorCall], "list[Shape]"]
Typer: TypeAlias = Callable[[OperatorCall], "list[str]"]
Places: TypeAlias = "tuple[int, ...]"


@cache
def _fixed(means: str) -> Means:
    kind, _, fn = means.partition(" ")
    return kind, {"fn": fn} if fn else NO_ATTRS


class Row(NamedTuple):
    """What is known about a type of operators."""

    shapes: Shaper  # The shapes of all results
    means: str | Callable[[OperatorCall], Means]
    """The kind, with its function behind where it has one (`reduce argmax`); or what works out kind and attributes."""
    types: Typer | tuple[str, ...] = ()
    """The element types of the results; an empty word, and an empty list, mean the first input's."""
    reads: Places | Callable[[OperatorCall], Places] | None = None
    """The inputs that the kind takes, in its order; None for all in their own order."""
    results: Places | Callable[[OperatorCall], Places] | None = None
    """The results that the kind speaks of; others (kept for a backward pass) count only if something reads them."""

    def meaning(self, call: OperatorCall) -> Means:
        """Kind and attributes."""
        return self.means(call) if callable(self.means) else _fixed(self.means)

    def read(self, call: OperatorCall) -> Places | None:
        return self.reads(call) if callable(self.reads) else self.reads

    def made(self, call: OperatorCall) -> Places | None:
        return self.results(call) if callable(self.results) else self.results

    def dtypes(self, call: OperatorCall) -> list[str]:
        """The element types of all results."""
        if not self.types:
            return [call.dtype()] * call.count
        found = self.types(call) if callable(self.types) else self.types[: call.count]
        if len(found) != call.count:
            return [call.dtype()] * call.count
        return [name or call.dtype() for name in found]


def same(call: OperatorCall) -> list[Shape]:
    """The result has the shape of the first input."""
    return [call.dims(0)]


def stretched(call: OperatorCall) -> list[Shape]:
    """The result has the shape to which all inputs stretch."""
    return [broadcast(call.every())]


def alike(index: int) -> Shaper:
    """The result has the shape of one input."""
    return lambda call: [call.dims(index)]


def result(call: OperatorCall, place: int = 0) -> Shape:
    """The shape of a result, as far as it is known."""
    return call.outs[place].shape
