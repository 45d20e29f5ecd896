"""PyTorch's `.pt`, `.pth`, `.bin`, `.ckpt`: archives since 1.6, stacks of pickles before; only descriptions are read."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from math import prod
from pathlib import Path
from typing import BinaryIO

from opcost.core.files import length_of, opened
from opcost.core.graph import BITS, nbytes
from opcost.core.parsing import Bad, archive_in
from opcost.core.scan import Role
from opcost.errors import shortened
from opcost.frontends.checkpoint import MOST_TENSORS
from opcost.frontends.checkpoint.described import (
    LARGEST_PICKLE,
    Keys,
    PickledTensor,
    TensorUnpickler,
    main_pickle,
    tensors_in,
)
from opcost.frontends.checkpoint.reader import CheckpointReader, Contents, Raw, first_member

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
