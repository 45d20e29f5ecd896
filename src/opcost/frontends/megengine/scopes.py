"""Which module an operator belongs to, read from names.

MegEngine names what a module computes `path.Operator` and its weights `path.weight`. Its optimizer makes operators anew and
calls them after their inputs; such an operator is given to the module that uses its result, and a module that only holds a
single layer passes it on to its parent. Where the file has no names, everything belongs to the root.
"""

from __future__ import annotations

import re
from collections import Counter

from opcost.frontends.building import above
from opcost.frontends.megengine.model import HOLDERS, Model, Operator

DEEPEST = 64
"""Modules inside each other, as far as a name is believed."""

_INDEX = re.compile(r"(\[\d+\])?(:o\d+)?$")
_PATH = re.compile(r"(\w+\.)*[A-Za-z_]\w*")


def scope_of(name: str) -> str | None:
    """The module path in a name, '' for a plain name, None where the name is empty or made by the optimizer."""
    name = _INDEX.sub("", name)
    if name.count(".") > DEEPEST or not _PATH.fullmatch(name):
        return None
    return name.rpartition(".")[0]


def _inside(path: str, around: str) -> bool:
    """Whether a module lies in another one."""
    return not around or path.startswith(f"{around}.")


class Scopes:
    """The module of every operator that computes, and of every tensor of the file."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.of_tensor: dict[int, str] = {}
        self.of_op: dict[int, str] = {}
        self.layers: set[str] = set()
        """Modules that hold weights of their own or compute one thing only."""
        named = self._read()
        self._spread(named)
        self._adopt()

    def _read(self) -> dict[int, str]:
        """Scopes that names tell: the operator's own, its results', or the weights' that it reads, the deepest of them."""
        weights: dict[int, str] = {}
        found: dict[int, str] = {}
        for op in self._model.operators:
            if op.type in HOLDERS:
                for variable, tensor in zip(op.outputs, op.tensors, strict=True):
                    scope = scope_of(self._model.variables[variable].name) or scope_of(tensor.name)
                    if scope:
                        weights[variable] = scope
                continue
            scope = self._named(op)
            read = {weights[variable] for variable in op.inputs if variable in weights}
            if len(read) == 1:
                (layer,) = read
                if scope is None or _inside(layer, scope):  # the optimizer fuses a layer with what its parent does next
                    scope = layer
            if scope is not None:
                found[op.index] = scope
        self.of_tensor.update(weights)
        return found

    def _named(self, op: Operator) -> str | None:
        names = (op.name, *(self._model.variables[variable].name for variable in op.outputs))
        return next((scope for name in names if (scope := scope_of(name)) is not None), None)

    def _spread(self, named: dict[int, str]) -> None:
        """Give operators without a scope that of their users, from the end to the beginning."""
        direct = Counter(named.values())
        holders = set(self.of_tensor.values())
        around = {parent for path in {*named.values(), *holders} for parent in above(path)} | {""}
        self.layers = {path for path in {*named.values(), *holders} if path in holders or direct[path] == 1} - around

        def home(path: str) -> str:
            return path.rpartition(".")[0] if path in self.layers else path

        user: dict[int, str] = {}
        for op in reversed(self._model.operators):
            scope = named.get(op.index)
            if scope is None:
                scope = next((user[variable] for variable in op.outputs if variable in user), "")
                inherited = scope
            else:
                inherited = home(scope)
            self.of_op[op.index] = scope
            for variable in op.inputs:
                user[variable] = inherited

    def _adopt(self) -> None:
        """Tensors without a scope belong where they are read first."""
        for op in self._model.operators:
            for variable in op.inputs:
                self.of_tensor.setdefault(variable, self.of_op[op.index])
