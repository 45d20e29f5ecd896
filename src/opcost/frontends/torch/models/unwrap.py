"""The model inside a wrapper (data parallel, compiled, exported), and a model around a bare function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import getattr_static
from typing import Any

import torch
from torch import nn

from opcost.errors import UnknownSource
from opcost.frontends.torch.models.exported import as_module
from opcost.frontends.torch.models.recognise import is_exported, is_function


class Function(nn.Module):
    """A function or a bound method as a model; modules that it calls are found when it runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function
        bound = getattr(function, "__self__", None)
        if isinstance(bound, nn.Module):
            self.add_module("self", bound)


def unwrap(source: Any) -> nn.Module:
    """The module that does the work."""
    if is_exported(source):
        return as_module(source)
    dynamo = sys.modules.get("torch._dynamo")
    while True:
        if isinstance(source, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            source = source.module
        elif dynamo is not None and isinstance(source, dynamo.OptimizedModule):
            source = source._orig_mod
        elif _is_shell(source):
            source = source.model
        else:
            break
    if is_function(source):
        return Function(source)
    if not isinstance(source, torch.nn.Module):
        raise UnknownSource(f"an object of type {type(source).__name__} is not a PyTorch module")
    return source


def _is_shell(source: Any) -> bool:
    """Whether a module has no forward of its own and keeps the model that has one, as `ultralytics.YOLO` does."""
    return (
        isinstance(source, nn.Module)
        and getattr_static(source, "forward") is nn.Module.forward
        and isinstance(getattr(source, "model", None), nn.Module)
    )


def type_name(module: nn.Module) -> str:
    """The class that a module's author wrote, also where scripting or exporting has put another in its place."""
    if isinstance(module, Function):
        function = getattr(module.forward, "func", module.forward)  # of a partial
        return str(getattr(function, "__name__", type(function).__name__))
    if isinstance(module, torch.jit.ScriptModule):
        return str(getattr(module, "original_name", "")) or type(module).__name__
    exported = vars(module).get("_ty")
    if isinstance(exported, str) and exported:
        return exported.rpartition(".")[2]
    return _written_class(type(module)).__name__


def _written_class(cls: type) -> type:
    """The class below the one that `fully_shard` makes: of its own and the author's, under a name of both."""
    bases = cls.__bases__
    return bases[1] if len(bases) == 2 and bases[0].__name__ == "FSDPModule" else cls
