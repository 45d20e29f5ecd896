"""Operators of MXNet and MegEngine as rows of data: what the words of a row mean, and the call that its functions see.

`ops`: names. `shapes`: a pattern (`l b 3*f -> l b f`, see `ShapePattern`), or a function of a family's module, `_split` as
`split`, with numbers that it takes behind its name (`split 1`). `means`: the kind, its function (`reduce sum`), attributes as
products of numbers, attributes of the node and words of the pattern (`matmul depth=f`; `#y` are the elements of the result),
`+` for all attributes that the function of the shapes returns, `@name` for those that another returns; `@name` alone gives the
kind as well. `types`: inputs that have the type of the outputs (`0 1`; all unless given), or an attribute of the node and its
default (`dtype=int32`; without one, the first input's type), or a type for each output (`=x int32`; `x` is the first input's, and
the last holds for all further ones). `outputs`: how many are visible. `slots`: the framework's names of the inputs. `reads`: the
inputs that the kind takes, in its order; without it, all. `results`: the outputs that the kind has, all unless given; others are
beside them. `word?flag`, `word?!flag` and `word?name=value` hold under a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from types import ModuleType
from typing import Any, TypeAlias

from opcost.core.graph import NO_ATTRS, Attrs
from opcost.core.shapes import Dims, Extent, Mismatch, Shape, Unknown, broadcast, divided, known, merge, product, text

Type: TypeAlias = "str | None"  # An element type; None where it is not known
Tensor: TypeAlias = "tuple[Shape, Type]"
Means: TypeAlias = "tuple[str, Attrs]"  # Kind and attributes of an operator
Places: TypeAlias = "tuple[int, ...]"


@dataclass(slots=True, eq=False)
class RowCall:
    """One operator with what is known of the tensors around it. A rule refines `ins` and `outs`, it never forgets."""

    attrs: Any  # Of the node, read as `integer`, `integers`, `text`, `flag` and `dtype`
    ins: list[Shape]
    outs: list[Shape]
    in_types: list[Type]
    out_types: list[Type]

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

    def learn(self, ins: Iterable[tuple[int, Tensor]], outs: Iterable[tuple[int, Tensor]] = ()) -> None:
        """Set shapes and element types of inputs and outputs, by their places."""
        for index, (shape, dtype) in ins:
            self.put_in(index, shape)
            self.type_in(index, dtype)
        for index, (shape, dtype) in outs:
            self.put_out(index, shape)
            self.type_out(index, dtype)

    def type_in(self, index: int, dtype: Type) -> None:
        if index < len(self.in_types) and self.in_types[index] is None:
            self.in_types[index] = dtype

    def type_out(self, index: int, dtype: Type) -> None:
        if index < len(self.out_types) and self.out_types[index] is None:
            self.out_types[index] = dtype


Shapes: TypeAlias = Callable[[Any], "Shape | list[Shape] | Mapping[str, Any]"]
"""Works out shapes. What it returns is the first output's, or those of all outputs as a list, or attributes of the kind and
extents by their words; inputs it refines itself."""
Types: TypeAlias = Callable[[Any], "list[Type] | None"]  # Refines element types, or returns those of the outputs


@dataclass(frozen=True, slots=True)
class RowOperator:
    """What is known of an operator, which may have several names."""

    names: tuple[str, ...]
    shapes: Shapes
    means: str | Callable[[Any], Means]
    """The kind, with its function behind where it has one (`reduce sum`); or what works out kind and attributes."""
    types: Types
    outputs: Callable[[Any], int]
    """How many outputs are visible: hidden ones (masks, workspaces) depend on the build and are never read."""
    slots: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ()
    """The framework's names of the inputs, where they say which is a weight; auxiliary states get their names from here, too."""
    reads: Places | Callable[[Any], Places] | None = None  # None: all inputs, as they come
    results: Places | Callable[[Any], Places] | None = None  # None: all outputs
    kind: str = ""  # Empty where it depends on the call

    def infer(self, call: RowCall) -> None:
        """Refine the shapes around a node, forwards and backwards, as far as they are known."""
        found = self.shapes(call)
        if isinstance(found, list):
            for index, shape in enumerate(found):
                call.put_out(index, shape)
        elif isinstance(found, tuple):
            call.put_out(0, found)

    def infer_types(self, call: RowCall) -> None:
        """The same for the element types."""
        if found := self.types(call):
            for index, dtype in enumerate(found):
                call.type_out(index, dtype)

    def meaning(self, call: RowCall) -> Means:
        """Kind and attributes."""
        return self.means(call) if callable(self.means) else _fixed(self.means)

    def read(self, call: RowCall) -> Places | None:
        """The inputs that the kind takes."""
        return self.reads(call) if callable(self.reads) else self.reads

    def made(self, call: RowCall) -> Places | None:
        """The outputs that the kind has."""
        return self.results(call) if callable(self.results) else self.results

    def slot_names(self, attrs: Any) -> tuple[str, ...]:
        return self.slots(attrs) if callable(self.slots) else self.slots


