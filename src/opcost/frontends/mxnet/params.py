"""Parameter files: what arrays they hold, read by seeking over the data.

All binary layouts (up to 0.10, 0.11, 0.12 to 1.x, NumPy shapes), sparse arrays, and the zip archives of 2.0. A length is
checked against the file before anything is read or skipped by it.
"""

import struct
import zipfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from opcost.core.files import length_of, opened
from opcost.core.graph import bits
from opcost.core.parsing import Bad, BadArchive, archive_in
from opcost.errors import SourceError
from opcost.frontends.input_data import MAGIC, npy_header
from opcost.frontends.mxnet.symbol import DTYPES

LIST_MAGIC = struct.pack("<Q", 0x112)  # How a list of arrays begins

_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_STORAGE = {-1: "default", 0: "default", 1: "row_sparse", 2: "csr"}
_INDEX_ARRAYS = {"default": 0, "row_sparse": 1, "csr": 2}
_MOST_AXES = 32
_MOST_ARRAYS = 50_000
_LONGEST_NAME = 4096
_DAMAGED = "the file is damaged or cut short: fetch it again"
_NO_PARAMETERS = "give a parameter file that MXNet wrote (PREFIX-0000.params, or .npz since 2.0), or leave it out"


class SavedArray(NamedTuple):
    """One array of a file."""

    name: str  # As the file has it; empty in a list without names
    shape: tuple[int, ...] | None  # None: a place that holds no array
    dtype: str
    storage: str = "default"  # `default`, `row_sparse` or `csr`
    stored: int | None = None
    """Bytes of a sparse array, with its indices; a dense one has as many as its shape and type say."""


def read_params(path: Path) -> tuple[SavedArray, ...]:
    """The arrays of a parameter file, in the order of the file."""
    with opened(path) as file:
        head = file.read(64)
        if head.startswith(LIST_MAGIC):
            return _ArrayReader(file, str(path)).arrays()
        if head.startswith(ZIP_MAGIC):
            return tuple(list_archive(file, str(path)))
        if head.startswith(MAGIC):
            file.seek(0)
            shape, dtype, begin = _npy_header(file, str(path))
            size = file.seek(0, 2)
            if begin + _nbytes(shape, dtype) > size:
                raise SourceError(f"{path} has {size} bytes, too few for its shape {shape}", hint=_DAMAGED)
            return (SavedArray("", shape, dtype),)
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


