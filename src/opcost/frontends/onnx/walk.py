"""From an ONNX file to a graph: constants, functions, branches and loops of the model, then its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from opcost.core.checked import Bad
from opcost.core.files import length_of, opened
from opcost.core.graph import NO_ATTRS, Graph
from opcost.core.shapes import Shape
from opcost.errors import InputError, SourceError, some
from opcost.frontends.building import GraphBuilder
from opcost.frontends.inputs import Usual
from opcost.frontends.nodes.inputs import given_inputs
from opcost.frontends.nodes.meaning import Content, GraphNode, NodeGraph, Operand, Out, StoredValue
from opcost.frontends.nodes.walk import FAULTS, Walk
from opcost.frontends.onnx.model import Function, OnnxModel, Reference, read_model
from opcost.frontends.onnx.operators import NCHWC, PREVIEW, TABLE
from opcost.frontends.onnx.runtime import with_channels
from opcost.frontends.onnx.scopes import OnnxScopes
from opcost.frontends.options import CountOptions, refuse_running
from opcost.frontends.protobuf import Span

MOST_TRIPS = 1 << 40  # A loop with this many turns ends by its condition
MOST_CALLS = 64  # Functions that call functions

_TRUE = Content((), (True,))


class OnnxWalk(Walk):
    """Makes the values and operators of a model's graph, and of the graphs and functions inside it."""

    format = "onnx"
    table = TABLE
    scopes: OnnxScopes

    def __init__(self, model: OnnxModel, maker: GraphBuilder, sizes: Mapping[str, int], *, trusted: bool) -> None:
        super().__init__(maker, OnnxScopes(model.graph), sizes, trusted=trusted)
        self.model = model
        self._calls = 0

    def graph(self, graph: NodeGraph, env: dict[str, Operand]) -> list[Operand]:
        try:
            graph = with_channels(graph)
        except FAULTS as exc:
            raise SourceError(
                f"nodes of {NCHWC} are not what such nodes must be ({type(exc).__name__}: {exc})"
            ) from exc
        if any((node.domain, node.op) == (NCHWC, "Conv") and "channels" not in node.attrs for node in graph.nodes):
            text = (
                "the file does not say how many channels the model has where ONNX Runtime filled up blocks of 8 or 16"
            )
            self.maker.note("padded-channels", f"{text}: all are counted; count the file before it was optimised")
        return super().graph(graph, env)

    def version(self, node: GraphNode) -> int:
        return self.model.opsets.get(node.domain or "ai.onnx", 0)

    def free(self, node: GraphNode) -> bool:
        return node.domain == "ml"  # trees, encoders, scalers: no arithmetic that is counted

    def finished(
        self, source: str, meta: Mapping[str, str], name: str, inputs: Sequence[Operand], outputs: Sequence[Operand]
    ) -> Graph:
        if folded := self.scopes.folded():
            names = ", ".join(some(folded))
            self.maker.note(
                "folded-weights",
                f"parameters that the exporter folded into constants or merged with equal ones: {names}",
            )
        if computed := self.scopes.computed():
            names = ", ".join(some(computed))
            self.maker.note("computed-constants", f"computed before the file was saved, and no parameters: {names}")
        return super().finished(source, meta, name, inputs, outputs)

    def special(self, node: GraphNode, graph: NodeGraph, env: dict[str, Operand]) -> bool:
        match node.op if not node.domain else "":
            case "Constant":
                env[node.outputs[0]] = self._constant(node)
            case "If":
                # The branch that is taken, where that is known; else both
                condition = self.found(node.inputs[0], graph, env).first
                blocks = [self._inside(node.attrs.get(name), node) for name in ("then_branch", "else_branch")]
                branches = [partial(self.inner, block, graph, env) for block in blocks]
                results = self.choose(node, None if condition is None else 0 if condition else 1, branches)
                env.update(zip(node.outputs, results, strict=False))
            case "Loop":
                self._loop(node, graph, env)
            case "Scan" if self.model.opsets.get("ai.onnx", 9) > 8:  # the first version has a batch in front
                self._scan(node, graph, env)
            case "SequenceMap":
                return self._each_item(node, graph, env)
            case _:
                if (node.domain, node.op) == (PREVIEW, "FlexAttention") and node.attrs.keys() & {
                    "score_mod",
                    "prob_mod",
                }:
                    self._flex(node, graph, env)
                    return True
                function = self.model.functions.get((node.domain, node.op))
                if function is None or (node.domain, node.op) in TABLE:
                    return False
                ins = [self.found(name, graph, env) if name else None for name in node.inputs]
                self._function(node, function, ins, env)
        return True

    def _constant(self, node: GraphNode) -> Operand:
        for name, value in node.attrs.items():
            if isinstance(value, StoredValue):
                return self.stored_value(value._replace(name=node.outputs[0]), constant=True)
            if name in ("value_int", "value_ints", "value_float", "value_floats"):
                many = value if isinstance(value, tuple) else (value,)
                shape = (len(many),) if isinstance(value, tuple) else ()
                dtype = "int64" if "int" in name else "float32"
                return self.stored_value(
                    StoredValue(node.outputs[0], shape, dtype, Content(shape, many)), constant=True
                )
        return self.stored_value(StoredValue(node.outputs[0], (), "uint8"), constant=True)

    def _function(
        self, node: GraphNode, function: Function, ins: list[Operand | None], env: dict[str, Operand]
    ) -> None:
        if self._calls >= MOST_CALLS:
            raise SourceError(f"{node}: functions call each other without end")
        inner = {name: made for name, made in zip(function.inputs, ins, strict=False) if made is not None}
        given = {**function.defaults, **node.attrs}
        nodes = tuple(_bound(each, given, node) for each in function.nodes)
        graph = NodeGraph(node.op, nodes, {}, (), (), {})
        self._calls += 1
        for each in nodes:
            self.node(each, graph, inner)
        self._calls -= 1
        for name, inside in zip(node.outputs, function.outputs, strict=False):
            if name and inside in inner:
                env[name] = inner[inside]

    def _inside(self, graph: Any, node: GraphNode) -> NodeGraph:
        if not isinstance(graph, NodeGraph):
            raise SourceError(f"{node}: a graph that it runs is missing")
        return graph

    def _loop(self, node: GraphNode, graph: NodeGraph, env: dict[str, Operand]) -> None:
        body = self._inside(node.attrs.get("body"), node)
        ins = [self.found(name, graph, env) if name else None for name in node.inputs]
        # How often a loop turns at most, where that is known; a huge number means no limit
        found = ins[0].first if ins and ins[0] is not None else None
        limit = max(int(found), 0) if found is not None and found < MOST_TRIPS else None
        turns = self.once(node) if limit is None else limit
        start = [made for made in ins[2:] if made is not None]
        counter = Operand(self.maker.value("", self.maker.spec((), "int64"), "const"), (), "int64")
        going = Operand(self.maker.value("", self.maker.spec((), "bool"), "const"), (), "bool", _TRUE)

        def turn(carried: list[Operand]) -> list[Operand]:
            return self.inner(body, graph, env, (counter, going, *carried))

        results = self.turned(node, start, turns, turn, skip=1)
        if limit and results[0].content != _TRUE:
            self.ends_early(node, turns)
        stacked = [self._stacked(node, made, limit) for made in results[1 + len(start) :]]
        env.update(zip(node.outputs, (*results[1 : 1 + len(start)], *stacked), strict=False))

    def _scan(self, node: GraphNode, graph: NodeGraph, env: dict[str, Operand]) -> None:
        """Walks along an axis of some tensors; its first results are handed from turn to turn, the others are stacked."""
        body = self._inside(node.attrs.get("body"), node)
        ins = [self.found(name, graph, env) for name in node.inputs if name]
        count = int(node.attrs.get("num_scan_inputs", 0))
        if not 0 < count <= len(ins):
            raise SourceError(f"{node}: it walks along {count} of its {len(ins)} inputs")
        states, walked = ins[: len(ins) - count], ins[len(ins) - count :]
        axes = node.attrs.get("scan_input_axes") or (0,) * count
        turns, steps = None, []
        for made, axis in zip(walked, axes, strict=False):
            shape = made.shape
            if shape is None or not shape:
                raise SourceError(f"{node}: the shape along which it walks is not known")
            at = axis % len(shape)
            turns = shape[at] if turns is None else turns
            out = Out((*shape[:at], *shape[at + 1 :]), made.dtype, home=made)
            path = self.scopes.path(node, [], self.maker)
            steps += self.emit(node, path, "view", NO_ATTRS, [made], [out], [""])

        def turn(_carried: list[Operand]) -> list[Operand]:
            return self.inner(body, graph, env, (*states, *steps))

        results = self.turned(node, [], self.once(node) if turns is None else turns, turn)
        stacked = [self._stacked(node, made, turns) for made in results[len(states) :]]
        env.update(zip(node.outputs, (*results[: len(states)], *stacked), strict=False))

    def _each_item(self, node: GraphNode, graph: NodeGraph, env: dict[str, Operand]) -> bool:
        """Runs a graph for each tensor of a sequence; False: the tensors in it are not known."""
        body = self._inside(node.attrs.get("body"), node)
        ins = [self.found(name, graph, env) for name in node.inputs]
        if not ins or ins[0].items is None:
            return False
        rows = []
        for place in range(len(ins[0].items)):
            chosen = [each if each.items is None else each.items[place] for each in ins]
            rows.append(self.inner(body, graph, env, chosen))
        path = self.scopes.path(node, [], self.maker)
        for name, *items in zip(node.outputs, *rows, strict=False):
            out = Out(None, items[0].dtype if items else ins[0].dtype, items=items)
            env[name] = self.emit(node, path, "view", NO_ATTRS, [], [out], [name])[0]
        return True

    def _flex(self, node: GraphNode, graph: NodeGraph, env: dict[str, Operand]) -> None:
        """Attention with graphs that change the scores or the probabilities: its steps, with the graphs between them."""
        q, k, v = (self.found(name, graph, env) for name in node.inputs[:3])
        if q.shape is None or k.shape is None or v.shape is None:
            raise SourceError(f"{node}: the shapes of its queries, keys and values are not known")
        path = self.scopes.path(node, [q, k, v], self.maker)
        square = Out((*q.shape[:-1], k.shape[-2]), "float64" if q.dtype == "float64" else "float32")

        def changed(scores: Operand, name: str) -> Operand:
            if name not in node.attrs:
                return scores
            body = self._inside(node.attrs[name], node)
            return self.inner(body, graph, env, (scores,))[0]

        scaled = {"depth": q.shape[-1], "then": ("mul",)}
        scores = changed(self.emit(node, path, "matmul", scaled, [q, k], [square], [""])[0], "score_mod")
        shares = self.emit(node, path, "softmax", {"fn": "softmax"}, [scores], [square], [""])[0]
        shares = changed(shares, "prob_mod")
        out = Out((*q.shape[:-1], v.shape[-1]), q.dtype)
        found = self.emit(node, path, "matmul", {"depth": k.shape[-2]}, [shares, v], [out], node.outputs)
        env[node.outputs[0]] = found[0]

    def _stacked(self, node: GraphNode, made: Operand, turns: int | None) -> Operand:
        shape: Shape = None if made.shape is None else (turns, *made.shape)
        path = self.scopes.path(node, [], self.maker)
        return self.emit(node, path, "copy", NO_ATTRS, [made], [Out(shape, made.dtype)], [""])[0]


