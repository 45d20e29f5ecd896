"""A worked-out symbol as our Graph: values, operators in our words, modules named by the names of nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from opcost.core.graph import NO_ATTRS, Attrs, Graph, Module, Note, Role, TensorSpec
from opcost.core.shapes import Unknown
from opcost.frontends.building import GraphBuilder, with_above
from opcost.frontends.mxnet.infer import DEFAULT_TYPE, Naming, infer
from opcost.frontends.mxnet.ops import all_operators, control
from opcost.frontends.mxnet.ops.table import Inferred, inputs_of
from opcost.frontends.mxnet.roles import Roles
from opcost.frontends.mxnet.symbol import Entry, Symbol, SymbolNode
from opcost.frontends.rows import Places

SCOPE = "scope"  # The type of a module that is only a common prefix of names


class Built(NamedTuple):
    """A graph, and for each of its operators the node of the symbol that it comes from."""

    graph: Graph
    nodes: tuple[int, ...]


def build(
    symbol: Symbol, inferred: Inferred, roles: Roles, source: str, *, notes: Sequence[Note] = (),
    meta: Mapping[str, str] | None = None, training: bool = False,
) -> Built:  # fmt: skip
    """The graph of a symbol whose shapes are worked out and whose variables have their roles."""
    maker = GraphBuilder()
    maker.notes.update(dict.fromkeys(notes))
    operators, stored = [node for node in symbol.nodes if not node.is_variable], {*roles.weights, *roles.states}
    weights = [[symbol.nodes[source].name for source, _ in node.inputs if source in stored] for node in operators]
    paths = paths_of([node.name or node.op for node in operators], weights)
    places = {node.id: path for node, path in zip(operators, paths, strict=True)}
    level = _Level(maker, symbol, inferred, places, training)
    kinds: dict[int, Role] = dict.fromkeys(roles.inputs, "input")
    kinds |= dict.fromkeys(roles.weights, "param")
    kinds |= dict.fromkeys(roles.states, "buffer")
    for node in symbol.variables:
        role = kinds[node.id]
        trainable = role == "param" and node.id not in roles.frozen
        level.made[node.id, 0] = maker.value(node.name, level.spec((node.id, 0)), role, trainable=trainable)
    origins: list[int] = []
    for node in symbol.nodes:
        level.node(node)
        origins.extend([node.id] * (len(maker.ops) - len(origins)))
    graph = maker.graph(
        source,
        "mxnet",
        {"version": symbol.version_text, "mode": "train" if training else "eval", **(meta or {})},
        modules=_modules(level, roles, source),
        inputs=(level.made[node, 0] for node in roles.inputs),
        outputs=(level.made[entry] for entry in symbol.heads),
    )
    return Built(graph, tuple(origins))


@dataclass(slots=True)
class _Level:
    """One graph, the symbol itself or the body of a node, while its values and operators are made."""

    maker: GraphBuilder
    symbol: Symbol
    inferred: Inferred
    paths: Mapping[int, str]
    training: bool
    repeat: int = 1
    made: dict[Entry, int] = field(default_factory=dict)  # The value of each output of each node

    def spec(self, entry: Entry) -> TensorSpec:
        """What is known of a tensor, with the type that MXNet takes where none is known."""
        node, output = entry
        return self.maker.spec(self.inferred.shapes[node][output], self.inferred.types[node][output] or DEFAULT_TYPE)

    def value(self, node: SymbolNode, output: int, home: int | None = None, *, known: bool = True) -> int:
        """Make the value of an output; one that is not `known` is made by no operator."""
        name = f"{node.name}_output{output if len(self.inferred.shapes[node.id]) > 1 else ''}"
        spec = self.spec((node.id, output)) if known else self.maker.spec(None, DEFAULT_TYPE)
        found = self.maker.value(name, spec, "activation" if known else "const", home=home)
        self.made[node.id, output] = found
        return found

    def op(
        self,
        node: SymbolNode,
        kind: str,
        ins: Sequence[int],
        outs: Sequence[int],
        attrs: Attrs = NO_ATTRS,
        times: int = 1,
    ) -> None:
        """Make an operator of a node, `times` in each repetition of the whole graph."""
        self.maker.op(kind, attrs, _raw(node), ins, outs, self.paths[node.id], self.repeat * times)

    def node(self, node: SymbolNode) -> None:
        """Make the operators of one node; a variable has none."""
        if node.is_variable:
            return
        if node.op in control.FUSED and node.subgraphs:
            self._fused(node)
            return
        if node.op in control.FOREACH and node.subgraphs:
            loop = control.loop_of(node.attrs, node.subgraphs[0], len(node.inputs))
            trips = control.trips_of(loop, self.inferred.shapes_of(node.inputs), self.inferred.shapes[node.id])
            if trips is not None:
                self._foreach(node, loop, trips)
                return
        self._plain(node)

    def _plain(self, node: SymbolNode) -> None:
        kind, attrs, places, results = self._meaning(node)
        inputs = [self.made[node.inputs[place]] for place in places]
        home = inputs[0] if kind == "view" and inputs else None
        outputs = [
            self.value(node, output, home if output == 0 else None)
            for output in range(len(self.inferred.shapes[node.id]))
        ]
        first = outputs if results is None else [outputs[place] for place in results]
        self.op(node, kind, inputs, first, attrs)
        if others := [output for output in outputs if output not in first]:
            self.op(node, "create", (), others)

    def _meaning(self, node: SymbolNode) -> tuple[str, Attrs, Places, Places | None]:
        """Kind and attributes of a node, the inputs that the kind takes, and the outputs that it has."""
        operator, every = all_operators().get(node.op), tuple(range(len(node.inputs)))
        if operator is None:
            return "unknown", NO_ATTRS, every, None
        call = self.inferred.call(node, self.symbol, training=self.training)
        try:
            with Naming(node, call.ins):
                kind, attrs = operator.meaning(call)
                places = inputs_of(operator, call, kind)
        except Unknown:
            return "unknown", NO_ATTRS, every, None
        if kind == "unknown" and node.op in _WHY:
            self.maker.note("not-in-file", f"{_raw(node)}: {_WHY[node.op]}", node.name)
        return kind, attrs, places, operator.made(call)

    # -- graphs inside nodes ------------------------------------------------------------------------------------------

    def _inside(
        self, node: SymbolNode, places: Sequence[int], values: Sequence[int], sliced: int = 0, repeat: int = 1
    ) -> _Level:
        """A node's body, worked out, whose operators all belong to the node's module.

        The node's inputs are the variables at these places of the body; `values` are what these are inside, of
        the first ones a slice.
        """
        body, maker = node.subgraphs[0], self.maker
        variables = [variable.id for variable in body.variables]
        order = [variables[place] for place in places]
        given = dict(zip(order, values, strict=True))
        shapes = dict(zip(order, self.inferred.shapes_of(node.inputs), strict=False))
        shapes |= {variable: maker.values[given[variable]].spec.shape for variable in order[:sliced]}
        types = dict(zip(order, self.inferred.types_of(node.inputs), strict=False))
        inferred = infer(body, shapes, types, training=self.training)
        paths = dict.fromkeys(range(len(body.nodes)), self.paths[node.id])
        level = _Level(maker, body, inferred, paths, self.training, self.repeat * repeat)
        for variable in variables:
            value = given.get(variable)
            if value is None:
                value = maker.value(body.nodes[variable].name, level.spec((variable, 0)), "const")
            level.made[variable, 0] = value
        return level

    def _fused(self, node: SymbolNode) -> None:
        """A fused operator is the graph inside it; what it adds for quantized numbers are ranges."""
        body = node.subgraphs[0]
        own = range(control.fused_inputs(body, len(node.inputs)))
        inside = self._inside(node, own, [self.made[node.inputs[place]] for place in own])
        for each in body.nodes:
            inside.node(each)
        for output in range(len(self.inferred.shapes[node.id])):
            if output < len(body.heads):
                self.made[node.id, output] = inside.made[body.heads[output]]
            else:
                self.op(node, "create", (), (self.value(node, output),))

    def _foreach(self, node: SymbolNode, loop: control.Loop, trips: int) -> None:
        """The body once, its operators repeated; a step of an input is a view, and results are written where they are kept."""
        maker, body = self.maker, node.subgraphs[0]
        values = [self.made[entry] for entry in node.inputs]
        for place in range(len(loop.sliced)):
            whole = maker.values[values[place]]
            spec = maker.spec((whole.spec.shape or ())[1:], whole.spec.dtype)
            step = maker.value(f"{whole.name}[step]", spec, home=whole.id)
            self.op(node, "view", (whole.id,), (step,), times=trips)
            values[place] = step
        stacked = [self.value(node, output) for output in range(loop.outputs)]
        inside = self._inside(node, loop.variables, values, len(loop.sliced), trips)
        begin = len(maker.values)
        for each in body.nodes:
            inside.node(each)
        for output in range(len(self.inferred.shapes[node.id])):
            if output >= len(body.heads):
                self.value(node, output, known=False)
                continue
            head = inside.made[body.heads[output]]
            if output >= loop.outputs:
                self.made[node.id, output] = head
                continue
            storage = maker.values[head].storage
            self.op(node, "view" if storage >= begin else "copy", (head,), (stacked[output],))
            for index in (
                range(begin, len(maker.values)) if storage >= begin else ()
            ):  # the body's own, with all views of it
                if maker.values[index].storage == storage:
                    maker.values[index] = maker.values[index]._replace(storage=stacked[output])


_NOT_KNOWN = "so its cost and the shapes behind it are not known"
_WHY = {
    **dict.fromkeys(control.CUSTOM, f"Python code that the file does not hold, {_NOT_KNOWN}"),
    **dict.fromkeys(control.CONDITIONAL, f"which branch runs depends on data, {_NOT_KNOWN}"),
    **dict.fromkeys(control.WHILE, f"how often it runs depends on data, {_NOT_KNOWN}"),
    **dict.fromkeys(control.FOREACH, "how often it runs is not known"),
}


def _raw(node: SymbolNode) -> str:
    """The framework's word for an operator; a custom one by the name of its Python class."""
    custom = f":{node.attrs.raw.get('op_type', '?')}" if node.op in control.CUSTOM else ""
    return f"mxnet::{node.op}{custom}"