class _ArrayReader:
    """A list of arrays, read from front to back; every step knows how many bytes are left."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self.file = file
        self.where = where
        self.size = length_of(file)
        self.at = len(LIST_MAGIC)
        file.seek(self.at)

    def arrays(self) -> tuple[SavedArray, ...]:
        self._skip(8, "the reserved number of the header")
        count = self._count("arrays", smallest=4)
        found = [self._array(f"array {index}") for index in range(count)]
        named = self._count("names", smallest=8)
        if named not in (0, count):
            raise self._fault(f"it has {count} arrays and {named} names")
        names = [self._name(index) for index in range(named)] or [""] * count
        return tuple(array._replace(name=name) for array, name in zip(found, names, strict=True))

    def _array(self, what: str) -> SavedArray:
        """An array of any version.

        Nothing follows a shape that is unknown, or, before NumPy's shapes, a scalar's.
        """
        (word,) = self._unpack("<I", what)
        storage, stored, shape = "default", None, None
        if word in (_V2, _V3):
            (code,) = self._unpack("<i", f"the storage type of {what}")
            if code not in _STORAGE:
                raise self._fault(f"{what} has the storage type {code}, which MXNet does not have")
            storage = _STORAGE[code]
            stored = self._shape(f"the storage of {what}") if _INDEX_ARRAYS[storage] else None
            shape = self._shape(what)
        elif word == _V1:
            shape = self._shape(what)
        elif word <= _MOST_AXES:
            shape = self._unpack(f"<{word}I", f"the shape of {what}")
        else:
            raise self._fault(f"{what} begins with {word:#010x}, no array that MXNet has ever written")
        nothing = any(extent < 0 for extent in shape or ()) if word == _V3 else not shape
        if shape is None or nothing or (word not in (_V2, _V3) and not all(shape)):
            return SavedArray("", None, "float32", storage)
        self._check_shape(shape, what)
        dtype = self._dtype(what, context=True)
        indices = []
        for _ in range(_INDEX_ARRAYS[storage]):
            index_type = self._dtype(f"the indices of {what}", context=False)
            index_shape = self._shape(f"the indices of {what}") or ()
            self._check_shape(index_shape, f"the indices of {what}")
            indices.append((index_shape, index_type))
        data = shape
        if indices and stored and 0 not in stored:
            self._check_shape(stored, f"the storage of {what}")
            data = stored
        elif indices:  # MXNet writes (0,) for an array that was still being computed: the indices say how much there is
            first = indices[0][0]
            data = indices[1][0] if len(indices) == 2 else (*(first[:1] or (0,)), *shape[1:])
        begin = self.at
        self._skip(_nbytes(data, dtype), f"the data of {what}")
        for index_shape, index_type in indices:
            self._skip(_nbytes(index_shape, index_type), f"the indices of {what}")
        return SavedArray("", shape, dtype, storage, self.at - begin if indices else None)

    def _name(self, index: int) -> str:
        (length,) = self._unpack("<Q", f"the length of name {index}")
        if length > _LONGEST_NAME:
            raise self._fault(f"name {index} is said to have {length} bytes")
        try:
            return self._read(length, f"name {index}").decode("utf-8")
        except UnicodeDecodeError:
            raise self._fault(f"name {index} is not UTF-8 text") from None

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
        """An element type; the device of the array is before it and does not matter."""
        numbers = self._unpack("<3i" if context else "<i", f"the type of {what}")
        if numbers[-1] not in DTYPES:
            raise self._fault(f"{what} has the element type {numbers[-1]}, which MXNet does not have")
        return DTYPES[numbers[-1]]

    def _unpack(self, layout: str, what: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._read(struct.calcsize(layout), what))

    def _read(self, length: int, what: str) -> bytes:
        begin = self.at
        self._skip(length, what)
        self.file.seek(begin)
        return self.file.read(length)

    def _skip(self, length: int, what: str) -> None:
        if length > self.size - self.at:
            raise self._fault(f"{what} needs {length} bytes at byte {self.at}, and the file ends at {self.size}")
        self.at += length
        self.file.seek(self.at)

    def _fault(self, message: str) -> SourceError:
        return SourceError(f"{self.where} is not a valid MXNet parameter file: {message}", hint=_DAMAGED)


def _nbytes(shape: tuple[int, ...], dtype: str) -> int:
    return prod(shape) * bits(dtype) // 8


# -- NumPy's archives and arrays, as MXNet 2.0 writes them, read without NumPy and without the data --------------------

ZIP_MAGIC = b"PK\x03\x04"

_MOST_MEMBERS = 50_000
_SPARSE_PARTS = ("data", "indices", "indptr", "format", "shape")  # A sparse array is a folder of these


def list_archive(file: BinaryIO, where: str) -> Iterator[SavedArray]:
    """The arrays in an archive; a sparse one is stored in several parts."""
    try:
        with archive_in(file) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            if len(members) > _MOST_MEMBERS:
                raise SourceError(f"{where} holds {len(members)} arrays, more than any model has")
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in members}
            for name, size in sizes.items():
                folder, _, part = name.rpartition("/")
                sparse = part in _SPARSE_PARTS and all(
                    f"{folder}/{each}" in sizes for each in ("data", "shape", "format")
                )
                if sparse and part != "data":
                    continue
                with archive.open(f"{name}.npy") as member:
                    shape, dtype, begin = _npy_header(member, f"{where}: {name}.npy")
                if begin + _nbytes(shape, dtype) != size:
                    raise SourceError(
                        f"{where}: {name}.npy has {size} bytes, which does not fit its shape {shape}", hint=_DAMAGED
                    )
                if sparse:
                    storage = "csr" if f"{folder}/indptr" in sizes else "row_sparse"
                    stored = sum(sizes.get(f"{folder}/{each}", 0) for each in ("data", "indices", "indptr"))
                    yield SavedArray(
                        folder, _dense_shape(archive, f"{folder}/shape.npy", where), dtype, storage, stored
                    )
                else:
                    yield SavedArray(name, shape, dtype)
    except BadArchive as exc:
        raise SourceError(f"{where} is not a valid archive of arrays: {exc}", hint=_DAMAGED) from exc


def _dense_shape(archive: zipfile.ZipFile, name: str, where: str) -> tuple[int, ...]:
    """The shape of a sparse array, which is an array itself."""
    with archive.open(name) as member:
        extents, dtype, _ = _npy_header(member, f"{where}: {name}")
        if dtype not in ("int64", "uint64") or len(extents) != 1 or extents[0] > _MOST_AXES:
            raise SourceError(f"{where}: {name} holds no shape", hint=_DAMAGED)
        shape = struct.unpack(f"<{extents[0]}q", member.read(8 * extents[0]))
    if any(extent < 0 for extent in shape):
        raise SourceError(f"{where}: {name} holds the shape {shape}", hint=_DAMAGED)
    return shape


def _npy_header(file: Any, where: str) -> tuple[tuple[int, ...], str, int]:
    """Shape, element type, and where the data begins."""
    try:
        array, begin = npy_header(file)
    except Bad as exc:
        raise SourceError(f"{where} is no array that can be read: {exc}", hint=_DAMAGED) from exc
    return array.dims, array.dtype, begin
