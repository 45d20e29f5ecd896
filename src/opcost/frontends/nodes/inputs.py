"""The inputs of a model whose file declares them: the given sizes, and what is assumed for others that the file leaves open."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import NamedTuple

from opcost.core.graph import Module, Role
from opcost.core.names import path_of_scopes
from opcost.core.option import Sizes
from opcost.core.shapes import Shape
from opcost.errors import InputError, some
from opcost.frontends.building import GraphBuilder, tree_order, with_above
from opcost.frontends.inputs import (
    RequestedInputs,
    Usual,
    arrays_in,
    by_place,
    check_one,
    filled,
    is_batch,
    parse_dims,
    requested_inputs,
)
from opcost.frontends.nodes.meaning import MOST_CONTENT, Content, DeclaredValue, GraphNode, Operand, plain
from opcost.frontends.options import CountOptions

_CACHED = re.compile("past|cache", re.IGNORECASE)
"""In the name of an input that a language model keeps of the tokens before."""


class GivenInputs(NamedTuple):
    """The inputs in their order, the sizes of names in declared shapes, and whether declared shapes hold."""

    made: list[Operand]
    sizes: dict[str, int]
    trusted: bool


def given_inputs(
    inputs: Sequence[DeclaredValue], options: CountOptions, maker: GraphBuilder, usual: Usual | None = None
) -> GivenInputs:
    """Make the values of a model's inputs; `usual` are the sizes of images, sounds and texts that are left open."""
    inputs = [_named(declared) for declared in inputs]
    requested = requested_inputs(replace(options, sizes=Sizes()), [declared.name for declared in inputs])
    check_one(options)
    shapes = {declared.name: declared.shape or () for declared in inputs}
    sizes = parse_dims(options.own.get("dim"), shapes)
    wanted = filled(shapes, options.sizes, sizes)
    # What the file declares of values inside holds for the input shapes that it declares.
    trusted = all(
        type(old) is not int or old == new
        for name in shapes
        for old, new in zip(shapes[name], wanted[name], strict=True)
    )
    inputs = [declared._replace(shape=declared.shape and wanted[declared.name]) for declared in inputs]
    for declared in inputs:
        if (given := requested.shapes.get(declared.name)) is not None:
            trusted &= _learn(declared, given, sizes)
    # The elements of small arrays that were given: a model may take a shape, or the number of turns of a loop, as
    # an input
    ordered, named = arrays_in(options)
    contents = {}
    for name, array in {**by_place(ordered, [declared.name for declared in inputs], "inputs"), **named}.items():
        if hasattr(array, "reshape") and not getattr(array, "is_meta", False) and prod(array.shape) <= MOST_CONTENT:
            items = array.reshape(-1).tolist()
            if all(isinstance(item, (int, float)) for item in items):
                contents[name] = Content(tuple(array.shape), tuple(items))
    usual = usual or Usual()
    if any(_CACHED.search(declared.name) for declared in inputs):  # lengths that must fit each other
        usual = usual._replace(tokens=0)
    open_ones = _Open(usual, sizes)
    shapes_found = [open_ones.shape(declared, requested) if declared.tensor else None for declared in inputs]
    open_ones.note(maker)
    made = []
    for declared, shape in zip(inputs, shapes_found, strict=True):
        spec = maker.spec(shape, plain(requested.dtypes.get(declared.name, declared.dtype)))
        value = maker.value(declared.name, spec, "input")
        made.append(Operand(value, shape, spec.dtype, contents.get(declared.name)))
    return GivenInputs(made, sizes, trusted)


def _named(declared: DeclaredValue) -> DeclaredValue:
    """The input with a name for every size that is left open: `x[2]` where the file has none."""
    if declared.shape is None:
        return declared
    extents = enumerate(declared.shape)
    return declared._replace(shape=tuple(f"{declared.name}[{at}]" if n is None else n for at, n in extents))


def _learn(declared: DeclaredValue, given: tuple[int, ...], sizes: dict[str, int]) -> bool:
    """Take the sizes of names from a shape that was given; whether that shape is as declared."""
    if declared.shape is None:
        return True
    if len(given) != len(declared.shape):
        stated = "x".join("?" if extent is None else str(extent) for extent in declared.shape)
        raise InputError(f"the input {declared.name!r} has {len(declared.shape)} axes ({stated}), not {len(given)}")
    fits = True
    for extent, size in zip(declared.shape, given, strict=True):
        if isinstance(extent, str):
            sizes.setdefault(extent, size)
        elif extent is not None:
            fits &= extent == size
    return fits


class _Open:
    """Finds sizes for what a file leaves open and the caller does not give."""

    def __init__(self, usual: Usual, sizes: dict[str, int]) -> None:
        self._usual = usual
        self._sizes = sizes
        self._ones: dict[str, None] = {}
        """Batches, which are 1."""
        self._assumed: dict[tuple[int, str], list[str]] = {}
        """Other dimensions by the size that they get, and why."""
        self._missing: dict[str, str] = {}
        """Dimensions without any size, and the input that has them."""

    def shape(self, declared: DeclaredValue, requested: RequestedInputs) -> Shape:
        given = requested.shapes.get(declared.name)
        if given is not None:
            return given
        if declared.shape is None:
            hint = f"give it: --input {declared.name}:1x3x224x224, or shapes={{{declared.name!r}: (1, 3, 224, 224)}}"
            raise InputError(f"no shape was given for the model's input {declared.name!r}", hint=hint)
        usual = {} if _CACHED.search(declared.name) else self._usual.sizes(declared.shape, declared.dtype)
        found = []
        for axis, extent in enumerate(declared.shape):
            if isinstance(extent, int):
                found.append(extent)
                continue
            name = str(extent)
            if name not in self._sizes:
                self._assume(name, declared, axis, usual)
            found.append(self._sizes[name])
        return tuple(found)

    def _assume(self, name: str, declared: DeclaredValue, axis: int, usual: Mapping[int, tuple[int, str]]) -> None:
        size = 1
        if is_batch(name, axis):
            self._ones[name] = None
        elif axis in usual:
            size, why = usual[axis]
            self._assumed.setdefault((size, why), []).append(name)
        else:
            stated = " x ".join("?" if extent is None else str(extent) for extent in declared.shape or ())
            self._missing[name] = f"{declared.name} ({stated})"
        self._sizes[name] = size

    def note(self, maker: GraphBuilder) -> None:
        """Ask for sizes that have no usual value, and say which others are assumed."""
        if self._missing:
            missing = ", ".join(some([*self._missing]))
            raise InputError(
                f"the file leaves sizes open: {missing} of the input {next(iter(self._missing.values()))}",
                hint="give them: " + " ".join(f"--dim {name}=N" for name in [*self._missing][:4]),
            )
        for (size, why), names in self._assumed.items():
            text = f"{' and '.join(some(names))} {'is' if len(names) == 1 else 'are'} taken as {size:,}: {why}"
            maker.note("assumed-sizes", f"{text}; for other sizes --dim {names[0]}=N")
        if self._ones:
            text = f"{', '.join(some([*self._ones]))} {'is' if len(self._ones) == 1 else 'are'} taken as 1"
            maker.note("assumed-batch", f"{text}; for another size --dim {next(iter(self._ones))}=N")


# -- modules, and the role of each stored tensor, as they follow from names and from the nodes that read them.


class Scopes:
    """The modules of nodes and the roles of stored tensors; each format derives its own rules from this class."""

    root = ""  # The type of the model itself, where the file has it

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