# -- modules -----------------------------------------------------------------------------------------------------------


def _modules(level: _Level, roles: Roles, source: str) -> Iterator[Module]:
    """One module per operator's path, with the weights it reads, and the scopes above."""
    nodes, weights, states = level.symbol.nodes, frozenset(roles.weights), frozenset(roles.states)
    inside: dict[str, list[SymbolNode]] = {}
    for node in nodes:
        if not node.is_variable:
            inside.setdefault(level.paths[node.id], []).append(node)
    for path in with_above(level.paths.values()):
        here = inside.get(path, [])
        taken: dict[int, str] = {}
        names: set[str] = set()
        stored: list[tuple[tuple[str, int], ...]] = []
        for kind in (weights, states):
            begin = len(taken)
            for node in here:
                for index, _ in node.inputs:
                    value = level.made[index, 0] if index in kind else None
                    if value is not None and value not in taken:
                        taken[value] = _unique(inner_name(nodes[index].name, node.name, path), names)
            stored.append(tuple((name, value) for value, name in [*taken.items()][begin:]))
        described: dict[str, Any] = {}
        if here:  # its first node, with its attributes as the author wrote them, without MXNet's bookkeeping
            first, written = here[0], here[0].attrs.raw.items()
            reads = [entry for entry in first.inputs if not nodes[entry[0]].is_variable or entry == first.inputs[0]]
            described = {
                "inputs": tuple(level.spec(entry) for entry in reads),
                "outputs": tuple(
                    level.spec((first.id, output)) for output in range(len(level.inferred.shapes[first.id]))
                ),
                "extra": ", ".join(f"{name}={value}" for name, value in written if not name.startswith("__")),
            }
        module_type = here[0].op if here else SCOPE if path else source
        calls = len(here) if path else 1
        yield Module(path=path, type=module_type, parameters=stored[0], buffers=stored[1], calls=calls, **described)