def _bound(node: GraphNode, given: Mapping[str, Any], call: GraphNode) -> GraphNode:
    """A node of a function with the attributes of the call in place of references to them."""
    attrs = {}
    for name, value in node.attrs.items():
        if not isinstance(value, Reference):
            attrs[name] = value
        elif value.name in given:
            attrs[name] = given[value.name]
    return GraphNode(
        node.op, node.domain, node.name or call.name, node.inputs, node.outputs, attrs, node.props or call.props
    )


# -- from a file ----------------------------------------------------------------------------------------------------------

OLDEST = 7  # The first version of the operators that is read


_DETECTING = frozenset(("NonMaxSuppression", "RoiAlign", "MaxRoiPool", "EfficientNMS_TRT", "BatchedNMS_TRT"))
"""Operators of models that find objects."""


def load(path: Path, options: CountOptions) -> Graph:
    """Read a model and work out all its shapes."""
    refuse_running(options, f"{path} is an ONNX model")
    try:
        with opened(path) as file:
            model = read_model(Span(file, 0, length_of(file)))
        return graph_of(model, options, path.name)
    except (Bad, RecursionError) as exc:
        raise SourceError(f"{path} is not an ONNX model that can be read: {exc}") from exc


def graph_of(model: OnnxModel, options: CountOptions, source: str, walks: type[OnnxWalk] = OnnxWalk) -> Graph:
    """The graph of a model on the requested inputs; `walks` may be a class that records more of the walk."""
    version = model.opsets.get("ai.onnx", OLDEST)
    if version < OLDEST:
        raise SourceError(f"its operators are of version {version}, and versions from {OLDEST} on are read")
    inputs = model.graph.inputs
    # Refuse another batch where the file fixes it: shapes inside the file hold for that one only
    batch = options.sizes.batch
    first = {declared.name: declared.shape[0] for declared in inputs if declared.shape}
    fixed = {name: extent for name, extent in first.items() if isinstance(extent, int)}
    if batch is not None and fixed and len(fixed) == len(first) and batch not in fixed.values():
        name, extent = next(iter(fixed.items()))
        hint = "export the model with a dynamic batch (dynamic_shapes, dynamic_axes), or count it without --batch"
        raise InputError(f"dimension 0 of the input {name!r} is fixed at {extent} in the file, not {batch}", hint=hint)
    maker = GraphBuilder()
    usual = Usual.of(model.metadata, detector=any(node.op in _DETECTING for node in model.graph.nodes))
    given = given_inputs(inputs, options, maker, usual)
    walk = walks(model, maker, given.sizes, trusted=given.trusted)
    outputs = walk.graph(model.graph, {each.name: value for each, value in zip(inputs, given.made, strict=True)})
    meta = {"version": f"opset {version}", "mode": "eval"}
    if model.producer:
        meta["producer"] = model.producer
    return walk.finished(source, meta, model.graph.name, given.made, outputs)
