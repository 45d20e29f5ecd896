"""Modules that other ranks have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


class Absent(nn.Module):
    """In the place of a module that another rank has: it answers a call, and has no parameters."""

    def __init__(self, answer: Callable[..., Any], original: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.__dict__.update(forward=answer, original=original)

    def __getattr__(self, name: str) -> Any:
        """As the original has it: code around it may read sizes and switches."""
        return getattr(self.__dict__["original"](), name)


@contextmanager
def without_absent(model: nn.Module) -> Iterator[None]:
    """Let a model seem to have only the modules that are there."""
    changed = [(module, dict(module._modules)) for module in model.modules() if any(map(is_absent, module.children()))]
    for module, members in changed:
        for name, member in members.items():
            if is_absent(member):
                del module._modules[name]
    try:
        yield
    finally:
        for module, members in changed:
            module._modules.clear()
            module._modules.update(members)


def is_absent(module: nn.Module | None) -> bool:
    """Whether another rank has it."""
    return isinstance(module, Absent)
