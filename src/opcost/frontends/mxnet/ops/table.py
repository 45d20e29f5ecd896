"""The row of data that says what an operator of MXNet's does, and what a rule sees of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from functools import cache
from math import prod
from typing import TypeAlias

from opcost.core.graph import NO_ATTRS, Attrs
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, Unknown, broadcast, divided, known, merge, product, text
from opcost.errors import GraphError
from opcost.frontends.mxnet.symbol import Attributes, Entry, Node, Symbol

Type: TypeAlias = "str | None"  # An element type; None where it is not known


@dataclass(frozen=True, slots=True)
class Inferred:
    """What is known of each output of each node."""

    shapes: list[list[Shape]]
    types: list[list[Type]]

    def shapes_of(self, entries: Iterable[Entry]) -> list[Shape]:
        return [self.shapes[node][output] for node, output in entries]

    def types_of(self, entries: Iterable[Entry]) -> list[Type]:
        return [self.types[node][output] for node, output in entries]

    def call(self, node: Node, symbol: Symbol, *, training: bool, infer: InferGraph | None = None) -> Call:
        """A node as its row sees it."""
        return Call(
            node.attrs, self.shapes_of(node.inputs), list(self.shapes[node.id]), self.types_of(node.inputs),
            list(self.types[node.id]), np_shape=symbol.np_shape, version=symbol.version, training=training,
            subgraphs=node.subgraphs, infer=infer,
        )  # fmt: skip


InferGraph: TypeAlias = Callable[..., Inferred]  # Works out a graph: see `infer.infer`


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
    infer: InferGraph | None = None  # For the graphs inside; set while shapes are worked out

    # -- what is known ------------------------------------------------------------------------------------------------

    def dims(self, index: int) -> Dims:
        """The shape of an input, of which the rank at least is known; else a rule ends here, and runs again later."""
        shape = self.ins[index]
        if shape is None:
            raise Unknown
        return shape

    def every(self) -> list[Dims]:
        """The shapes of all inputs."""
        return [self.dims(index) for index in range(len(self.ins))]

    def x(self, index: int = 0) -> tuple[int, ...]:
        """The extents of an input, all of them known."""
        return known(self.ins[index] if index < len(self.ins) else None)

    def y(self, index: int = 0) -> tuple[int, ...]:
        """The extents of an output."""
        return known(self.outs[index])

    def given(self, shape: Iterable[int]) -> Shape:
        """A shape from an attribute, in which an unknown extent is written 0, or -1 with NumPy's shapes."""
        return tuple([None if extent == (-1 if self.np_shape else 0) else extent for extent in shape])

    @property
    def scalar(self) -> tuple[int, ...]:
        """The shape of a single number."""
        return () if self.np_shape else (1,)

    # -- what a rule finds --------------------------------------------------------------------------------------------

    def put_in(self, index: int, shape: Shape) -> None:
        """Set what the shape of an input must be."""
        if index < len(self.ins):
            self.ins[index] = merge(self.ins[index], shape)

    def put_out(self, index: int, shape: Shape) -> None:
        """Set what the shape of an output must be."""
        if index < len(self.outs):
            self.outs[index] = merge(self.outs[index], shape)

    def put_all(self, shape: Shape) -> None:
        """Set one shape for every output."""
        for index in range(len(self.outs)):
            self.put_out(index, shape)

    def both(self, index: int = 0) -> Shape:
        """Give an input and the first output one shape, which comes back."""
        self.put_out(0, self.ins[index])
        self.put_in(index, self.outs[0])
        return self.outs[0]

    def type_in(self, index: int, dtype: Type) -> None:
        if index < len(self.in_types) and self.in_types[index] is None:
            self.in_types[index] = dtype

    def type_out(self, index: int, dtype: Type) -> None:
        if index < len(self.out_types) and self.out_types[index] is None:
            self.out_types[index] = dtype


Means: TypeAlias = "tuple[str, Attrs]"  # Kind and attributes of an operator
Shapes: TypeAlias = Callable[[Call], "Shape | list[Shape]"]
"""Works out shapes. What it returns is the first output's, or those of all outputs as a list; inputs it refines itself."""
Types: TypeAlias = Callable[[Call], None]
Reads: TypeAlias = "tuple[int, ...] | Callable[[Call], tuple[int, ...]] | None"


