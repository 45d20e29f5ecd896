"""torchstat: `stat` prints what each layer of a model costs, and how long it takes.

    python -m opcost.compat.torchstat -f FILE -m MODEL [-s 3x224x224]

Its MAdd counts multiplications and additions apart, with one addition less than products in a sum; its Flops count a
multiply-accumulate once. Both follow from an operator's cost, whatever the operator is; some layers differ by convention, and
keep torchstat's own formula.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from math import prod
from typing import NamedTuple

import torch
from torch import nn

from opcost.compat import add_submodules
from opcost.compat._layers import LayerCall, Layers, count_layers, take_new
from opcost.compat._modules import joined
from opcost.compat._recording import seconds_by_module
from opcost.compat._tables import float_cells, frame
from opcost.core.escaping import printable

__all__ = ["ModelStat", "StatNode", "StatTree", "report_format", "stat"]
add_submodules(__name__, "reporter", "stat_tree", "statistics")

OWN = "(own)"
"""The row of a module's own operators and parameters, beside those of its layers: functional calls, bare parameters."""


def stat(model: nn.Module, input_size: Sequence[int], query_granularity: int = 1) -> None:
    """Print what each layer costs; a larger granularity puts layers together."""
    ModelStat(model, input_size, query_granularity).show_report()


class ModelStat:
    """The statistics of a model for one input of this size, the batch of one left out."""

    def __init__(self, model: nn.Module, input_size: Sequence[int], query_granularity: int = 1) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"torchstat counts a torch.nn.Module, not a {type(model).__name__}")
        self._model = model
        self._input_size = tuple(input_size)
        self._query_granularity = query_granularity

    def _analyze_model(self) -> list[StatNode]:
        tensors = (*self._model.parameters(), *self._model.buffers())
        dtype = next((t.dtype for t in tensors if t.dtype.is_floating_point), torch.get_default_dtype())
        layers = count_layers(self._model, (torch.empty(1, *self._input_size, device="meta"),), mode="eval")
        for missing in layers.report.coverage.uncounted:
            for table in ("MAdd", "Flops", "Memory"):
                print(f"[{table}]: {missing.raw} is not supported!")
        x = torch.empty(1, *self._input_size, dtype=dtype, device="meta")
        tree = StatTree(_tree_of(layers, seconds_by_module(layers.model, (x,))))
        return tree.get_collected_stat_nodes(self._query_granularity)

    def show_report(self) -> None:
        print(report_format(self._analyze_model()))


# -- what one call of a layer costs -----------------------------------------------------------------------------------

_SUMS_OF_PRODUCTS = frozenset({"conv", "matmul", "bilinear", "einsum"})


class LayerCost(NamedTuple):
    """Operations, and bytes read and written."""

    madd: int = 0
    flops: int = 0
    read: int = 0
    written: int = 0

    @classmethod
    def sum(cls, costs: Iterable[LayerCost]) -> LayerCost:
        return cls(*map(sum, zip(cls(), *costs, strict=True)))


def cost_of_call(call: LayerCall) -> LayerCost:
    """The cost of a layer's own operators, by torchstat's formula where it has one that fits."""
    rows = []
    for row in call.rows:
        if (cost := row.cost) is not None:
            saved = row.outs[0].numel if row.op.kind in _SUMS_OF_PRODUCTS and cost.macs else 0
            once = (cost.flops - saved, cost.flops - cost.macs, cost.bytes_read, cost.bytes_written)
            rows.append(LayerCost(*(number * row.op.repeat for number in once)))
    general = LayerCost.sum(rows)
    if not call.rows or not call.inputs or not call.outputs:
        return general
    module = call.module
    x, y = call.inputs[0], call.outputs[0]
    if isinstance(module, nn.Linear):  # the addition of the bias is left out
        return general._replace(madd=2 * call.macs - y.numel, flops=call.macs)
    if isinstance(module, nn.BatchNorm2d):
        # Mean, deviation, scale and shift; Flops has the first two folded into the others.
        channels = 2 * module.num_features * x.nbytes // x.numel
        return LayerCost(4 * x.numel, (2 if module.affine else 1) * x.numel, x.nbytes + channels, y.nbytes)
    if isinstance(module, (nn.MaxPool2d, nn.AvgPool2d)):
        size = module.kernel_size
        window = prod(size) if isinstance(size, (tuple, list)) else size * size
        madd = (window if isinstance(module, nn.AvgPool2d) else window - 1) * y.numel
        return LayerCost(madd, x.numel, x.nbytes, y.nbytes)
    if isinstance(module, nn.Softmax):
        sums = x.numel // x.dims[module.dim] if module.dim is not None else 1
        return general._replace(madd=3 * x.numel - sums)
    if isinstance(module, (nn.ReLU, nn.ReLU6)):
        return general._replace(madd=x.numel, flops=x.numel)
    if isinstance(module, (nn.PReLU, nn.ELU, nn.LeakyReLU)):
        return general._replace(flops=x.numel)
    return general


