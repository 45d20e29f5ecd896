"""The rows of torchinfo and torch-summary: one for each call of a layer, and one for each container that is not called itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from opcost.compat import _layers
from opcost.compat._layers import RECURRENT, LayerCall, Layers, ModuleParameter, Parameters, Structure
from opcost.compat._modules import joined
from opcost.core.graph import TensorSpec, bits

_RECURSIVE = "(recursive)"
_NOTHING = "--"
ColumnSettings = Enum(
    "ColumnSettings",
    {
        "KERNEL_SIZE": "kernel_size", "INPUT_SIZE": "input_size", "OUTPUT_SIZE": "output_size", "NUM_PARAMS": "num_params",
        "PARAMS_PERCENT": "params_percent", "MULT_ADDS": "mult_adds", "TRAINABLE": "trainable",
    },
    type=str,
)  # fmt: skip
"""The columns there are."""


@dataclass(eq=False, repr=False)
class LayerInfo:
    """One call of a layer, or a container that is shown above the layers that it holds."""

    var_name: str
    module: nn.Module
    depth: int
    parent_info: LayerInfo | None
    parameters: Sequence[ModuleParameter]
    depth_index: int | None = None
    call: LayerCall | None = None  # None for a container that is not called
    children: list[LayerInfo] = field(default_factory=list)  # All rows below this one, at any depth
    is_recursive: bool = False
    input_size: list[Any] = field(default_factory=list)
    output_size: list[Any] = field(default_factory=list)
    output_bytes: int = 0
    macs: int = 0  # Mult-adds of the whole call, the layers that it calls included
    own_macs: int = 0  # Mult-adds of the operators that run in this layer's own forward
    claimed: list[ModuleParameter] = field(default_factory=list)  # The parameters that this row shows, and no other

    def __post_init__(self) -> None:
        module = self.module
        self.layer_id = id(module)
        scripted = isinstance(module, torch.jit.ScriptModule)
        self.class_name = str(module.original_name) if scripted else type(module).__name__
        self.is_leaf_layer = not any(module.children())
        self.kernel_size = self.get_kernel_size(module)
        self.num_params, self.trainable_params = _layers.total_and_trainable(self.parameters)
        self.param_bytes = sum(p.nbytes for p in self.parameters)

    def __repr__(self) -> str:
        return f"{self.class_name}: {self.depth}"

    @property
    def executed(self) -> bool:
        return self.call is not None

    @property
    def trainable(self) -> str:
        """Whether all, some or none of the parameters are trained."""
        if not self.num_params:
            return _NOTHING
        if not self.trainable_params:
            return "False"
        return "True" if self.trainable_params == self.num_params else "Partial"

    @staticmethod
    def get_kernel_size(module: nn.Module) -> int | list[int] | None:
        size = getattr(module, "kernel_size", None)
        size = size.tolist() if isinstance(size, torch.Tensor) else size
        return list(size) if isinstance(size, Iterable) else size

    @property
    def inner_layers(self) -> dict[str, dict[ColumnSettings, str]]:
        """The parameters as rows of their own; of the model itself only those that it holds directly."""
        shown = [p for p in self.parameters if self.parent_info is not None or "." not in p.name]
        found = {}
        for p in shown:
            kernel = _layers.inputs_first(p.shape) if p.name == "weight" else list(p.shape)
            number = f"{'└─' if p is shown[-1] else '├─'}{p.numel:,}"
            found[p.name] = {ColumnSettings.KERNEL_SIZE: str(kernel), ColumnSettings.NUM_PARAMS: number}
        return found

    def get_layer_name(self, show_var_name: bool, show_depth: bool) -> str:
        name = self.class_name
        if show_var_name and self.var_name:
            name += f" ({self.var_name})"
        if show_depth and self.depth > 0:
            name += f": {self.depth}" + ("" if self.depth_index is None else f"-{self.depth_index}")
        return name

    def leftover_params(self) -> int:
        """Parameters that no other row shows: this layer's own, and those of layers that were not called."""
        return sum(p.numel for p in self.claimed)

    def leftover_trainable_params(self) -> int:
        return sum(p.numel for p in self.claimed if p.trainable)

    def _params(self, reached_max_depth: bool) -> int | None:
        """The number in this row, or None where other rows show these parameters already.

        The last row of a depth limit includes all rows below it.
        """
        if reached_max_depth or self.is_leaf_layer:
            shown = self.leftover_params() + sum(child.leftover_params() for child in self.children)
            return shown or None if self.num_params or self.is_recursive else 0
        return None if self.is_recursive else self.leftover_params()

    def num_params_to_str(self, reached_max_depth: bool) -> str:
        if not self.num_params:
            return _NOTHING
        shown = self._params(reached_max_depth)
        if shown is None:
            return _RECURSIVE
        if not shown:
            return _NOTHING
        frozen = (reached_max_depth or self.is_leaf_layer) and not self.trainable_params
        return f"({shown:,})" if frozen else f"{shown:,}"

    def params_percent(self, total_params: int, reached_max_depth: bool, precision: int = 2) -> str:
        spacing = 5
        shown = self._params(reached_max_depth)
        if total_params and shown is None:
            return _RECURSIVE
        if not total_params or not shown:
            return " " * spacing + _NOTHING
        return f"{shown / total_params:>{precision + spacing}.{precision}%}"

    def macs_to_str(self, reached_max_depth: bool) -> str:
        shown = self.own_macs + (sum(child.own_macs for child in self.children) if reached_max_depth else 0)
        return f"{shown:,}" if shown else _NOTHING


