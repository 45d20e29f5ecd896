"""The walk over an ONNX model: constants, functions, branches and loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opcost.core.graph import NO_ATTRS, Graph
from opcost.core.shapes import Shape
from opcost.errors import SourceError
from opcost.frontends.building import GraphBuilder
from opcost.frontends.nodes.call import Made, Out
from opcost.frontends.nodes.model import Content, Node, NodeGraph, Stored
from opcost.frontends.nodes.walk import FAULTS, Walk
from opcost.frontends.onnx import operators as _families  # noqa: F401 - entering them in the table is what it is for
from opcost.frontends.onnx.model import Function, Model, Reference
from opcost.frontends.onnx.operators.blocked import with_channels
from opcost.frontends.onnx.scopes import OnnxScopes
from opcost.frontends.onnx.table import NCHWC, PREVIEW, TABLE
from opcost.wording import some

MOST_TRIPS = 1 << 40
"""A loop with this many turns ends by its condition."""
MOST_CALLS = 64
"""Functions that call functions."""

_TRUE = Content((), (True,))


class OnnxWalk(Walk):
    """Makes the values and operators of a model's graph, and of the graphs and functions inside it."""

    format = "onnx"
    table = TABLE
    scopes: OnnxScopes

    def __init__(self, model: Model, maker: GraphBuilder, sizes: Mapping[str, int], *, trusted: bool) -> None:
        super().__init__(maker, OnnxScopes(model.graph), sizes, trusted=trusted)
        self.model = model
        self._calls = 0

    def graph(self, graph: NodeGraph, env: dict[str, Made]) -> list[Made]:
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

    def version(self, node: Node) -> int:
        return self.model.opsets.get(node.domain or "ai.onnx", 0)

    def free(self, node: Node) -> bool:
        return node.domain == "ml"  # trees, encoders, scalers: no arithmetic that is counted

    def finished(
        self, source: str, meta: Mapping[str, str], name: str, inputs: Sequence[Made], outputs: Sequence[Made]
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

    def special(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> bool:
        match node.op if not node.domain else "":
            case "Constant":
                env[node.outputs[0]] = self._constant(node)
            case "If":
                self._if(node, graph, env)
            case "Loop":
                self._loop(node, graph, env)
            case "Scan" if self.model.opsets.get("ai.onnx", 9) > 8:  # the first version has a batch in front
                self._scan(node, graph, env)
            case "SequenceMap":
                return self._each_item(node, graph, env)
            case _:
                if (
                    node.domain == PREVIEW
                    and node.op == "FlexAttention"
                    and node.attrs.keys() & {"score_mod", "prob_mod"}
                ):
                    self._flex(node, graph, env)
                    return True
                function = self.model.functions.get((node.domain, node.op))
                if function is None or (node.domain, node.op) in TABLE:
                    return False
                ins = [self.found(name, graph, env) if name else None for name in node.inputs]
                self._function(node, function, ins, env)
        return True

    def _constant(self, node: Node) -> Made:
        for name, value in node.attrs.items():
            if isinstance(value, Stored):
                return self.held(value._replace(name=node.outputs[0]), constant=True)
            if name in ("value_int", "value_ints", "value_float", "value_floats"):
                many = value if isinstance(value, tuple) else (value,)
                shape = (len(many),) if isinstance(value, tuple) else ()
                dtype = "int64" if "int" in name else "float32"
                return self.held(Stored(node.outputs[0], shape, dtype, Content(shape, many)), constant=True)
        return self.held(Stored(node.outputs[0], (), "uint8"), constant=True)

    def _function(self, node: Node, function: Function, ins: list[Made | None], env: dict[str, Made]) -> None:
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

    def _inside(self, graph: Any, node: Node) -> NodeGraph:
        if not isinstance(graph, NodeGraph):
            raise SourceError(f"{node}: a graph that it runs is missing")
        return graph

    def _if(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> None:
        """The branch that is taken, where that is known; else both."""
        condition = self.found(node.inputs[0], graph, env).content
        chosen = condition.items[0] if condition and condition.items else None
        branches = [self._inside(node.attrs.get(name), node) for name in ("then_branch", "else_branch")]
        if chosen is not None:
            results = self.graph(branches[0] if chosen else branches[1], self.nested(graph, env))
        else:
            results = self.either(node, [lambda b=b: self.graph(b, self.nested(graph, env)) for b in branches])  # type: ignore[misc]
        env.update(zip(node.outputs, results, strict=False))

    def _loop(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> None:
        body = self._inside(node.attrs.get("body"), node)
        ins = [self.found(name, graph, env) if name else None for name in node.inputs]
        limit = _limit(ins)
        turns = self.once(node) if limit is None else limit
        start = [made for made in ins[2:] if made is not None]
        counter = Made(self.maker.value("", self.maker.spec((), "int64"), "const"), (), "int64")
        going = Made(self.maker.value("", self.maker.spec((), "bool"), "const"), (), "bool", _TRUE)
        names = [declared.name for declared in body.inputs]

        def turn(carried: list[Made]) -> list[Made]:
            given = dict(zip(names, (counter, going, *carried), strict=False))
            return self.graph(body, self.nested(graph, env, given))

        results = self.turned(node, start, turns, turn, skip=1)
        if limit and results[0].content != _TRUE:
            self.ends_early(node, turns)
        stacked = [self._stacked(node, made, limit) for made in results[1 + len(start) :]]
        env.update(zip(node.outputs, (*results[1 : 1 + len(start)], *stacked), strict=False))

    def _scan(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> None:
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
        names = [declared.name for declared in body.inputs]

        def turn(_carried: list[Made]) -> list[Made]:
            given = dict(zip(names, (*states, *steps), strict=False))
            return self.graph(body, self.nested(graph, env, given))

        results = self.turned(node, [], self.once(node) if turns is None else turns, turn)
        stacked = [self._stacked(node, made, turns) for made in results[len(states) :]]
        env.update(zip(node.outputs, (*results[: len(states)], *stacked), strict=False))

    def _each_item(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> bool:
        """Runs a graph for each tensor of a sequence; False: nobody knows which tensors are in it."""
        body = self._inside(node.attrs.get("body"), node)
        ins = [self.found(name, graph, env) for name in node.inputs]
        if not ins or ins[0].items is None:
            return False
        rows = []
        for place in range(len(ins[0].items)):
            chosen = [made if made.items is None else made.items[place] for made in ins]
            given = dict(zip([declared.name for declared in body.inputs], chosen, strict=False))
            rows.append(self.graph(body, self.nested(graph, env, given)))
        path = self.scopes.path(node, [], self.maker)
        for name, *items in zip(node.outputs, *rows, strict=False):
            out = Out(None, items[0].dtype if items else ins[0].dtype, items=items)
            env[name] = self.emit(node, path, "view", NO_ATTRS, [], [out], [name])[0]
        return True

    def _flex(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> None:
        """Attention with graphs that change the scores or the probabilities: the steps between which they stand."""
        q, k, v = (self.found(name, graph, env) for name in node.inputs[:3])
        if q.shape is None or k.shape is None or v.shape is None:
            raise SourceError(f"{node}: the shapes of its queries, keys and values are not known")
        path = self.scopes.path(node, [q, k, v], self.maker)
        square = Out((*q.shape[:-1], k.shape[-2]), "float64" if q.dtype == "float64" else "float32")

        def changed(scores: Made, name: str) -> Made:
            if name not in node.attrs:
                return scores
            body = self._inside(node.attrs[name], node)
            return self.graph(body, self.nested(graph, env, {body.inputs[0].name: scores}))[0]

        scaled = {"depth": q.shape[-1], "then": ("mul",)}
        scores = changed(self.emit(node, path, "matmul", scaled, [q, k], [square], [""])[0], "score_mod")
        shares = self.emit(node, path, "softmax", {"fn": "softmax"}, [scores], [square], [""])[0]
        shares = changed(shares, "prob_mod")
        out = Out((*q.shape[:-1], v.shape[-1]), q.dtype)
        found = self.emit(node, path, "matmul", {"depth": k.shape[-2]}, [shares, v], [out], node.outputs)
        env[node.outputs[0]] = found[0]

    def _stacked(self, node: Node, made: Made, turns: int | None) -> Made:
        shape: Shape = None if made.shape is None else (turns, *made.shape)
        path = self.scopes.path(node, [], self.maker)
        return self.emit(node, path, "copy", NO_ATTRS, [made], [Out(shape, made.dtype)], [""])[0]


def _bound(node: Node, given: Mapping[str, Any], call: Node) -> Node:
    """A node of a function with the attributes of the call in place of references to them."""
    attrs = {}
    for name, value in node.attrs.items():
        if not isinstance(value, Reference):
            attrs[name] = value
        elif value.name in given:
            attrs[name] = given[value.name]
    return Node(
        node.op, node.domain, node.name or call.name, node.inputs, node.outputs, attrs, node.props or call.props
    )


def _limit(ins: Sequence[Made | None]) -> int | None:
    """How often a loop turns at most, where that is known; a huge number stands for no limit."""
    limit = ins[0].content if ins and ins[0] is not None else None
    found = limit.items[0] if limit and limit.items else None
    return max(int(found), 0) if found is not None and found < MOST_TRIPS else None
