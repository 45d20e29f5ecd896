"""A worked-out symbol as our Graph: values, operators in our words, modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opcost.core.graph import NO_ATTRS, Graph, Module, Note, Role, TensorSpec
from opcost.core.shapes import Mismatch, Shape, Unknown
from opcost.errors import SourceError
from opcost.frontends.building import GraphBuilder, with_above
from opcost.frontends.mxnet.attribute import AttributeFault
from opcost.frontends.mxnet.infer import DEFAULT_TYPE, infer
from opcost.frontends.mxnet.naming import inner_name, paths_of, unique
from opcost.frontends.mxnet.ops import all_operators
from opcost.frontends.mxnet.ops.control import (
    CONDITIONAL,
    CUSTOM,
    FOREACH,
    FUSED,
    WHILE,
    Loop,
    fused_inputs,
    loop_of,
    trips_of,
)
from opcost.frontends.mxnet.ops.table import UNKNOWN, Call, Inferred, Translation
from opcost.frontends.mxnet.roles import Roles
from opcost.frontends.mxnet.symbol import Entry, Node, Symbol

SCOPE = "scope"
"""The type of a module that is only a common prefix of names."""


class _Maker(GraphBuilder):
    """Values and operators as they are made."""

    def typed(self, shape: Shape, dtype: str | None) -> TensorSpec:
        """A spec with the type that MXNet takes where none is known."""
        return self.spec(shape, dtype or DEFAULT_TYPE)

    def move(self, value: int, home: int, begin: int) -> bool:
        """Let a value, and all views of it made since `begin`, live in another's memory; False if its memory is not its own."""
        storage = self.values[value].storage
        if storage < begin:
            return False
        for index in range(begin, len(self.values)):
            if self.values[index].storage == storage:
                self.values[index] = self.values[index]._replace(storage=home)
        return True


class Built(NamedTuple):
    """A graph, and for each of its operators the node of the symbol that it comes from."""

    graph: Graph
    nodes: tuple[int, ...]


def build(
    symbol: Symbol,
    inferred: Inferred,
    roles: Roles,
    *,
    source: str,
    notes: Sequence[Note] = (),
    meta: Mapping[str, str] | None = None,
    training: bool = False,
) -> Built:
    """The graph of a symbol whose shapes are worked out and whose variables are told apart."""
    maker = _Maker()
    made = _variables(maker, symbol, inferred, roles)
    paths = _paths(symbol, roles)
    maker.notes.update(dict.fromkeys(notes))
    emitter = _Emitter(maker, training=training)
    origins: list[int] = []
    for node in symbol.nodes:
        emitter.node(node, symbol, inferred, made, paths, repeat=1)
        origins.extend([node.id] * (len(maker.ops) - len(origins)))
    graph = maker.graph(
        source,
        "mxnet",
        {"version": symbol.version_text, "mode": "train" if training else "eval", **(meta or {})},
        modules=_modules(symbol, inferred, roles, paths, made, maker, source),
        inputs=(made[node, 0] for node in roles.inputs),
        outputs=(made[entry] for entry in symbol.heads),
    )
    return Built(graph, tuple(origins))


def _variables(maker: _Maker, symbol: Symbol, inferred: Inferred, roles: Roles) -> dict[Entry, int]:
    kinds: dict[int, Role] = dict.fromkeys(roles.inputs, "input")
    kinds |= dict.fromkeys(roles.weights, "param")
    kinds |= dict.fromkeys(roles.states, "buffer")
    made: dict[Entry, int] = {}
    for node in symbol.variables:
        spec = maker.typed(inferred.shapes[node.id][0], inferred.types[node.id][0])
        role = kinds[node.id]
        trainable = role == "param" and node.id not in roles.frozen
        made[node.id, 0] = maker.value(node.name, spec, role, trainable=trainable)
    return made


