"""From a TensorFlow Lite file to a graph: signatures, modules, graphs that call others, branches, loops and variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from opcost.core.checked import Bad
from opcost.core.graph import INTEGER, NO_ATTRS, Graph, Role
from opcost.errors import SourceError, UnknownName, some
from opcost.frontends.building import GraphBuilder
from opcost.frontends.flatbuffer import pages_of
from opcost.frontends.nodes.inputs import Scopes, given_inputs, path_in_name
from opcost.frontends.nodes.meaning import MOST_DEPTH, GraphNode, NodeGraph, Operand, Out, plain
from opcost.frontends.nodes.walk import Walk
from opcost.frontends.options import CountOptions, refuse_running
from opcost.frontends.tflite import products as _products  # noqa: F401 - it enters its operators in the table
from opcost.frontends.tflite.model import LiteModel, LiteSignature, LiteTensor, read_model
from opcost.frontends.tflite.operators import TABLE


def load(path: Path, options: CountOptions) -> Graph:
    """Read a model and work out all its shapes."""
    refuse_running(options, f"{path} is a TensorFlow Lite model")
    try:
        with pages_of(path) as pages:
            model = read_model(pages)
        return graph_of(model, options, path.name)
    except (Bad, RecursionError) as exc:
        raise SourceError(f"{path} is not a TensorFlow Lite model that can be read: {exc}") from exc


def graph_of(model: LiteModel, options: CountOptions, source: str) -> Graph:
    """The graph of one signature of a model on the requested inputs."""
    maker = GraphBuilder()
    # The requested one, or the first; a model without any has its first graph
    requested = str(options.own.get("signature", ""))
    found = {signature.name: signature for signature in model.signatures}
    if requested and requested not in found:
        raise UnknownName("signature", requested, found)
    if len(found) > 1 and not requested:
        text = f"the model has the signatures {', '.join(some([*found]))}, of which the first is counted"
        maker.note("signatures", f"{text}; choose another by --signature NAME")
    chosen = found[requested] if requested else model.signatures[0] if model.signatures else None
    signature = chosen or LiteSignature("", 0, {})
    lite = model.graphs[signature.graph]
    names = {tensor: name for name, tensor in signature.inputs.items()}
    for declared in lite.graph.inputs:  # without what TensorFlow puts around it: `serving_default_x:0` is x
        short = declared.name.removeprefix("serving_default_").partition(":")[0]
        names[declared.name] = names.get(declared.name) or short or declared.name
    inputs = [declared._replace(name=names[declared.name]) for declared in lite.graph.inputs]
    given = given_inputs(inputs, _renamed(options, names), maker)
    walk = LiteWalk(model, maker, trusted=given.trusted)
    outputs = walk.run(signature.graph, given.made)
    meta = {"version": f"schema {model.version}", "mode": "eval"}
    if model.description:
        meta["producer"] = model.description
    return walk.finished(source, meta, signature.name, given.made, outputs)


def _renamed(options: CountOptions, names: Mapping[str, str]) -> CountOptions:
    """Inputs may also be called as their tensors are."""

    def renamed(given: Any) -> Any:
        by_name = isinstance(given, Mapping)
        return {names.get(str(key), str(key)): value for key, value in given.items()} if by_name else given

    fields = ("inputs", "kwargs", "shapes", "dtypes")
    return replace(options, **{field: renamed(getattr(options, field)) for field in fields})


# -- modules -------------------------------------------------------------------------------------------------------------

_BIASED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "CONV_3D", "CONV_3D_TRANSPOSE", "SVDF")
_SMALL = ("int8", "uint8", "int16", "int4", "uint4", "int2")
_PRODUCTS = ("conv", "matmul", "einsum", "dense")


class LiteScopes(Scopes):
    """Paths in the names of results, which a converter joins where it joined operators: `net/conv1/Relu;net/conv1/Conv2D`."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: Mapping[str, LiteTensor] = {}
        """The tensors of the graph that is walked."""
        self._widened: dict[tuple[int, str], tuple[str, Operand]] = {}
        """The stored tensor, with its name, of which a DEQUANTIZE makes the tensor of a graph and a name."""

    def path_in_node(self, node: GraphNode) -> str | None:
        parts = node.name.split(";")
        product = (part for part in parts if part.rpartition("/")[2].lower().startswith(_PRODUCTS))
        return path_in_name(next(product, parts[0]))

    def path(self, node: GraphNode, ins: Sequence[Operand | None], maker: GraphBuilder) -> str:
        """A layer is named by its stored weight, also where that is widened from float16 first."""
        if self._widens(node, ins) and ins[0] is not None:
            self._widened[id(self.tensors), node.outputs[0]] = node.inputs[0], ins[0]
        found = super().path(node, self._stored(node, ins), maker)
        if (
            self.paths[found] == "DEQUANTIZE"
        ):  # the layer that reads the weight has the type, and its place among others
            del self.paths[found]
            self.paths[found] = node.op
        return found

    def read(self, node: GraphNode, path: str, ins: Sequence[Operand | None], maker: GraphBuilder) -> None:
        if not self._widens(node, ins):  # the layer behind it is the reader
            super().read(node, path, self._stored(node, ins), maker)

    def _widens(self, node: GraphNode, ins: Sequence[Operand | None]) -> bool:
        return node.op == "DEQUANTIZE" and bool(ins) and ins[0] is not None and ins[0].value in self.stored

    def _stored(self, node: GraphNode, ins: Sequence[Operand | None]) -> list[Operand | None]:
        pairs = zip(node.inputs, ins, strict=False)
        return [self._widened.get((id(self.tensors), name), ("", given))[1] for name, given in pairs]

    def path_of_weight(self, name: str) -> str | None:
        return path_in_name(name.partition(";")[0])

    def role(self, node: GraphNode, place: int, made: Operand) -> Role:
        name = node.inputs[place]
        tensor = self.tensors.get(self._widened.get((id(self.tensors), name), (name, made))[0])
        if tensor is not None and tensor.variable:
            return "buffer"
        if made.dtype not in INTEGER:
            return "param" if made.shape else "const"
        quantized = tensor is not None and tensor.quantized
        if made.dtype in _SMALL:
            return "param" if quantized and made.shape else "const"
        return "param" if quantized and node.op in _BIASED and made.dtype in ("int32", "int64") else "const"


