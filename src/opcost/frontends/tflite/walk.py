"""The walk over a TensorFlow Lite model: graphs that call others, branches, loops, and variables that outlive a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from opcost.core.graph import NO_ATTRS
from opcost.errors import SourceError
from opcost.frontends.building import GraphBuilder
from opcost.frontends.nodes.call import Made, Out
from opcost.frontends.nodes.model import MOST_DEPTH, Node, NodeGraph, plain
from opcost.frontends.nodes.walk import Walk
from opcost.frontends.tflite import operators as _families  # noqa: F401 - entering them in the table is what it is for
from opcost.frontends.tflite.model import Model
from opcost.frontends.tflite.scopes import LiteScopes
from opcost.frontends.tflite.table import TABLE


class LiteWalk(Walk):
    """Makes the values and operators of a graph, and of the graphs that it calls."""

    format = "tflite"
    table = TABLE
    typed = True
    scopes: LiteScopes

    def __init__(self, model: Model, maker: GraphBuilder, *, trusted: bool) -> None:
        super().__init__(maker, LiteScopes(), trusted=trusted)
        self.model = model
        self._depth = 0
        self._variables: dict[str, Made] = {}
        """By their names; a variable has the shape of what was first put into it."""
        self._handles: dict[int, str] = {}
        """The variable that a tensor stands for."""

    def run(self, place: int, given: Sequence[Made]) -> list[Made]:
        """Call a graph by its number; what comes back is what it returns."""
        if not 0 <= place < len(self.model.graphs):
            raise SourceError(f"the graph {place} is called, and there are {len(self.model.graphs)}")
        called = self.model.graphs[place]
        names = [declared.name for declared in called.graph.inputs]
        if len(given) != len(names):
            raise SourceError(f"the graph {place} is called with {len(given)} inputs, and takes {len(names)}")
        if self._depth >= MOST_DEPTH:
            raise SourceError("graphs call each other without end", hint="the file is damaged")
        before = self.scopes.tensors
        self._depth += 1
        self.scopes.tensors = called.tensors
        try:
            return self.graph(called.graph, dict(zip(names, given, strict=True)))
        finally:
            self._depth -= 1
            self.scopes.tensors = before

    def special(self, node: Node, graph: NodeGraph, env: dict[str, Made]) -> bool:
        if node.domain or node.op not in self._steering:
            return False
        ins = [self.found(name, graph, env) for name in node.inputs if name]
        results = self._steering[node.op](self, node, ins)
        env.update(zip(node.outputs, results, strict=False))
        return True

    # -- graphs that are called -----------------------------------------------------------------------------------------

    def _call(self, node: Node, ins: list[Made]) -> list[Made]:
        return self.run(node.attrs["subgraph"], ins)

    def _if(self, node: Node, ins: list[Made]) -> list[Made]:
        return self._chosen(node, [node.attrs["else"], node.attrs["then"]], ins)

    def _case(self, node: Node, ins: list[Made]) -> list[Made]:
        return self._chosen(node, node.attrs.get("branches", ()), ins)

    def _chosen(self, node: Node, places: Sequence[int], ins: list[Made]) -> list[Made]:
        """The branch that the first input chooses, where it is known; else the dearest."""
        content = ins[0].content if ins else None
        chosen = content.items[0] if content and content.items else None
        if chosen is not None and 0 <= int(chosen) < len(places):
            return self.run(places[int(chosen)], ins[1:])
        if not places:
            raise SourceError(f"{node}: it has no branches")
        return self.either(node, [self._running(place, ins[1:]) for place in places])

    def _running(self, place: int, given: Sequence[Made]) -> Callable[[], list[Made]]:
        return lambda: self.run(place, given)

    def _while(self, node: Node, ins: list[Made]) -> list[Made]:
        cond, body = node.attrs["cond"], node.attrs["body"]
        return self.looped(node, ins, lambda given: self.run(cond, given), lambda given: self.run(body, given))

    def _once(self, node: Node, _ins: list[Made]) -> list[Made]:
        """What is done before the first call only costs nothing afterwards; the variables that it fills are kept."""
        mark, notes = self.mark(), dict(self.maker.notes)
        before = dict(self._variables)
        self.run(node.attrs["init"], [])
        shapes = {name: (made.shape, made.dtype) for name, made in self._variables.items() if name not in before}
        self.forget(mark)
        self.maker.notes = notes
        self._variables = before
        for name, (shape, dtype) in shapes.items():
            self._variables[name] = self._variable(name, Out(shape, dtype))
        return []

    # -- variables ------------------------------------------------------------------------------------------------------

    def _variable(self, name: str, like: Out) -> Made:
        value = self.maker.value(name, self.maker.spec(like.shape, plain(like.dtype)), "buffer")
        self.scopes.owners[value], self.scopes.roles[value] = "", "buffer"
        self.scopes.held[value] = False
        return Made(value, like.shape, plain(like.dtype))

    def _handle(self, node: Node, _ins: list[Made]) -> list[Made]:
        made = self.emit(node, "", "view", NO_ATTRS, [], [Out((), "uint8")], node.outputs[:1])
        self._handles[made[0].value] = str(node.attrs.get("shared_name", ""))
        return made

    def _named(self, node: Node, ins: list[Made]) -> str:
        name = self._handles.get(ins[0].value) if ins else None
        if name is None:
            raise SourceError(f"{node}: it takes a variable, and is given none")
        return name

    def _read(self, node: Node, ins: list[Made]) -> list[Made]:
        name = self._named(node, ins)
        if name not in self._variables:
            declared = self.model_declared(node)
            self._variables[name] = self._variable(name, declared)
        held = self._variables[name]
        path = self.scopes.path(node, [], self.maker)
        return self.emit(node, path, "copy", NO_ATTRS, [held], [Out(held.shape, held.dtype)], node.outputs[:1])

    def model_declared(self, node: Node) -> Out:
        """What the file says of the first result of a node."""
        tensor = self.scopes.tensors[node.outputs[0]]
        return Out(tensor.now or tensor.shape, tensor.dtype)

    def _assign(self, node: Node, ins: list[Made]) -> list[Made]:
        name = self._named(node, ins)
        if len(ins) < 2:
            raise SourceError(f"{node}: there is nothing to put into its variable")
        if name not in self._variables:
            self._variables[name] = self._variable(name, Out(ins[1].shape, ins[1].dtype))
        held = self._variables[name]
        path = self.scopes.path(node, [], self.maker)
        self.emit(node, path, "copy", NO_ATTRS, [ins[1]], [Out(ins[1].shape, ins[1].dtype, home=held)], [name])
        return []

    _steering: ClassVar[dict[str, Callable[[LiteWalk, Node, list[Made]], list[Made]]]] = {
        "CALL": _call,
        "STABLEHLO_COMPOSITE": _call,
        "IF": _if,
        "STABLEHLO_CASE": _case,
        "WHILE": _while,
        "STABLEHLO_WHILE": _while,
        "CALL_ONCE": _once,
        "VAR_HANDLE": _handle,
        "READ_VARIABLE": _read,
        "ASSIGN_VARIABLE": _assign,
    }
