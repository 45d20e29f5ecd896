"""onnx-tool: what each node of an ONNX model costs, in a table that is printed or written to a file.

    from opcost.compat.onnx_tool import model_profile

onnx-tool counts multiply-adds, and for every other operator a number of them for each element.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import prod
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from opcost.compat._tables import simple_table
from opcost.errors import InputError, SourceError, UnknownName, some

__all__ = ["Graph", "Model", "NoMacsOps", "loadmodel", "model_profile"]

NoMacsOps = frozenset(
    "Identity Constant Shape Squeeze Unsqueeze Reshape ConstantOfShape Cast Pad Concat Slice Gather".split()
)
"""Operators that are left out of the table and of the totals unless `hidden_ops` lists others."""

Dims = tuple[int, ...]
_HEADERS = (
    "Name", "Type", "Forward_MACs", "FPercent", "Memory", "MPercent", "Params", "PPercent", "InShape", "OutShape",
)  # fmt: skip
_FACTORS = {"MACs": 1, "FLOPs": 2}
_ALIGN = "<<><><><<<"


def model_profile(
    m: Any, dynamic_shapes: Mapping[str, Any] | None = None, exclude_ops: Collection[str] | None = None,
    hidden_ops: Collection[str] | None = NoMacsOps, mcfg: Mapping[str, Any] | None = None,
    save_profile: str | PathLike[str] | None = None, save_model: str | PathLike[str] | None = None,
    shape_only: bool = False, no_shape: bool = False,
) -> None:  # fmt: skip
    """Print the table of `m`, a path or a ModelProto; `dynamic_shapes` has shapes or arrays for inputs."""
    if save_model is not None:
        raise InputError("opcost writes no models", hint="leave save_model out, or use onnx-tool for it")
    hidden = {*(hidden_ops or ()), *(exclude_ops or ())}
    graph = loadmodel(m).graph
    graph.shape_infer(dynamic_shapes)
    graph.profile(exclude_ops=hidden)
    graph.print_node_map(save_profile, exclude_ops=hidden)


@dataclass(slots=True)
class Node:
    """A node of the graph with its numbers."""

    name: str
    op_type: str
    macs: list[int]  # Forward and backward; the latter is never counted
    memory: int  # Bytes of its results, and of the stored tensors that it is the first to read
    params: int
    inshape: Dims
    outshape: Dims

    def amounts(self) -> tuple[int, ...]:
        """Multiply-adds, bytes, parameters."""
        return self.macs[0], self.memory, self.params


class Graph:
    """The nodes of a model: `shape_infer`, then `profile`, then `print_node_map`, or `macs`, `params`, `memory` and `nodemap`."""

    def __init__(self, m: Any) -> None:
        self._model = m
        self._given: Mapping[str, Any] = {}
        self.valid_shape = self.valid_profile = False
        self._nodes: list[Node] = []
        self.nodemap: dict[str, Node] = {}
        self.macs = [0, 0]
        self.params = self.memory = 0

    def graph_reorder_nodes(self) -> None:
        """No effect: nodes are walked in the order in which they can run."""

    def shape_infer(self, inputs: Mapping[str, Any] | None = None) -> None:
        """Take shapes or arrays for inputs; they are applied by `profile`."""
        self._given = dict(inputs or {})
        self.valid_shape = True

    def profile(self, exclude_ops: Collection[str] | None = None) -> None:
        """Count every node; those of `exclude_ops` are left out of the totals."""
        if not self.valid_shape:
            warnings.warn("Please perform a valid shape_infer() before profile().", stacklevel=2)
            return
        hidden = exclude_ops or ()
        self._nodes = profile_nodes(self._model, self._given, hidden)
        self.nodemap = {node.name: node for node in self._nodes}
        macs, self.memory, self.params = _totals(node for node in self._nodes if node.op_type not in hidden)
        self.macs = [macs, 0]
        self.valid_profile = True

    def print_node_map(
        self, f: str | PathLike[str] | None = None, metric: str = "MACs", exclude_ops: Collection[str] | None = None
    ) -> None:
        """Print the table, or write it to a file: as values between commas where it is a .csv."""
        if not self.valid_profile:
            warnings.warn("Please perform a valid profile() before print_node_map().", stacklevel=2)
            return
        if metric not in _FACTORS:
            raise UnknownName("metric", metric, _FACTORS)
        nodes = [node for node in self._nodes if node.op_type not in (exclude_ops or ())]
        exact = f is not None and ".csv" in fspath(f)
        totals, factor = _totals(nodes), _FACTORS[metric]

        headers = [header.replace("MACs", metric) for header in _HEADERS]
        table = []
        for node in [*nodes, None]:  # and a line of totals
            texts = ["Total", "_"] if node is None else [node.name, node.op_type]
            amounts = totals if node is None else node.amounts()
            for amount, total, times in zip(amounts, totals, (factor, 1, 1), strict=True):
                texts.append(str(amount * times) if exact else f"{amount * times:,}")
                texts.append("100%" if node is None else f"{amount / total:.2%}" if total else "0.00%")
            shapes = [(), ()] if node is None else [node.inshape, node.outshape]
            table.append(texts + ["x".join(map(str, shape)) or "_" for shape in shapes])
        text = simple_table(headers, table, _ALIGN)
        if f is None:
            print(text)
            return
        from opcost.core.files import write_text

        lines = [",".join(texts) for texts in (headers, *table)]
        write_text(f, "\n".join(lines) + "\n" if exact else text)


class Model:
    """A model by its path or as a ModelProto: `Model(m).graph`."""

    def __init__(self, m: Any, mcfg: Mapping[str, Any] | None = None) -> None:
        self.modelname = Path(m).stem if isinstance(m, (str, PathLike)) else ""
        self.valid = bool(self.modelname) or hasattr(m, "SerializeToString")
        if self.valid:
            self.graph = Graph(m)

    def save_model(self, f: str, shape_only: bool = False, no_shape: bool = False) -> None:
        raise InputError("opcost writes no models", hint="use onnx-tool for it")


def loadmodel(f: Any, mcfg: Mapping[str, Any] | None = None) -> Model:
    """The model; what is neither a path nor a ModelProto is an error."""
    model = Model(f, mcfg)
    if not model.valid:
        hint = "pass a path or a ModelProto"
        raise InputError(f"an object of type {type(f).__name__} is not an ONNX model", hint=hint)
    return model


def profile_nodes(m: Any, given: Mapping[str, Any], hidden: Collection[str]) -> list[Node]:
    """Every node of the model's own graph; the cost of graphs inside of it is in the node that runs them."""
    from opcost.analysis.costing import cost_graph
    from opcost.core.files import read_whole
    from opcost.core.parsing import Bad
    from opcost.frontends.onnx.model import read_model
    from opcost.frontends.onnx.walk import OnnxWalk, graph_of
    from opcost.frontends.options import CountOptions
    from opcost.frontends.protobuf import FilePiece
    from opcost.rules import default_rules
    from opcost.rules.registry import Convention

    ranges: list[tuple[int, int]] = []

    class Watched(OnnxWalk):
        """Notes which operators each node of the model's own graph made."""

        def node(self, node: Any, graph: Any, env: Any) -> None:
            begin = len(self.maker.ops)
            super().node(node, graph, env)
            if graph is self.model.graph:
                ranges.append((begin, len(self.maker.ops)))

    arrays = {name: value for name, value in given.items() if hasattr(value, "shape")}
    shapes = {name: tuple(value) for name, value in given.items() if name not in arrays}
    in_memory = hasattr(m, "SerializeToString")
    name = "the model" if in_memory else fspath(m)
    data = m.SerializeToString() if in_memory else read_whole(Path(m), 1 << 31, "ONNX model")
    try:
        model = read_model(FilePiece(BytesIO(data), 0, len(data)))
        options = CountOptions(inputs=arrays or None, shapes=shapes or None, mode="eval")
        graph = graph_of(model, options, name, Watched)
    except (Bad, RecursionError) as exc:
        raise SourceError(f"{name} is not an ONNX model that can be read: {exc}") from exc
    report = cost_graph(graph, default_rules(), Convention())
    specs: dict[str, Any] = {}
    for value in graph.values:
        specs.setdefault(value.name, value.spec)
    nodes, known, unknown = [], set[str](), dict[str, None]()
    for place, (node, (begin, end)) in enumerate(zip(model.graph.nodes, ranges, strict=True)):
        costs = [row.cost and row.cost.macs * row.op.repeat for row in report.rows[begin:end]]
        ins = [specs[each].shape if each else None for each in node.inputs]
        outs = [specs[each] for each in node.outputs if each and each in specs]
        stored = [each for each in dict.fromkeys(node.inputs) if each in model.graph.stored and each not in known]
        if node.op not in hidden:
            known.update(stored)
        op = node.op if not node.domain else f"{node.domain}::{node.op}"
        cost = None if None in costs else sum(each or 0 for each in costs)
        seen = OnnxNode(
            ins={at: tuple(extent or 0 for extent in shape) for at, shape in enumerate(ins) if shape is not None},
            outs=[tuple(extent or 0 for extent in spec.shape or ()) for spec in outs],
            attrs=dict(node.attrs),
            macs=cost or 0,
        )
        if op in _FORMULAS:
            cost = _FORMULAS[op](seen)
        elif op in BY_ELEMENT:
            cost = BY_ELEMENT[op] * seen.made
        elif cost is None:
            unknown[node.op] = None
        memory = sum(spec.nbytes for spec in (*outs, *(specs[each] for each in stored)) if spec.known)
        params = sum(specs[each].numel for each in stored)
        name, made = node.name or f"{node.op}_{place}", seen.outs[0] if seen.outs else ()
        nodes.append(Node(name, node.op, [cost or 0, 0], memory, params, seen.ins.get(0) or (0,), made or (0,)))
    if unknown:
        warnings.warn(f"no cost is known for {', '.join(some([*unknown]))}: counted as 0", stacklevel=3)
    return nodes


