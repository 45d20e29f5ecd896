"""A graph as it is made from a file: values, operators, notes, and the tree that the paths of modules form."""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

from opcost.core.graph import NO_ATTRS, Attr, Attrs, Graph, Note, Op, Role, TensorSpec, Value
from opcost.core.shapes import text
from opcost.errors import InputError, SourceError

MOST_ELEMENTS = (1 << 63) - 1


class GraphBuilder:
    """Makes values and operators in order; equal specs and attributes are one object, by which costs are cached."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.ops: list[Op] = []
        self.notes: dict[Note, None] = {}
        self.choices: list[tuple[tuple[int, int], ...]] = []
        self._specs: dict[tuple[Any, str], TensorSpec] = {}
        self._attrs: dict[tuple[tuple[str, Attr], ...], Attrs] = {}

    def spec(self, shape: tuple[int | None, ...] | None, dtype: str) -> TensorSpec:
        found = self._specs.get((shape, dtype))
        if found is None:
            found = self._specs[shape, dtype] = TensorSpec(shape, dtype)
        return found

    def value(
        self, name: str, spec: TensorSpec, role: Role = "activation", *, home: int | None = None, trainable: bool = False
    ) -> int:  # fmt: skip
        """A new value, in the memory of `home` if that is given."""
        index = len(self.values)
        storage = index if home is None else self.values[home].storage
        self.values.append(Value(index, name, spec, role, storage, trainable))
        return index

    def op(
        self, kind: str, attrs: Attrs, raw: str, inputs: Iterable[int], outputs: Iterable[int], module: str = "", repeat: int = 1,
        native: Attrs = NO_ATTRS,
    ) -> None:  # fmt: skip
        """A new operator."""
        attrs = self._attrs.setdefault(tuple(attrs.items()), attrs) if attrs else NO_ATTRS
        read, made = tuple(inputs), tuple(outputs)
        self.ops.append(Op(len(self.ops), kind, raw, read, made, attrs, module, repeat, native=native))

    def note(self, code: str, text: str, where: str = "") -> None:
        """Something that the reader of the report must know; repeated ones are one."""
        self.notes[Note(code, text, where)] = None

    def graph(self, source: str, framework: str, meta: Mapping[str, str], **parts: Any) -> Graph:
        """The graph of all that was made; `parts` are its modules, calls, inputs and outputs."""
        parts |= {"values": self.values, "ops": self.ops, "notes": self.notes}
        made: dict[str, Any] = {name: tuple(part) for name, part in parts.items()}
        return Graph(source=source, framework=framework, meta=meta, **made)


def check_extents(shape: tuple[int | None, ...] | None, node: object, most_axes: int) -> None:
    """Refuse a shape that no tensor can have, before numbers grow without end."""
    if shape is None:
        return
    if len(shape) > most_axes:
        raise SourceError(f"{node}: a tensor would have {len(shape)} axes, and at most {most_axes} are possible")
    known = [extent for extent in shape if extent is not None]
    if any(extent < 0 for extent in known):
        fault = f"{node}: a tensor would have the shape {text(shape)}"
        raise InputError(fault, hint="the input is too small for this model")
    if prod(known) > MOST_ELEMENTS:
        raise SourceError(f"{node}: a tensor would have the shape {text(shape)}, more than memory can address")


def above(path: str) -> Iterator[str]:
    """All modules around this one, outermost first, the root left out."""
    at = path.find(".")
    while at >= 0:
        yield path[:at]
        at = path.find(".", at + 1)


def with_above(paths: Iterable[str]) -> list[str]:
    """The root, and the paths with every module above them, each before what is in it."""
    found: dict[str, None] = {"": None}
    for path in paths:
        found.update(dict.fromkeys(above(path)))
        found[path] = None
    return list(found)


def tree_order(paths: Iterable[str]) -> Iterator[str]:
    """Parents first, each followed by all that is below it, in the order of appearance; every module above is among them."""
    children: dict[str, list[str]] = {}
    for path in paths:
        if path:
            children.setdefault(path.rpartition(".")[0], []).append(path)
    waiting = [""]
    while waiting:
        path = waiting.pop()
        yield path
        waiting += reversed(children.get(path, []))
