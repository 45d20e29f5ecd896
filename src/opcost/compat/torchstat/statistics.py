"""`stat` and `ModelStat`: count the layers of a model, time one run, print the table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from opcost.compat._layers.calls import LayerCall, Layers, count_layers
from opcost.compat._layers.duration import seconds_by_module
from opcost.compat._layers.parameters import Parameters
from opcost.compat.torchstat.layer_cost import LayerCost, cost_of_call
from opcost.compat.torchstat.reporter import report_format
from opcost.compat.torchstat.stat_tree import StatNode, StatTree
from opcost.core.graph import TensorSpec

OWN = "(own)"
"""The row of what a module does itself beside calling its layers: functional calls, parameters of its own."""


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
        tree = _tree(
            layers, seconds_by_module(layers.model, (torch.empty(1, *self._input_size, dtype=dtype, device="meta"),))
        )
        return tree.get_collected_stat_nodes(self._query_granularity)

    def show_report(self) -> None:
        print(report_format(self._analyze_model()))


def stat(model: nn.Module, input_size: Sequence[int], query_granularity: int = 1) -> None:
    """Print what each layer costs; a larger granularity puts layers together."""
    ModelStat(model, input_size, query_granularity).show_report()


def _tree(layers: Layers, seconds: dict[int, float]) -> StatTree:
    builder = _Builder(layers, seconds)
    root = StatNode("root")
    if any(layers.model.children()):
        builder.fill(root, "", layers.model)
    else:
        layer = StatNode("", root)
        builder.fill(layer, "", layers.model)
        root.add_child(layer)
    return StatTree(root)


class _Builder:
    """Fills nodes; a module or parameter that stands in several places is counted in the first."""

    def __init__(self, layers: Layers, seconds: dict[int, float]) -> None:
        self._calls: dict[int, list[LayerCall]] = {}
        for call in layers.calls:
            self._calls.setdefault(id(call.module), []).append(call)
        self._seconds = seconds
        self._parameters = Parameters(layers.model, layers.report)
        self._unused = {name for parameter in layers.report.unused for name in parameter.names}
        self._counted: set[int] = set()
        self._placed: set[int] = set()

    def fill(self, node: StatNode, path: str, module: nn.Module) -> None:
        """Put a module's layers below its node, or, where it is a layer, its numbers into it."""
        self._placed.add(id(module))
        calls = self._calls.get(id(module), [])
        if calls:
            node.input_shape = _without_batch(calls[-1].inputs)
            node.output_shape = _without_batch(calls[-1].outputs)
        if not any(module.children()):
            self._own(node, path, module, calls)
            node.own_memory_bytes = sum(spec.nbytes for call in calls for spec in call.outputs)
            node.mark += self._mark(path, module, calls)
            return
        for name, child in module.named_children():
            if id(child) not in self._placed:
                below = StatNode(f"{path}.{name}" if path else name, node)
                self.fill(below, below.name, child)
                node.add_child(below)
        own = StatNode(f"{path} {OWN}".lstrip(), node)
        self._own(own, path, module, calls)
        if own.own_parameters or own.own_cost != LayerCost():
            own.input_shape, own.output_shape = node.input_shape, node.output_shape
            own.own_memory_bytes = sum(row.activation_bytes * row.op.repeat for call in calls for row in call.rows)
            node.add_child(own)

    def _own(self, node: StatNode, path: str, module: nn.Module, calls: list[LayerCall]) -> None:
        """What the module's own forward costs, and the parameters that it holds itself."""
        own = self._parameters.of(module, recurse=False)
        node.own_parameters = sum(p.numel for p in own if p.key not in self._counted)
        if own and all(p.key in self._counted for p in own):
            node.mark += " (shared)"
        self._counted.update(p.key for p in own)
        node.own_cost = sum(map(cost_of_call, calls), LayerCost())
        node.own_seconds = self._seconds.get(id(module), 0.0)

    def _mark(self, path: str, module: nn.Module, calls: list[LayerCall]) -> str:
        """What the reader must know of a layer: that it is not used, or that it is used more than once."""
        names = [f"{path}.{p.name}" if path else p.name for p in self._parameters.of(module)]
        if not calls and all(name in self._unused for name in names):
            return " (unused)"
        return f" (x{len(calls)})" if len(calls) > 1 else ""


def _without_batch(tensors: list[TensorSpec]) -> tuple[int, ...]:
    return tensors[0].dims[1:] if tensors else ()