@cache
def _fixed(means: str) -> Means:
    kind, _, fn = means.partition(" ")
    return kind, {"fn": fn} if fn else NO_ATTRS


@dataclass(frozen=True, slots=True)
class Operator:
    """What is known of an operator of MXNet's, which has several names."""

    names: tuple[str, ...]
    shapes: Shapes
    means: str | Callable[[Call], Means]
    """The kind, with its function behind where it has one (`reduce sum`); or what works out kind and attributes."""
    types: Types
    outputs: int | Callable[[Attributes], int] = 1
    """How many outputs are visible: hidden ones (masks, workspaces) depend on the build and are never read."""
    slots: tuple[str, ...] | Callable[[Attributes], tuple[str, ...]] = ()
    """MXNet's names of the inputs, where they say which is a weight; auxiliary states get their names from here, too."""
    reads: Reads = None  # Which inputs the kind takes, in its order; None: all, as they come
    results: int | None = None  # How many of the outputs the kind has; the ranges of quantized tensors are beside them

    def infer(self, call: Call) -> None:
        """Refine the shapes around a node, forwards and backwards, as far as they are known."""
        found = self.shapes(call)
        if isinstance(found, list):
            for index, shape in enumerate(found):
                call.put_out(index, shape)
        else:
            call.put_out(0, found)

    def meaning(self, call: Call) -> Means:
        """Kind and attributes."""
        return self.means(call) if callable(self.means) else _fixed(self.means)

    def read(self, call: Call, kind: str) -> tuple[int, ...]:
        """The inputs that the kind takes."""
        count, places = len(call.ins), self.reads(call) if callable(self.reads) else self.reads
        if places is None:
            return tuple(range(min(count, 1) if kind == "view" else count))
        return tuple([place for place in places if place < count])

    def output_count(self, attrs: Attributes) -> int:
        return self.outputs(attrs) if callable(self.outputs) else self.outputs

    def slot_names(self, attrs: Attributes) -> tuple[str, ...]:
        return self.slots(attrs) if callable(self.slots) else self.slots


def row(
    names: str | Iterable[str], shapes: Shapes, means: str | Callable[[Call], Means], types: Types | None = None,
    outputs: int | Callable[[Attributes], int] = 1, slots: str | Callable[[Attributes], tuple[str, ...]] = "",
    reads: Reads = None, results: int | None = None,
) -> Operator:  # fmt: skip
    """A row of a table; names and slots are one text with blanks between them. All tensors have one type unless given."""
    listed = tuple(names.split() if isinstance(names, str) else names)
    named = tuple(slots.split()) if isinstance(slots, str) else slots
    return Operator(listed, shapes, means, types or same_types, outputs, named, reads, results)


def table_of(*families: Iterable[Operator]) -> dict[str, Operator]:
    """Operators by all their names; a name with two rows is an error."""
    found: dict[str, Operator] = {}
    for family in families:
        for operator in family:
            for name in operator.names:
                if name in found:
                    raise GraphError(f"the MXNet operator {name!r} has two rows")
                found[name] = operator
    return found


# -- shapes that many operators have -----------------------------------------------------------------------------------


def same_shapes(call: Call) -> None:
    """All tensors around the node have one shape."""
    shape = None
    for known_shape in (*call.ins, *call.outs):
        shape = merge(shape, known_shape)
    if shape is not None:
        call.ins[:] = [merge(each, shape) for each in call.ins]
        call.outs[:] = [merge(each, shape) for each in call.outs]