def _paths(symbol: Symbol, roles: Roles) -> dict[int, str]:
    """A module path for each operator."""
    held = {*roles.weights, *roles.states}
    operators = [node for node in symbol.nodes if not node.is_variable]
    weights = [[symbol.nodes[source].name for source, _ in node.inputs if source in held] for node in operators]
    found = paths_of([node.name or node.op for node in operators], weights)
    return {node.id: path for node, path in zip(operators, found, strict=True)}


class _Emitter:
    """Makes the operators of a graph, and of the graphs inside its nodes."""

    def __init__(self, maker: _Maker, *, training: bool) -> None:
        self.maker = maker
        self.training = training
        self.table = all_operators()

    def node(
        self,
        node: Node,
        symbol: Symbol,
        inferred: Inferred,
        made: dict[Entry, int],
        paths: Mapping[int, str],
        *,
        repeat: int,
    ) -> None:
        """The operators of one node; a variable has none."""
        if node.is_variable:
            return
        path = paths[node.id]
        if node.op in FUSED and node.subgraphs:
            self._fused(node, inferred, made, path, repeat=repeat)
        elif node.op in FOREACH and node.subgraphs and self._loop(node, inferred) is not None:
            self._foreach(node, inferred, made, path, repeat=repeat)
        else:
            self._plain(node, symbol, inferred, made, path, repeat=repeat)

    def _body(self, body: Symbol, inferred: Inferred, made: dict[Entry, int], path: str, *, repeat: int) -> None:
        """The operators of a graph inside a node, which all belong to that node's module."""
        paths = {node.id: path for node in body.nodes}
        for node in body.nodes:
            self.node(node, body, inferred, made, paths, repeat=repeat)

    def _plain(
        self, node: Node, symbol: Symbol, inferred: Inferred, made: dict[Entry, int], path: str, *, repeat: int
    ) -> None:
        found = self._translated(node, symbol, inferred)
        inputs = [made[entry] for entry in node.inputs]
        if found.inputs is not None:
            inputs = [inputs[place] for place in found.inputs if place < len(inputs)]
        outputs = []
        for output, shape in enumerate(inferred.shapes[node.id]):
            spec = self.maker.typed(shape, inferred.types[node.id][output])
            home = inputs[0] if found.kind == "view" and inputs and not output else None
            value = self.maker.value(_output_name(node, output, inferred), spec, home=home)
            made[node.id, output] = value
            outputs.append(value)
        self.maker.op(found.kind, found.attrs, _raw(node), inputs, outputs[: found.results], path, repeat)
        if found.results is not None and outputs[found.results :]:
            self.maker.op("create", NO_ATTRS, _raw(node), (), outputs[found.results :], path, repeat)

    def _translated(self, node: Node, symbol: Symbol, inferred: Inferred) -> Translation:
        rule = self.table.get(node.op)
        if rule is None:
            return UNKNOWN
        call = Call(
            node.attrs,
            [inferred.shapes[source][output] for source, output in node.inputs],
            inferred.shapes[node.id],
            [inferred.types[source][output] for source, output in node.inputs],
            inferred.types[node.id],
            np_shape=symbol.np_shape,
            version=symbol.version,
            training=self.training,
            subgraphs=node.subgraphs,
        )
        try:
            found = rule.translated(call)
        except Unknown:
            return UNKNOWN
        except Mismatch as exc:
            raise SourceError(f"{node}: {exc}") from exc
        except AttributeFault as exc:
            raise SourceError(f"{node}: {exc.message}") from exc
        except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as exc:
            raise SourceError(f"{node}: its attributes do not fit its inputs") from exc
        if found.kind == "unknown" and node.op in _WHY:
            self.maker.note("not-in-file", f"{_raw(node)}: {_WHY[node.op]}", node.name)
        return found

    def _fused(self, node: Node, inferred: Inferred, made: dict[Entry, int], path: str, *, repeat: int) -> None:
        """A fused operator is the graph inside it; what it adds for quantized numbers are ranges."""
        body = node.subgraphs[0]
        own = fused_inputs(body, len(node.inputs))
        entries = [made[entry] for entry in node.inputs]
        inner, made_inside = self._inside(
            body, dict(enumerate(node.inputs[:own])), dict(enumerate(entries[:own])), inferred
        )
        self._body(body, inner, made_inside, path, repeat=repeat)
        for output in range(len(inferred.shapes[node.id])):
            if output < len(body.heads):
                made[node.id, output] = made_inside[body.heads[output]]
            else:
                spec = self.maker.typed(inferred.shapes[node.id][output], inferred.types[node.id][output])
                value = self.maker.value(_output_name(node, output, inferred), spec)
                self.maker.op("create", NO_ATTRS, _raw(node), (), (value,), path, repeat)
                made[node.id, output] = value

    def _inside(
        self, body: Symbol, wiring: Mapping[int, Entry], values: Mapping[int, int], outer: Inferred,
        shapes: Mapping[int, Shape] | None = None,
    ) -> tuple[Inferred, dict[Entry, int]]:  # fmt: skip
        """A body worked out, with the values that its variables stand for; `wiring` leads from variables to entries."""
        variables = [variable.id for variable in body.variables]
        known: dict[int, Shape] = {}
        types: dict[int, str | None] = {}
        for place, (source, output) in wiring.items():
            known[variables[place]] = (shapes or {}).get(place, outer.shapes[source][output])
            types[variables[place]] = outer.types[source][output]
        inner = infer(body, known, types, training=self.training)
        made = {(variables[place], 0): value for place, value in values.items()}
        for place, variable in enumerate(variables):
            if place not in values:
                spec = self.maker.typed(inner.shapes[variable][0], inner.types[variable][0])
                made[variable, 0] = self.maker.value(body.nodes[variable].name, spec, "const")
        return inner, made

    def _loop(self, node: Node, inferred: Inferred) -> Loop | None:
        """The wiring of a loop whose number of steps is known."""
        loop = loop_of(node.attrs, node.subgraphs[0], len(node.inputs))
        ins = [inferred.shapes[source][output] for source, output in node.inputs]
        return loop if trips_of(loop, ins, inferred.shapes[node.id]) is not None else None

    def _foreach(self, node: Node, inferred: Inferred, made: dict[Entry, int], path: str, *, repeat: int) -> None:
        """The body once, its operators repeated; a step of an input is a view, and results are written where they are kept."""
        maker, body = self.maker, node.subgraphs[0]
        loop = loop_of(node.attrs, body, len(node.inputs))
        ins = [inferred.shapes[source][output] for source, output in node.inputs]
        trips = trips_of(loop, ins, inferred.shapes[node.id]) or 0
        shapes: dict[int, Shape] = {}
        values: dict[int, int] = {}
        for place, variable in enumerate(loop.variables):
            value = made[node.inputs[place]]
            if place < len(loop.sliced):
                whole = maker.values[value]
                step = (whole.spec.shape or ())[1:]
                shapes[variable] = step
                value = maker.value(f"{whole.name}[step]", maker.typed(step, whole.spec.dtype), home=value)
                maker.op("view", NO_ATTRS, _raw(node), (made[node.inputs[place]],), (value,), path, repeat * trips)
            values[variable] = value
        stacked = [
            maker.value(
                _output_name(node, output, inferred),
                maker.typed(inferred.shapes[node.id][output], inferred.types[node.id][output]),
            )
            for output in range(loop.outputs)
        ]
        wiring = {variable: node.inputs[place] for place, variable in enumerate(loop.variables)}
        inner, made_inside = self._inside(body, wiring, values, inferred, shapes)
        begin = len(maker.values)
        self._body(body, inner, made_inside, path, repeat=repeat * trips)
        for output in range(len(inferred.shapes[node.id])):
            if output >= len(body.heads):
                made[node.id, output] = maker.value(
                    _output_name(node, output, inferred), maker.typed(None, None), "const"
                )
                continue
            head = made_inside[body.heads[output]]
            if output < loop.outputs:
                kind = "view" if maker.move(head, stacked[output], begin) else "copy"
                maker.op(kind, NO_ATTRS, _raw(node), (head,), (stacked[output],), path, repeat)
                head = stacked[output]
            made[node.id, output] = head


