"""Checkpoints made byte by byte, whose data is a hole in the file: however large they are said to be, they take no room."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

Declared: TypeAlias = Mapping[str, tuple[str, tuple[int, ...]]]

BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "U32": 32, "I16": 16, "I8": 8, "U8": 8, "BOOL": 8,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
}  # fmt: skip


def safetensors_header(tensors: Declared) -> tuple[bytes, int]:
    """The beginning of a file, and how many bytes of data follow."""
    at, entries = 0, {}
    for name, (dtype, shape) in tensors.items():
        end = at + prod(shape) * BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header, at


def write_safetensors(path: Path, tensors: Declared, contents: Mapping[str, bytes] | None = None) -> Path:
    """A file with these tensors; some may have content."""
    header, size = safetensors_header(tensors)
    offsets = {name: entry["data_offsets"][0] for name, entry in json.loads(header[8:]).items()}
    with path.open("wb") as file:
        file.write(header)
        for name, content in (contents or {}).items():
            file.seek(len(header) + offsets[name])
            file.write(content)
        file.truncate(len(header) + size)
    return path


def write_sharded(folder: Path, shards: Sequence[Declared], stem: str = "model") -> Path:
    """Shards and their index."""
    weight_map = {}
    for number, tensors in enumerate(shards, 1):
        name = f"{stem}-{number:05}-of-{len(shards):05}.safetensors"
        write_safetensors(folder / name, tensors)
        weight_map.update(dict.fromkeys(tensors, name))
    index = folder / f"{stem}.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return index


# -- GGUF -----------------------------------------------------------------------------------------------------------------


def _text(order: str, text: str) -> bytes:
    return struct.pack(f"{order}Q", len(text.encode())) + text.encode()


def _value(order: str, value: Any) -> bytes:
    if isinstance(value, list):
        kinds = {str: 8, int: 5, float: 6}
        head = struct.pack(f"{order}IIQ", 9, kinds[type(value[0])], len(value))
        return head + b"".join(_value(order, each)[4:] for each in value)
    if isinstance(value, str):
        return struct.pack(f"{order}I", 8) + _text(order, value)
    if isinstance(value, float):
        return struct.pack(f"{order}If", 6, value)
    return struct.pack(f"{order}Ii", 5, value)


def gguf_bytes(
    keys: Mapping[str, Any],
    tensors: Sequence[tuple[str, tuple[int, ...], int, int]],
    *,
    version: int = 3,
    order: str = "<",
) -> tuple[bytes, int]:
    """The header, and how long the file is; a tensor is its name, its shape, the number of its type and its bytes."""
    head = b"GGUF" + struct.pack(f"{order}IQQ", version, len(tensors), len(keys))
    head += b"".join(_text(order, key) + _value(order, value) for key, value in keys.items())
    at = 0
    for name, shape, kind, size in tensors:
        head += _text(order, name) + struct.pack(f"{order}I", len(shape))
        head += struct.pack(f"{order}{len(shape)}QIQ", *reversed(shape), kind, at)
        at += -(-size // 32) * 32
    head += b"\0" * (-len(head) % 32)
    return head, len(head) + at


def write_gguf(
    path: Path, keys: Mapping[str, Any], tensors: Sequence[tuple[str, tuple[int, ...], int, int]], **how: Any
) -> Path:
    head, size = gguf_bytes(keys, tensors, **how)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return path
