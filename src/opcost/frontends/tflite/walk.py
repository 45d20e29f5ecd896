"""From a TensorFlow Lite file to a graph: signatures, modules, graphs that call others, branches, loops and variables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from opcost.core.graph import INTEGER, NO_ATTRS, Graph, Role
from opcost.core.shapes import Shape
from opcost.errors import SourceError, UnknownName, some
from opcost.frontends.building import GraphBuilder
from opcost.frontends.flatbuffer import pages_of
from opcost.frontends.nodes import MOST_DEPTH
from opcost.frontends.nodes.inputs import Scopes, path_in_name
from opcost.frontends.nodes.meaning import GraphNode, Names, NodeGraph, Operand, Operands, Out, plain
from opcost.frontends.nodes.operators import operator_table
from opcost.frontends.nodes.walk import Walk
from opcost.frontends.options import CountOptions
from opcost.frontends.tflite import operators, products
from opcost.frontends.tflite.model import LiteModel, LiteSignature, LiteTensor, read_model

TABLE = operator_table("opcost.frontends.tflite", operators, products)


def load(path: Path, options: CountOptions) -> Graph:
    """Read a model and work out all its shapes."""
    with pages_of(path) as pages:
        model = read_model(pages)
    return graph_of(model, options, path.name)


def graph_of(model: LiteModel, options: CountOptions, source: str) -> Graph:
    """The graph of one signature of a model on the requested inputs."""
    walk = LiteWalk(model)
    # The requested one, or the first; a model without any has its first graph
    requested = str(options.own.get("signature", ""))
    found = {signature.name: signature for signature in model.signatures}
    if requested and requested not in found:
        raise UnknownName("signature", requested, found)
    if len(found) > 1 and not requested:
        text = f"the model has the signatures {', '.join(some([*found]))}, of which the first is counted"
        walk.maker.note("signatures", f"{text}; choose another by --signature NAME")
    chosen = found[requested] if requested else model.signatures[0] if model.signatures else None
    signature = chosen or LiteSignature("", 0, {})
    lite = model.graphs[signature.graph]
    names = {tensor: name for name, tensor in signature.inputs.items()}
    for declared in lite.graph.inputs:  # without what TensorFlow puts around it: `serving_default_x:0` is x
        short = declared.name.removeprefix("serving_default_").partition(":")[0]
        names[declared.name] = names.get(declared.name) or short or declared.name
    inputs = [declared._replace(name=names[declared.name]) for declared in lite.graph.inputs]
    # Inputs may also be called as their tensors are.
    renamed: dict[str, Any] = {}
    for field in ("inputs", "kwargs", "shapes", "dtypes"):
        if isinstance(by_name := getattr(options, field), Mapping):
            renamed[field] = {names.get(str(key), str(key)): value for key, value in by_name.items()}
    options, run, version = replace(options, **renamed), partial(walk.run, signature.graph), f"schema {model.version}"
    return walk.counted(inputs, options, run, source, signature.name, version, model.description)


_BIASED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "CONV_3D", "CONV_3D_TRANSPOSE", "SVDF")
_SMALL = ("int8", "uint8", "int16", "int4", "uint4", "int2")
_PRODUCTS = ("conv", "matmul", "einsum", "dense")


class LiteScopes(Scopes):
    """Paths in the names of results, which a converter joins where it joined operators: `net/conv1/Relu;net/conv1/Conv2D`."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: Mapping[str, LiteTensor] = {}  # The tensors of the graph that is walked
        self._widened: dict[tuple[int, str], tuple[str, Operand]] = {}
        """The stored tensor, with its name, of which a DEQUANTIZE makes the tensor of a graph and a name."""

    def path_in_node(self, node: GraphNode) -> str | None:
        parts = node.name.split(";")
        product = (part for part in parts if part.rpartition("/")[2].lower().startswith(_PRODUCTS))
        return path_in_name(next(product, parts[0]))

    def path(self, node: GraphNode, ins: Operands, maker: GraphBuilder) -> str:
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

    def read(self, node: GraphNode, path: str, ins: Operands, maker: GraphBuilder) -> None:
        if not self._widens(node, ins):  # the layer behind it is the reader
            super().read(node, path, self._stored(node, ins), maker)

    def _widens(self, node: GraphNode, ins: Operands) -> bool:
        return node.op == "DEQUANTIZE" and bool(ins) and ins[0] is not None and ins[0].value in self.stored

    def _stored(self, node: GraphNode, ins: Operands) -> list[Operand | None]:
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


