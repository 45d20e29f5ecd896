"""A count of a symbol's multiply-adds and bias additions, for which MXNet has no call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from opcost.compat.mxnet.opening import opened
from opcost.core.report import Row
from opcost.frontends.mxnet.load import build_opened
from opcost.frontends.mxnet.ops.recurrent import BIASES, GATES
from opcost.frontends.mxnet.symbol import Node

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
    nodes: tuple[NodeFlops, ...]
    """In the order of the symbol, without its variables."""
    uncounted: tuple[str, ...] = ()
    """Operators whose cost nobody knows; with any, the sums are lower bounds."""

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

    found_source = opened(symbol, data_shapes)
    graph, origins = build_opened(found_source)
    report = cost_graph(graph, default_rules())
    found: dict[int, list[Row]] = {}
    for row, node in zip(report.rows, origins, strict=True):
        found.setdefault(node, []).append(row)
    nodes = tuple(_node_flops(found_source.symbol.nodes[index], rows) for index, rows in found.items())
    return FlopCount(
        macs=sum(node.macs for node in nodes),
        bias_adds=sum(node.bias_adds for node in nodes),
        params=report.totals.params,
        trainable_params=report.totals.trainable_params,
        nodes=nodes,
        uncounted=tuple(missed.raw for missed in report.coverage.uncounted),
    )


def _node_flops(node: Node, rows: Iterable[Row]) -> NodeFlops:
    macs = bias_adds = 0
    for row in rows:
        if row.cost is not None:
            macs += row.cost.macs * row.op.repeat
            bias_adds += _bias_adds(row) * row.op.repeat
    return NodeFlops(node.name, node.op, macs, bias_adds)


def _bias_adds(row: Row) -> int:
    """Additions of a bias: one for each output element, in a recurrent layer two for each gate, unit and step."""
    attrs = row.op.attrs
    if row.op.kind == "recurrent":
        layers, steps = attrs["layers"], attrs["steps"]
        assert isinstance(layers, tuple)
        assert isinstance(steps, int)
        units = sum(hidden for _, hidden, _ in layers)  # type: ignore[misc,str-unpack]
        return BIASES * GATES[str(attrs["cell"])] * units * steps
    has_bias = (row.op.kind == "conv" and len(row.ins) > 2) or (
        row.op.kind == "matmul" and bool(attrs.get("bias")) and row.op.raw.removeprefix("mxnet::") in _LINEAR
    )
    return row.outs[0].numel if has_bias else 0
