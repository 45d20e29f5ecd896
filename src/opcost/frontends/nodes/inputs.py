"""The inputs of a model whose file declares them: the given sizes, and what is assumed for others that the file leaves open."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from opcost.core.graph import Module, Role
from opcost.core.kinds import CONTRACTIONS
from opcost.core.names import path_of_scopes
from opcost.core.option import Sizes
from opcost.core.shapes import Shape
from opcost.errors import InputError, some
from opcost.frontends.building import GraphBuilder, above, tree_order, with_above
from opcost.frontends.inputs import (
    Usual,
    arrays_in,
    by_place,
    filled,
    is_batch,
    parse_dims,
    requested_inputs,
)
from opcost.frontends.nodes import MOST_CONTENT
from opcost.frontends.nodes.meaning import Content, DeclaredValue, GraphNode, Operand, Operands, plain
from opcost.frontends.options import CountOptions

_CACHED = re.compile("past|cache", re.IGNORECASE)
"""In the name of an input that a language model keeps of the tokens before."""


def given_inputs(
    inputs: Sequence[DeclaredValue], options: CountOptions, maker: GraphBuilder, usual: Usual | None = None
) -> tuple[list[Operand], dict[str, int], bool]:
    """Make the values of a model's inputs; `usual` are the sizes of images, sounds and texts that are left open.

    With them come the sizes of names in declared shapes, and whether declared shapes hold.
    """
    inputs = [  # with a name for every size that is left open: `x[2]` where the file has none
        each._replace(shape=each.shape and tuple(f"{each.name}[{i}]" if n is None else n for i, n in enumerate(each.shape)))
        for each in inputs
    ]  # fmt: skip
    names = [declared.name for declared in inputs]
    requested = requested_inputs(replace(options, sizes=Sizes()), names)
    shapes = {declared.name: declared.shape or () for declared in inputs}
    sizes = parse_dims(options.own.get("dim"), shapes)
    wanted = filled(shapes, options.sizes, sizes)
    inputs = [declared._replace(shape=declared.shape and wanted[declared.name]) for declared in inputs]
    # What the file declares of values inside holds for the input shapes that it declares.
    pairs = [pair for name in names for pair in zip(shapes[name], wanted[name], strict=True)]
    for declared in inputs:
        given = requested.shapes.get(declared.name)
        if given is None or declared.shape is None:
            continue
        if len(given) != len(declared.shape):
            stated = "x".join(map(str, declared.shape))
            raise InputError(f"the input {declared.name!r} has {len(declared.shape)} axes ({stated}), not {len(given)}")
        pairs += zip(declared.shape, given, strict=True)
        for extent, size in zip(declared.shape, given, strict=True):
            if isinstance(extent, str):
                sizes.setdefault(extent, size)
    trusted = all(type(old) is not int or old == new for old, new in pairs)
    # The elements of small arrays that were given: a model may take a shape, or the number of turns of a loop, as
    # an input
    ordered, named = arrays_in(options)
    contents = {}
    for name, array in {**by_place(ordered, names, "inputs"), **named}.items():
        if hasattr(array, "reshape") and not getattr(array, "is_meta", False) and prod(array.shape) <= MOST_CONTENT:
            items = array.reshape(-1).tolist()
            if all(isinstance(item, (int, float)) for item in items):
                contents[name] = Content(tuple(array.shape), tuple(items))
    usual = usual or Usual()
    if any(map(_CACHED.search, names)):  # lengths that must fit each other
        usual = usual._replace(tokens=0)
    made = []
    for declared, shape in zip(inputs, _sized(inputs, requested.shapes, usual, sizes, maker), strict=True):
        spec = maker.spec(shape, plain(requested.dtypes.get(declared.name, declared.dtype)))
        value = maker.value(declared.name, spec, "input")
        made.append(Operand(value, shape, spec.dtype, contents.get(declared.name)))
    return made, sizes, trusted


def _sized(
    inputs: Sequence[DeclaredValue], requested: Mapping[str, tuple[int, ...]], usual: Usual, sizes: dict[str, int],
    maker: GraphBuilder,
) -> list[Shape]:  # fmt: skip
    """The shapes of inputs. Usual sizes are assumed where the file leaves them open, and noted; others must be given."""
    ones: dict[str, None] = {}  # Batches
    assumed: dict[tuple[int, str], list[str]] = {}  # Other dimensions by the size that they get, and why
    missing: dict[str, str] = {}  # Dimensions without any size, and the input that has them
    found: list[Shape] = []
    for name, dtype, shape, tensor in inputs:
        if not tensor or name in requested:
            found.append(requested[name] if tensor else None)
            continue
        if shape is None:
            hint = f"give it: --input {name}:1x3x224x224, or shapes={{{name!r}: (1, 3, 224, 224)}}"
            raise InputError(f"no shape was given for the model's input {name!r}", hint=hint)
        known = {} if _CACHED.search(name) else usual.sizes(shape, dtype)
        for axis, extent in enumerate(map(str, shape)):
            if extent == shape[axis] and extent not in sizes:
                sizes[extent] = 1
                if is_batch(extent, axis):
                    ones[extent] = None
                elif axis in known:
                    sizes[extent] = known[axis][0]
                    assumed.setdefault(known[axis], []).append(extent)
                else:
                    missing[extent] = f"{name} ({' x '.join(map(str, shape))})"
        found.append(tuple(extent if isinstance(extent, int) else sizes[str(extent)] for extent in shape))
    if missing:
        fault = f"the file leaves sizes open: {', '.join(some([*missing]))} of the input {next(iter(missing.values()))}"
        raise InputError(fault, hint="give them: " + " ".join(f"--dim {name}=N" for name in [*missing][:4]))
    for (size, why), names in assumed.items():
        text = f"{' and '.join(some(names))} {'is' if len(names) == 1 else 'are'} taken as {size:,}: {why}"
        maker.note("assumed-sizes", f"{text}; for other sizes --dim {names[0]}=N")
    if ones:
        text = f"{', '.join(some([*ones]))} {'is' if len(ones) == 1 else 'are'} taken as 1"
        maker.note("assumed-batch", f"{text}; for another size --dim {next(iter(ones))}=N")
    return found


# -- modules, and the role of each stored tensor, as they follow from names and from the nodes that read them.


class Scopes:
    """The modules of nodes and the roles of stored tensors; each format derives its own rules from this class."""

    root = ""  # The type of the model itself, where the file has it

    def __init__(self) -> None:
        self.stored: dict[int, bool] = {}
        """Stored tensors by their values; True: they are constants in a node and not among the weights."""
        self.roles: dict[int, Role] = {}
        self.owners: dict[int, str] = {}  # The module of each stored tensor
        self.readers: dict[int, str] = {}  # The module that reads each first
        self.paths: dict[str, str] = {}  # The operator that came first in each module
        self.shared: set[int] = set()
        self.names: dict[int, str] = {}  # What each stored tensor is called in its module
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
        """The class of a module, where the file has it."""
        return ""

    def role(self, node: GraphNode, place: int, made: Operand) -> Role:
        """The part that a stored tensor plays for the node that reads it at this place."""
        raise NotImplementedError

    def meant(self, node: GraphNode, place: int, ins: Operands) -> tuple[tuple[int, ...], str] | None:
        """Shape and element type of the weight at this place, where it is stored in another form."""
        return None

    def path(self, node: GraphNode, ins: Operands, maker: GraphBuilder) -> str:
        """The module of a node: from the exporter, from the node's name, or from that of a weight that it reads."""
        found = self.path_in_node(node)
        if found is None:
            names = [maker.values[made.value].name for made in ins if made is not None and made.value in self.stored]
            found = next(filter(None, map(self.path_of_weight, names)), "")
        if found not in self.paths:
            self.paths[found] = node.op
        return found

    def read(self, node: GraphNode, path: str, ins: Operands, maker: GraphBuilder) -> None:
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
        made, derived = [], _derived_types(self.paths, maker)
        for path in tree_order(with_above((*self.paths, *self.owners.values()))):
            kind = (self.type(path) or derived.get(path, "scope")) if path else self.root or source
            own, kept = tuple(parameters.get(path, ())), tuple(buffers.get(path, ()))
            made.append(Module(path=path, type=kind, parameters=own, buffers=kept, calls=1))
        return made


