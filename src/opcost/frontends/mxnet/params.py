"""Parameter files: what arrays they hold, read by seeking over the data.

All binary layouts (up to 0.10, 0.11, 0.12 to 1.x, NumPy shapes), sparse arrays, and the zip archives of 2.0. A length is
checked against the file before anything is read or skipped by it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from opcost.core.dtype import bits
from opcost.core.reading import length_of, opened
from opcost.errors import SourceError
from opcost.frontends.mxnet.attribute import DTYPES
from opcost.frontends.mxnet.npz import NPY_MAGIC, ZIP_MAGIC, list_archive, list_array

_IsNone: TypeAlias = Callable[["tuple[int, ...] | None"], bool]

LIST_MAGIC = struct.pack("<Q", 0x112)
"""How a list of arrays begins."""

_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_STORAGE = {0: "default", 1: "row_sparse", 2: "csr"}
_INDEX_ARRAYS = {"default": 0, "row_sparse": 1, "csr": 2}
_MOST_AXES = 32
_MOST_ARRAYS = 50_000
_LONGEST_NAME = 4096
_DAMAGED = "the file is damaged or cut short: fetch it again"
_NO_PARAMETERS = "give a parameter file that MXNet wrote (PREFIX-0000.params, or .npz since 2.0), or leave it out"


class Array(NamedTuple):
    """One array of a file."""

    name: str
    """As the file has it; empty in a list without names."""
    shape: tuple[int, ...] | None
    """None: a place that holds no array."""
    dtype: str
    storage: str = "default"
    """`default`, `row_sparse` or `csr`."""
    stored: int | None = None
    """Bytes of a sparse array, with its indices; a dense one has as many as its shape and type say."""


def read_params(path: Path) -> tuple[Array, ...]:
    """The arrays of a parameter file, in the order of the file."""
    with opened(path) as file:
        head = file.read(64)
        if head.startswith(LIST_MAGIC):
            return _Reader(file, str(path)).arrays()
        if head.startswith(ZIP_MAGIC):
            return tuple(Array(*found) for found in list_archive(file, str(path)))
        if head.startswith(NPY_MAGIC):
            return (Array("", *list_array(file, str(path))),)
    raise SourceError(f"{path} is {_what(head)}, not an MXNet parameter file", hint=_NO_PARAMETERS)


def _what(head: bytes) -> str:
    """What a file that is no parameter file looks like: mostly a download gone wrong."""
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer (run `git lfs pull` for the file itself)"
    if head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page, so the download went wrong"
    if head.lstrip().startswith(b"{"):
        return "JSON"
    if head.startswith(b"\x80"):
        return "a Python pickle, which opcost never opens"
    return f"a file that begins with {head[:8].hex(' ')}"


class _Reader:
    """A list of arrays, read from front to back; every step knows how many bytes are left."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self.file = file
        self.where = where
        self.size = length_of(file)
        self.at = len(LIST_MAGIC)
        file.seek(self.at)

    def arrays(self) -> tuple[Array, ...]:
        self._skip(8, "the reserved number of the header")
        count = self._count("arrays", smallest=4)
        found = [self._array(index) for index in range(count)]
        names = self._names(count)
        return tuple(array._replace(name=name) for array, name in zip(found, names, strict=True))

    def _array(self, index: int) -> Array:
        what = f"array {index}"
        (word,) = self._unpack("<I", what)
        if word == _V2:
            return self._modern(what, none=lambda shape: not shape)
        if word == _V3:
            return self._modern(what, none=lambda shape: shape is None or any(extent < 0 for extent in shape))
        if word == _V1:
            shape = self._shape(what)
        elif word <= _MOST_AXES:
            shape = self._unpack(f"<{word}I", f"the shape of {what}")
        else:
            raise self._fault(f"{what} begins with {word:#010x}, no array that MXNet has ever written")
        if not shape or not all(shape):
            return Array("", None, "float32")
        self._check_shape(shape, what)
        dtype = self._dtype(what, context=True)
        self._skip(_nbytes(shape, dtype), f"the data of {what}")
        return Array("", shape, dtype)

    def _modern(self, what: str, *, none: _IsNone) -> Array:
        """An array with a storage type; `none` tells by the shape whether nothing follows."""
        (code,) = self._unpack("<i", f"the storage type of {what}")
        storage = _STORAGE.get(code, "default" if code == -1 else None)
        if storage is None:
            raise self._fault(f"{what} has the storage type {code}, which MXNet does not have")
        held = self._shape(f"the storage of {what}") if _INDEX_ARRAYS[storage] else None
        shape = self._shape(what)
        if none(shape):
            return Array("", None, "float32", storage)
        assert shape is not None
        self._check_shape(shape, what)
        dtype = self._dtype(what, context=True)
        indices = []
        for _ in range(_INDEX_ARRAYS[storage]):
            index_type = self._dtype(f"the indices of {what}", context=False)
            index_shape = self._shape(f"the indices of {what}") or ()
            self._check_shape(index_shape, f"the indices of {what}")
            indices.append((index_shape, index_type))
        data = self._held(shape, held, [index_shape for index_shape, _ in indices], what)
        begin = self.at
        self._skip(_nbytes(data, dtype), f"the data of {what}")
        for index_shape, index_type in indices:
            self._skip(_nbytes(index_shape, index_type), f"the indices of {what}")
        return Array("", shape, dtype, storage, self.at - begin if indices else None)

    def _held(
        self, shape: tuple[int, ...], held: tuple[int, ...] | None, indices: list[tuple[int, ...]], what: str
    ) -> tuple[int, ...]:
        """The shape of the data that is really there.

        MXNet writes (0,) for an array that was still being computed; then the indices tell how much there is.
        """
        if not indices:
            return shape
        if held and 0 not in held:
            self._check_shape(held, f"the storage of {what}")
            return held
        if len(indices) == 2:
            return indices[1]
        return (*(indices[0][:1] or (0,)), *shape[1:])

    def _names(self, count: int) -> list[str]:
        named = self._count("names", smallest=8)
        if named == 0:
            return [""] * count
        if named != count:
            raise self._fault(f"it has {count} arrays and {named} names")
        names = []
        for index in range(named):
            (length,) = self._unpack("<Q", f"the length of name {index}")
            if length > _LONGEST_NAME:
                raise self._fault(f"name {index} is said to have {length} bytes")
            try:
                names.append(self._read(length, f"name {index}").decode("utf-8"))
            except UnicodeDecodeError:
                raise self._fault(f"name {index} is not UTF-8 text") from None
        return names

    # -- primitives, each of which knows how much is left ------------------------------------------------------

    def _count(self, what: str, *, smallest: int) -> int:
        (count,) = self._unpack("<Q", f"the number of {what}")
        if count * smallest > self.size - self.at or count > _MOST_ARRAYS:
            raise self._fault(f"it is said to hold {count} {what}, more than its {self.size} bytes can")
        return int(count)

    def _shape(self, what: str) -> tuple[int, ...] | None:
        """A shape with 64-bit extents; None where the number of axes is not known."""
        (axes,) = self._unpack("<i", f"the shape of {what}")
        if axes == -1:
            return None
        if not 0 <= axes <= _MOST_AXES:
            raise self._fault(f"{what} is said to have {axes} axes")
        return self._unpack(f"<{axes}q", f"the shape of {what}")

    def _check_shape(self, shape: tuple[int, ...], what: str) -> None:
        if any(extent < 0 for extent in shape):
            raise self._fault(f"{what} has the shape {shape}")

    def _dtype(self, what: str, *, context: bool) -> str:
        """An element type; the device on which the array lay stands before it and does not matter."""
        numbers = self._unpack("<3i" if context else "<i", f"the type of {what}")
        dtype = DTYPES.get(numbers[-1])
        if dtype is None:
            raise self._fault(f"{what} has the element type {numbers[-1]}, which MXNet does not have")
        return dtype

    def _unpack(self, layout: str, what: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._read(struct.calcsize(layout), what))

    def _read(self, length: int, what: str) -> bytes:
        self._need(length, what)
        self.at += length
        return self.file.read(length)

    def _skip(self, length: int, what: str) -> None:
        self._need(length, what)
        self.at += length
        self.file.seek(self.at)

    def _need(self, length: int, what: str) -> None:
        if length > self.size - self.at:
            raise self._fault(f"{what} needs {length} bytes at byte {self.at}, and the file ends at {self.size}")

    def _fault(self, message: str) -> SourceError:
        return SourceError(f"{self.where} is not a valid MXNet parameter file: {message}", hint=_DAMAGED)


def _nbytes(shape: tuple[int, ...], dtype: str) -> int:
    return prod(shape) * bits(dtype) // 8
