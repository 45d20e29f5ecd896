"""Shapes and element types of every tensor, as a fix point of rules that look forwards and backwards.

A rule sees one node and refines what is known around it. Whoever shares a refined tensor is asked again, in sweeps from the
first node to the last and back, until nothing changes. What is known never changes, so this ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from opcost.core.shapes import Mismatch, Shape, Unknown, merge, text
from opcost.errors import InputError, SourceError
from opcost.frontends.building import check_extents
from opcost.frontends.mxnet.attribute import AttributeFault
from opcost.frontends.mxnet.ops import all_operators
from opcost.frontends.mxnet.ops.table import Call, Inferred, Operator, Type
from opcost.frontends.mxnet.symbol import Node, Symbol, used_outputs

MOST_AXES = 32
DEFAULT_TYPE = "float32"
"""The element type of a variable about which nobody says anything."""


def infer(
    symbol: Symbol,
    shapes: Mapping[int, Shape],
    types: Mapping[int, Type],
    *,
    heads: Sequence[Shape] = (),
    training: bool = False,
    names: Mapping[int, str] | None = None,
) -> Inferred:
    """Work out a graph from what is known of some variables (by their nodes) and of its heads.

    `names` says where the shape of a variable came from, for the error that must tell two of them apart.
    """
    return _Inference(symbol, training=training, origins=names or {}).run(shapes, types, heads)


class _Inference:
    def __init__(self, symbol: Symbol, *, training: bool, origins: Mapping[int, str]) -> None:
        self.symbol = symbol
        self.training = training
        self.origins = origins
        table = all_operators()
        self.rules: list[Operator | None] = [table.get(node.op) for node in symbol.nodes]
        counts = [
            max(used, _outputs(node, rule))
            for node, rule, used in zip(symbol.nodes, self.rules, used_outputs(symbol), strict=True)
        ]
        self.shapes: list[list[Shape]] = [[None] * count for count in counts]
        self.types: list[list[Type]] = [[None] * count for count in counts]
        self.readers: list[list[int]] = [[] for _ in symbol.nodes]
        for node in symbol.nodes:
            for source, _ in node.inputs:
                self.readers[source].append(node.id)
        self.pending = bytearray(rule is not None for rule in self.rules)

    def run(self, shapes: Mapping[int, Shape], types: Mapping[int, Type], heads: Sequence[Shape]) -> Inferred:
        for node, shape in shapes.items():
            self.shapes[node][0] = shape
        for node, dtype in types.items():
            self.types[node][0] = dtype
        for (node, output), shape in zip(self.symbol.heads, heads, strict=False):
            self.shapes[node][output] = merge(self.shapes[node][output], shape)
        self._settle()
        if self._assume_types():
            self._settle()
        return Inferred(self.shapes, self.types)

    def _settle(self) -> None:
        """Sweep forwards and backwards until nobody has anything to add."""
        order: Sequence[Node] = self.symbol.nodes
        while any(self.pending):
            for node in order:
                if self.pending[node.id]:
                    self.pending[node.id] = 0
                    self._ask(node)
            order = order[::-1]

    def _assume_types(self) -> bool:
        """Give the default type to variables that nobody has typed."""
        changed = False
        for node in self.symbol.nodes:
            if node.is_variable and self.types[node.id][0] is None:
                self.types[node.id][0] = DEFAULT_TYPE
                self._touch(node.id, -1)
                changed = True
        return changed

    def _ask(self, node: Node) -> None:
        rule = self.rules[node.id]
        assert rule is not None
        shapes, types = self.shapes, self.types
        ins = [shapes[source][output] for source, output in node.inputs]
        in_types = [types[source][output] for source, output in node.inputs]
        outs, out_types = shapes[node.id], types[node.id]
        call = Call(
            node.attrs, list(ins), list(outs), list(in_types), list(out_types),
            np_shape=self.symbol.np_shape, version=self.symbol.version, training=self.training, subgraphs=node.subgraphs,
            infer=infer,
        )  # fmt: skip
        self._apply(rule, call, node)
        if call.ins == ins and call.outs == outs and call.in_types == in_types and call.out_types == out_types:
            return
        for place, (source, output) in enumerate(node.inputs):
            if call.ins[place] is not ins[place] or call.in_types[place] is not in_types[place]:
                self._learn(source, output, call.ins[place], call.in_types[place], node)
        for output, shape in enumerate(call.outs):
            if shape is not outs[output] or call.out_types[output] is not out_types[output]:
                self._learn(node.id, output, shape, call.out_types[output], node)

    def _apply(self, rule: Operator, call: Call, node: Node) -> None:
        try:
            with suppress(Unknown):
                rule.infer(call)
            rule.types(call)
        except Mismatch as exc:
            raise InputError(f"{node}: {exc}", hint=self._hint(node)) from exc
        except AttributeFault as exc:
            raise SourceError(f"{node}: {exc.message}") from exc
        except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as exc:
            seen = ", ".join(map(text, call.ins))
            raise SourceError(f"{node}: its attributes do not fit its {len(call.ins)} inputs ({seen})") from exc

    def _learn(self, node: int, output: int, shape: Shape, dtype: Type, asked: Node) -> None:
        """Write down what a rule has found, and ask everybody else who shares that tensor again."""
        if shape is not None:
            check_extents(shape, asked, MOST_AXES)
        try:
            merged = merge(self.shapes[node][output], shape)
        except Mismatch as exc:
            raise InputError(f"{asked}: {exc}", hint=self._hint(asked)) from exc
        if merged != self.shapes[node][output] or self.types[node][output] != dtype:
            self.shapes[node][output] = merged
            self.types[node][output] = self.types[node][output] or dtype
            self._touch(node, asked.id)

    def _touch(self, node: int, asked: int) -> None:
        for other in (node, *self.readers[node]):
            if other != asked and self.rules[other] is not None:
                self.pending[other] = 1

    def _hint(self, node: Node) -> str:
        """Where the shapes around a node came from, as far as they were given."""
        known = []
        for source, output in node.inputs:
            shape = self.shapes[source][output]
            if shape is not None:
                origin = self.origins.get(source, "")
                known.append(f"{self.symbol.nodes[source].name} is {text(shape)}{f' ({origin})' if origin else ''}")
        return "; ".join(known[:8]) or "check the shapes of the inputs"


def _outputs(node: Node, rule: Operator | None) -> int:
    if rule is None:
        return 1
    try:
        return rule.output_count(node.attrs)
    except AttributeFault as exc:
        raise SourceError(f"{node}: {exc.message}") from exc