def called_layers(layers: Layers, batch_dim: int | None) -> list[LayerInfo]:
    """A row for each call, in the order of entry, below the containers that hold the layer."""
    builder = _RowBuilder(layers.model, layers.parameters)
    called = {id(call.module) for call in layers.calls}
    # The names that lead to each path's module; if its parent holds it under several, the last of these
    found = [(path.rpartition("."), id(module)) for path, module in layers.model.named_modules(remove_duplicate=False)]
    last = {(parent, module): name for (parent, _, name), module in found}
    paths = {
        joined(parent, name): [*filter(None, parent.split(".")), last[parent, module]] if name else []
        for (parent, _, name), module in found
    }
    infos: dict[int, LayerInfo] = {}
    for call in layers.calls:
        names = paths[call.path]
        for depth in range(1, len(names)):
            builder.open_container(names[:depth], called)
        info = infos[id(call)] = builder.add(names, call.module)
        info.call = call
        info.input_size, _ = _size(call.args, batch_dim)
        info.output_size, element_bytes = _size(call.result, batch_dim)
        info.output_bytes = element_bytes * prod(flat(info.output_size))
        own = layers.parameters.of(call.module, recurse=False)
        info.own_macs = own_mult_adds(call, own, info.output_size, is_leaf=info.is_leaf_layer)
        if isinstance(call.module, torch.jit.ScriptModule):
            builder.add_defined(names, call.module)
        else:
            info.class_name = call.type_name
    for call in reversed(layers.calls):
        infos[id(call)].macs = infos[id(call)].own_macs + sum(infos[id(inner)].macs for inner in call.nested)
    return builder.finish()


def defined_layers(model: nn.Module) -> list[LayerInfo]:
    """A row for each module, in the order of definition."""
    builder = _RowBuilder(model, Parameters(model))
    builder.add([], model)
    builder.add_defined([], model)
    return builder.finish()


