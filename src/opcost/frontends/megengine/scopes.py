"""Which module an operator and a tensor belong to, read from names, and the tree of these modules.

MegEngine names what a module computes `path.Operator` and its weights `path.weight`. Its optimizer makes operators anew and
calls them after their inputs; such an operator is given to the module that uses its result, and a module that only holds a
single layer passes it on to its parent. Where the file has no names, everything belongs to the root.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import prod

from opcost.core.graph import Module, Op, Role, Value
from opcost.frontends.building import GraphBuilder, above, tree_order, with_above
from opcost.frontends.megengine.model import HOLDERS, DumpedTensor, Model
from opcost.frontends.megengine.schema import FLOATING, QUANTIZED
from opcost.frontends.nodes.inputs import Scopes

DEEPEST = 64  # Modules inside each other, as far as a name is believed

_INDEX = re.compile(r"(\[\d+\])?(:o\d+)?$")
_PATH = re.compile(r"(\w+\.)*[A-Za-z_]\w*")


def scope_of(name: str) -> str | None:
    """The module path in a name, '' for a plain name, None where the name is empty or made by the optimizer."""
    name = _INDEX.sub("", name)
    if name.count(".") > DEEPEST or not _PATH.fullmatch(name):
        return None
    return name.rpartition(".")[0]


def role_of(tensor: DumpedTensor, name: str) -> Role:
    """Weights are numbers with a fraction, or their quantized form; a single one is a weight only by its name.

    MegEngine calls the numbers of a formula `const<2>` or after the operator that made them, `Fill[0]`.
    """
    if tensor.dtype.name not in FLOATING | QUANTIZED:
        return "const"
    named = bool(scope_of(name)) or (name.isidentifier() and name[0].islower())
    return "param" if named or prod(tensor.shape) != 1 else "const"


class DumpScopes(Scopes):
    """The module of every operator that computes, and of every tensor of the file."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self._model = model
        self.of_tensor: dict[int, str] = {}
        self.of_op: dict[int, str] = {}
        # From names: the operator's own, its results', or the weights' that it reads, the deepest of them
        named: dict[int, str] = {}
        for op in model.operators:
            if op.type in HOLDERS:
                for variable, tensor in zip(op.outputs, op.tensors, strict=True):
                    if scope := scope_of(model.variables[variable].name) or scope_of(tensor.name):
                        self.of_tensor[variable] = scope
                continue
            names = (op.name, *(model.variables[variable].name for variable in op.outputs))
            scope = next((scope for name in names if (scope := scope_of(name)) is not None), None)
            read = {self.of_tensor[variable] for variable in op.inputs if variable in self.of_tensor}
            if len(read) == 1:
                (layer,) = read
                # The optimizer fuses a layer with what its parent does next.
                if not scope or layer.startswith(f"{scope}."):
                    scope = layer
            if scope is not None:
                named[op.index] = scope
        direct, holders = Counter(named.values()), set(self.of_tensor.values())
        paths = {*direct, *holders}
        around = {parent for path in paths for parent in above(path)} | {""}
        self.layers = {path for path in paths if path in holders or direct[path] == 1} - around
        """Modules that hold weights of their own or compute one thing only."""
        # Operators without a scope have that of their users, from the end to the beginning
        user: dict[int, str] = {}
        for op in reversed(model.operators):
            scope = named.get(op.index)
            if scope is None:
                scope = inherited = next((user[variable] for variable in op.outputs if variable in user), "")
            else:
                inherited = scope.rpartition(".")[0] if scope in self.layers else scope
            self.of_op[op.index] = scope
            user.update(dict.fromkeys(op.inputs, inherited))
        for op in model.operators:  # tensors without a scope belong where they are read first
            for variable in op.inputs:
                self.of_tensor.setdefault(variable, self.of_op[op.index])

    def modules(self, maker: GraphBuilder, source: str) -> list[Module]:
        """The tree of the names: every path that an operator or a weight belongs to, and all paths above it."""
        stored: dict[str, dict[str, list[tuple[str, int]]]] = {"param": {}, "buffer": {}}
        for value in maker.values:
            if value.role in stored:
                path = self.of_tensor.get(value.id, "")
                stored[value.role].setdefault(path, []).append((_inside(value.name, path), value.id))
        paths = with_above(dict.fromkeys([*(op.module for op in maker.ops), *stored["param"], *stored["buffer"]]))
        # A dump does not say which class a module was of; a layer is called after its first operator.
        types = dict.fromkeys(paths, "Module")
        for op in reversed(maker.ops):
            if op.module in self.layers and op.kind != "view":
                types[op.module] = op.raw.rpartition(":")[2]
        types[""] = source
        crossing = _crossing(maker.ops, maker.values, self._model.outputs)
        found = []
        for path in tree_order(paths):
            parameters, buffers = (tuple(stored[role].get(path, ())) for role in ("param", "buffer"))
            taken, given = (tuple(maker.values[i].spec for i in side.get(path, ())) for side in crossing)
            own = Module(path=path, type=types[path], parameters=parameters, buffers=buffers, calls=1)
            found.append(replace(own, inputs=taken, outputs=given))
        return found


def _inside(name: str, path: str) -> str:
    """A tensor's name inside its module; a name made by the optimizer must not look like a path."""
    own = name.removeprefix(f"{path}.") if path else name
    return own.replace(".", "/") if not own.isidentifier() else own


def _crossing(ops: Sequence[Op], values: Sequence[Value], outputs: Sequence[int]) -> list[dict[str, dict[int, None]]]:
    """The values that each module takes from outside, and those that it hands out."""

    @cache
    def chain(path: str) -> dict[str, None]:
        return dict.fromkeys(("", *above(path), path))

    makers = {variable: chain(op.module) for op in ops for variable in op.outputs}
    taken: dict[str, dict[int, None]] = {}
    given: dict[str, dict[int, None]] = {}
    for op in ops:
        users = chain(op.module)
        for variable in op.inputs:
            if values[variable].role in ("input", "activation"):
                made = makers.get(variable, {})
                for into, paths, others in ((taken, users, made), (given, made, users)):
                    for path in paths:
                        if path not in others:
                            into.setdefault(path, {})[variable] = None
    for variable in outputs:
        for path in makers.get(variable, ()):
            given.setdefault(path, {})[variable] = None
    return [taken, given]