class LiteWalk(Walk):
    """Makes the values and operators of a graph, and of the graphs that it calls."""

    format = "tflite"
    table = TABLE
    typed = True
    scopes: LiteScopes

    def __init__(self, model: LiteModel) -> None:
        super().__init__(LiteScopes())
        self.model = model
        self._depth = 0
        self._variables: Names = {}
        """By their names; a variable has the shape of what was first put into it."""
        self._handles: dict[int, str] = {}  # The variable of a tensor that is a handle

    def run(self, place: int, given: Sequence[Operand]) -> list[Operand]:
        """Call a graph by its number; what comes back is what it returns."""
        if not 0 <= place < len(self.model.graphs):
            raise SourceError(f"the graph {place} is called, and there are {len(self.model.graphs)}")
        called = self.model.graphs[place]
        if len(given) != (takes := len(called.graph.inputs)):
            raise SourceError(f"the graph {place} is called with {len(given)} inputs, and takes {takes}")
        if self._depth >= MOST_DEPTH:
            raise SourceError("graphs call each other without end", hint="the file is damaged")
        before = self.scopes.tensors
        self._depth += 1
        self.scopes.tensors = called.tensors
        try:
            return self.called(called.graph, given)
        finally:
            self._depth -= 1
            self.scopes.tensors = before

    def special(self, node: GraphNode, ins: Operands, graph: NodeGraph, env: Names) -> Sequence[Operand] | None:
        given, attrs = [made for made in ins if made is not None], node.attrs
        match node.op if not node.domain else "":
            case "CALL" | "STABLEHLO_COMPOSITE":
                return self.run(attrs["subgraph"], given)
            case "IF" | "STABLEHLO_CASE":  # the branch that the first input chooses, where it is known
                places = [attrs["else"], attrs["then"]] if node.op == "IF" else attrs.get("branches", ())
                if not places:
                    raise SourceError(f"{node}: it has no branches")
                branches = [partial(self.run, place, given[1:]) for place in places]
                return self.choose(node, given[0].first if given else None, branches)
            case "WHILE" | "STABLEHLO_WHILE":
                return self.looped(node, given, partial(self.run, attrs["cond"]), partial(self.run, attrs["body"]))
            case "CALL_ONCE":
                return self._once(attrs["init"])
            case "VAR_HANDLE":
                made = self.emit(node, "", "view", NO_ATTRS, [], [Out((), "uint8")], node.outputs[:1])
                self._handles[made[0].value] = str(attrs.get("shared_name", ""))
                return made
            case "READ_VARIABLE" | "ASSIGN_VARIABLE":
                return self._read_or_assign(node, given)
        return None

    def _once(self, place: int) -> Sequence[Operand]:
        """What runs before the first call only costs nothing afterwards; the variables that it fills are kept."""
        mark, notes = self.mark(), dict(self.maker.notes)
        before = dict(self._variables)
        self.run(place, [])
        filled = {name: made for name, made in self._variables.items() if name not in before}
        self.forget(mark)
        self.maker.notes = notes
        self._variables = before
        for name, made in filled.items():
            self._variable(name, made.shape, made.dtype)
        return ()

    def _variable(self, name: str, shape: Shape, dtype: str) -> Operand:
        """The variable of this name; it has the shape of what was first put into it."""
        if name not in self._variables:
            value = self.maker.value(name, self.maker.spec(shape, plain(dtype)), "buffer")
            self.scopes.owners[value], self.scopes.roles[value] = "", "buffer"
            self.scopes.stored[value] = False
            self._variables[name] = Operand(value, shape, plain(dtype))
        return self._variables[name]

    def _read_or_assign(self, node: GraphNode, ins: list[Operand]) -> Sequence[Operand]:
        name = self._handles.get(ins[0].value) if ins else None
        if name is None:
            raise SourceError(f"{node}: it takes a variable, and is given none")
        if node.op == "READ_VARIABLE":
            tensor = self.scopes.tensors[node.outputs[0]]
            variable = self._variable(name, tensor.now or tensor.shape, tensor.dtype)
            return [self.step(node, "copy", [variable], Out(variable.shape, variable.dtype), node.outputs[0])]
        if len(ins) < 2:
            raise SourceError(f"{node}: there is nothing to put into its variable")
        value = ins[1]
        variable = self._variable(name, value.shape, value.dtype)
        self.step(node, "copy", [value], Out(value.shape, value.dtype, home=variable), name)
        return ()
