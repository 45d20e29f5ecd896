"""What ptflops prints: the model's own repr with numbers in front of each module's words, or a list of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from opcost.core.harmless import printable


def flops_to_string(flops: float, units: str | None = None, precision: int = 2) -> str:
    """Multiply-adds with a unit: GMac, MMac, KMac, or the fitting one."""
    for unit, size in (("GMac", 10**9), ("MMac", 10**6), ("KMac", 10**3)):
        if units == unit or (units is None and flops // size > 0):
            return f"{round(flops / size, precision)} {unit}"
    return f"{flops} Mac"


def params_to_string(params_num: int, units: str | None = None, precision: int = 2) -> str:
    """A number of parameters with a unit: B, M, K, or the fitting one."""
    if units is None:
        for unit, size in (("M", 10**6), ("k", 10**3)):
            if params_num // size > 0:
                return f"{round(params_num / size, precision)} {unit}"
        return str(params_num)
    sizes = {"B": 10**9, "M": 10**6, "K": 10**3}
    return f"{round(params_num / sizes[units], precision)} {units}" if units in sizes else str(params_num)


def repr_with(model: nn.Module, words: Callable[[str, str], str]) -> str:
    """The model's repr where `words(name, own words)` takes the place of every module's `extra_repr`."""
    return printable(repr(_double(model, "", words)), keep="\n")


def _double(module: nn.Module, name: str, words: Callable[[str, str], str]) -> Any:
    """A module that looks like this one and says something else; the user's stays as it is."""
    text = words(name, module.extra_repr())
    if isinstance(module, torch.jit.ScriptModule):
        return _Said(f"{module.original_name}({text})")
    children = module._modules  # noqa: SLF001 - named_children leaves out shared and absent ones
    double = object.__new__(type(module))
    double.__dict__.update(module.__dict__)
    double.__dict__["_modules"] = {
        key: child and _double(child, f"{name}.{key}" if name else key, words) for key, child in children.items()
    }
    double.__dict__["extra_repr"] = lambda: text
    return double


class _Said:
    """Something whose repr is a given text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text
