"""From an ONNX file to a graph: constants, functions, branches and loops of the model, then its inputs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from opcost.core.files import length_of, opened
from opcost.core.graph import Graph
from opcost.errors import InputError, SourceError, some
from opcost.frontends.inputs import Usual
from opcost.frontends.nodes.meaning import Content, GraphNode, Names, NodeGraph, Operand, Operands, Out, StoredValue
from opcost.frontends.nodes.operators import operator_table
from opcost.frontends.nodes.walk import FAULTS, MOST_TURNS, Block, Walk
from opcost.frontends.onnx import operators, products, reductions, runtime
from opcost.frontends.onnx.model import AttributeReference, Function, OnnxModel, read_model
from opcost.frontends.onnx.runtime import NCHWC, with_channels
from opcost.frontends.onnx.scopes import OnnxScopes
from opcost.frontends.options import CountOptions
from opcost.frontends.protobuf import FilePiece

TABLE = operator_table("opcost.frontends.onnx", operators, products, reductions, runtime)
MOST_CALLS = 64  # Functions that call functions

_TRUE = Content((), (True,))
_STEERING = frozenset(("Constant", "If", "Loop", "Scan", "SequenceMap", "FlexAttention"))


class OnnxWalk(Walk):
    """Makes the values and operators of a model's graph, and of the graphs and functions inside it."""

    format = "onnx"
    table = TABLE
    scopes: OnnxScopes

    def __init__(self, model: OnnxModel) -> None:
        super().__init__(OnnxScopes(model.graph, TABLE))
        self.model = model
        self._calls = 0

    def graph(self, graph: NodeGraph, env: Names) -> list[Operand]:
        try:
            graph = with_channels(graph)
        except FAULTS as exc:
            fault = f"nodes of {NCHWC} are not what such nodes must be ({type(exc).__name__}: {exc})"
            raise SourceError(fault) from exc
        if any((node.domain, node.op) == (NCHWC, "Conv") and "channels" not in node.attrs for node in graph.nodes):
            text = "the file does not say how many channels the model has where ONNX Runtime filled up blocks of 8 or"
            self.maker.note("padded-channels", f"{text} 16: all are counted; count the file before it was optimised")
        return super().graph(graph, env)

    def version(self, node: GraphNode) -> int:
        return self.model.opsets.get(node.domain or "ai.onnx", 0)

    def free(self, node: GraphNode) -> bool:
        return node.domain == "ml"  # trees, encoders, scalers: no arithmetic that is counted

    def finished(
        self, source: str, meta: Mapping[str, str], name: str, inputs: Sequence[Operand], outputs: Sequence[Operand]
    ) -> Graph:
        if folded := self.scopes.folded():
            text = "parameters that the exporter folded into constants or merged with equal ones"
            self.maker.note("folded-weights", f"{text}: {', '.join(some(folded))}")
        if computed := self.scopes.computed():
            text = "computed before the file was saved, and no parameters"
            self.maker.note("computed-constants", f"{text}: {', '.join(some(computed))}")
        return super().finished(source, meta, name, inputs, outputs)

    def special(self, node: GraphNode, ins: Operands, graph: NodeGraph, env: Names) -> Sequence[Operand] | None:
        function = self.model.functions.get((node.domain, node.op))
        if function is not None and (node.domain, node.op) not in TABLE:
            return self._function(node, function, ins, env)
        if node.op not in _STEERING:
            return None
        given = [made for made in ins if made is not None]

        def inner(name: str) -> Block:
            block = node.attrs.get(name)
            if not isinstance(block, NodeGraph):
                raise SourceError(f"{node}: a graph that it runs is missing")
            return partial(self.inner, block, graph, env)

        match node.op if not node.domain else "":
            case "Constant":
                return [self._constant(node)]
            case "If":  # the branch that is taken, where that is known; else both
                branches = [partial(inner(name), []) for name in ("then_branch", "else_branch")]
                condition = given[0].first
                return self.choose(node, None if condition is None else 0 if condition else 1, branches)
            case "Loop":
                return self._loop(node, ins, inner("body"))
            case "Scan" if self.model.opsets.get("ai.onnx", 9) > 8:  # the first version has a batch in front
                return self._scan(node, given, inner("body"))
            case "SequenceMap":
                return self._each_item(node, given, inner("body"))
        if (node.domain, node.op) == ("ai.onnx.preview", "FlexAttention") and node.attrs.keys() & {
            "score_mod",
            "prob_mod",
        }:
            return self._flex(node, given, inner)
        return None

    def _constant(self, node: GraphNode) -> Operand:
        found = StoredValue(node.outputs[0], (), "uint8")
        for name, value in node.attrs.items():
            if isinstance(value, StoredValue):
                found = value._replace(name=node.outputs[0])
                break
            if name in ("value_int", "value_ints", "value_float", "value_floats"):
                many = value if isinstance(value, tuple) else (value,)
                shape = (len(many),) if isinstance(value, tuple) else ()
                dtype = "int64" if "int" in name else "float32"
                found = StoredValue(node.outputs[0], shape, dtype, Content(shape, many))
                break
        return self.stored_value(found, constant=True)

    def _function(self, node: GraphNode, function: Function, ins: Operands, env: Names) -> Sequence[Operand]:
        if self._calls >= MOST_CALLS:
            raise SourceError(f"{node}: functions call each other without end")
        inner = {name: made for name, made in zip(function.inputs, ins, strict=False) if made is not None}
        given = {**function.defaults, **node.attrs}
        graph = NodeGraph(node.op, function.nodes, {}, (), (), {})
        self._calls += 1
        for each in function.nodes:
            # With the attributes of the call in place of references to them
            attrs = {name: value for name, value in each.attrs.items() if not isinstance(value, AttributeReference)}
            references = (
                (name, value.name) for name, value in each.attrs.items() if isinstance(value, AttributeReference)
            )
            attrs |= {name: given[referred] for name, referred in references if referred in given}
            bound = each._replace(name=each.name or node.name, attrs=attrs, props=each.props or node.props)
            self.node(bound, graph, inner)
        self._calls -= 1
        named = zip(node.outputs, function.outputs, strict=False)
        env.update({name: inner[inside] for name, inside in named if name and inside in inner})
        return ()

    def _loop(self, node: GraphNode, ins: Operands, body: Block) -> list[Operand]:
        # How often a loop turns at most, where that is known; a huge number means no limit
        found = ins[0].first if ins and ins[0] is not None else None
        limit = max(int(found), 0) if found is not None and found < MOST_TURNS else None
        turns = self.once(node) if limit is None else limit
        start = [made for made in ins[2:] if made is not None]
        counter = Operand(self.maker.value("", self.maker.spec((), "int64"), "const"), (), "int64")
        going = Operand(self.maker.value("", self.maker.spec((), "bool"), "const"), (), "bool", _TRUE)
        results = self.turned(node, start, turns, lambda carried: body([counter, going, *carried]), skip=1)
        if limit and results[0].content != _TRUE:
            self.ends_early(node, turns)
        return [*results[1 : 1 + len(start)], *self._stacked(node, results[1 + len(start) :], limit)]

    def _scan(self, node: GraphNode, ins: list[Operand], body: Block) -> list[Operand]:
        """Walks along an axis of some tensors; its first results are handed from turn to turn, the others are stacked."""
        count = int(node.attrs.get("num_scan_inputs", 0))
        if not 0 < count <= len(ins):
            raise SourceError(f"{node}: it walks along {count} of its {len(ins)} inputs")
        states, walked = ins[: len(ins) - count], ins[len(ins) - count :]
        turns, steps = None, []
        for made, axis in zip(walked, node.attrs.get("scan_input_axes") or (0,) * count, strict=False):
            shape = made.shape
            if not shape:
                raise SourceError(f"{node}: the shape along which it walks is not known")
            at = axis % len(shape)
            turns = shape[at] if turns is None else turns
            steps.append(self.step(node, "view", [made], Out((*shape[:at], *shape[at + 1 :]), made.dtype, home=made)))
        turn = self.once(node) if turns is None else turns
        results = self.turned(node, [], turn, lambda _: body([*states, *steps]))
        return [*results[: len(states)], *self._stacked(node, results[len(states) :], turns)]

    def _stacked(self, node: GraphNode, results: Sequence[Operand], turns: int | None) -> list[Operand]:
        """What each turn gives, one behind the other."""
        shapes = [None if made.shape is None else (turns, *made.shape) for made in results]
        pairs = zip(results, shapes, strict=True)
        return [self.step(node, "copy", [made], Out(shape, made.dtype)) for made, shape in pairs]

    def _each_item(self, node: GraphNode, ins: list[Operand], body: Block) -> list[Operand] | None:
        """Runs a graph for each tensor of a sequence; None: the tensors in it are not known."""
        if not ins or ins[0].items is None:
            return None
        places = range(len(ins[0].items))
        rows = [body([each if each.items is None else each.items[place] for each in ins]) for place in places]
        made = []
        for name, *items in zip(node.outputs, *rows, strict=False):
            out = Out(None, items[0].dtype if items else ins[0].dtype, items=items)
            made.append(self.step(node, "view", [], out, name))
        return made

    def _flex(self, node: GraphNode, ins: list[Operand], inner: Callable[[str], Block]) -> list[Operand]:
        """Attention with graphs that change the scores or the probabilities: its steps, with the graphs between them."""
        q, k, v = ins[:3]
        if q.shape is None or k.shape is None or v.shape is None:
            raise SourceError(f"{node}: the shapes of its queries, keys and values are not known")
        path = self.scopes.path(node, [q, k, v], self.maker)
        square = Out((*q.shape[:-1], k.shape[-2]), "float64" if q.dtype == "float64" else "float32")
        scaled = {"depth": q.shape[-1], "then": ("mul",)}
        made = self.emit(node, path, "matmul", scaled, [q, k], [square], [""])
        made = inner("score_mod")(made) if "score_mod" in node.attrs else made
        made = self.emit(node, path, "softmax", {"fn": "softmax"}, made[:1], [square], [""])
        made = inner("prob_mod")(made) if "prob_mod" in node.attrs else made
        out = Out((*q.shape[:-1], v.shape[-1]), q.dtype)
        return self.emit(node, path, "matmul", {"depth": k.shape[-2]}, [made[0], v], [out], node.outputs)


OLDEST = 7  # The first version of the operators that is read


_DETECTING = frozenset(("NonMaxSuppression", "RoiAlign", "MaxRoiPool", "EfficientNMS_TRT", "BatchedNMS_TRT"))
"""Operators of models that find objects."""


def load(path: Path, options: CountOptions) -> Graph:
    """Read a model and work out all its shapes."""
    with opened(path) as file:
        model = read_model(FilePiece(file, 0, length_of(file)))
    return graph_of(model, options, path.name)


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
    usual = Usual.of(model.metadata, detector=any(node.op in _DETECTING for node in model.graph.nodes))
    walk = walks(model)
    run, name = partial(walk.called, model.graph), model.graph.name
    return walk.counted(inputs, options, run, source, name, f"opset {version}", model.producer, usual)
