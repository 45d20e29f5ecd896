"""PyTorch's `.pt`, `.pth`, `.bin`, `.ckpt`: archives since 1.6, stacks of pickles before; only descriptions are read.

What a pickle names is one of ours: a function that notes a tensor, a word, or a class without any behaviour whose
objects keep what they are filled with, so that the tensors of a whole module are found as its state dictionary names them. A
pickle that would call anything else is refused by the name of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias
from zipfile import ZipFile

from opcost.core.files import length_of, opened
from opcost.core.graph import BITS, nbytes
from opcost.core.parsing import Bad, archive_in, read_member, short
from opcost.core.scan import Role
from opcost.errors import shortened
from opcost.frontends.checkpoint import LARGEST_EXTENT, MOST_TENSORS, is_possible
from opcost.frontends.checkpoint.reader import CheckpointReader, Contents, NotRead, Raw, first_member
from opcost.frontends.input_data import OBJECT_STEPS, SafeUnpickler, StandIn
from opcost.frontends.inputs import ALIASES

LARGEST_PICKLE = 32 << 20  # Bytes; a tensor takes about two hundred of them, and its data is elsewhere
DEEPEST = 64
LONGEST_NAME = 1 << 12

_DTYPES = ALIASES | {"untyped": "uint8"}
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
    if not is_possible(size):
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


# -- from files to tensors ---------------------------------------------------------------------------------------------

_MAGIC = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""The number with which files begin that are no archives, behind the two bytes of the protocol."""
_MEMBERS = ("/data.pkl", "/version", "/.format_version", "/byteorder", "/constants.pkl")
_OPTIMIZERS = ("optimizer", "optim", "lr_scheduler", "scheduler", "scaler", "amp", "loops", "callbacks", "rng_state")
_AGAIN = ("ema", "model", "state", "best", "average")
_WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "weights", "params")


class PyTorchReader(CheckpointReader):
    """State dictionaries, alone or among what training keeps, whole modules, and TorchScript archives."""

    name = "pytorch"
    what = "a PyTorch checkpoint"
    suffixes = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".model")

    def sniff(self, head: bytes, path: Path) -> bool:
        member = first_member(head)
        if member:
            return member.endswith(_MEMBERS) or any(folder in member for folder in ("/data/", "/code/", "/extra/"))
        return head[:1] == b"\x80" and head[2 : 2 + len(_MAGIC)] == _MAGIC

    def read(self, path: Path) -> Contents:
        with opened(path) as file:
            return _contents(*(_archive(file) if file.read(2) == b"PK" else _stack(file)))


def _archive(file: BinaryIO) -> tuple[object, dict[str, int]]:
    """What the pickle of an archive describes, and the bytes of each piece of data."""
    with archive_in(file) as archive:
        top, found = main_pickle(archive)
        inside = [each for each in archive.infolist() if each.filename.startswith(f"{top}data/")]
        return found, {each.filename.removeprefix(f"{top}data/"): each.file_size for each in inside}


def _stack(file: BinaryIO) -> tuple[object, dict[str, int]]:
    """The same of a file before 1.6: pickles one after the other, the last with the order of the data behind it."""
    size = length_of(file)
    stream = BytesIO(file.read(LARGEST_PICKLE))
    stream.seek(2 + len(_MAGIC))
    version, _system, found, keys = (TensorUnpickler.read(stream) for _ in range(4))
    if version != 1001 or not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise Bad("it is no stack of pickles as PyTorch wrote them")
    known = {tensor.storage.key: tensor.storage for _, tensor in tensors_in(found) if tensor.storage is not None}
    at, sizes = stream.tell(), {}
    for key in keys:
        # Data that no tensor uses has a length too, which is read in place.
        file.seek(at)
        elements = int.from_bytes(file.read(8), "little", signed=True)
        storage = known.get(key)
        if elements < 0 or (storage is not None and elements != storage.elements):
            raise Bad(f"its data {shortened(key)!r} declares {elements:,} elements")
        if storage is None:
            raise Bad(f"it holds data {shortened(key)!r} that nothing describes")
        sizes[key] = nbytes(elements, storage.dtype)
        at += 8 + sizes[key]
        if at > size:
            raise Bad(f"its data ends at byte {at:,}, and the file has {size:,}")
    return found, sizes


def _contents(root: object, sizes: Mapping[str, int]) -> Contents:
    tensors = dict(tensors_in(root))
    if len(tensors) > MOST_TENSORS:
        raise Bad(f"it holds more than {MOST_TENSORS:,} tensors")
    roles = _roles(tensors)
    weights = [path for path in tensors if roles[path] == "weight"]
    first = weights[0][0] if weights and weights[0] else ""
    # Whether all weights are in one entry that is no module
    wrapped = first in _WRAPPERS and all(len(path) > 1 and path[0] == first for path in weights)
    found = []
    for path, (storage, offset, shape, dtype) in tensors.items():
        role, elements = roles[path], prod(shape)
        name = ".".join(path[1:] if wrapped and role == "weight" else path) or "tensor"
        if dtype not in BITS:
            raise Bad(f"{shortened(name)} has the unknown type {shortened(dtype)!r}")
        if storage is not None and elements:  # its data must be there
            there = sizes.get(storage.key, -1)
            if nbytes(storage.elements, storage.dtype) > there:
                raise Bad(f"the data of {shortened(name)} is {'cut short' if there >= 0 else 'missing'}")
            # A tensor may be expanded, but then its elements are stored once, and it is no weight of its own.
            if nbytes(offset + elements, dtype) > there and 1 not in shape:
                raise Bad(f"{shortened(name)} of {shape} is outside of its data")
        stored = 0 if storage is None else nbytes(elements, dtype)
        found.append(Raw(name, shape, dtype, stored, role, storage and (storage.key, offset, elements)))
    return Contents(found)


def _roles(tensors: Mapping[Keys, PickledTensor]) -> dict[Keys, Role]:
    """What an optimizer keeps is no weight, and weights that are there twice, as averaged ones do, are copies."""
    roles: dict[Keys, Role] = {}
    sections: dict[str, dict[Keys, tuple[int, ...]]] = {}
    for path, tensor in tensors.items():
        kept = (len(path) > 1 or path == ("rng_state",)) and path[0].lower().startswith(_OPTIMIZERS)
        roles[path] = "optimizer" if kept else "weight"
        if len(path) > 1 and not kept:
            sections.setdefault(path[0], {})[path[1:]] = tensor.shape
    seen: list[dict[Keys, tuple[int, ...]]] = []
    for top, names in sections.items():
        if names in seen and any(word in top.lower() for word in _AGAIN):
            roles.update(dict.fromkeys(((top, *rest) for rest in names), "copy"))
        seen.append(names)
    return roles


READER: CheckpointReader = PyTorchReader()
