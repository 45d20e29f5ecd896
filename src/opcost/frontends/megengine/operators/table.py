"""One operator of a dump with what is known of its tensors, and the row of data that says what a type of operators does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from opcost.core.graph import NO_ATTRS, Attr, Attrs
from opcost.core.parsing import packaged_table
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, Unknown, broadcast, text, windows
from opcost.frontends.nodes.meaning import Operand, Out
from opcost.frontends.rows import RowFunctions

Numbers: TypeAlias = "tuple[int | float, ...]"


@dataclass(slots=True, eq=False)
class MegEngineCall:
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

    def listed(self, name: str) -> tuple[Any, ...]:
        """A parameter that is a list, empty where it is none."""
        found = self.params.get(name)
        return found if isinstance(found, tuple) else ()

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
Places: TypeAlias = "tuple[int, ...]"

DATA: dict[str, Any] = packaged_table(__package__, "operators.json")
FUNCTIONS = RowFunctions()
FUNCTIONS.update(
    same=lambda call: call.dims(0),
    like=lambda call, index: call.dims(index),
    broadcast=lambda call: broadcast(call.every()),
)


class MegEngineRow:
    """What is known about a type of operators, from the words of its row in `operators.json`; `@name` is a function.

    `means`: the kind, with its function behind where it has one (`reduce argmax`). `types`: the element types of the results, `x`
    that of the first input, which all have unless given. `reads`: the inputs that the kind takes, in its order; without it, all.
    `results`: those that the kind speaks of; others (kept for a backward pass) count only if something reads them.
    """

    def __init__(
        self, shapes: str, means: str, types: str = "", reads: str | Sequence[int] | None = None,
        results: str | Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        self._shapes = FUNCTIONS.named(shapes)
        kind, _, fn = means.partition(" ")
        self._means: Any = FUNCTIONS.named(means) if means[0] == "@" else (kind, {"fn": fn} if fn else NO_ATTRS)
        self._types: Any = FUNCTIONS.named(types) if types[:1] == "@" else types.split()
        self._reads, self._results = (
            FUNCTIONS.named(places) if isinstance(places, str) else places if places is None else tuple(places)
            for places in (reads, results)
        )

    def shapes(self, call: MegEngineCall) -> list[Shape]:
        """The shapes of all results."""
        found = self._shapes(call)
        return found if isinstance(found, list) else [found]

    def meaning(self, call: MegEngineCall) -> Means:
        """Kind and attributes."""
        found: Means = self._means(call) if callable(self._means) else self._means
        return found

    def read(self, call: MegEngineCall) -> Places | None:
        return self._reads(call) if callable(self._reads) else self._reads

    def made(self, call: MegEngineCall) -> Places | None:
        return self._results(call) if callable(self._results) else self._results

    def dtypes(self, call: MegEngineCall) -> list[str]:
        """The element types of all results."""
        found = self._types(call) if callable(self._types) else self._types[: call.count]
        if len(found) != call.count:
            return [call.dtype()] * call.count
        return [call.dtype() if name == "x" else name for name in found]


def result(call: MegEngineCall, place: int = 0) -> Shape:
    """The shape of a result, as far as it is known."""
    return call.outs[place].shape
