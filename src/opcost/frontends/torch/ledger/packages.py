"""Weights that quantized modules keep in packages: objects that only their own operators read, opened here to be counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

_RANKS = "__torch__.torch.classes.c10d."
"""Groups of ranks and what is under way between them arrive as such objects too, and hold no tensors."""

_Content = tuple[tuple[str, torch.Tensor], ...]


class _Package:
    """A package of some module: what lies in it, and how often an operator read it."""

    __slots__ = ("path", "reads", "shapes", "vids")

    def __init__(self, path: str, content: _Content, vids: tuple[int, ...]) -> None:
        self.path = path
        self.shapes = _shapes(content)
        self.vids = vids
        self.reads = 0


class Packages:
    """The packages of a model's modules."""

    def __init__(self) -> None:
        self._all: list[_Package] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def register(
        self, path: str, module: nn.Module, parameter: Callable[[torch.Tensor, str], int]
    ) -> list[tuple[str, int]]:
        """Make parameters of what lies in a module's packages; their names inside the module, and values.

        `parameter` makes a value of a tensor, under a name.
        """
        held: list[tuple[str, int]] = []
        for attribute, value in vars(module).items():
            if type(value) is torch.ScriptObject and (content := tuple(_open(value))):
                taken = {name for name, _ in held}
                named = [(f"{attribute}_{name}" if name in taken else name, tensor) for name, tensor in content]
                stem = f"{path}." if path else ""
                found = [(name, parameter(tensor, stem + name)) for name, tensor in named]
                self._all.append(_Package(path, content, tuple(vid for _, vid in found)))
                held += found
        return held

    def read_by(self, args: Any, running: str) -> tuple[int, ...]:
        """The values in the packages among the arguments of an operator that runs in a module.

        A package arrives as a new object, so it is known again by its shapes and by the module that holds it.
        """
        vids: list[int] = []
        for package in _packages_in(args):
            shapes = _shapes(_open(package))
            fitting = [known for known in self._all if known.shapes == shapes and _below(known.path, running)]
            if fitting:
                chosen = min(fitting, key=lambda known: known.reads)
                chosen.reads += 1
                vids += chosen.vids
        return tuple(vids)


def has_package(args: Any) -> bool:
    """Whether some argument is a package."""
    return next(_packages_in(args), None) is not None


def _packages_in(args: Any) -> Iterator[Any]:
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            if not arg._type().qualified_name().startswith(_RANKS):
                yield arg
        elif isinstance(arg, (list, tuple)):
            yield from _packages_in(arg)


def _open(package: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in a package by name; nothing where it cannot be opened."""
    if package._has_method("unpack"):  # linear, convolution: weight and bias; embedding: the table
        content = package.unpack()
        for name, tensor in zip(
            ("weight", "bias"), content if isinstance(content, tuple) else (content,), strict=False
        ):
            if tensor is not None:
                yield name, tensor
    elif package._type().qualified_name().endswith("rnn.CellParamsBase"):
        _, biases, _, _, parts = package.__getstate__()[0]
        for side, part in zip(("ih", "hh"), parts, strict=False):
            yield f"weight_{side}", part.unpack()[0]
        for side, bias in zip(("ih", "hh"), biases, strict=False):
            yield f"bias_{side}", bias


def _shapes(content: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(tensor.shape) for _, tensor in content)


def _below(path: str, running: str) -> bool:
    return not running or path == running or path.startswith(f"{running}.")
