"""Activation checkpoints around modules of the user's choice, for the time of one run: nothing about the modules is changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from opcost.errors import InputError, UnknownName
from opcost.frontends.torch.models.unwrap import type_name
from opcost.frontends.torch.recording.scope import Paths

Enter = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]
"""Takes a call of a module in place of the module."""


_NO_CACHE: dict[str, Any] = {"use_cache": False, "past_key_values": None, "past_key_value": None, "layer_past": None}
"""A layer that runs twice would write twice to a cache; transformers too gives its layers none when it checkpoints them."""


def _matches(path: str, pattern: str) -> bool:
    """Whether a path ends so; a star stands for a part of one name and never for several."""
    names, wanted = path.split("."), pattern.split(".")
    return len(wanted) <= len(names) and all(map(fnmatchcase, names[-len(wanted) :], wanted))


class Checkpoints:
    """Calls the modules whose paths end as one of the patterns through PyTorch's own checkpoint."""

    def __init__(self, patterns: Sequence[str], paths: Paths, enter: Enter) -> None:
        self._patterns = patterns
        self._enter = enter
        self._modules: dict[int, tuple[str, nn.Module]] = {}
        self._called = False
        self._inside: nn.Module | None = None
        """The module that a checkpoint is about to call."""
        for pattern in patterns:
            found = {id(module): (path, module) for path, module in paths.all if path and _matches(path, pattern)}
            if not found:
                alike = dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", path) for path, _ in paths.all if path)
                raise UnknownName("module path", pattern, alike, hint="a star stands for any one name: 'layers.*'")
            self._modules.update(found)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if id(module) not in self._modules or self._inside is module or not torch.is_grad_enabled():
            self._inside = None
            return self._enter(module, args, kwargs)
        self._called = True
        kept = {name: _NO_CACHE.get(name, value) for name, value in kwargs.items()}
        return checkpoint(partial(self._run, module), *args, use_reentrant=False, **kept)

    def _run(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """What a checkpoint runs, and runs again in the backward pass."""
        self._inside = module
        return module(*args, **kwargs)

    def check(self) -> None:
        """Raise where forward has called none of the modules: a list of layers, for instance, is not called itself."""
        if not self._called:
            path, module = next(iter(self._modules.values()))
            raise InputError(
                f"no module that checkpoint={', '.join(self._patterns)} means is called: {path} ({type_name(module)})",
                hint=f"mean the modules in it: {self._patterns[0]}.*",
            )