_LONGEST_TYPE = 30
_MOVES = ("view", "create", "copy", "gather", "quantize")
"""Kinds that are named only where a module has no others: they prepare what the others read."""


def _derived_types(paths: Iterable[str], maker: GraphBuilder) -> dict[str, str]:
    """What the modules consist of, by their paths: `Conv`, `2 × Conv, 2 × Relu`; operators that multiply come first."""
    nodes: dict[str, dict[str, int]] = {}  # of each module, its own operators by their names in the file
    places: dict[str, int] = {}  # of each name: 0 it multiplies, 1 it computes, 2 it moves
    walked: set[tuple[str, str]] = set()  # the body of a loop is walked more than once
    for op in maker.ops:
        name = op.raw.rpartition("::")[2]
        place = 0 if op.kind in CONTRACTIONS else 2 if op.kind in _MOVES else 1
        places[name] = min(place, places.get(name, place))
        result = next(filter(None, (maker.values[value].name for value in op.outputs)), "")
        if result and (op.module, result) not in walked:  # the steps of a node have unnamed results but for the last
            walked.add((op.module, result))
            counts = nodes.setdefault(op.module, {})
            counts[name] = counts.get(name, 0) + 1
    within: dict[str, dict[str, int]] = {}
    for module in paths:
        for path in (*above(module), module):
            total = within.setdefault(path, {})
            for name, count in nodes.get(module, {}).items():
                total[name] = total.get(name, 0) + count
    return {path: _summary(total, places) for path, total in within.items() if total}


def _summary(counts: Mapping[str, int], places: Mapping[str, int]) -> str:
    """`4 × MatMul, Softmax, …`: as many as a table has room for, at least one."""
    names, text = sorted(counts, key=places.__getitem__), ""
    for name in [name for name in names if places[name] < 2] or names:
        word = f"{counts[name]} × {name}" if counts[name] > 1 else name
        if text and len(text) + len(word) + 2 > _LONGEST_TYPE:
            return f"{text}, …"
        text += f", {word}" if text else word
    return text


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