def _totals(nodes: Iterable[Node]) -> tuple[int, ...]:
    return tuple(sum(numbers) for numbers in zip((0, 0, 0), *map(Node.amounts, nodes), strict=True))


# -- the cost of a node -----------------------------------------------------------------------------------------------

EXP, DIV, SQRT, TANH = 32, 4, 24, 38

_WEIGHTS = {
    0: "Erf Dropout Identity Trilu Range ArgMax ArrayFeatureExtractor Cast Compress Concat Constant ConstantOfShape DepthToSpace "
    "Expand Flatten GatherElements GatherND Gather GridSample NonMaxSuppression OneHot Pad RandomNormalLike RandomUniformLike "
    "Reshape RoiAlign ScatterElements ScatterND Shape Slice Split Squeeze Tile TopK Transpose Unsqueeze Where ZipMap",
    1: "Abs Add Ceil Mod Mul Neg Sub CumSum Hardmax Relu Sign Equal Floor Greater GreaterOrEqual And Less LessOrEqual Not Or "
    "Round Xor",
    2: "Clip DequantizeLinear LeakyRelu PRelu QuantizeLinear",
    4: "Div HardSigmoid Reciprocal", 5: "HardSwish", 7: "InstanceNormalization", 24: "Sqrt", 31: "BatchNormalization",
    32: "Exp Pow Sigmoid", 33: "LpNormalization", 34: "Gelu", 35: "Elu", 36: "Softmax", 39: "Cos Sin", 43: "Log",
    64: "Atan", 76: "Softplus Tanh", 80: "LogSoftmax",
}  # fmt: skip
BY_ELEMENT = {op: weight for weight, ops in _WEIGHTS.items() for op in ops.split()}
"""Multiply-adds for each element of the first result."""