class _RowBuilder:
    """Adds rows one by one, each below the row that holds it."""

    def __init__(self, model: nn.Module, parameters: Parameters) -> None:
        self._parameters = parameters
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._rows: list[LayerInfo] = []
        self._seen: set[int] = set()
        self._open: list[LayerInfo] = []
        """The last row of each depth, down to the last row."""

    def add(self, names: list[str], module: nn.Module) -> LayerInfo:
        depth = len(names)
        parent = self._open[depth - 1] if depth else None
        name = names[-1] if names else type(module).__name__
        info = LayerInfo(name, module, depth, parent, self._parameters.of(module))
        info.is_recursive = id(module) in self._seen
        self._seen.add(id(module))
        self._rows.append(info)
        self._open[depth:] = [info]
        return info

    def add_defined(self, names: list[str], module: nn.Module) -> None:
        """Add a row for everything below a module, called or not."""
        for path, inner in module.named_modules(remove_duplicate=False):
            if path:
                self.add([*names, *path.split(".")], inner)

    def open_container(self, names: list[str], called: set[int]) -> None:
        """Make sure that the row of a container is above the rows that follow."""
        container = self._modules.setdefault(".".join(names), nn.Module())  # none is above a name with a dot in it
        if not any(info.module is container for info in self._open[len(names) : len(names) + 1]):
            info = self.add(names, container)
            info.is_recursive = info.is_recursive or id(container) in called

    def finish(self) -> list[LayerInfo]:
        """Number the rows of each depth, and give each row the rows below it and the parameters that it shows.

        Each parameter is shown once: by the module that holds it, or, if that has no row, by the closest row above it.
        """
        counts: dict[int, int] = {}
        for index, info in enumerate(self._rows):
            info.depth_index = counts[info.depth] = counts.get(info.depth, 0) + 1
            end = index + 1
            while end < len(self._rows) and self._rows[end].depth > info.depth:
                end += 1
            info.children = self._rows[index + 1 : end]
        shown: set[int] = set()
        deepest_first = sorted(self._rows, key=lambda info: -info.depth)
        for info, own_only in [*((info, True) for info in self._rows), *((info, False) for info in deepest_first)]:
            new = [p for p in info.parameters if p.key not in shown and not (own_only and "." in p.name)]
            info.claimed += new
            shown.update(p.key for p in new)
        for info in self._rows:
            if info.is_leaf_layer and info.parameters and not info.claimed:
                info.is_recursive = True
        return self._rows


def _size(structure: Structure, batch_dim: int | None) -> tuple[list[Any], int]:
    """The shape and element size of an argument list or a result: of its first tensor, or of the last value of a dict."""
    if isinstance(structure, TensorSpec):
        return list(structure.shape or ()), bits(structure.dtype) // 8
    is_dict = isinstance(structure, dict)
    found = list(structure.values())[-1:] if is_dict else structure
    while isinstance(found, (list, tuple, dict)) and found:
        found = next(iter(found.values())) if isinstance(found, dict) else found[0]
    if not isinstance(found, TensorSpec):
        return [], 0
    size: list[Any] = list(found.shape or ())
    if batch_dim is not None and batch_dim < len(size):
        size[batch_dim] = 1
        if is_dict:
            size = [size]
    return size, bits(found.dtype) // 8


def flat(sizes: Iterable[Any]) -> Iterator[int]:
    """The extents of sizes inside each other."""
    for item in sizes:
        if isinstance(item, (list, tuple)):
            yield from flat(item)
        elif item is not None:
            yield item


# -- mult-adds of one call --------------------------------------------------------------------------------------------
# torchinfo's convention, kept where it is what the layer does: every weight and every bias element counts once each time it
# is used, so a bias addition counts like a multiply-accumulate; parameters of layers without a contraction (norms, PReLU, the
# table of an Embedding) count once per sample. Everything else is the true number of multiply-accumulates.

_ADDS_A_BIAS = (_ConvNd, nn.Linear, nn.Bilinear)


def own_mult_adds(
    call: LayerCall, own_parameters: Sequence[ModuleParameter], output_size: Sequence[Any], *, is_leaf: bool
) -> int:
    """Mult-adds of the operators that run in the layer's own forward."""
    if not call.macs:
        if is_leaf and output_size and not isinstance(call.module, nn.EmbeddingBag):
            return int(output_size[0]) * sum(p.numel for p in own_parameters if p.name in {"weight", "bias"})
        return 0
    biases, added = sum(p.numel for p in own_parameters if p.name.startswith("bias")), 0
    if biases and isinstance(call.module, RECURRENT):
        added = biases * _layers.steps(call)
    elif biases and isinstance(call.module, _ADDS_A_BIAS):
        added = _unpruned(call.outputs[0].numel, own_parameters, "bias")
    return _unpruned(call.macs, own_parameters, "weight") + added


def _unpruned(count: int, parameters: Sequence[ModuleParameter], name: str) -> int:
    """The part of a count that belongs to the elements which pruning left."""
    found = [p for p in parameters if p.name == name]
    if len(found) != 1 or found[0].numel == (dense := prod(found[0].shape)):
        return count
    return count * found[0].numel // dense
