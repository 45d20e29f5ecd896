"""`model_profile` and `Model`: a table of all nodes with what they cost, printed or written to a file."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from opcost.compat._grid import simple_table
from opcost.compat.onnx_tool.convention import Seen, cost_of
from opcost.errors import InputError, SourceError, UnknownName
from opcost.wording import some

NoMacsOps = frozenset(
    "Identity Constant Shape Squeeze Unsqueeze Reshape ConstantOfShape Cast Pad Concat Slice Gather".split()
)
"""Operators that are left out of the table and of the totals unless told otherwise."""

_HEADERS = (
    "Name", "Type", "Forward_MACs", "FPercent", "Memory", "MPercent", "Params", "PPercent", "InShape", "OutShape",
)  # fmt: skip
_FACTORS = {"MACs": 1, "FLOPs": 2}
_RIGHT = (False, False, True, False, True, False, True, False, False, False)


class Profiled(NamedTuple):
    """One node of the table."""

    name: str
    op: str
    macs: int
    memory: int
    """Bytes of its results, and of the stored tensors that it is the first to read."""
    params: int
    ins: str
    outs: str


def model_profile(
    m: Any,
    dynamic_shapes: Mapping[str, Any] | None = None,
    exclude_ops: Collection[str] | None = None,
    hidden_ops: Collection[str] | None = NoMacsOps,
    mcfg: Mapping[str, Any] | None = None,
    save_profile: str | PathLike[str] | None = None,
    save_model: str | PathLike[str] | None = None,
    shape_only: bool = False,
    no_shape: bool = False,
) -> None:
    """`m` is a path or a ModelProto; `dynamic_shapes` holds shapes or arrays for inputs. Nothing is returned: it prints."""
    if save_model is not None:
        raise InputError("opcost writes no models", hint="leave save_model out, or use onnx-tool for it")
    hidden = {*(hidden_ops or ()), *(exclude_ops or ())}
    graph = loadmodel(m).graph
    graph.shape_infer(dynamic_shapes)
    graph.profile(exclude_ops=hidden)
    graph.print_node_map(save_profile, exclude_ops=hidden)


class Node:
    """A node of the graph; its numbers are there after `Graph.profile()`."""

    def __init__(self, row: Profiled) -> None:
        self.name, self.op_type = row.name, row.op
        self.macs = [row.macs, 0]
        """Forward and backward; the latter is never counted."""
        self.memory, self.params = row.memory, row.params
        self.inshape, self.outshape = (tuple(map(int, shape.split("x"))) for shape in (row.ins, row.outs))


class Graph:
    """The nodes of a model: `shape_infer`, then `profile`, then `print_node_map`, or `macs`, `params`, `memory` and `nodemap`."""

    def __init__(self, m: Any) -> None:
        self._model = m
        self._given: Mapping[str, Any] = {}
        self.valid_shape = self.valid_profile = False
        self.nodemap: dict[str, Node] = {}
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Profiled] = []
        self.macs = [0, 0]
        self.params = self.memory = 0

    def graph_reorder_nodes(self) -> None:
        """Nodes are walked in the order in which they can run; there is nothing to do."""

    def shape_infer(self, inputs: Mapping[str, Any] | None = None) -> None:
        """Take shapes or arrays for inputs; they are applied by `profile`."""
        self._given = dict(inputs or {})
        self.valid_shape = True

    def profile(self, exclude_ops: Collection[str] | None = None) -> None:
        """Count every node; those of `exclude_ops` are left out of the totals."""
        if not self.valid_shape:
            warnings.warn("Please perform a valid shape_infer() before profile().", stacklevel=2)
            return
        self._clear()
        self._rows = profile_nodes(self._model, self._given, exclude_ops or ())
        self.nodemap = {row.name: Node(row) for row in self._rows}
        total = _total([row for row in self._rows if row.op not in (exclude_ops or ())])
        self.macs, self.params, self.memory = [total.macs, 0], total.params, total.memory
        self.valid_profile = True

    def print_node_map(
        self,
        f: str | PathLike[str] | None = None,
        metric: str = "MACs",
        exclude_ops: Collection[str] | None = None,
    ) -> None:
        """Print the table, or write it to a file: as values between commas where it is a .csv."""
        if not self.valid_profile:
            warnings.warn("Please perform a valid profile() before print_node_map().", stacklevel=2)
            return
        if metric not in _FACTORS:
            raise UnknownName("metric", metric, _FACTORS)
        factor = _FACTORS[metric]
        rows = [row._replace(macs=row.macs * factor) for row in self._rows if row.op not in (exclude_ops or ())]
        exact = f is not None and ".csv" in fspath(f)
        total = _total(rows)
        headers = [header.replace("MACs", metric) for header in _HEADERS]
        table = [_cells(row, total, exact=exact) for row in (*rows, total)]
        text = simple_table(headers, table, right=_RIGHT)
        if f is None:
            print(text)
            return
        from opcost.core.writing import write_text

        lines = [",".join(cells) for cells in (headers, *table)]
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
        raise InputError(
            f"an object of type {type(f).__name__} is not an ONNX model", hint="pass a path or a ModelProto"
        )
    return model


def profile_nodes(m: Any, given: Mapping[str, Any], hidden: Collection[str]) -> list[Profiled]:
    """Every node of the model's own graph; what graphs inside of it do stands in the node that runs them."""
    from opcost.analysis.costing import cost_graph
    from opcost.core.checked import Bad
    from opcost.frontends.onnx.load import graph_of
    from opcost.frontends.onnx.model import read_model
    from opcost.frontends.onnx.walk import OnnxWalk
    from opcost.frontends.options import CountOptions
    from opcost.frontends.protobuf import Span
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
    name, data = _content(m)
    try:
        model = read_model(Span(BytesIO(data), 0, len(data)))
        options = CountOptions(inputs=arrays or None, shapes=shapes or None, mode="eval")
        graph = graph_of(model, options, name, Watched)
    except (Bad, RecursionError) as exc:
        raise SourceError(f"{name} is not an ONNX model that can be read: {exc}") from exc
    report = cost_graph(graph, default_rules(), Convention())
    specs: dict[str, Any] = {}
    for value in graph.values:
        specs.setdefault(value.name, value.spec)
    rows, known, unknown = [], set[str](), dict[str, None]()
    for place, (node, (begin, end)) in enumerate(zip(model.graph.nodes, ranges, strict=True)):
        prices = [row.cost and row.cost.macs * row.op.repeat for row in report.rows[begin:end]]
        ins = [specs[each].shape if each else None for each in node.inputs]
        outs = [specs[each] for each in node.outputs if each and each in specs]
        stored = [each for each in dict.fromkeys(node.inputs) if each in model.graph.stored and each not in known]
        if node.op not in hidden:
            known.update(stored)
        seen = Seen(
            op=node.op if not node.domain else f"{node.domain}::{node.op}",
            ins=[None if shape is None else tuple(extent or 0 for extent in shape) for shape in ins],
            outs=[tuple(extent or 0 for extent in spec.shape or ()) for spec in outs],
            attrs=dict(node.attrs),
            macs=None if None in prices else sum(each or 0 for each in prices),
        )
        cost = cost_of(seen)
        if cost is None:
            unknown[node.op] = None
        rows.append(
            Profiled(
                name=node.name or f"{node.op}_{place}",
                op=node.op,
                macs=cost or 0,
                memory=sum(spec.nbytes for spec in (*outs, *(specs[each] for each in stored)) if spec.known),
                params=sum(specs[each].numel for each in stored),
                ins=_dims(seen.ins[0] if seen.ins else None),
                outs=_dims(seen.outs[0] if seen.outs else None),
            )
        )
    if unknown:
        warnings.warn(f"no cost is known for {', '.join(some([*unknown]))}: counted as 0", stacklevel=3)
    return rows


def _content(m: Any) -> tuple[str, bytes]:
    """A model in memory is taken as its bytes; of a file, what lies in it."""
    if hasattr(m, "SerializeToString"):
        return "the model", m.SerializeToString()
    from opcost.core.reading import whole

    return fspath(m), whole(Path(m), 1 << 31, "ONNX model")


def _dims(dims: tuple[int, ...] | None) -> str:
    return "x".join(map(str, dims)) if dims else "0"


def _total(rows: list[Profiled]) -> Profiled:
    macs, memory, params = (sum(getattr(row, name) for row in rows) for name in _AMOUNTS)
    return Profiled("Total", "_", macs, memory, params, "_", "_")


_AMOUNTS = ("macs", "memory", "params")


def _cells(row: Profiled, total: Profiled, *, exact: bool) -> tuple[str, ...]:
    cells = [row.name, row.op]
    for name in _AMOUNTS:
        amount, whole = getattr(row, name), getattr(total, name)
        cells.append(str(amount) if exact else f"{amount:,}")
        cells.append("100%" if row is total else f"{amount / whole:.2%}" if whole else "0.00%")
    return (*cells, row.ins, row.outs)