# -- paths from the names of nodes: `stage1_unit1_conv1` is conv1 in unit1 in stage1 -----------------------------------
#
# MXNet's graphs are flat, but their names are not: gluon blocks and most authors put the enclosing parts in front. A prefix
# becomes a module where at least two nodes share it; dots and slashes always separate.

FORWARD = "_fwd"  # What gluon puts behind a block's name for the operator that is the block

ANONYMOUS = re.compile(r"node_\d+")
"""Names that MXNet 2.0 gives to all operators; there the block follows from the names of the weights."""

DEEPEST = 32
"""Modules inside one another; what a name says beyond is the name of the last. Real ones go down to a dozen."""

MOST_WORDS = 256  # Words of a level that are looked at; the rest is one word

_SEPARATORS = re.compile(r"[./]+")
_WORDS = re.compile(r"(?<=[^_])_(?=.)")


def paths_of(names: Sequence[str], weights: Sequence[Sequence[str]]) -> list[str]:
    """A dotted path for each operator, from its name and the names of the weights that it reads."""
    labels = [_label(name, read) for name, read in zip(names, weights, strict=True)]
    # All beginnings of names as a tree, each a number: a step for each word, however many words come before it
    numbers: dict[tuple[int, str], int] = {}
    goes_on: dict[int, int] = {}
    """By beginning, the longer one that was met first."""
    shared: set[int] = set()
    for label in dict.fromkeys(labels):
        before = 0
        for word in label:
            number = numbers.setdefault((before, word), len(numbers) + 1)
            if before and goes_on.setdefault(before, number) != number:
                shared.add(before)
            before = number
        shared.add(before)
    return [_path(label, numbers, shared) for label in labels]