# -- the tree of layers, and the cut through it that a table shows ----------------------------------------------------


@dataclass(eq=False, repr=False)
class StatNode:
    """A layer, or a module that holds layers; its properties include everything below it."""

    name: str = ""
    parent: StatNode | None = None
    children: list[StatNode] = field(default_factory=list, init=False)
    mark: str = field(default="", init=False)  # Printed behind the name
    input_shape: Sequence[int] = field(default=(0, 0, 0), init=False)
    output_shape: Sequence[int] = field(default=(0, 0, 0), init=False)
    own_parameters: int = field(default=0, init=False)
    own_memory_bytes: int = field(default=0, init=False)
    own_cost: LayerCost = field(default=LayerCost(), init=False)
    own_seconds: float = field(default=0.0, init=False)

    @property
    def depth(self) -> int:
        """How many levels there are from here down: 1 for a layer."""
        return 1 + max((child.depth for child in self.children), default=0)

    @property
    def granularity(self) -> int:
        """The depth of the deepest node beside this one; 0 for the root."""
        return max(child.depth for child in self.parent.children) if self.parent is not None else 0

    parameter_quantity = property(lambda self: sum(node.own_parameters for node in self.nodes()))
    inference_memory = property(lambda self: sum(node.own_memory_bytes for node in self.nodes()) / 1024**2)
    """Mebibytes of the outputs."""
    cost = property(lambda self: LayerCost.sum(node.own_cost for node in self.nodes()))
    MAdd = property(lambda self: self.cost.madd)
    Flops = property(lambda self: self.cost.flops)
    Memory = property(lambda self: (self.cost.read, self.cost.written))  # Bytes read and written
    duration = property(lambda self: sum(node.own_seconds for node in self.nodes()))  # Seconds

    def add_child(self, node: StatNode) -> None:
        if all(child.name != node.name for child in self.children):
            self.children.append(node)

    def nodes(self) -> Iterator[StatNode]:
        """This node and all below it, in the order of the model."""
        yield self
        for child in self.children:
            yield from child.nodes()


class StatTree:
    """All layers of a model under one root."""

    def __init__(self, root_node: StatNode) -> None:
        self.root_node = root_node

    def get_collected_stat_nodes(self, query_granularity: int) -> list[StatNode]:
        """The nodes of this depth, and the shallower ones beside deeper ones: together they hold every layer once.

        1 is the layers themselves; a number beyond the depth of the model is the model in one row.
        """
        level = min(query_granularity, self.root_node.depth)
        return [
            node for node in self.root_node.nodes() if node.depth == level or node.depth < level <= node.granularity
        ]


def _tree_of(layers: Layers, seconds: Mapping[int, float]) -> StatNode:
    """The nodes of a model; a module or parameter that occurs in several places is counted in the first."""
    calls_of: dict[int, list[LayerCall]] = {}
    for call in layers.calls:
        calls_of.setdefault(id(call.module), []).append(call)
    unused = {name for parameter in layers.report.unused for name in parameter.names}
    counted, placed = set[int](), set[int]()

    def fill(node: StatNode, path: str, module: nn.Module) -> StatNode:
        """Put a module's layers below its node, or, where it is a layer, its numbers into it."""
        placed.add(id(module))
        calls = calls_of.get(id(module), [])
        if calls:
            given, made = calls[-1].inputs, calls[-1].outputs
            node.input_shape, node.output_shape = (tensors[0].dims[1:] if tensors else () for tensors in (given, made))
        for name, child in module.named_children():
            if id(child) not in placed:
                below = joined(path, name)
                node.add_child(fill(StatNode(below, node), below, child))
        is_layer = not any(module.children())
        # What the module's own forward costs, and the parameters that it holds itself
        own = node if is_layer else StatNode(f"{path} {OWN}".lstrip(), node)
        parameters = layers.parameters.of(module, recurse=False)
        new = take_new(parameters, counted)
        own.own_parameters = sum(p.numel for p in new)
        own.own_cost = LayerCost.sum(map(cost_of_call, calls))
        own.own_seconds = seconds.get(id(module), 0.0)
        if parameters and not new:
            own.mark += " (shared)"
        if is_layer:
            node.own_memory_bytes = sum(spec.nbytes for call in calls for spec in call.outputs)
            if not calls and all(joined(path, p.name) in unused for p in parameters):
                node.mark += " (unused)"
            elif len(calls) > 1:
                node.mark += f" (x{len(calls)})"
        elif own.own_parameters or own.own_cost != LayerCost():
            own.input_shape, own.output_shape = node.input_shape, node.output_shape
            own.own_memory_bytes = sum(row.activation_bytes * row.op.repeat for call in calls for row in call.rows)
            node.add_child(own)
        return node

    root = StatNode("root")
    if any(layers.model.children()):
        return fill(root, "", layers.model)
    root.add_child(fill(StatNode("", root), "", layers.model))
    return root