# -- the walk ------------------------------------------------------------------------------------------------------------


class LiteWalk(Walk):
    """Makes the values and operators of a graph, and of the graphs that it calls."""

    format = "tflite"
    table = TABLE
    typed = True
    scopes: LiteScopes

    def __init__(self, model: LiteModel, maker: GraphBuilder, *, trusted: bool) -> None:
        super().__init__(maker, LiteScopes(), trusted=trusted)
        self.model = model
        self._depth = 0
        self._variables: dict[str, Operand] = {}
        """By their names; a variable has the shape of what was first put into it."""
        self._handles: dict[int, str] = {}
        """The variable of a tensor that is a handle."""

    def run(self, place: int, given: Sequence[Operand]) -> list[Operand]:
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

    def special(self, node: GraphNode, graph: NodeGraph, env: dict[str, Operand]) -> bool:
        if node.domain or node.op not in self._steering:
            return False
        ins = [self.found(name, graph, env) for name in node.inputs if name]
        results = self._steering[node.op](self, node, ins)
        env.update(zip(node.outputs, results, strict=False))
        return True

    # -- graphs that are called -----------------------------------------------------------------------------------------

    def _call(self, node: GraphNode, ins: list[Operand]) -> list[Operand]:
        return self.run(node.attrs["subgraph"], ins)

    def _choose(self, node: GraphNode, ins: list[Operand]) -> list[Operand]:
        """The branch that the first input chooses, where it is known; else the most expensive one."""
        places = [node.attrs["else"], node.attrs["then"]] if node.op == "IF" else node.attrs.get("branches", ())
        if not places:
            raise SourceError(f"{node}: it has no branches")
        branches = [partial(self.run, place, ins[1:]) for place in places]
        return self.choose(node, ins[0].first if ins else None, branches)

    def _while(self, node: GraphNode, ins: list[Operand]) -> list[Operand]:
        return self.looped(node, ins, partial(self.run, node.attrs["cond"]), partial(self.run, node.attrs["body"]))

    def _once(self, node: GraphNode, _ins: list[Operand]) -> list[Operand]:
        """What runs before the first call only costs nothing afterwards; the variables that it fills are kept."""
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

    def _variable(self, name: str, like: Out) -> Operand:
        value = self.maker.value(name, self.maker.spec(like.shape, plain(like.dtype)), "buffer")
        self.scopes.owners[value], self.scopes.roles[value] = "", "buffer"
        self.scopes.stored[value] = False
        return Operand(value, like.shape, plain(like.dtype))

    def _handle(self, node: GraphNode, _ins: list[Operand]) -> list[Operand]:
        made = self.emit(node, "", "view", NO_ATTRS, [], [Out((), "uint8")], node.outputs[:1])
        self._handles[made[0].value] = str(node.attrs.get("shared_name", ""))
        return made

    def _named(self, node: GraphNode, ins: list[Operand]) -> str:
        name = self._handles.get(ins[0].value) if ins else None
        if name is None:
            raise SourceError(f"{node}: it takes a variable, and is given none")
        return name

    def _read(self, node: GraphNode, ins: list[Operand]) -> list[Operand]:
        name = self._named(node, ins)
        if name not in self._variables:
            tensor = self.scopes.tensors[node.outputs[0]]
            self._variables[name] = self._variable(name, Out(tensor.now or tensor.shape, tensor.dtype))
        variable = self._variables[name]
        path = self.scopes.path(node, [], self.maker)
        out = Out(variable.shape, variable.dtype)
        return self.emit(node, path, "copy", NO_ATTRS, [variable], [out], node.outputs[:1])

    def _assign(self, node: GraphNode, ins: list[Operand]) -> list[Operand]:
        name = self._named(node, ins)
        if len(ins) < 2:
            raise SourceError(f"{node}: there is nothing to put into its variable")
        value = ins[1]
        if name not in self._variables:
            self._variables[name] = self._variable(name, Out(value.shape, value.dtype))
        path = self.scopes.path(node, [], self.maker)
        out = Out(value.shape, value.dtype, home=self._variables[name])
        self.emit(node, path, "copy", NO_ATTRS, [value], [out], [name])
        return []

    _steering: ClassVar[dict[str, Callable[[LiteWalk, GraphNode, list[Operand]], list[Operand]]]] = {
        "CALL": _call, "STABLEHLO_COMPOSITE": _call, "IF": _choose, "STABLEHLO_CASE": _choose, "WHILE": _while,
        "STABLEHLO_WHILE": _while, "CALL_ONCE": _once, "VAR_HANDLE": _handle, "READ_VARIABLE": _read,
        "ASSIGN_VARIABLE": _assign,
    }  # fmt: skip
