"""One node of a symbol as the rows of `operators.json` see it (`frontends.rows` has their words), and operators on bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import TypeAlias

from opcost.core.shapes import Shape, Unknown
from opcost.frontends.mxnet.symbol import MOST_OUTPUTS, AttributeFault, Attributes, Entry, Symbol, SymbolNode
from opcost.frontends.rows import Means, Places, RowCall, RowFunctions, RowOperator, Tensor, Type


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


# -- eight-bit arithmetic: every tensor comes with the smallest and the largest number that it represents ----------------


def _ranges(call: SymbolCall, tensors: int, dtype: Type) -> None:
    """What is behind the tensors, and behind the result of this type, are ranges: one element in single precision each."""
    single: Tensor = ((1,), "float32")
    call.type_out(0, dtype)
    call.learn([(index, single) for index in range(tensors, len(call.ins))], [(1, single), (2, single)])


def on_bytes(
    table: Mapping[str, RowOperator], ops: str, like: str, types: str, tensors: int = 0, slots: str = ""
) -> RowOperator:
    """What an operator of full precision computes, on tensors without their ranges; a third of the inputs unless given."""
    base = table[like]

    def part(call: SymbolCall) -> SymbolCall:
        """The call as the operator of full precision sees it."""
        count = tensors or len(call.ins) // 3
        outs, types = call.outs[:1], call.out_types[:1]
        return replace(call, ins=call.ins[:count], outs=outs, in_types=call.in_types[:count], out_types=types)

    def shapes(call: SymbolCall) -> None:
        plain = part(call)
        with suppress(Unknown):
            base.infer(plain)
        call.ins[: len(plain.ins)] = plain.ins
        call.outs[:1] = plain.outs

    def means(call: SymbolCall) -> Means:
        return base.meaning(part(call))

    def reads(call: SymbolCall) -> Places:
        return inputs_of(base, part(call), means(call)[0])

    found = FUNCTIONS.row(ops, shapes, base.kind, types, 3, slots, results=[0])
    meaning = means if callable(base.means) else base.means
    return replace(found, means=meaning, reads=reads, kind=base.kind, slots=found.slots or base.slots)


def _byte_types(call: SymbolCall, dtype: str, tensors: int = 0, weights: str = "int8") -> None:
    """Bytes in, whole numbers out; `same`: the result is as narrow as the input."""
    count = tensors or len(call.ins) // 3
    for index in range(1, count):
        call.type_in(index, weights)
    _ranges(call, count, call.in_types[0] if dtype == "same" else dtype)


def _joined_bytes(call: SymbolCall) -> None:
    tensors = call.in_types[: len(call.ins) // 3]
    _ranges(call, len(tensors), None if None in tensors else "int8" if "int8" in tensors else "uint8")


def _narrowed(call: SymbolCall, default: str, source: Type = None) -> None:
    """To bytes: signed unless the attribute says otherwise, or, left to itself, unless the range has no negatives."""
    call.type_in(0, source)
    wanted = call.attrs.text("out_type", default)
    if wanted == "auto":
        wanted = "uint8" if call.attrs.number("min_calib_range", -1.0) >= 0 else "int8"
    _ranges(call, 1, wanted)


def _calibrated(call: SymbolCall) -> None:
    """The sum of two bytes is one where its range was measured beforehand, else a longer number."""
    first, second = call.in_types[0], call.in_types[1]
    if "min_calib_range" not in call.attrs or "max_calib_range" not in call.attrs:
        _ranges(call, 2, "int32")
    else:
        _ranges(call, 2, None if first is None or second is None else first if first == second else "int8")


def _multiplied_bytes(call: SymbolCall) -> None:
    if call.attrs.flag("enable_float_output"):
        call.type_out(0, "float32")
    _calibrated(call)