# -- the table, laid out as pandas prints a data frame ----------------------------------------------------------------


def report_format(collected_nodes: Sequence[StatNode]) -> str:
    """The table of some nodes, with their totals below it."""
    nodes = collected_nodes
    total = LayerCost.sum(node.cost for node in nodes)
    costs = [*(node.cost for node in nodes), total]
    params, megabytes, seconds = (
        [*numbers, sum(numbers)]
        for numbers in (
            [getattr(node, name) for node in nodes] for name in ("parameter_quantity", "inference_memory", "duration")
        )
    )
    # A little more than the sum, so that a model that takes no time divides by something.
    shares = [part / (seconds[-1] + 1e-7) for part in seconds]

    def shapes(name: str) -> list[str]:
        return [*(" ".join(["", *(f"{extent:>3d}" for extent in getattr(node, name))]) for node in nodes), "  "]

    header, *lines = frame(
        [*map(str, range(len(nodes))), "total"],
        [
            ("module name", [*(f" {printable(f'{node.name}{node.mark}')}" for node in nodes), "  "]),
            ("input shape", shapes("input_shape")),
            ("output shape", shapes("output_shape")),
            (" params", float_cells(params)),
            ("memory(MB)", [f" {value:.2f}" for value in megabytes]),
            ("MAdd", [f" {float(cost.madd):,}" for cost in costs]),
            ("Flops", [f" {float(cost.flops):,}" for cost in costs]),
            (" MemRead(B)", float_cells(cost.read for cost in costs)),
            (" MemWrite(B)", float_cells(cost.written for cost in costs)),
            ("duration[%]", [f" {share:.2%}" for share in shares]),
            (" MemR+W(B)", float_cells(cost.read + cost.written for cost in costs)),
        ],
    )
    totals = [
        "=" * len(header),
        f"Total params: {params[-1]:,}",
        "-" * len(header),
        f"Total memory: {megabytes[-1]:.2f}MB",
        f"Total MAdd: {round_value(total.madd)}MAdd",
        f"Total Flops: {round_value(total.flops)}Flops",
        f"Total MemR+W: {round_value(total.read + total.written, True)}B",
    ]
    return "\n".join([header, *lines, *totals, ""])


def round_value(value: int, binary: bool = False) -> str:
    """A number with T, G, M or K behind it, to two decimals."""
    step = 1024.0 if binary else 1000.0
    for power, unit in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if value // step**power > 0:
            return f"{round(value / step**power, 2)}{unit}"
    return str(value)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the model that a class or function in a file makes."""
    parser = argparse.ArgumentParser(prog="torchstat", description="Torch model statistics")
    parser.add_argument("--file", "-f", help="Module file.")
    parser.add_argument("--model", "-m", help="Model name")
    parser.add_argument(
        "--size", "-s", default="3x224x224", help="Input size. channels x height x width (default: 3x224x224)"
    )
    options = parser.parse_args(arguments)
    try:
        spec = spec_from_file_location("models", options.file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{options.file} is not a file of Python code")  # noqa: TRY301 - as a file that cannot be run
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        model = getattr(module, options.model)()
    except Exception:  # noqa: BLE001 - the file may raise anything
        print(f"Tried to import {options.model} from {options.file}. but failed.")
        traceback.print_exc()
        sys.exit()
    stat(model, tuple(int(extent) for extent in options.size.split("x")))


if __name__ == "__main__":
    main()