class OnnxNode(NamedTuple):
    """A node with the shapes of its inputs, by their place, and of its results, and its multiply-adds."""

    ins: Mapping[int, Dims]
    outs: Sequence[Dims]
    attrs: dict[str, Any]
    macs: int  # Of convolutions, matrix products and the like

    @property
    def read(self) -> int:
        return prod(self.ins.get(0, ()))

    @property
    def made(self) -> int:
        return prod(self.outs[0]) if self.outs else 0


def _layer_norm(node: OnnxNode) -> int:
    axis = int(node.attrs.get("axis", -1))
    extent = node.ins[0][axis] if node.ins.get(0) else 1
    return 7 * node.read + (1 + SQRT + DIV) * (node.read // max(extent, 1))


def _recurrent(gates: int, by_step: int) -> Callable[[OnnxNode], int]:
    """Products, biases, and for each step and unit of every direction sums, gates and how they are blended."""

    def cost(node: OnnxNode) -> int:
        steps, batch = node.ins[0][:2]
        units = node.ins[1][0] * node.ins[1][1] // gates
        biases = prod(node.ins[3]) if 3 in node.ins else 0
        return node.macs + (biases + by_step * units) * steps * batch

    return cost


_FORMULAS: dict[str, Callable[[OnnxNode], int]] = {
    # Multiply-adds, and one more for each result where there is a bias.
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm"), lambda node: node.macs + node.made * (2 in node.ins)),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), lambda node: max(1, len(node.ins) - 1) * node.made),
    **dict.fromkeys(("MaxPool", "AveragePool"), lambda node: node.made * prod(node.attrs.get("kernel_shape", ()))),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"), lambda node: node.read),
    **dict.fromkeys(
        ("Resize", "Upsample"), lambda node: {"linear": 4, "cubic": 8}.get(str(node.attrs.get("mode")), 0) * node.made
    ),
    "ReduceL2": lambda node: (1 + SQRT) * node.read,
    "GlobalAveragePool": lambda node: node.read + DIV * node.made,
    "LayerNormalization": _layer_norm,
    "LRN": lambda node: (DIV + EXP + 1 + int(node.attrs.get("size", 1))) * node.made,
    "LSTM": _recurrent(4, 4 + 3 * EXP + 2 * TANH + 4),
    "GRU": _recurrent(3, 3 + 2 * EXP + TANH + 5),
}