_WHY = {
    **dict.fromkeys(
        CUSTOM, "Python code that the file does not hold, so its cost and the shapes behind it are not known"
    ),
    **dict.fromkeys(
        CONDITIONAL, "which branch runs depends on data, so its cost and the shapes behind it are not known"
    ),
    **dict.fromkeys(WHILE, "how often it runs depends on data, so its cost and the shapes behind it are not known"),
    **dict.fromkeys(FOREACH, "how often it runs is not known"),
}


def _raw(node: Node) -> str:
    """The framework's word for an operator; a custom one by the name of its Python class."""
    if node.op in CUSTOM:
        return f"mxnet::{node.op}:{node.attrs.raw.get('op_type', '?')}"
    return f"mxnet::{node.op}"


def _output_name(node: Node, output: int, inferred: Inferred) -> str:
    return f"{node.name}_output{output if len(inferred.shapes[node.id]) > 1 else ''}"


def _modules(
    symbol: Symbol,
    inferred: Inferred,
    roles: Roles,
    paths: Mapping[int, str],
    made: Mapping[Entry, int],
    maker: _Maker,
    source: str,
) -> tuple[Module, ...]:
    """One module per operator's path, with the weights it reads, and the scopes above."""
    held: dict[str, tuple[dict[int, str], dict[int, str]]] = {}
    first: dict[str, Node] = {}
    calls: dict[str, int] = {}
    weights, states = set(roles.weights), set(roles.states)
    for node in symbol.nodes:
        if node.is_variable:
            continue
        path = paths[node.id]
        first.setdefault(path, node)
        calls[path] = calls.get(path, 0) + 1
        parameters, buffers = held.setdefault(path, ({}, {}))
        for index, _ in node.inputs:
            if index in weights or index in states:
                variable = symbol.nodes[index]
                owned = parameters if index in weights else buffers
                owned.setdefault(made[index, 0], inner_name(variable.name, node.name, path))
    return tuple(
        _module(path, first.get(path), inferred, symbol, maker, source, calls.get(path, 0), *held.get(path, ({}, {})))
        for path in with_above(paths.values())
    )


