"""One node of a symbol as the rows of `operators.json` see it; see `frontends.rows` for their words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TypeAlias

from opcost.core.shapes import Shape
from opcost.errors import GraphError
from opcost.frontends.mxnet.symbol import MOST_OUTPUTS, AttributeFault, Attributes, Entry, Symbol, SymbolNode
from opcost.frontends.rows import Places, RowCall, RowFunctions, RowOperator, Type


@dataclass(frozen=True, slots=True)
class Inferred:
    """What is known of each output of each node."""

    shapes: list[list[Shape]]
    types: list[list[Type]]

    def shapes_of(self, entries: Iterable[Entry]) -> list[Shape]:
        return [self.shapes[node][output] for node, output in entries]

    def types_of(self, entries: Iterable[Entry]) -> list[Type]:
        return [self.types[node][output] for node, output in entries]

    def call(self, node: SymbolNode, symbol: Symbol, *, training: bool, infer: InferGraph | None = None) -> SymbolCall:
        """A node as its row sees it."""
        return SymbolCall(
            node.attrs, self.shapes_of(node.inputs), list(self.shapes[node.id]), self.types_of(node.inputs),
            list(self.types[node.id]), np_shape=symbol.np_shape, version=symbol.version, training=training,
            subgraphs=node.subgraphs, infer=infer,
        )  # fmt: skip


InferGraph: TypeAlias = Callable[..., Inferred]  # Works out a graph: see `infer.infer`


@dataclass(slots=True, eq=False)
class SymbolCall(RowCall):
    """One node with what is known of the tensors around it."""

    attrs: Attributes
    _: KW_ONLY
    np_shape: bool = False
    version: int = 10901
    training: bool = False
    subgraphs: tuple[Symbol, ...] = ()
    infer: InferGraph | None = None  # For the graphs inside; set while shapes are worked out

    def given(self, shape: Iterable[int]) -> Shape:
        """A shape from an attribute, in which an unknown extent is written 0, or -1 with NumPy's shapes."""
        return tuple([None if extent == (-1 if self.np_shape else 0) else extent for extent in shape])

    @property
    def scalar(self) -> tuple[int, ...]:
        """The shape of a single number."""
        return () if self.np_shape else (1,)


FUNCTIONS = RowFunctions()


def parts_of(count: int) -> int:
    """A number of outputs that an operator may have."""
    if not 1 <= count <= MOST_OUTPUTS:
        raise AttributeFault(f"it has {count} outputs, and at most {MOST_OUTPUTS} are possible")
    return count


FUNCTIONS.update(parts=lambda attrs: parts_of(attrs.integer("num_outputs", 1)))


def inputs_of(operator: RowOperator, call: SymbolCall, kind: str) -> Places:
    """The inputs that the kind takes; a view has one, and inputs behind the last may be left out."""
    count, places = len(call.ins), operator.read(call)
    if places is None:
        return tuple(range(min(count, 1) if kind == "view" else count))
    return tuple([place for place in places if place < count])


def table_of(*families: Iterable[RowOperator]) -> dict[str, RowOperator]:
    """Operators by all their names; a name with two rows is an error."""
    found: dict[str, RowOperator] = {}
    for family in families:
        for operator in family:
            for name in operator.names:
                if name in found:
                    raise GraphError(f"the MXNet operator {name!r} has two rows")
                found[name] = operator
    return found
