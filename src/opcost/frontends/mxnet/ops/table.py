"""The table of operators, what a rule sees of a node, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple, Protocol, TypeAlias

from opcost.core.graph import NO_ATTRS, Attrs
from opcost.core.shapes import Dims, Shape, Unknown, known, merge
from opcost.errors import GraphError
from opcost.frontends.mxnet.attribute import Attributes
from opcost.frontends.mxnet.symbol import Symbol

Type: TypeAlias = "str | None"
"""An element type; None where it is not known."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """What is known of each output of each node."""

    shapes: list[list[Shape]]
    types: list[list[Type]]


class InferGraph(Protocol):
    """Works out a graph from what is known of some variables (by their nodes) and of its heads."""

    def __call__(
        self,
        symbol: Symbol,
        shapes: Mapping[int, Shape],
        types: Mapping[int, Type],
        *,
        heads: Sequence[Shape] = (),
        training: bool = False,
    ) -> Inferred: ...


@dataclass(slots=True, eq=False)
class Call:
    """One node with what is known of the tensors around it. A rule refines `ins` and `outs`, it never forgets."""

    attrs: Attributes
    ins: list[Shape]
    outs: list[Shape]
    in_types: list[Type]
    out_types: list[Type]
    _: KW_ONLY
    np_shape: bool = False
    version: int = 10901
    training: bool = False
    subgraphs: tuple[Symbol, ...] = ()
    infer: InferGraph | None = None
    """For the graphs inside; there when shapes are asked for."""

    def put_in(self, index: int, shape: Shape) -> None:
        """Say what the shape of an input must be."""
        if index < len(self.ins):
            self.ins[index] = merge(self.ins[index], shape)

    def put_out(self, index: int, shape: Shape) -> None:
        """Say what the shape of an output must be."""
        if index < len(self.outs):
            self.outs[index] = merge(self.outs[index], shape)

    def dims(self, index: int) -> Dims:
        """The shape of an input, of which the rank at least is known; else a rule ends here, and is asked again later."""
        shape = self.ins[index]
        if shape is None:
            raise Unknown
        return shape

    def every(self) -> list[Dims]:
        """The shapes of all inputs."""
        return [self.dims(index) for index in range(len(self.ins))]

    def put_all(self, shape: Shape) -> None:
        """Say that every output has this shape."""
        for index in range(len(self.outs)):
            self.put_out(index, shape)

    def x(self, index: int = 0) -> tuple[int, ...]:
        """The extents of an input, all of them known."""
        return known(self.ins[index] if index < len(self.ins) else None)

    def y(self, index: int = 0) -> tuple[int, ...]:
        """The extents of an output."""
        return known(self.outs[index])

    def type_in(self, index: int, dtype: Type) -> None:
        if index < len(self.in_types) and self.in_types[index] is None:
            self.in_types[index] = dtype

    def type_out(self, index: int, dtype: Type) -> None:
        if index < len(self.out_types) and self.out_types[index] is None:
            self.out_types[index] = dtype

    def given(self, shape: Iterable[int]) -> Shape:
        """A shape from an attribute, in which an unknown extent is written 0, or -1 with NumPy's shapes."""
        return tuple([None if extent == (-1 if self.np_shape else 0) else extent for extent in shape])

    @property
    def scalar(self) -> tuple[int, ...]:
        """The shape of a single number."""
        return () if self.np_shape else (1,)


class Translation(NamedTuple):
    """An operator in our words: see `opcost.core.kinds`."""

    kind: str
    attrs: Attrs = NO_ATTRS
    inputs: tuple[int, ...] | None = None
    """Which of the node's inputs, in the kind's order; None: all, as they come."""
    results: int | None = None
    """How many of the outputs the kind has; the ranges of quantized tensors are beside them."""


VIEW = Translation("view", NO_ATTRS, (0,))
COPY = Translation("copy")
UNKNOWN = Translation("unknown")

Infer: TypeAlias = Callable[[Call], None]
Translate: TypeAlias = Callable[[Call], Translation]