def _module(
    path: str, node: Node | None, inferred: Inferred, symbol: Symbol, maker: _Maker, source: str, calls: int,
    parameters: Mapping[int, str], buffers: Mapping[int, str],
) -> Module:  # fmt: skip
    names = unique({**parameters, **buffers})
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    if node is not None:
        reads = [entry for entry in node.inputs if not symbol.nodes[entry[0]].is_variable or entry == node.inputs[0]]
        inputs = tuple(maker.typed(inferred.shapes[i][k], inferred.types[i][k]) for i, k in reads)
        outputs = tuple(
            maker.typed(shape, dtype)
            for shape, dtype in zip(inferred.shapes[node.id], inferred.types[node.id], strict=True)
        )
    return Module(
        path=path,
        type=node.op if node is not None else SCOPE if path else source,
        parameters=tuple((names[value], value) for value in parameters),
        buffers=tuple((names[value], value) for value in buffers),
        calls=calls if path else 1,
        extra=_extra(node),
        inputs=inputs,
        outputs=outputs,
    )


def _extra(node: Node | None) -> str:
    """The attributes as the author wrote them, without those of MXNet's own bookkeeping."""
    if node is None:
        return ""
    return ", ".join(f"{name}={value}" for name, value in node.attrs.raw.items() if not name.startswith("__"))