@cache
def _fixed(means: str) -> Means:
    kind, _, fn = means.partition(" ")
    return kind, {"fn": fn} if fn else NO_ATTRS


# -- the words of rows -------------------------------------------------------------------------------------------------


def functions(names: Iterable[str]) -> dict[str, str]:
    """Names of a framework and ours of the functions: `name=ours`, or the name alone where it is the same word."""
    words = (word.partition("=") for text in names for word in text.split())
    return {name: fn or name.lower() for name, _, fn in words}


class RowFunctions(dict[str, Callable[..., Any]]):
    """The functions by their names; `_split` of a module is `split` in a row."""

    def __init__(self) -> None:
        super().__init__(same=same_shapes, like=like_first, broadcast=lambda call: broadcast(call.every()))

    def enter(self, *modules: ModuleType) -> None:
        """Let rows name all functions of these modules."""
        for module in modules:
            for name, each in vars(module).items():
                if callable(each) and getattr(each, "__module__", "") == module.__name__:
                    self[name.strip("_")] = each

    def named(self, text: str) -> Callable[..., Any]:
        """A function by its name, which may have `@` before it, with the words behind it as further arguments."""
        name, *words = text.removeprefix("@").split()
        function, more = self[name], [int(word) if word.isdecimal() else word for word in words]
        return (lambda call: function(call, *more)) if more else function

    def row(
        self, ops: str | Sequence[str], shapes: str | Shapes, means: str, types: str | Types = "", outputs: int | str = 1,
        slots: str = "", reads: Sequence[int] | str | None = None, results: Sequence[int] | str | None = None,
    ) -> RowOperator:  # fmt: skip
        """An operator from the words of its row."""
        shaped = shapes if callable(shapes) else pattern(shapes) if "->" in shapes else self.named(shapes)
        fixed = int(outputs) if str(outputs).isdecimal() else 0

        def counted(attrs: Any) -> int:
            return fixed or int((_holding(attrs, str(outputs).split()) or ("1",))[0])

        named: Any = self.named(slots) if slots.startswith("@") else lambda attrs: _holding(attrs, slots.split())
        places: Any = [
            self.named(each) if isinstance(each, str) else None if each is None else tuple(each)
            for each in (reads, results)
        ]
        return RowOperator(
            tuple((ops if isinstance(ops, str) else " ".join(ops)).split()),
            shaped,
            self.named(means) if means.startswith("@") else self._worked_out(means, shaped),
            types if callable(types) else self.named(types) if types.startswith("@") else _types(types),
            self.named(str(outputs)) if str(outputs).startswith("@") else counted,
            named if "@" in slots or "?" in slots else tuple(slots.split()),
            places[0],
            places[1],
            "" if means.startswith("@") else means.split(maxsplit=1)[0],
        )

    def _worked_out(self, means: str, shapes: Shapes) -> str | Callable[[Any], Means]:
        """A meaning with attributes that depend on the call; one without is its text."""
        kind, *words = means.split()
        terms = [word.partition("=") for word in words if "=" in word]
        functions = [self.named(word) for word in words if word.startswith("@")]
        if not terms and not functions and "+" not in words:
            return means
        fixed = {"fn": words[0]} if words[0].isidentifier() else {}
        by_shape = "+" in words or any(part[0].isalpha() for *_, term in terms for part in term.split("*"))

        def meaning(call: RowCall) -> Means:
            found = shapes(call) if by_shape else {}
            extents = found if isinstance(found, Mapping) else {}
            attrs = {**fixed, **(extents if "+" in words else {})}
            for function in functions:
                attrs |= function(call)
            for name, _, term in terms:
                number, factors = factors_of(call, term)
                elements = {"#x": prod(call.x()), "#y": prod(call.y())} if "#" in term else {}
                attrs[name] = known((product((number, *[elements.get(each, extents.get(each)) for each in factors])),))[
                    0
                ]
            return kind, attrs

        return meaning


def _holding(attrs: Any, words: Iterable[str]) -> tuple[str, ...]:
    """The words whose condition holds."""
    found = []
    for word in words:
        name, _, condition = word.partition("?")
        attribute, equals, value = condition.lstrip("!").partition("=")
        holds = not condition or (attrs.text(attribute, "") == value if equals else attrs.flag(attribute))
        if holds != condition.startswith("!"):
            found.append(name)
    return tuple(found)


