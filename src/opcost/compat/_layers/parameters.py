"""The parameters of a module as a table shows them: each once, with the shape it has when the model runs."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from opcost.core.report import Parameter, Report


class ModuleParameter(NamedTuple):
    """One parameter inside a module; two with the same `key` are the same tensor."""

    key: int
    name: str
    shape: tuple[int, ...]
    numel: int
    """Elements, or those that a pruning mask leaves."""
    nbytes: int
    trainable: bool


class Parameters:
    """The parameters of a model's modules; a report tells which are one tensor, and the shapes that only a run decides."""

    def __init__(self, model: nn.Module, report: Report | None = None) -> None:
        self._counted: dict[int, Parameter] = {}
        if report is not None:
            known = {name: parameter for parameter in report.parameters for name in parameter.names}
            for name, tensor in model.named_parameters(remove_duplicate=False):
                if name in known:
                    self._counted[id(tensor)] = known[name]

    def of(self, module: nn.Module, *, recurse: bool = True) -> list[ModuleParameter]:
        """The distinct parameters of a module, in definition order."""
        found: dict[int, ModuleParameter] = {}
        for name, tensor in module.named_parameters(recurse=recurse):
            counted = self._counted.get(id(tensor))
            if counted is None and is_lazy(tensor):
                continue
            key = id(tensor if counted is None else counted)
            shape = tuple(tensor.shape) if counted is None else counted.spec.dims
            numel = prod(shape)
            shown_name = name
            mask = _mask(module, name)
            if mask is not None:
                numel, shown_name = int(mask.sum()), name.removesuffix("_orig")
            nbytes = numel * tensor.dtype.itemsize
            found.setdefault(key, ModuleParameter(key, shown_name, shape, numel, nbytes, tensor.requires_grad))
        return list(found.values())


def _mask(module: nn.Module, name: str) -> torch.Tensor | None:
    """The mask that `torch.nn.utils.prune` lays over a parameter, where it has content."""
    if not name.endswith("_orig"):
        return None
    path, _, own_name = name.removesuffix("_orig").rpartition(".")
    mask = dict(module.get_submodule(path).named_buffers(recurse=False)).get(f"{own_name}_mask")
    return None if mask is None or mask.device.type == "meta" else mask
