"""Shapes and element types of every tensor, as a fix point of rules that look forwards and backwards.

A rule sees one node and refines what is known around it. The rules of all nodes that share a refined tensor run again, in
sweeps from the first node to the last and back, until nothing changes. What is known never changes, so this ends.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from opcost.core.shapes import Mismatch, Shape, Unknown, merge, text
from opcost.errors import InputError, SourceError
from opcost.frontends.building import check_extents
from opcost.frontends.mxnet.ops import all_operators
from opcost.frontends.mxnet.ops.table import Inferred, SymbolCall
from opcost.frontends.mxnet.roles import OLD_NAMES
from opcost.frontends.mxnet.symbol import AttributeFault, Attributes, Symbol, SymbolNode
from opcost.frontends.rows import RowOperator, Type

MOST_AXES = 32
DEFAULT_TYPE = "float32"  # The element type of a variable of which no other is known

FLAWS = (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError)
"""What rules raise where attributes do not fit the inputs."""


def infer(
    symbol: Symbol, shapes: Mapping[int, Shape], types: Mapping[int, Type], *, heads: Sequence[Shape] = (),
    training: bool = False, names: Mapping[int, str] | None = None,
) -> Inferred:  # fmt: skip
    """Work out a graph from what is known of some variables (by their nodes) and of its heads.

    `names` says where the shape of a variable came from, for the error about two that differ.
    """
    return _Inference(symbol, training=training, origins=names or {}).run(shapes, types, heads)


class Naming:
    """Says of which node attributes or inputs do not fit."""

    __slots__ = ("hint", "ins", "node")

    def __init__(
        self, node: SymbolNode, ins: Sequence[Shape] = (), hint: Callable[[SymbolNode], str] | None = None
    ) -> None:
        self.node, self.ins, self.hint = node, ins, hint

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, Mismatch):
            raise InputError(f"{self.node}: {exc}", hint=self.hint(self.node) if self.hint else "") from exc
        if isinstance(exc, AttributeFault):
            raise SourceError(f"{self.node}: {exc.message}") from exc
        if isinstance(exc, FLAWS):
            seen = f"{len(self.ins)} inputs ({', '.join(map(text, self.ins))})"
            raise SourceError(f"{self.node}: its attributes do not fit its {seen}") from exc


class _Inference:
    def __init__(self, symbol: Symbol, *, training: bool, origins: Mapping[int, str]) -> None:
        self.symbol, self.training, self.origins = symbol, training, origins
        table = all_operators()
        self.rules: list[RowOperator | None] = [table.get(node.op) for node in symbol.nodes]
        counts = [1] * len(symbol.nodes)
        for source, output in (*symbol.heads, *(entry for node in symbol.nodes for entry in node.inputs)):
            counts[source] = max(counts[source], output + 1)
        operators = [(node, rule) for node, rule in zip(symbol.nodes, self.rules, strict=True) if rule is not None]
        for node, rule in operators:
            with Naming(node):
                counts[node.id] = max(counts[node.id], rule.outputs(node.attrs))
        self.found = Inferred([[None] * count for count in counts], [[None] * count for count in counts])
        self.readers: list[list[int]] = [[] for _ in symbol.nodes]
        for node in symbol.nodes:
            for source, _ in node.inputs:
                self.readers[source].append(node.id)
        self.pending = bytearray(rule is not None for rule in self.rules)

    def run(self, shapes: Mapping[int, Shape], types: Mapping[int, Type], heads: Sequence[Shape]) -> Inferred:
        found = self.found
        for node, shape in shapes.items():
            found.shapes[node][0] = shape
        for node, dtype in types.items():
            found.types[node][0] = dtype
        for (node, output), shape in zip(self.symbol.heads, heads, strict=False):
            found.shapes[node][output] = merge(found.shapes[node][output], shape)
        self._settle()
        untyped = [node.id for node in self.symbol.variables if found.types[node.id][0] is None]
        for node in untyped:
            found.types[node][0] = DEFAULT_TYPE
            self._touch(node, -1)
        if untyped:
            self._settle()
        return found

    def _settle(self) -> None:
        """Sweep forwards and backwards until no rule has anything to add."""
        order: Sequence[SymbolNode] = self.symbol.nodes
        while any(self.pending):
            for node in order:
                if self.pending[node.id]:
                    self.pending[node.id] = 0
                    self._refine(node)
            order = order[::-1]

    def _refine(self, node: SymbolNode) -> None:
        """Apply the rule of a node, and note what it has found of the tensors around."""
        rule = self.rules[node.id]
        assert rule is not None
        call = self.found.call(node, self.symbol, training=self.training, infer=infer)
        ins, in_types = call.ins[:], call.in_types[:]
        with Naming(node, call.ins, self._hint):
            with suppress(Unknown):
                rule.infer(call)
            rule.infer_types(call)
            if call.ins != ins or call.in_types != in_types:
                for place, (source, output) in enumerate(node.inputs):
                    if call.ins[place] is not ins[place] or call.in_types[place] is not in_types[place]:
                        self._learn(source, output, call.ins[place], call.in_types[place], node)
            outs, out_types = self.found.shapes[node.id], self.found.types[node.id]
            for output, shape in enumerate(call.outs):
                if shape is not outs[output] or call.out_types[output] is not out_types[output]:
                    self._learn(node.id, output, shape, call.out_types[output], node)

    def _learn(self, node: int, output: int, shape: Shape, dtype: Type, source: SymbolNode) -> None:
        """Note what a rule has found, and let the rules of all other nodes that share that tensor run again."""
        if shape is not None:
            check_extents(shape, source, MOST_AXES)
        shapes, types = self.found.shapes[node], self.found.types[node]
        merged = merge(shapes[output], shape)
        if merged != shapes[output] or types[output] != dtype:
            shapes[output] = merged
            types[output] = types[output] or dtype
            self._touch(node, source.id)

    def _touch(self, node: int, source: int) -> None:
        for other in (node, *self.readers[node]):
            if other != source and self.rules[other] is not None:
                self.pending[other] = 1

    def _hint(self, node: SymbolNode) -> str:
        """Where the shapes around a node came from, as far as they were given."""
        known = []
        for source, output in node.inputs:
            shape = self.found.shapes[source][output]
            if shape is not None:
                origin = self.origins.get(source, "")
                known.append(f"{self.symbol.nodes[source].name} is {text(shape)}{f' ({origin})' if origin else ''}")
        return "; ".join(known[:8]) or "check the shapes of the inputs"


@lru_cache(maxsize=4096)
def kind_of(name: str) -> str:
    """The kind of an ordinary call of an operator in training, by its name alone; empty where that does not say it."""
    operator = all_operators().get(OLD_NAMES.get(name, name))
    if operator is None:
        return ""
    kind, shapes = operator.kind, [(2, 2, 2, 2)] * 2
    if not kind:  # a call in which nothing is trivial: what comes out is of another type than what goes in
        attrs = Attributes({"sample_type": "nearest"})
        call = SymbolCall(attrs, [*shapes], [*shapes], ["float32"] * 2, ["float16"] * 2, training=True)
        kind, _ = operator.meaning(call)
    return "" if kind in ("unknown", "einsum") else kind
