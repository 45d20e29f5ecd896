"""The walk over a model's nodes, in the order in which they run: shapes, contents and operators are found in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opcost.core.graph import NO_ATTRS, Attrs
from opcost.core.shapes import Mismatch, Shape, Unknown, complete, merge, text
from opcost.errors import InputError, SourceError
from opcost.frontends.building import GraphBuilder
from opcost.frontends.onnx import operators as _families  # noqa: F401 - entering them in the table is what it is for
from opcost.frontends.onnx.call import TABLE, Call, Made, Meaning, Out
from opcost.frontends.onnx.model import Content, Function, Model, Node, OnnxGraph, Reference, Stored, known_shape
from opcost.frontends.onnx.scopes import Scopes

MOST_TRIPS = 1 << 40
"""A loop with this many turns ends by its condition."""
MOST_ELEMENTS = 1 << 63
MOST_CALLS = 64
"""Functions that call functions."""

_ML = "ml"
_FAULTS = (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError, AttributeError)


class Walk:
    """Makes the values and operators of a graph, and of the graphs inside it."""

    def __init__(self, model: Model, maker: GraphBuilder, sizes: Mapping[str, int], *, trusted: bool) -> None:
        self.model = model
        self.maker = maker
        self.sizes = sizes
        """What the names in declared shapes stand for."""
        self.trusted = trusted
        """Declared shapes hold: the inputs are as the file declares them."""
        self.scopes = Scopes()
        self.repeat = 1
        self.unknown: dict[str, None] = {}
        self._calls = 0

    # -- graphs ---------------------------------------------------------------------------------------------------------

    def graph(self, graph: OnnxGraph, env: dict[str, Made]) -> list[Made]:
        """Run a graph; what it stores is made when somebody first reads it. What comes back is what it returns."""
        for node in graph.nodes:
            self.node(node, graph, env)
        return [self._found(declared.name, graph, env) for declared in graph.outputs]

    def _found(self, name: str, graph: OnnxGraph, env: dict[str, Made]) -> Made:
        found = env.get(name)
        if found is None:
            stored = graph.stored.get(name)
            if stored is None:
                raise SourceError(f"the value {name!r} is read and never made", hint="the file is damaged")
            found = env[name] = self.stored(stored)
        return found

    def stored(self, tensor: Stored, *, constant: bool = False) -> Made:
        """A tensor of the file; which part it plays is decided by who reads it."""
        spec = self.maker.spec(tensor.shape, _plain(tensor.dtype))
        value = self.maker.value(tensor.name, spec, "const")
        self.scopes.held[value] = constant
        return Made(value, tensor.shape, spec.dtype, tensor.content, stored=True)

    # -- nodes ----------------------------------------------------------------------------------------------------------

    def node(self, node: Node, graph: OnnxGraph, env: dict[str, Made]) -> None:
        """Make the operators of one node."""
        try:
            self._node(node, graph, env)
        except _FAULTS as exc:
            raise SourceError(f"{node}: it is not what such a node must be ({type(exc).__name__}: {exc})") from exc

    def _node(self, node: Node, graph: OnnxGraph, env: dict[str, Made]) -> None:
        match node.op if not node.domain else "":
            case "Constant":
                env[node.outputs[0]] = self._constant(node)
                return
            case "If":
                self._if(node, graph, env)
                return
            case "Loop":
                self._loop(node, graph, env)
                return
            case "Scan" if self.model.opsets.get("ai.onnx", 9) > 8:  # the first version has a batch in front
                self._scan(node, graph, env)
                return
        ins = [self._found(name, graph, env) if name else None for name in node.inputs]
        function = self.model.functions.get((node.domain, node.op))
        if function is not None and (node.domain, node.op) not in TABLE:
            self._function(node, function, ins, env)
            return
        outs = self._made(node, ins, graph)
        env.update(zip(node.outputs, outs, strict=False))

    def _constant(self, node: Node) -> Made:
        for name, value in node.attrs.items():
            if isinstance(value, Stored):
                return self.stored(Stored(node.outputs[0], value.shape, value.dtype, value.content), constant=True)
            if name in ("value_int", "value_ints", "value_float", "value_floats"):
                many = value if isinstance(value, tuple) else (value,)
                shape = (len(many),) if isinstance(value, tuple) else ()
                dtype = "int64" if "int" in name else "float32"
                return self.stored(Stored(node.outputs[0], shape, dtype, Content(shape, many)), constant=True)
        return self.stored(Stored(node.outputs[0], (), "uint8"), constant=True)

    def _made(self, node: Node, ins: list[Made | None], graph: OnnxGraph) -> list[Made]:
        path = self.scopes.path(node, [made.value for made in ins if made is not None], self.maker)

        def step(kind: str, attrs: Attrs, reads: Sequence[Made | None], outs: Sequence[Out]) -> list[Made]:
            return self._emit(node, path, kind, attrs, reads, outs, [""] * len(outs))

        version = self.model.opsets.get(node.domain or "ai.onnx", 0)
        call = Call(node, ins, node.attrs, version, step)
        meaning = self._meaning(node, call)
        named = list(node.outputs)
        outs = [*meaning.outs, *[Out(None, "float32")] * (len(named) - len(meaning.outs))][: max(len(named), 1)]
        outs = [self._declared(out, name, graph) for out, name in zip(outs, named, strict=False)]
        reads = call.given if meaning.reads is None else meaning.reads
        self.scopes.read(node, path, ins)
        return self._emit(node, path, meaning.kind, meaning.attrs, reads, outs, named)

    def _meaning(self, node: Node, call: Call) -> Meaning:
        handler = TABLE.get((node.domain, node.op))
        unknown = Meaning("unknown", NO_ATTRS, [Out(None, call.given[0].dtype if call.given else "float32")])
        if node.domain == _ML:  # trees, encoders, scalers: no arithmetic that is counted
            return unknown._replace(kind="copy")
        if handler is None:
            self.unknown[f"{node.domain}::{node.op}" if node.domain else node.op] = None
            return unknown
        try:
            return handler(call)
        except Unknown:
            return unknown
        except Mismatch as exc:
            raise InputError(f"{node}: {exc}", hint=_seen(call)) from exc
        except _FAULTS as exc:
            raise SourceError(f"{node}: its attributes do not fit its inputs ({exc})", hint=_seen(call)) from exc

    def _declared(self, out: Out, name: str, graph: OnnxGraph) -> Out:
        """What the file declares of a value, where nothing better is known."""
        declared = graph.declared.get(name)
        if declared is None:
            return out
        if not complete(out.shape) and self.trusted:
            stated = known_shape(declared, self.sizes)
            try:
                out = out._replace(shape=merge(out.shape, stated))
            except Mismatch:
                return out
        return out

    def _emit(
        self,
        node: Node,
        path: str,
        kind: str,
        attrs: Attrs,
        reads: Sequence[Made | None],
        outs: Sequence[Out],
        names: Sequence[str],
    ) -> list[Made]:
        made = []
        for out, name in zip(outs, names, strict=False):
            _check(out.shape, node)
            spec = self.maker.spec(out.shape, _plain(out.dtype))
            home = out.home.value if out.home is not None else None
            value = self.maker.value(name, spec, home=home)
            made.append(Made(value, out.shape, spec.dtype, out.content, out.items))
        inputs = [each.value for each in reads if each is not None]
        raw = f"{node.domain or 'onnx'}::{node.op}"
        self.maker.op(kind, attrs, raw, inputs, [each.value for each in made], path, self.repeat)
        return made

    # -- graphs inside nodes --------------------------------------------------------------------------------------------

    def _function(self, node: Node, function: Function, ins: list[Made | None], env: dict[str, Made]) -> None:
        if self._calls >= MOST_CALLS:
            raise SourceError(f"{node}: functions call each other without end")
        inner = {name: made for name, made in zip(function.inputs, ins, strict=False) if made is not None}
        given = {**function.defaults, **node.attrs}
        nodes = tuple(_bound(each, given, node) for each in function.nodes)
        graph = OnnxGraph(node.op, nodes, {}, (), (), {})
        self._calls += 1
        for each in nodes:
            self.node(each, graph, inner)
        self._calls -= 1
        for name, inside in zip(node.outputs, function.outputs, strict=False):
            if name and inside in inner:
                env[name] = inner[inside]

    def _inside(self, graph: Any, node: Node) -> OnnxGraph:
        if not isinstance(graph, OnnxGraph):
            raise SourceError(f"{node}: a graph that it runs is missing")
        return graph

    def _if(self, node: Node, graph: OnnxGraph, env: dict[str, Made]) -> None:
        """The branch that is taken, where that is known; else both, of which the dearer counts."""
        condition = self._found(node.inputs[0], graph, env).content
        chosen = condition.items[0] if condition and condition.items else None
        branches = [self._inside(node.attrs.get(name), node) for name in ("then_branch", "else_branch")]
        if chosen is not None:
            results = self._branch(branches[0] if chosen else branches[1], graph, env)
            env.update(zip(node.outputs, results, strict=False))
            return
        ranges, found, faults = [], [], []
        for branch in branches:
            mark = self._mark()
            try:
                found.append(self._branch(branch, graph, env))
                ranges.append((mark[1], len(self.maker.ops)))
            except (InputError, SourceError) as exc:  # what does not fit these inputs is not what they are for
                faults.append(exc)
                self._forget(mark)
        if not found:
            raise faults[0]
        if faults:
            self.maker.note("branch", f"{node}: a branch does not fit these inputs, so the other is counted", node.name)
            env.update(zip(node.outputs, found[0], strict=False))
            return
        self.maker.choices.append(tuple(ranges))
        self.maker.note(
            "branch", f"{node} depends on data: of its branches the one that costs more is counted", node.name
        )
        for place, name in enumerate(node.outputs):
            results = [each[place] for each in found if place < len(each)]
            if not results:
                raise SourceError(f"{node}: its branches do not return {name!r}")
            env[name] = self._wider(node, results[0], results[-1])

    def _mark(self) -> tuple[int, int, int]:
        return len(self.maker.values), len(self.maker.ops), len(self.maker.choices)

    def _forget(self, mark: tuple[int, int, int]) -> None:
        """Unmake all that was made since."""
        values, ops, choices = mark
        del self.maker.values[values:], self.maker.ops[ops:], self.maker.choices[choices:]
        self.scopes.forget(values)

    def _wider(self, node: Node, one: Made, other: Made) -> Made:
        """A tensor that may be the one or the other: what differs in their shapes is not known."""
        return other if one.shape == other.shape else self._seen_as(node, one, _common(one, other))

    def _seen_as(self, node: Node, made: Made, shape: Shape) -> Made:
        if shape == made.shape:
            return made
        path = self.scopes.path(node, [], self.maker)
        return self._emit(node, path, "view", NO_ATTRS, [made], [Out(shape, made.dtype, home=made)], [""])[0]

    def _branch(self, branch: OnnxGraph, outer: OnnxGraph, env: dict[str, Made]) -> list[Made]:
        """A graph sees the names around it; its own do not leave it."""
        return self.graph(branch, _Nested(self, outer, env))

    def _turns(
        self, body: OnnxGraph, outer: OnnxGraph, env: dict[str, Made], given: Mapping[str, Made], turns: int
    ) -> list[Made]:
        inner = _Nested(self, outer, env)
        inner.update(given)
        before, self.repeat = self.repeat, self.repeat * turns
        try:
            return self.graph(body, inner)
        finally:
            self.repeat = before

    def _loop(self, node: Node, graph: OnnxGraph, env: dict[str, Made]) -> None:
        body = self._inside(node.attrs.get("body"), node)
        ins = [self._found(name, graph, env) if name else None for name in node.inputs]
        turns = self._trips(node, ins)
        start = [made for made in ins[2:] if made is not None]
        counter = Made(self.maker.value("", self.maker.spec((), "int64"), "const"), (), "int64")
        going = Made(self.maker.value("", self.maker.spec((), "bool"), "const"), (), "bool")
        names = [declared.name for declared in body.inputs]
        for _ in range(3):  # a tensor that grows in every turn has an extent that depends on the turn
            mark = self._mark()
            given = dict(zip(names, (counter, going, *start), strict=False))
            results = self._turns(body, graph, env, given, turns)
            kept = results[1 : 1 + len(start)]
            shapes = [_common(before, after) for before, after in zip(start, kept, strict=False)]
            if all(made.shape == shape for made, shape in zip(start, shapes, strict=True)):
                break
            self._forget(mark)
            start = [self._seen_as(node, made, shape) for made, shape in zip(start, shapes, strict=True)]
        known = turns if self._known(node, ins) else None
        stacked = [self._stacked(node, made, known) for made in results[1 + len(start) :]]
        env.update(zip(node.outputs, (*kept, *stacked), strict=False))

    def _known(self, node: Node, ins: Sequence[Made | None]) -> bool:
        limit = ins[0].content if ins and ins[0] is not None else None
        return bool(limit and limit.items and limit.items[0] is not None and limit.items[0] < MOST_TRIPS)

    def _trips(self, node: Node, ins: Sequence[Made | None]) -> int:
        if self._known(node, ins):
            return max(int(ins[0].content.items[0]), 0)  # type: ignore[union-attr, arg-type]
        self.maker.note("loop", f"{node}: how often it runs depends on data; one turn is counted", node.name)
        return 1

    def _scan(self, node: Node, graph: OnnxGraph, env: dict[str, Made]) -> None:
        """Walks along an axis of some tensors; its first results are handed from turn to turn, the others are stacked."""
        body = self._inside(node.attrs.get("body"), node)
        ins = [self._found(name, graph, env) for name in node.inputs if name]
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
            steps += self._emit(node, path, "view", NO_ATTRS, [made], [out], [""])
        if turns is None:
            self.maker.note("loop", f"{node}: how often it runs depends on data; one turn is counted", node.name)
        names = [declared.name for declared in body.inputs]
        given = dict(zip(names, (*states, *steps), strict=False))
        results = self._turns(body, graph, env, given, 1 if turns is None else turns)
        stacked = [self._stacked(node, made, turns) for made in results[len(states) :]]
        env.update(zip(node.outputs, (*results[: len(states)], *stacked), strict=False))

    def _stacked(self, node: Node, made: Made, turns: int | None) -> Made:
        shape: Shape = None if made.shape is None else (turns, *made.shape)
        path = self.scopes.path(node, [], self.maker)
        return self._emit(node, path, "copy", NO_ATTRS, [made], [Out(shape, made.dtype)], [""])[0]


class _Nested(dict[str, Made]):
    """The names of a graph inside a node: its own, and those around it."""

    def __init__(self, walk: Walk, outer: OnnxGraph, env: dict[str, Made]) -> None:
        super().__init__()
        self._walk, self._outer, self._env = walk, outer, env

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name)
        if found is None:
            found = self._env.get(name)
        if found is None and name in self._outer.stored:
            found = self._walk.stored(self._outer.stored[name])
            self[name] = found
        return default if found is None else found


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


def _common(one: Made, other: Made) -> Shape:
    """What two shapes have in common."""
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return None
    return tuple(a if a == b else None for a, b in zip(one.shape, other.shape, strict=True))


def _seen(call: Call) -> str:
    return f"its inputs are {', '.join(text(made.shape) if made else 'left out' for made in call.ins) or 'none'}"


def _plain(dtype: str) -> str:
    """A text counts as one byte: how long it is, nobody knows."""
    return "uint8" if dtype in ("string", "undefined") else dtype


def _check(shape: Shape, node: Node) -> None:
    """Refuse what no tensor can be, before numbers grow without end."""
    if shape is None:
        return
    elements = 1
    for extent in shape:
        if extent is not None:
            if extent < 0:
                raise InputError(
                    f"{node}: a tensor would have the shape {text(shape)}", hint="the input is too small for this model"
                )
            elements *= extent
    if elements >= MOST_ELEMENTS or len(shape) > 64:
        raise SourceError(f"{node}: a tensor would have the shape {text(shape)}, more than memory can address")