def same_types(call: Call) -> None:
    """All tensors around the node have one element type."""
    found = next((dtype for dtype in (*call.in_types, *call.out_types) if dtype is not None), None)
    if found is not None:
        call.in_types[:] = [dtype or found for dtype in call.in_types]
        call.out_types[:] = [dtype or found for dtype in call.out_types]


def types_of(*inputs: int) -> Infer:
    """These inputs and all outputs have one element type; the other inputs have their own."""

    def infer(call: Call) -> None:
        held = [call.in_types[index] for index in inputs if index < len(call.in_types)]
        found = next((dtype for dtype in (*held, *call.out_types) if dtype is not None), None)
        if found is not None:
            for index in inputs:
                call.type_in(index, found)
            call.out_types[:] = [dtype or found for dtype in call.out_types]

    return infer


def output_type(name: str = "dtype", default: str | None = None) -> Infer:
    """The output's element type is an attribute; without one it is `default`, or the first input's."""

    def infer(call: Call) -> None:
        if name in call.attrs:
            call.type_out(0, call.attrs.dtype(name))
        elif default is not None:
            call.type_out(0, default)
        else:
            types_of(0)(call)

    return infer


def always_type(dtype: str) -> Infer:
    """The outputs have this element type whatever comes in."""

    def infer(call: Call) -> None:
        call.out_types[:] = [held or dtype for held in call.out_types]

    return infer


@dataclass(frozen=True, slots=True)
class Operator:
    """What is known of an operator of MXNet's."""

    infer: Infer
    """Works out shapes, forwards and backwards, as far as they are known."""
    translate: Translate | Translation
    types: Infer = same_types
    outputs: int | Callable[[Attributes], int] = 1
    """How many outputs are visible: hidden ones (masks, workspaces) depend on the build and are nobody's input."""
    slots: tuple[str, ...] | Callable[[Attributes], tuple[str, ...]] = ()
    """MXNet's names of the inputs, where they tell a weight from an input; auxiliary states get their names from here, too."""

    def translated(self, call: Call) -> Translation:
        """The operator in our words, which attributes may change."""
        return self.translate if isinstance(self.translate, Translation) else self.translate(call)

    def output_count(self, attrs: Attributes) -> int:
        return self.outputs(attrs) if callable(self.outputs) else self.outputs

    def slot_names(self, attrs: Attributes) -> tuple[str, ...]:
        return self.slots(attrs) if callable(self.slots) else self.slots


_OPERATORS: dict[str, Operator] = {}


def operators() -> dict[str, Operator]:
    """The table as far as it is filled."""
    return _OPERATORS


def register(names: Iterable[str], operator: Operator) -> None:
    """Add an operator under all its names; a second one of the same name is an error."""
    for name in names:
        if name in _OPERATORS:
            raise GraphError(f"the MXNet operator {name!r} has two rules")
        _OPERATORS[name] = operator


def define(
    names: str | Iterable[str],
    infer: Infer,
    translate: Translate | Translation,
    types: Infer = same_types,
    outputs: int | Callable[[Attributes], int] = 1,
    slots: str | tuple[str, ...] | Callable[[Attributes], tuple[str, ...]] = (),
) -> None:
    """Add an operator of its own; names and slots may be one text with blanks between them."""
    slots = tuple(slots.split()) if isinstance(slots, str) else slots
    register(names.split() if isinstance(names, str) else names, Operator(infer, translate, types, outputs, slots))


def elementwise(fn: str, inputs: tuple[int, ...] | None = None, **attrs: int) -> Translation:
    """Arithmetic for each element of the output."""
    return Translation("elementwise", {"fn": fn, **attrs}, inputs)


__all__ = [
    "COPY", "UNKNOWN", "VIEW", "Call", "Infer", "Inferred", "Operator", "Translate", "Translation", "Type",
    "always_type", "define", "elementwise", "operators", "output_type", "register", "same_types", "types_of",
]  # fmt: skip
