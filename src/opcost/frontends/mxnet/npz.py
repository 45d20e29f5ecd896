"""NumPy's archives and arrays, as MXNet 2.0 writes them: names, shapes and types, without NumPy and without the data."""

from __future__ import annotations

import ast
import re
import struct
import zipfile
from collections.abc import Iterator
from math import prod
from typing import Any, BinaryIO

from opcost.core.archives import BadArchive, archive_in
from opcost.core.dtype import bits
from opcost.errors import SourceError

ZIP_MAGIC = b"PK\x03\x04"
NPY_MAGIC = b"\x93NUMPY"

_LARGEST_HEADER = 1 << 16
_MOST_MEMBERS = 50_000
_MOST_AXES = 32
_DAMAGED = "the file is damaged or cut short: fetch it again"
_TYPES = {
    "f2": "float16", "f4": "float32", "f8": "float64", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64", "b1": "bool", "b2": "bfloat16", "V2": "bfloat16",
    "c8": "complex64", "c16": "complex128",
}  # fmt: skip
_SPARSE_PARTS = ("data", "indices", "indptr", "format", "shape")
"""A sparse array is a folder of these."""


def list_archive(file: BinaryIO, where: str) -> Iterator[tuple[str, tuple[int, ...], str, str, int | None]]:
    """Name, shape, element type and storage of each array in an archive, and the bytes of all parts of a sparse one."""
    try:
        with archive_in(file) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            if len(members) > _MOST_MEMBERS:
                raise SourceError(f"{where} holds {len(members)} arrays, more than any model has")
            yield from _arrays(archive, members, where)
    except BadArchive as exc:
        raise SourceError(f"{where} is not a valid archive of arrays: {exc}", hint=_DAMAGED) from exc


def _arrays(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], where: str
) -> Iterator[tuple[str, tuple[int, ...], str, str, int | None]]:
    names = {info.filename.removesuffix(".npy"): info.file_size for info in members}
    for info in members:
        name = info.filename.removesuffix(".npy")
        folder, _, part = name.rpartition("/")
        sparse = part in _SPARSE_PARTS and {f"{folder}/data", f"{folder}/shape", f"{folder}/format"} <= names.keys()
        if sparse and part != "data":
            continue
        with archive.open(info) as member:
            shape, dtype, begin = _header(member, f"{where}: {info.filename}")
        if begin + prod(shape) * bits(dtype) // 8 != info.file_size:
            raise SourceError(
                f"{where}: {info.filename} has {info.file_size} bytes, which does not fit its shape {shape}",
                hint=_DAMAGED,
            )
        if sparse:
            storage = "csr" if f"{folder}/indptr" in names else "row_sparse"
            stored = sum(names.get(f"{folder}/{each}", 0) for each in ("data", "indices", "indptr"))
            yield folder, _dense_shape(archive, f"{folder}/shape.npy", where), dtype, storage, stored
        else:
            yield name, shape, dtype, "default", None


def _dense_shape(archive: zipfile.ZipFile, name: str, where: str) -> tuple[int, ...]:
    """The shape of a sparse array, which is an array itself."""
    with archive.open(name) as member:
        extents, dtype, _ = _header(member, f"{where}: {name}")
        if dtype not in ("int64", "uint64") or len(extents) != 1 or extents[0] > _MOST_AXES:
            raise SourceError(f"{where}: {name} holds no shape", hint=_DAMAGED)
        shape = struct.unpack(f"<{extents[0]}q", member.read(8 * extents[0]))
    if any(extent < 0 for extent in shape):
        raise SourceError(f"{where}: {name} holds the shape {shape}", hint=_DAMAGED)
    return shape


def list_array(file: BinaryIO, where: str) -> tuple[tuple[int, ...], str]:
    """Shape and element type of a single array's file."""
    file.seek(0)
    shape, dtype, begin = _header(file, where)
    size = file.seek(0, 2)
    if begin + prod(shape) * bits(dtype) // 8 > size:
        raise SourceError(f"{where} has {size} bytes, too few for its shape {shape}", hint=_DAMAGED)
    return shape, dtype


def _header(file: Any, where: str) -> tuple[tuple[int, ...], str, int]:
    """Shape, element type, and where the data begins."""
    start = file.read(10)
    if len(start) < 10 or not start.startswith(NPY_MAGIC):
        raise SourceError(f"{where} is not a NumPy array", hint=_DAMAGED)
    length, begin = int.from_bytes(start[8:10], "little"), 10
    if start[6] >= 2:
        length += int.from_bytes(file.read(2), "little") << 16
        begin = 12
    if length > _LARGEST_HEADER:
        raise SourceError(f"{where} claims a header of {length} bytes", hint=_DAMAGED)
    described = _describe(file.read(length), where)
    shape, dtype = described.get("shape"), _dtype(described.get("descr"))
    if not isinstance(shape, tuple) or len(shape) > _MOST_AXES or not all(map(_is_extent, shape)):
        raise SourceError(f"{where} has the shape {str(shape)[:60]}", hint=_DAMAGED)
    if dtype is None:
        raise SourceError(f"{where} has the element type {str(described.get('descr'))[:60]!r}, which is no number")
    return shape, dtype, begin + length


def _is_extent(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _describe(header: bytes, where: str) -> dict[str, Any]:
    try:
        found = ast.literal_eval(header.decode("latin-1").strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as exc:
        raise SourceError(f"{where} has a header that cannot be read", hint=_DAMAGED) from exc
    if not isinstance(found, dict):
        raise SourceError(f"{where} has a header that cannot be read", hint=_DAMAGED)
    return found


def _dtype(descr: Any) -> str | None:
    """NumPy's word for an element type in ours; bfloat16 is a structure with one field of that name."""
    if isinstance(descr, list) and len(descr) == 1 and isinstance(descr[0], tuple) and len(descr[0]) == 2:
        descr = descr[0][1]
    if not isinstance(descr, str) or not re.fullmatch(r"[<|=>]?[A-Za-z]\d{1,2}", descr):
        return None
    return _TYPES.get(descr.lstrip("<|=>"))
