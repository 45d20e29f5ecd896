"""A model's own repr in which every module says something more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from opcost.core.harmless import printable


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
