"""Modules, and the role of each stored tensor, as they follow from names and from the nodes that read them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from opcost.core.graph import Module, Role
from opcost.core.names import path_of_scopes
from opcost.frontends.building import GraphBuilder, tree_order, with_above
from opcost.frontends.nodes.meaning import Operand
from opcost.frontends.nodes.model import GraphNode


class Scopes:
    """The modules of nodes and the roles of stored tensors; each format derives its own rules from this class."""

    root = ""
    """The type of the model itself, where the file has it."""

    def __init__(self) -> None:
        self.stored: dict[int, bool] = {}
        """Stored tensors by their values; True: they are constants in a node and not among the weights."""
        self.roles: dict[int, Role] = {}
        self.owners: dict[int, str] = {}
        """The module of each stored tensor."""
        self.readers: dict[int, str] = {}
        """The module that reads each first."""
        self.paths: dict[str, str] = {}
        """The operator that came first in each module."""
        self.shared: set[int] = set()
        self.names: dict[int, str] = {}
        """What each stored tensor is called in its module."""
        self.logical: dict[int, tuple[tuple[int, ...], str]] = {}
        """Shape and element type of packed weights as they are meant."""

    def path_in_node(self, node: GraphNode) -> str | None:
        """The path in the node itself; None: it has none."""
        return path_in_name(node.name)

    def path_of_weight(self, name: str) -> str | None:
        """The module in the name of a stored tensor."""
        return name.rpartition(".")[0] if "/" not in name else None

    def owner(self, made: Operand, path: str, maker: GraphBuilder) -> tuple[str, str]:
        """The module to which a stored tensor belongs that is read in this one, and its name there."""
        return path, maker.values[made.value].name.removeprefix(f"{path}.")

    def type(self, path: str) -> str:
        """What a module is called."""
        return self.paths.get(path, "scope")

    def role(self, node: GraphNode, place: int, made: Operand) -> Role:
        """The part that a stored tensor plays for the node that reads it at this place."""
        raise NotImplementedError

    def meant(self, node: GraphNode, place: int, ins: Sequence[Operand | None]) -> tuple[tuple[int, ...], str] | None:
        """Shape and element type of the weight at this place, where it is stored in another form."""
        return None

    def path(self, node: GraphNode, ins: Sequence[Operand | None], maker: GraphBuilder) -> str:
        """The module of a node: from the exporter, from the node's name, or from that of a weight that it reads."""
        found = self.path_in_node(node)
        if found is None:
            names = [maker.values[made.value].name for made in ins if made is not None and made.value in self.stored]
            found = next(filter(None, map(self.path_of_weight, names)), "")
        if found not in self.paths:
            self.paths[found] = node.op
        return found

    def read(self, node: GraphNode, path: str, ins: Sequence[Operand | None], maker: GraphBuilder) -> None:
        """Note which part the stored tensors play that a node reads."""
        for place, made in enumerate(ins):
            if made is None or made.value not in self.stored:
                continue
            role = self.role(node, place, made)
            if role == "const":
                continue
            if (meant := self.meant(node, place, ins)) is not None:
                self.logical[made.value] = meant
            if self.readers.setdefault(made.value, path) != path:
                self.shared.add(made.value)
            if made.value not in self.owners:
                self.owners[made.value], self.names[made.value] = self.owner(made, path, maker)
            if self.roles.get(made.value) != "param":
                self.roles[made.value] = role

    def forget(self, begin: int) -> None:
        """Drop all that is noted of values from this one on."""
        for noted in (self.stored, self.roles, self.owners, self.readers, self.names, self.logical):
            for value in [value for value in noted if value >= begin]:
                del noted[value]
        self.shared = {value for value in self.shared if value < begin}

    def settle(self, maker: GraphBuilder) -> None:
        """Give the stored tensors their parts."""
        for value, role in self.roles.items():
            spec = maker.spec(*self.logical[value]) if value in self.logical else maker.values[value].spec
            maker.values[value] = maker.values[value]._replace(spec=spec, role=role, trainable=role == "param")

    def modules(self, maker: GraphBuilder, source: str) -> list[Module]:
        """The tree of modules, each with the tensors of which it is the first reader."""
        parameters: dict[str, list[tuple[str, int]]] = {}
        buffers: dict[str, list[tuple[str, int]]] = {}
        for value, path in self.owners.items():
            into = parameters if self.roles[value] == "param" else buffers
            taken = {name for name, _ in (*parameters.get(path, ()), *buffers.get(path, ()))}
            name = self.names.get(value, maker.values[value].name) or "weight"
            into.setdefault(path, []).append((name if name not in taken else f"{name}_{value}", value))
        return [
            Module(
                path=path,
                type=self.type(path) if path else self.root or source,
                parameters=tuple(parameters.get(path, ())),
                buffers=tuple(buffers.get(path, ())),
                calls=1,
            )
            for path in tree_order(with_above((*self.paths, *self.owners.values())))
        ]


def path_in_name(name: str) -> str | None:
    """The path in a name as `/layer1/layer1.0/conv1/Conv`."""
    scopes, slash, _ = name.rpartition("/")
    return _path(scopes) if slash else None


@lru_cache(maxsize=1024)  # nodes of one module follow each other
def _path(scopes: str) -> str:
    return clean(path_of_scopes([scope for scope in scopes.split("/") if scope]))


def clean(path: str) -> str:
    """A path without empty parts."""
    return ".".join(part for part in path.split(".") if part)
