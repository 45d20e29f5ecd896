"""safetensors: the length of a header, the header as JSON, and data of which nothing is read but what describes other tensors."""

from math import prod
from pathlib import Path
from typing import Annotated

import msgspec

from opcost.core.files import length_of, opened
from opcost.core.graph import bits
from opcost.core.parsing import Bad
from opcost.errors import shortened
from opcost.frontends.checkpoint import LARGEST_EXTENT, MOST_AXES, MOST_TENSORS
from opcost.frontends.checkpoint.reader import CheckpointReader, Contents, NotRead, Raw

LARGEST_HEADER = 32 << 20  # Bytes of a header. 100,000 tensors take some twelve million
_METADATA = "__metadata__"
_LONGEST_CONTENT = 1 << 12
_LONGEST_ENTRY = 1 << 12
_DESCRIBING = (b"weight_shape", b"quant_state.bitsandbytes__")
DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn", "F6_E2M3": "float6_e2m3fn", "F6_E3M2": "float6_e3m2fn",
    "C64": "complex64",
}  # fmt: skip
_BITS = {name: bits(dtype) for name, dtype in DTYPES.items()}

_Extent = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_EXTENT)]


_NO_SHAPE = (1,) * (MOST_AXES + 1)  # which no tensor has


class _HeaderEntry(msgspec.Struct, gc=False):
    """An entry, or the metadata, whose own names do not matter."""

    dtype: str = ""
    shape: tuple[_Extent, ...] = _NO_SHAPE
    data_offsets: tuple[_Extent, _Extent] = (0, 0)


_ALL = msgspec.json.Decoder(dict[str, _HeaderEntry])
_NAMES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY = msgspec.json.Decoder(_HeaderEntry)
_FAULTS = (msgspec.MsgspecError, RecursionError, ValueError)
_MOST_COMMAS = 1 << 20
"""Beside those of a usual header, which has at most as many as its tensors have axes: a longer list is looked at one by one."""


class SafetensorsReader(CheckpointReader):
    """One file; `files` knows of shards."""

    name = "safetensors"
    what = "a safetensors file"
    suffixes = (".safetensors",)
    ordered = False  # by size of element and name

    def sniff(self, head: bytes, path: Path) -> bool:
        return head[8:9] == b"{" and (not any(head[4:8]) or path.name.lower().endswith(self.suffixes))

    def read(self, path: Path) -> Contents:
        with opened(path) as file:
            size = length_of(file)
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise Bad(f"its header declares {length:,} bytes, and the file has {size:,}")
            if length > LARGEST_HEADER:
                raise NotRead(f"its header declares {length:,} bytes, more than {LARGEST_HEADER >> 20} MiB")
            header = file.read(length)
            # What unfolds is bounded before it does: every object is a tensor's, but for two.
            tensors = header.count(b'"data_offsets"')
            if tensors > MOST_TENSORS or header.count(b"{") > 2 * tensors + 64:
                raise NotRead(f"its header holds {header.count(b'{'):,} objects and {tensors:,} tensors")
            at = 8 + len(header)
            listed = _tensors(header, size - at)
            if any(mark in header for mark in _DESCRIBING):
                for place, tensor in enumerate(listed):
                    marked = tensor.name.endswith("weight_shape") or ".quant_state.bitsandbytes__" in tensor.name
                    if marked and 0 < tensor.bytes <= _LONGEST_CONTENT:  # it holds the true shape of a packed weight
                        file.seek(at)
                        listed[place] = tensor._replace(content=file.read(tensor.bytes))
                    at += tensor.bytes
        return Contents(listed)


def _tensors(header: bytes, room: int) -> list[Raw]:
    """The tensors in the order of their data, which must follow one another without gap to the end of the file."""
    declared = header.count(b'"data_offsets"')
    entries = _at_once(header, declared) or _one_by_one(header, declared)
    found: list[Raw] = []
    at = 0
    # In the order of their data, which is usually the header's; those without elements before what begins where they do
    for name, entry in sorted(entries.items(), key=lambda pair: pair[1].data_offsets):
        kind, shape, (begin, end) = entry.dtype, entry.shape, entry.data_offsets
        bits = _BITS.get(kind)
        if bits is None:
            raise NotRead(f"{shortened(name)} has the unknown type {shortened(kind)!r}")
        size = end - begin
        if begin != at or size * 8 != prod(shape) * bits or len(shape) > MOST_AXES:
            _one_by_one(header, declared)  # raises where something is missing
            text = f"{shortened(name)} of {kind} {shortened(str(shape))} is declared from {begin:,} to {end:,}"
            raise Bad(f"{text}, and what is before it ends at {at:,}")
        found.append(Raw(name, shape, DTYPES[kind], size))
        at = end
    if at != room:
        raise Bad(f"its tensors take {at:,} bytes, and the file has {room:,} for them")
    return found


def _at_once(header: bytes, declared: int) -> dict[str, _HeaderEntry] | None:
    """The entries of a header as writers write it; None: there is something about it that must be looked at one by one."""
    if header.count(b",") > declared * MOST_AXES + _MOST_COMMAS:
        return None
    try:
        entries = _ALL.decode(header)
    except _FAULTS:
        return None
    entries.pop(_METADATA, None)
    return entries if len(entries) == declared else None


def _one_by_one(header: bytes, declared: int) -> dict[str, _HeaderEntry]:
    """The entries; what is wrong with one is reported with its name."""
    name = ""
    found: dict[str, _HeaderEntry] = {}
    try:
        entries = _NAMES.decode(header)
        metadata = entries.pop(_METADATA, None)
        declared -= 0 if metadata is None else bytes(metadata).count(b'"data_offsets"')
        for name, raw in entries.items():
            if len(raw) > _LONGEST_ENTRY:
                raise ValueError(f"its entry has {len(raw):,} bytes")
            entry = found[name] = _ENTRY.decode(raw)
            if not entry.dtype or entry.shape is _NO_SHAPE:
                raise ValueError("has no type or no shape")
    except _FAULTS as exc:
        raise Bad(f"its header cannot be read: {shortened(f'{name} {exc}'.strip())}") from exc
    if len(found) != declared:
        raise Bad(f"its header names {declared:,} tensors, of which {declared - len(found):,} twice")
    return found


READER: CheckpointReader = SafetensorsReader()
