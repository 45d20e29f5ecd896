"""The rows of the table: one for each call of a layer, and one for each container that is not called itself."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import torch
from torch import nn

from opcost.compat._layers.calls import LayerCall, Layers, Structure
from opcost.compat._layers.parameters import Parameters
from opcost.compat.torchinfo.layer_info import LayerInfo
from opcost.compat.torchinfo.mult_adds import own_mult_adds
from opcost.core.dtype import bits
from opcost.core.graph import TensorSpec


def called_layers(layers: Layers, batch_dim: int | None) -> list[LayerInfo]:
    """A row for each call, in the order of entry, below the containers that hold the layer."""
    builder = _Builder(layers.model, Parameters(layers.model, layers.report))
    called = {id(call.module) for call in layers.calls}
    shown = _shown_paths(layers.model)
    macs: dict[int, int] = {}
    infos: list[tuple[LayerCall, LayerInfo]] = []
    for call in layers.calls:
        names = shown[call.path]
        for depth in range(1, len(names)):
            builder.open_container(names[:depth], called)
        info = builder.add(names, call.module)
        info.executed = True
        if not isinstance(call.module, torch.jit.ScriptModule):
            info.class_name = call.type_name
        info.input_size, _ = _size(call.args, batch_dim)
        info.output_size, element_bytes = _size(call.result, batch_dim)
        info.output_bytes = element_bytes * prod(_flat(info.output_size))
        own = builder.parameters.of(call.module, recurse=False)
        info.own_macs = own_mult_adds(call, own, info.output_size, is_leaf=info.is_leaf_layer)
        infos.append((call, info))
        if isinstance(call.module, torch.jit.ScriptModule):
            builder.add_defined(names, call.module)
    for call, info in reversed(infos):
        macs[id(call)] = info.own_macs + sum(macs[id(inner)] for inner in call.nested)
        info.macs = macs[id(call)]
    return builder.finish()


def defined_layers(model: nn.Module) -> list[LayerInfo]:
    """A row for each module, in the order of definition."""
    builder = _Builder(model, Parameters(model))
    builder.add([], model)
    builder.add_defined([], model)
    return builder.finish()


class _Builder:
    """Adds rows one by one, each below the row that holds it."""

    def __init__(self, model: nn.Module, parameters: Parameters) -> None:
        self.parameters = parameters
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._rows: list[LayerInfo] = []
        self._seen: set[int] = set()
        self._open: list[LayerInfo] = []
        """The last row of each depth, down to the last row."""

    def add(self, names: list[str], module: nn.Module) -> LayerInfo:
        depth = len(names)
        parent = self._open[depth - 1] if depth else None
        name = names[-1] if names else type(module).__name__
        info = LayerInfo(name, module, depth, parent, self.parameters.of(module))
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
        """Make sure that the row of a container stands above what follows."""
        depth = len(names)
        container = self._modules.setdefault(".".join(names), nn.Module())  # none is above a name with a dot in it
        if len(self._open) > depth and self._open[depth].module is container:
            return
        info = self.add(names, container)
        info.is_recursive = info.is_recursive or id(container) in called

    def finish(self) -> list[LayerInfo]:
        """Number the rows of each depth, tell each row what lies below it, and which parameters it is to show."""
        counts: dict[int, int] = {}
        for index, info in enumerate(self._rows):
            counts[info.depth] = counts.get(info.depth, 0) + 1
            info.depth_index = counts[info.depth]
            end = index + 1
            while end < len(self._rows) and self._rows[end].depth > info.depth:
                end += 1
            info.children = self._rows[index + 1 : end]
        self._share_out_parameters()
        return self._rows

    def _share_out_parameters(self) -> None:
        """Each parameter is shown once: where it is held, or, if that has no row, by the closest row above it."""
        shown: set[int] = set()

        def claim(info: LayerInfo, *, held: bool) -> None:
            new = [p for p in info.parameters if p.key not in shown and not (held and "." in p.name)]
            info.claimed += tuple(new)
            shown.update(p.key for p in new)

        for info in self._rows:
            claim(info, held=True)
        for info in sorted(self._rows, key=lambda info: -info.depth):
            claim(info, held=False)
        for info in self._rows:
            if info.is_leaf_layer and info.parameters and not info.claimed:
                info.is_recursive = True


def _shown_paths(model: nn.Module) -> dict[str, list[str]]:
    """The names that lead to each path's module; where its parent holds it under several, the last of these."""
    last: dict[tuple[str, int], str] = {}
    paths = [(path, id(module)) for path, module in model.named_modules(remove_duplicate=False)]
    for path, module in paths:
        parent, _, name = path.rpartition(".")
        last[parent, module] = name
    return {
        path: [*filter(None, path.rpartition(".")[0].split(".")), last[path.rpartition(".")[0], module]] if path else []
        for path, module in paths
    }


def _size(structure: Structure, batch_dim: int | None) -> tuple[list[Any], int]:
    """The shape that stands for an argument list or a result: of the first tensor, or of the last value of a dict."""
    if isinstance(structure, TensorSpec):
        return _shape(structure), bits(structure.dtype) // 8
    items = list(structure.values()) if isinstance(structure, dict) else structure
    found = _first(items[-1] if isinstance(structure, dict) and items else items)
    if found is None:
        return [], 0
    size, element_bytes = _shape(found), bits(found.dtype) // 8
    if batch_dim is not None and batch_dim < len(size):
        size[batch_dim] = 1
        if isinstance(structure, dict):
            return [size], element_bytes
    return size, element_bytes


def _first(structure: Structure) -> TensorSpec | None:
    """The first item of a structure, of its first item, and so on: a tensor or nothing."""
    while isinstance(structure, (list, tuple, dict)) and structure:
        structure = next(iter(structure.values())) if isinstance(structure, dict) else structure[0]
    return structure if isinstance(structure, TensorSpec) else None


def _shape(spec: TensorSpec) -> list[Any]:
    return list(spec.shape or ())


def _flat(size: Iterable[Any]) -> Iterable[int]:
    for item in size:
        if isinstance(item, list):
            yield from item
        elif item is not None:
            yield item