def _label(name: str, weights: Iterable[str]) -> tuple[str, ...]:
    """The words of a name."""
    if ANONYMOUS.fullmatch(name):
        owners = {_SEPARATORS.sub(".", weight).rpartition(".")[0] for weight in weights}
        if len(owners) == 1 and (owner := owners.pop()):
            return tuple(f"{word}." for word in owner.split("."))
        return (name,)
    return _words(name.removesuffix(FORWARD) or name)


@lru_cache(maxsize=65536)
def _words(name: str) -> tuple[str, ...]:
    """A name's words; one that ends in a dot begins a level whether it is shared or not."""
    *parts, rest = _SEPARATORS.split(name, DEEPEST)
    parts = [part for part in (*parts, _SEPARATORS.sub("_", rest)) if part]
    words: list[str] = []
    for place, part in enumerate(parts):
        *first, last = _WORDS.split(part, MOST_WORDS)
        words.extend(first)
        words.append(f"{last}." if place < len(parts) - 1 else last)
    return tuple(words) or ("unnamed",)


def _path(label: tuple[str, ...], numbers: Mapping[tuple[int, str], int], shared: set[int]) -> str:
    """A level ends where the name up to it is shared by two different nodes, or is a whole name."""
    levels: list[str] = []
    words: list[str] = []
    at = 0
    for word in label:
        at = numbers[at, word]
        words.append(word.removesuffix("."))
        if (word.endswith(".") or at in shared) and len(levels) < DEEPEST:
            levels.append("_".join(words))
            words = []
    return ".".join([*levels, "_".join(words)] if words else levels)


def inner_name(weight: str, node: str, path: str) -> str:
    """What a weight is called inside the module that reads it: `weight` of `conv0_weight` in `conv0`."""
    stem = node.removesuffix(FORWARD)
    if stem and weight.startswith(stem) and len(weight) > len(stem) + 1 and weight[len(stem)] in "_./":
        rest = weight[len(stem) + 1 :]
    else:
        plain = _SEPARATORS.sub(".", weight)
        rest = plain.removeprefix(f"{path}.") if path else plain
    return _SEPARATORS.sub("_", rest)


def _unique(name: str, taken: set[str]) -> str:
    """The name, with a number behind where another has it already; it is taken from now on."""
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    taken.add(candidate)
    return candidate
