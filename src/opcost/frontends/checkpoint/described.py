"""The content of a pickle of PyTorch's: tensors by their paths. Nothing is made but descriptions, and nothing is called.

What a pickle names is one of ours: a function that notes a tensor, a word, or a class without any behaviour whose
objects keep what they are filled with, so that the tensors of a whole module are found as its state dictionary names them. A
pickle that would call anything else is refused by the name of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from math import prod
from typing import Any, NamedTuple, TypeAlias
from zipfile import ZipFile

from opcost.core.graph import BITS, Note
from opcost.core.parsing import Bad, read_member, short
from opcost.core.scan import Scan, StoredTensor
from opcost.core.units import format_count
from opcost.errors import shortened, some
from opcost.frontends.checkpoint import LARGEST_EXTENT, MOST_AXES
from opcost.frontends.checkpoint.reader import NotRead
from opcost.frontends.input_data import OBJECT_STEPS, SafeUnpickler, StandIn
from opcost.frontends.inputs import ALIASES

LARGEST_PICKLE = 32 << 20  # Bytes; a tensor takes about two hundred of them, and its data is elsewhere
DEEPEST = 64
LONGEST_NAME = 1 << 12

_DTYPES = ALIASES | {"char": "int8", "complexfloat": "complex64", "complexdouble": "complex128", "untyped": "uint8"}
"""Element types by the words that pickles have for them: `torch.half`, and `torch.HalfStorage` in small letters."""

Keys: TypeAlias = tuple[str, ...]  # What leads to a tensor: names, indices, attributes


class Storage(NamedTuple):
    """A piece of data outside of the pickle."""

    key: str
    dtype: str
    elements: int


class PickledTensor(NamedTuple):
    """A tensor, and where its data is; without a storage it has none."""

    storage: Storage | None
    offset: int
    shape: tuple[int, ...]
    dtype: str


class _Word(NamedTuple):
    """A name that is only mentioned: a type of elements or of storages."""

    module: str
    name: str


class _Dict(dict[Any, Any]):
    """An ordered dict, whose own attributes do not matter."""

    def __setstate__(self, state: object) -> None:
        """What `state_dict` notes about versions."""


class _PickledClass(type):
    """A class that a pickle names. It may be made without a call; a call could be one of anything, and is refused."""

    named: str

    def __call__(cls, *args: object, **named: object) -> object:
        raise NotRead(f"it asks for {shortened(cls.named)}, which could run code; nothing of it was run")


class _PickledObject:
    """An object without its class: what it was filled with, to be looked through."""

    __slots__ = ("state",)
    state: list[object]

    def __new__(cls, *args: object, **named: object) -> _PickledObject:  # noqa: PYI034 - no class derives from it but a pickle's
        found = object.__new__(cls)
        found.state = [args, named] if args or named else []
        return found

    def __setstate__(self, state: object) -> None:
        self.state.append(state)

    append = __setstate__

    def extend(self, items: list[object]) -> None:
        self.state.extend(items)

    def __setitem__(self, key: object, value: object) -> None:
        self.state.append({key: value})


class TensorUnpickler(SafeUnpickler):
    """Makes descriptions of tensors, and of what they are in."""

    purpose, most_steps, largest_number, allowed = "no checkpoint", 500_000, (1 << 64) - 1, OBJECT_STEPS

    def stand_in(self, module: str, name: str) -> object:
        function = _FUNCTIONS.get((module.replace("__builtin__", "builtins").replace("copy_reg", "copyreg"), name))
        if function is not None:
            return StandIn(function)
        if module in ("torch", "torch.storage"):
            return _Word(module, name)
        return _PickledClass("_Named", (_PickledObject,), {"__slots__": (), "named": f"{module}.{name}"[:LONGEST_NAME]})

    def persistent_load(self, pid: object) -> object:
        match pid:
            case ("module", _PickledClass() as kind, *_):  # which files before 1.6 name with their source code
                return kind
            case ("storage", _Word(_, kind), str() | int() as key, _, int(elements), *_) if (
                0 <= elements <= LARGEST_EXTENT
            ):
                word = kind.removesuffix("Storage").lower()
                if (dtype := _DTYPES.get(word, word)) in BITS:
                    return Storage(str(key), dtype, elements)
        raise Bad("it asks for data in a way that PyTorch does not")


def main_pickle(archive: ZipFile) -> tuple[str, object]:
    """What the pickle of an archive describes, and the folder in which that is."""
    names = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(names) != 1:
        raise Bad(f"it holds {len(names)} files data.pkl")
    return names[0].removesuffix("data.pkl"), TensorUnpickler.read(
        BytesIO(read_member(archive, names[0], LARGEST_PICKLE))
    )


def tensors_in(root: object) -> Iterator[tuple[Keys, PickledTensor]]:
    """All tensors with their paths, as they come; modules are named as in a state dictionary."""
    seen: set[int] = set()
    levels: list[tuple[Keys, Iterator[tuple[Keys, object]]]] = [((), iter([((), root)]))]
    while levels:
        outer, inside = levels[-1]
        part = next(inside, None)
        if part is None:
            levels.pop()
            continue
        path, found = (*outer, *part[0]), part[1]
        if isinstance(found, PickledTensor):
            if sum(map(len, path)) > LONGEST_NAME:
                raise Bad(f"a tensor has a name of more than {LONGEST_NAME:,} letters")
            yield path, found
        elif _holds(found) and id(found) not in seen:
            if len(path) > DEEPEST:
                raise Bad(f"it is nested more than {DEEPEST} deep")
            seen.add(id(found))
            levels.append((path, _parts(found)))


def _holds(found: object) -> bool:
    """Whether there may be a tensor in it."""
    if isinstance(found, _PickledObject):
        return bool(found.state)
    return isinstance(found, (dict, list, tuple)) and bool(found) and not isinstance(found, (Storage, _Word))


def _parts(found: Any) -> Iterator[tuple[Keys, object]]:
    """What is in it, and what that adds to the path."""
    if isinstance(found, _PickledObject):
        for state in found.state:
            if isinstance(state, dict) and "_modules" in state:
                for kind in ("_parameters", "_buffers", "_modules"):
                    inner = state.get(kind)
                    yield from _parts(inner) if isinstance(inner, dict) else ()
            else:
                yield (), state
    elif isinstance(found, dict):
        yield from (((str(key)[: LONGEST_NAME + 1],), each) for key, each in found.items())
    else:
        yield from (((str(place),), each) for place, each in enumerate(found))


# -- substitutes -------------------------------------------------------------------------------------------------------------


def _tensor(storage: object, offset: object, size: object, dtype: str | None = None) -> PickledTensor:
    if not isinstance(storage, Storage) or not isinstance(offset, int) or not isinstance(size, tuple):
        raise Bad("it makes a tensor of something else than data, offset and size")
    if len(size) > MOST_AXES or any(type(extent) is not int or not 0 <= extent <= LARGEST_EXTENT for extent in size):
        raise Bad(f"it holds a tensor of the size {short(size)}")
    return PickledTensor(storage, offset, size, dtype or storage.dtype)


def _of_dtype(storage: object, offset: object, size: object, _stride: object, *more: object) -> PickledTensor:
    return _tensor(storage, offset, size, _named(more[2] if len(more) > 2 else None))


def _without_data(dtype: object, size: object, *_more: object) -> PickledTensor:
    return _tensor(Storage("", "uint8", 0), 0, size, _named(dtype))._replace(storage=None)


def _named(word: object) -> str:
    if not isinstance(word, _Word):
        raise Bad("it makes a tensor without a type")
    return _DTYPES.get(word.name, word.name)


def _of_type(function: object, _kind: object, args: object, *_state: object) -> object:
    if not isinstance(function, StandIn) or not isinstance(args, tuple):
        raise Bad("it makes a tensor of a kind of its own in a way that PyTorch does not")
    return function(*args)


def _ordered(*given: object) -> _Dict:
    found = _Dict()
    if given and isinstance(given[-1], (list, tuple)):
        for pair in given[-1]:
            match pair:
                case [str() | int() as key, value] | (str() | int() as key, value):
                    found[key] = value
    return found


def _kept(*given: object, **_named: object) -> object:
    """Something without a tensor of its own: it may hold some."""
    return _PickledObject.__new__(_PickledObject, *given)


_FUNCTIONS: dict[tuple[str, str], Callable[..., object]] = {
    **{
        ("torch._utils", f"_rebuild_{kind}"): lambda data, offset, size, *_: _tensor(data, offset, size)
        for kind in ("tensor", "tensor_v2", "qtensor")
    },
    ("torch._utils", "_rebuild_tensor_v3"): _of_dtype,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _without_data,
    **{("torch._utils", f"_rebuild_{kind}"): lambda given, *_: given for kind in ("parameter", "parameter_with_state")},
    ("torch._utils", "_rebuild_sparse_tensor"): lambda _layout, data: data,
    ("torch._tensor", "_rebuild_from_type_v2"): _of_type,
    **{("torch.jit._pickle", f"build_{kind}list"): lambda given, *_: given for kind in ("int", "double", "bool", "tensor")},
    ("torch.jit._pickle", "restore_type_tag"): lambda given, *_: given,
    ("collections", "OrderedDict"): _ordered,
    ("copyreg", "_reconstructor"): lambda *_: _PickledObject.__new__(_PickledObject),
    **dict.fromkeys(
        (
            (module, name)
            for modules, names in (
                ("torch", "Size device"), ("torch.serialization", "_get_layout"), ("_codecs", "encode"),
                ("collections", "defaultdict Counter deque"), ("functools", "partial"), ("datetime", "datetime timedelta"),
                ("builtins", "set frozenset list tuple dict slice complex bytearray range bytes"), ("uuid", "UUID"),
                ("pathlib pathlib._local", "Path PosixPath WindowsPath"), ("numpy", "dtype ndarray"),
                ("numpy.core.multiarray numpy._core.multiarray", "scalar _reconstruct"),
                ("numpy.core.numeric numpy._core.numeric", "_frombuffer"),
            )
            for module in modules.split() for name in names.split()
        ),
        _kept,
    ),
}  # fmt: skip
"""What may be called: what notes a tensor, and what makes values in which no tensor is."""


# -- where a checkpoint and the code of its model disagree: tensors that one of them lacks, and other shapes

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

_PACKED = {"qweight": "weight", "weight_packed": "weight"}


class ExpectedTensors(NamedTuple):
    """What the code of a model would load."""

    layouts: Sequence[Shapes]
    """Shapes by name, in each of the ways in which the code can store them; the one that fits best is meant."""
    optional: frozenset[str] = frozenset()  # Names that may be missing, because they are tied to others or made anew


def disagreements(scan: Scan, expected: ExpectedTensors) -> tuple[Note, ...]:
    """What differs, or that nothing does."""
    stored: dict[str, StoredTensor] = {}
    for tensor in scan.tensors:
        if tensor.role == "weight":  # by the name that it has where it is not packed
            stem, dot, leaf = tensor.name.rpartition(".")
            plain = f"{stem}{dot}{_PACKED.get(leaf, leaf)}" if tensor.scheme else tensor.name
            stored[tensor.name.removesuffix("_blocks") if tensor.scheme == "mxfp4" else plain] = tensor
    shapes = max(expected.layouts, key=lambda layout: len(layout.keys() & stored.keys()))
    missing = [name for name in shapes if name not in stored and name not in expected.optional]
    extra = [name for name in stored if name not in shapes]
    other = []
    for name, tensor in stored.items():
        mine, theirs = tensor.shape, shapes.get(name, tensor.shape)
        if mine != theirs and not (tensor.scheme and prod(mine) == prod(theirs)):  # a packed weight may be transposed
            other.append(f"{name} {_text(mine)}, in the code {_text(theirs)}")
    found = [
        Note("checkpoint-differs", f"{len(names):,} {what}: {shortened('; '.join(some(names)), 900)}", scan.source)
        for names, what in (
            (missing, "tensors of the code are not in the checkpoint"),
            (extra, "tensors of the checkpoint are not in the code"),
            (other, "tensors have another shape in the checkpoint"),
        )
        if names
    ]
    if found:
        return tuple(found)
    fits = f"the checkpoint beside it fits the code: {len(stored):,} tensors, {format_count(scan.totals.params)} parameters"
    return (Note("checkpoint", fits, scan.source),)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
