"""`stat` and `ModelStat`: count the layers of a model, time one run, print the table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from opcost.compat._layers import LayerCall, Layers, count_layers
from opcost.compat._parameters import Parameters
from opcost.compat.torchstat.duration import seconds_by_module
from opcost.compat.torchstat.layer_cost import cost_of_call
from opcost.compat.torchstat.reporter import report_format
from opcost.compat.torchstat.stat_tree import StatNode, StatTree

OWN = "(own)"
"""The row of what a module does itself beside calling its layers: functional calls, parameters of its own."""


class ModelStat:
    """The statistics of a model for one input of this size, the batch of one left out."""

    def __init__(self, model: nn.Module, input_size: Sequence[int], query_granularity: int = 1) -> None:
        if not isinstance(model, nn.Module):
            raise AssertionError(f"torchstat counts a torch.nn.Module, not a {type(model).__name__}")
        self._model = model
        self._input_size = tuple(input_size)
        self._query_granularity = query_granularity

    def _analyze_model(self) -> list[StatNode]:
        layers = count_layers(self._model, (torch.empty(1, *self._input_size, device="meta"),), mode="eval")
        for missing in layers.report.coverage.uncounted:
            for table in ("MAdd", "Flops", "Memory"):
                print(f"[{table}]: {missing.raw} is not supported!")
        tree = _tree(layers, seconds_by_module(layers.model, self._input_size))
        return tree.get_collected_stat_nodes(self._query_granularity)

    def show_report(self) -> None:
        print(report_format(self._analyze_model()))


def stat(model: nn.Module, input_size: Sequence[int], query_granularity: int = 1) -> None:
    """Print what each layer costs; a larger granularity puts layers together."""
    ModelStat(model, input_size, query_granularity).show_report()


def _tree(layers: Layers, seconds: dict[int, float]) -> StatTree:
    calls: dict[int, list[LayerCall]] = {}
    for call in layers.calls:
        calls.setdefault(id(call.module), []).append(call)
    builder = _Builder(layers, calls, seconds)
    return StatTree(builder.node("root", "", layers.model, None))


class _Builder:
    def __init__(self, layers: Layers, calls: dict[int, list[LayerCall]], seconds: dict[int, float]) -> None:
        self._calls = calls
        self._seconds = seconds
        self._parameters = Parameters(layers.model, layers.report)
        self._unused = {name for parameter in layers.report.unused for name in parameter.names}
        self._counted: set[int] = set()
        self._placed: set[int] = set()

    def node(self, name: str, path: str, module: nn.Module, parent: StatNode | None) -> StatNode:
        """A module with everything below it; a module that stands in several places is shown in the first."""
        self._placed.add(id(module))
        node = StatNode(name, parent)
        calls = self._calls.get(id(module), [])
        if calls:
            node.input_shape = calls[-1].inputs[0].dims[1:] if calls[-1].inputs else ()
            node.output_shape = calls[-1].outputs[0].dims[1:] if calls[-1].outputs else ()
        below = [(child_name, child) for child_name, child in module.named_children() if id(child) not in self._placed]
        if not below and parent is not None:
            self._fill(node, path, module, calls)
            return node
        for child_name, child in below:
            child_path = f"{path}.{child_name}" if path else child_name
            node.add_child(self.node(child_path, child_path, child, node))
        own = StatNode(f"{path} {OWN}".lstrip(), node)
        own.input_shape, own.output_shape = node.input_shape, node.output_shape
        self._fill(own, path, module, calls)
        if not node.children or own.own_parameters or any(vars_of(own)):
            node.add_child(own)
        return node
