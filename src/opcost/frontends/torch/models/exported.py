"""Exported programs: their modules put together again, so that operators are found where their author wrote them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


def as_module(program: torch.export.ExportedProgram) -> nn.Module:
    """A module that runs the program, with the modules of the original if the program remembers them."""
    try:
        with _Shared():
            return torch.export.unflatten(program)
    except Exception:  # not every program can be taken apart again; its operators are then all the root's
        return program.module()  # type: ignore[return-value]


def by_position(
    program: torch.export.ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that were given by name where the program wants them in order."""
    names = [str(name) for name in program.graph_signature.user_inputs]
    expected = len(program.example_inputs[0]) if program.example_inputs else len(names)
    kwargs = dict(kwargs)
    while len(args) < min(expected, len(names)) and names[len(args)] in kwargs:
        args = (*args, kwargs.pop(names[len(args)]))
    return args, kwargs


class _Shared(TorchDispatchMode):
    """Lets unflattened modules share the program's weights instead of copying them."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.clone.default:
            return args[0].detach()
        return func(*args, **(kwargs or {}))
