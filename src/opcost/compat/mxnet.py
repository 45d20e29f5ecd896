"""MXNet's summary of a symbol, and a count of its multiply-adds, for files, live symbols and gluon blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from opcost.core.escaping import printable
from opcost.core.report import Row
from opcost.core.shapes import complete, known
from opcost.errors import InputError
from opcost.frontends.mxnet.load import Opened, Worked, build_opened, open_file, open_object, work_out
from opcost.frontends.mxnet.ops.contraction import BIASES, GATES
from opcost.frontends.options import CountOptions

__all__ = ["FlopCount", "NodeFlops", "count_flops", "print_summary"]


def _opened(symbol: Any, data_shapes: Any) -> Opened:
    """What the caller named: a symbol, a block, a file or a checkpoint's prefix, with the shapes it gave."""
    from opcost.frontends.source import ModelFile, resolve

    shapes = data_shapes  # MXNet's forms of shapes, as `opcost.count` takes them
    if shapes is not None and not isinstance(shapes, Mapping):
        pairs = list(shapes)
        named = pairs and all(isinstance(p, (tuple, list)) and len(p) >= 2 and isinstance(p[0], str) for p in pairs)
        shapes = {pair[0]: tuple(pair[1]) for pair in pairs} if named else tuple(pairs)
    options = CountOptions(shapes=shapes)
    if not isinstance(symbol, (str, Path)):
        return open_object(symbol, options)
    found = resolve(str(symbol))
    if not isinstance(found, ModelFile) or found.frontend.name != "mxnet":
        raise InputError(f"{symbol} is not an MXNet symbol", hint="name a *-symbol.json, or the prefix of a checkpoint")
    return open_file(found.path, options)


# -- multiply-adds and bias additions, for which MXNet has no call ------------------------------------------------------

_LINEAR = ("FullyConnected", "_npx_fully_connected", "_sparse_FullyConnected", "_contrib_quantized_fully_connected")
"""Matrix products whose third tensor is a bias; in others it is a summand."""


class NodeFlops(NamedTuple):
    """One operator of the symbol."""

    name: str
    op: str
    macs: int
    bias_adds: int


@dataclass(frozen=True, slots=True)
class FlopCount:
    """What the forward pass computes: multiply-adds, and apart from them the additions of biases."""

    macs: int
    bias_adds: int
    params: int
    trainable_params: int
    nodes: tuple[NodeFlops, ...]  # In the order of the symbol, without its variables
    uncounted: tuple[str, ...] = ()  # Operators whose cost is not known; with any, the sums are lower bounds

    @property
    def total(self) -> int:
        """Multiply-adds and bias additions together, one operation each."""
        return self.macs + self.bias_adds


def count_flops(symbol: Any, data_shapes: Any = None) -> FlopCount:
    """Multiply-adds and bias additions of every operator.

    `symbol` is a symbol, a gluon block, a path to `*-symbol.json`, or a checkpoint's prefix. `data_shapes` is
    {name: shape}, a list of (name, shape) as `Module.bind` takes it, or the shape of the first input.
    """
    from opcost.analysis.costing import cost_graph
    from opcost.rules import default_rules

    found_source = _opened(symbol, data_shapes)
    graph, origins = build_opened(found_source)
    report = cost_graph(graph, default_rules())
    found: dict[int, list[Row]] = {}
    for row, origin in zip(report.rows, origins, strict=True):
        found.setdefault(origin, []).append(row)
    nodes = []
    for index, rows in found.items():
        node, counted = found_source.symbol.nodes[index], [row for row in rows if row.cost is not None]
        macs = sum(row.cost.macs * row.op.repeat for row in counted if row.cost is not None)
        nodes.append(NodeFlops(node.name, node.op, macs, sum(_bias_adds(row) * row.op.repeat for row in counted)))
    return FlopCount(
        macs=sum(node.macs for node in nodes),
        bias_adds=sum(node.bias_adds for node in nodes),
        params=report.totals.params,
        trainable_params=report.totals.trainable_params,
        nodes=tuple(nodes),
        uncounted=tuple(missed.raw for missed in report.coverage.uncounted),
    )


def _bias_adds(row: Row) -> int:
    """Additions of a bias: one for each output element, in a recurrent layer two for each gate, unit and step."""
    attrs = row.op.attrs
    if row.op.kind == "recurrent":
        layers: Any = attrs["layers"]
        steps: Any = attrs["steps"]
        return int(BIASES * GATES[str(attrs["cell"])] * sum(hidden for _, hidden, _ in layers) * steps)
    has_bias = (row.op.kind == "conv" and len(row.ins) > 2) or (
        row.op.kind == "matmul" and bool(attrs.get("bias")) and row.op.raw.removeprefix("mxnet::") in _LINEAR
    )
    return row.outs[0].numel if has_bias else 0


def print_summary(
    symbol: Any, shape: Any = None, line_length: int = 120, positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0)
) -> None:
    """Print the layers of a symbol, their output shapes without the batch, and the parameters that each is the first to read.

    Without a shape there are no output shapes, and a layer whose weights depend on it says `?`.
    """
    source = _opened(symbol, shape)
    worked = work_out(source.symbol, source.options, source.saved, complete=shape is not None)
    scale = line_length if positions[-1] <= 1 else 1

    def row(*fields: str) -> str:
        line = ""
        for field, position in zip(fields, (int(scale * place) for place in positions), strict=True):
            line = f"{line}{printable(field)}"[:position].ljust(position)
        return line

    print("_" * line_length)
    print(row("Layer (type)", "Output Shape", "Param #", "Previous Layer"))
    print("=" * line_length)
    # Inputs and operators; labels and states are left out, and a shared weight belongs to its first reader.
    roles, nodes = worked.roles, worked.symbol.nodes
    inputs = set(roles.inputs) - roles.side or set(roles.inputs)
    weights = set(roles.weights)
    layers = [node for node in nodes if not node.is_variable or node.id in inputs]
    counts: list[int | None] = []  # None where a shape is not known
    for node in layers:
        own = dict.fromkeys(source for source, _ in node.inputs if source in weights)
        weights -= own.keys()
        params = [_elements(worked, index) for index in own]
        counts.append(None if None in params else sum(filter(None, params)))
        shapes = worked.inferred.shapes[node.id] if shape is not None else ()
        texts = ("x".join(map(str, each[1:])) if each is not None else "?" for each in shapes)
        previous = [nodes[at].name for at, _ in node.inputs if at in inputs or not nodes[at].is_variable]
        first, *others = previous or ("",)
        number = "?" if counts[-1] is None else str(counts[-1])
        print(row(f"{node.name}({node.op})", ", ".join(dict.fromkeys(texts)), number, first))
        for other in others:
            print(row("", "", "", other))
        print(("=" if node is layers[-1] else "_") * line_length)
    print(f"Total params: {_total(counts)}")
    if states := _total([_elements(worked, index) for index in worked.roles.states]):
        print(f"Auxiliary states: {states}")
    print("_" * line_length)


def _elements(worked: Worked, index: int) -> int | None:
    shape = worked.inferred.shapes[index][0]
    return prod(known(shape)) if complete(shape) else None


def _total(numbers: list[int | None]) -> str:
    """A sum, and of how many numbers nothing is known; empty for none at all."""
    unknown, sum_known = numbers.count(None), sum(filter(None, numbers))
    if not unknown:
        return str(sum_known) if numbers else ""
    return f"{sum_known} and {unknown} unknown: give the shape of the input"