# -- shapes that many operators have -----------------------------------------------------------------------------------


def same_shapes(call: RowCall) -> None:
    """All tensors around the node have one shape."""
    shape = None
    for known_shape in (*call.ins, *call.outs):
        shape = merge(shape, known_shape)
    if shape is not None:
        call.ins[:] = [merge(each, shape) for each in call.ins]
        call.outs[:] = [merge(each, shape) for each in call.outs]


def like_first(call: RowCall) -> None:
    """The first input and all outputs have one shape."""
    call.put_all(call.ins[0])
    for shape in call.outs:
        call.put_in(0, shape)


@cache
def pattern(form: str) -> ShapePattern:
    """The pattern of a text, one for each."""
    return ShapePattern(form)


class ShapePattern:
    """Shapes as they are written down: `l b 3*f, b*{heads} l l -> l b f`, the inputs before the arrow.

    A word is one extent wherever it occurs, `_` any, `...` any number of axes; `{name=7}` is an attribute and its default,
    `{*name}` the extents of one that is a tuple (`{*name=}` where it may be absent), `*` a tensor of any shape. What is known of
    some tensors settles the others, forwards and backwards.
    """

    def __init__(self, form: str) -> None:
        self.form = form
        self.inputs, self.outputs = (
            [part.split() for part in side.split(",") if part.strip()] for side in form.split("->")
        )

    def __call__(self, call: RowCall) -> dict[str, Extent]:
        """Refine the shapes; the extents of the words come back."""
        axes: Shape = None  # those of `...`
        extents: dict[str, Extent] = {}
        tensors = [
            (known_shapes, at, put, [term for word in words for term in self._terms(call, word)])
            for known_shapes, put, sides in (
                (call.ins, call.put_in, self.inputs),
                (call.outs, call.put_out, self.outputs),
            )
            for at, words in enumerate(sides[: len(known_shapes)])
            if words != ["*"]
        ]
        for known_shapes, at, _, axis_terms in tensors * 2:  # twice: a product may need a word of a later tensor
            shape = known_shapes[at]
            if shape is None:
                continue
            first = next((place for place, (_, words) in enumerate(axis_terms) if words == ["..."]), None)
            more = len(shape) - len(axis_terms)
            if more < -1 or (first is None and more):
                raise Mismatch(f"{text(shape)} does not fit {self.form}")
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
        return extents

    @staticmethod
    def _terms(call: RowCall, word: str) -> list[tuple[Extent, list[str]]]:
        """The extents that a word is, each as a factor and words."""
        if word in ("_", "..."):
            return [(None, [word] if word == "..." else [])]
        if word.startswith("{*"):
            name, optional, _ = word[2:-1].partition("=")
            return [(extent, []) for extent in call.attrs.integers(name, () if optional else None)]
        return [factors_of(call, word)]


def factors_of(call: RowCall, term: str) -> tuple[int, list[str]]:
    """The numbers and attributes in a product, multiplied, and its words."""
    parts = term.split("*")
    named = [part[1:-1].partition("=") for part in parts if part[0] == "{"]
    numbers = [call.attrs.integer(name, int(default) if default else None) for name, _, default in named]
    numbers += [int(part) for part in parts if part.isdecimal()]
    return prod(numbers), [part for part in parts if part[0].isalpha() or part[0] == "#"]


# -- element types -----------------------------------------------------------------------------------------------------


def _types(words: str) -> Types:
    """Sets the element types that the words of a row say."""
    name, equals, default = words.partition("=")
    attribute, named = name[:1].isalpha(), default.split()
    inputs = [0] if attribute else [int(place) for place in name.split()]

    def types(call: RowCall) -> None:
        if attribute and (equals or name in call.attrs):
            call.type_out(0, call.attrs.dtype(name) if name in call.attrs else default)
        elif equals:
            for index in range(len(call.out_types)):
                word = named[min(index, len(named) - 1)]
                call.type_out(index, call.in_types[0] if word == "x" else word)
        else:
            same_types(call, inputs or range(len(call.ins)))

    return types


def same_types(call: RowCall, inputs: Sequence[int]) -> None:
    """These inputs and all outputs have one element type; the other inputs have their own."""
    types = call.in_types
    known_types = [types[index] for index in inputs if index < len(types)]
    found = next((dtype for dtype in (*known_types, *call.out_types) if dtype is not None), None)
    if found is not None and None in (*known_types, *call.out_types):
        types[:] = [dtype or (found if index in inputs else None) for index, dtype in enumerate(types)]
        call.out_types[:] = [dtype or found for dtype in call.out_types]