def pattern(form: str) -> Callable[[Call], None]:
    """Shapes as they are written down: `l b 3*f, b*{heads} l l -> l b f`, the inputs before the arrow.

    A word is one extent wherever it occurs, `_` any, `...` any number of axes; `{name=7}` is an attribute and its default,
    `{*name}` the extents of one that is a tuple. What is known of some tensors settles the others, forwards and backwards.
    """
    inputs, outputs = ([part.split() for part in side.split(",")] for side in form.split("->"))

    def terms(call: Call, word: str) -> list[tuple[Extent, list[str]]]:
        """The extents that a word is, each as a factor and words."""
        if word in ("_", "..."):
            return [(None, [word] if word == "..." else [])]
        if word.startswith("{*"):
            return [(extent, []) for extent in call.attrs.integers(word[2:-1])]
        parts = word.split("*")
        named = [part[1:-1].partition("=") for part in parts if part[0] == "{"]
        factors = [call.attrs.integer(name, int(default) if default else None) for name, _, default in named]
        factors += [int(part) for part in parts if part.isdecimal()]
        return [(prod(factors), [part for part in parts if part[0].isalpha()])]

    def shapes(call: Call) -> None:
        axes: Shape = None  # those of `...`
        extents: dict[str, Extent] = {}
        tensors = [
            (known_shapes, at, put, [term for word in words for term in terms(call, word)])
            for known_shapes, put, sides in ((call.ins, call.put_in, inputs), (call.outs, call.put_out, outputs))
            for at, words in enumerate(sides[: len(known_shapes)])
        ]
        for known_shapes, at, _, axis_terms in tensors * 2:  # twice: a product may need a word of a later tensor
            shape = known_shapes[at]
            if shape is None:
                continue
            first = next((place for place, (_, words) in enumerate(axis_terms) if words == ["..."]), None)
            more = len(shape) - len(axis_terms)
            if more < -1 or (first is None and more):
                raise Mismatch(f"{text(shape)} does not fit {form}")
            if first is not None:
                axes = merge(axes, shape[first : first + more + 1])
                shape = (*shape[:first], None, *shape[first + more + 1 :])
            for extent, (factor, words) in zip(shape, axis_terms, strict=True):
                unknown = [word for word in words if extents.get(word) is None]
                if extent is not None and len(unknown) == 1:
                    others = [extents[word] for word in words if word != unknown[0]]
                    extents[unknown[0]] = divided(extent, product((factor, *others)) or 1)
        for _, at, put, axis_terms in tensors:  # `put` refuses what contradicts a known extent
            if axes is not None or all(words != ["..."] for _, words in axis_terms):
                found: list[Extent] = []
                for factor, words in axis_terms:
                    found += axes or () if words == ["..."] else (product((factor, *map(extents.get, words))),)
                put(at, tuple(found))

    return shapes


def broadcasting(call: Call) -> Shape:
    """The inputs stretch to the output's shape."""
    return broadcast(call.every())


def like_first(call: Call) -> None:
    """The first input and all outputs have one shape."""
    call.put_all(call.ins[0])
    for shape in call.outs:
        call.put_in(0, shape)


# -- element types -----------------------------------------------------------------------------------------------------


def same_types(call: Call) -> None:
    """All tensors around the node have one element type."""
    found = next((dtype for dtype in (*call.in_types, *call.out_types) if dtype is not None), None)
    if found is not None:
        call.in_types[:] = [dtype or found for dtype in call.in_types]
        call.out_types[:] = [dtype or found for dtype in call.out_types]


def types_of(*inputs: int) -> Types:
    """These inputs and all outputs have one element type; the other inputs have their own."""

    def types(call: Call) -> None:
        known_types = [call.in_types[index] for index in inputs if index < len(call.in_types)]
        found = next((dtype for dtype in (*known_types, *call.out_types) if dtype is not None), None)
        if found is not None:
            for index in inputs:
                call.type_in(index, found)
            call.out_types[:] = [dtype or found for dtype in call.out_types]

    return types


FIRST = types_of(0)


def output_type(name: str = "dtype", default: str | None = None) -> Types:
    """The output's element type is an attribute; without one it is `default`, or the first input's."""

    def types(call: Call) -> None:
        if name in call.attrs:
            call.type_out(0, call.attrs.dtype(name))
        elif default is not None:
            call.type_out(0, default)
        else:
            FIRST(call)

    return types


def always_type(dtype: str) -> Types:
    """The outputs have this element type whatever the inputs have."""

    def types(call: Call) -> None:
        call.out_types[:] = [each or dtype for each in call.out_types]

    return types


FLOAT = output_type("dtype", "float32")


def elements(fn: str, count: int) -> Means:
    """Arithmetic on a number of elements that is not the output's."""
    return "elementwise", {"fn": fn, "elements": count}
