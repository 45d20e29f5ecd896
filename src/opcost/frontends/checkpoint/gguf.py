"""GGUF, versions 2 and 3, of either byte order, whole or split: keys and values are walked over, tensors are listed.

Vocabularies are most of the header. Their texts are stepped over by their lengths and never made.
"""

import re
import struct
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from opcost.core.files import length_of, opened
from opcost.core.graph import Note
from opcost.core.parsing import Bad
from opcost.errors import shortened
from opcost.frontends.checkpoint import MOST_AXES, MOST_TENSORS, is_possible
from opcost.frontends.checkpoint.reader import CheckpointReader, Contents, NotRead, Raw

_BLOCK = 1 << 20
_MOST_PAIRS = 1 << 16
_LONGEST_NAME = 1 << 12
_LONGEST_KEPT = 1 << 8
_MOST_PARTS = 10_000
_VALUES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.gguf)$", re.IGNORECASE)

TYPES: dict[int, tuple[str, int, int]] = {
    number: (name, block, size)
    for number, name, block, size in (
        (0, "float32", 1, 4), (1, "float16", 1, 2), (2, "Q4_0", 32, 18), (3, "Q4_1", 32, 20), (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24), (8, "Q8_0", 32, 34), (9, "Q8_1", 32, 40), (10, "Q2_K", 256, 84), (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144), (13, "Q5_K", 256, 176), (14, "Q6_K", 256, 210), (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66), (17, "IQ2_XS", 256, 74), (18, "IQ3_XXS", 256, 98), (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18), (21, "IQ3_S", 256, 110), (22, "IQ2_S", 256, 82), (23, "IQ4_XS", 256, 136),
        (24, "int8", 1, 1), (25, "int16", 1, 2), (26, "int32", 1, 4), (27, "int64", 1, 8), (28, "float64", 1, 8),
        (29, "IQ1_M", 256, 56), (30, "bfloat16", 1, 2), (34, "TQ1_0", 256, 54), (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17), (40, "NVFP4", 64, 36),
    )
}  # fmt: skip
"""Name, elements of a block, and bytes of a block, by the number in the file."""
QUANTIZED = frozenset(name for name, block, _ in TYPES.values() if block > 1)


class GgufReader(CheckpointReader):
    """A file, and the parts that it was split into."""

    name = "gguf"
    what = "a GGUF file"
    suffixes = (".gguf",)

    def sniff(self, head: bytes, path: Path) -> bool:
        return head.startswith(b"GGUF")

    def read(self, path: Path) -> Contents:
        found = _read(path)
        parts = found.facts.get("split.count", 1)
        if not isinstance(parts, int) or isinstance(parts, bool) or parts < 2:
            return found
        name = _PART.fullmatch(path.name)
        if name is None or int(name[3]) != parts or parts > _MOST_PARTS:
            text = f"this is one of {parts:,} parts, whose names do not follow NAME-00001-of-{parts:05}.gguf"
            return found._replace(notes=(*found.notes, Note("part", text)))
        files = [path.with_name(f"{name[1]}-{number:05}-of-{name[3]}{name[4]}") for number in range(1, parts + 1)]
        if missing := [file.name for file in files if not file.is_file()]:
            raise Bad(f"{len(missing)} of its {parts} parts are missing, as {missing[0]}")
        read = [found if file == path else _read(file) for file in files]
        facts = {**found.facts, **read[0].facts}
        tensors = [tensor for each in read for tensor in each.tensors]
        if len(tensors) != facts.get("split.tensors.count", len(tensors)):
            expected = facts["split.tensors.count"]
            raise Bad(f"its parts hold {len(tensors):,} tensors, and should hold {shortened(str(expected))}")
        return Contents(tensors, read[0].details, facts, parts=tuple(files))


def _read(path: Path) -> Contents:
    with opened(path) as file:
        return _HeaderReader(file).contents()


class _HeaderReader:
    """The header from front to back; every step knows how much of the file is left."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.size, self.order = file, length_of(file), "<"

    def contents(self) -> Contents:
        self._take(4)
        (version,) = self._unpack("I")
        if version and not version & 0xFFFF:
            self.order, version = ">", int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in (2, 3):
            raise NotRead(f"it is of version {version}, and versions 2 and 3 are read: convert it again")
        tensors, pairs = self._unpack("QQ")
        if tensors * 24 > self.size or tensors > MOST_TENSORS or pairs * 13 > self.size or pairs > _MOST_PAIRS:
            raise Bad(f"it declares {tensors:,} tensors and {pairs:,} keys")
        facts = dict(filter(None, (self._pair() for _ in range(pairs))))
        listed = [self._tensor() for _ in range(tensors)]
        self._check(listed, facts.get("general.alignment", 32))
        details = {"version": str(version), "keys": str(pairs)}
        for key in ("general.architecture", "general.name"):
            if isinstance(facts.get(key), str):
                details[key.rpartition(".")[2]] = facts[key]
        return Contents([raw for raw, _ in listed], details, facts)

    def _pair(self) -> tuple[str, Any] | None:
        """A key with its value, if that is a number or a short text."""
        key = self._text()
        (kind,) = self._unpack("I")
        if kind == _ARRAY:
            kind, count = self._unpack("IQ")
            self._skip(self._texts(count) if kind == _STRING else count * struct.calcsize(self._form(kind)))
            return None
        if kind == _STRING:
            (length,) = self._unpack("Q")
            if length <= _LONGEST_KEPT:
                return key, self._take(length).decode("utf-8", "replace")
            self._skip(length)
            return None
        return key, self._unpack(self._form(kind))[0]

    def _texts(self, count: int) -> int:
        """The bytes of some texts from here on."""
        if count * 8 > self.size:
            raise Bad(f"a list of {count:,} texts does not fit into {self.size:,} bytes")
        length_at = struct.Struct(self.order + "Q").unpack_from
        start = at = self.file.tell()
        while count and at < self.size:
            self.file.seek(at)
            block = self.file.read(_BLOCK)
            here, end = 0, len(block) - 8
            while count and here <= end:
                here += 8 + length_at(block, here)[0]
                count -= 1
            at = at + here if here else self.size
        self.file.seek(start)
        return at - start + 8 * count

    def _form(self, kind: int) -> str:
        if kind not in _VALUES:
            raise Bad(f"a value has the type {kind}")
        return _VALUES[kind]

    def _tensor(self) -> tuple[Raw, int]:
        """A tensor, and where its data begins."""
        name = self._text()
        (axes,) = self._unpack("I")
        if axes > MOST_AXES:
            raise Bad(f"{shortened(name)} declares {axes:,} axes")
        shape = tuple(reversed(self._unpack(f"{axes}Q")))  # the file has the axis first whose elements are side by side
        kind, offset = self._unpack("IQ")
        if kind not in TYPES:
            raise NotRead(f"{shortened(name)} has the unknown type {kind}")
        dtype, block, size = TYPES[kind]
        if not is_possible(shape) or (shape[-1] if shape else 1) % block:
            raise Bad(f"{shortened(name)} of {dtype}, whose blocks have {block}, has the shape {shape}")
        return Raw(name, shape, dtype, prod(shape) // block * size), offset

    def _check(self, listed: list[tuple[Raw, int]], alignment: object) -> None:
        """The data of each must be behind that of the one before, within the file."""
        if not isinstance(alignment, int) or isinstance(alignment, bool) or not 0 < alignment <= 1 << 20:
            raise Bad(f"its alignment is {alignment}")
        begin = -(-self.file.tell() // alignment) * alignment
        end = 0
        for tensor, offset in sorted(listed, key=lambda found: (found[1], found[0].bytes)):
            if offset < end or offset % alignment or begin + offset + tensor.bytes > self.size:
                text = f"the {tensor.bytes:,} bytes of {shortened(tensor.name)} are declared at {offset:,}"
                text = f"{text} of its {self.size - begin:,} bytes of data"
                raise Bad(f"{text}, and what is before them ends at {end:,}")
            end = offset + tensor.bytes

    # -- steps ----------------------------------------------------------------------------------------------------------

    def _text(self) -> str:
        (length,) = self._unpack("Q")
        if length > _LONGEST_NAME:
            raise Bad(f"a name declares {length:,} bytes")
        return self._take(length).decode("utf-8", "replace")

    def _unpack(self, form: str) -> tuple[Any, ...]:
        form = self.order + form
        return struct.unpack(form, self._take(struct.calcsize(form)))

    def _take(self, length: int) -> bytes:
        found = self.file.read(length)
        if len(found) < length:
            self._skip(self.size)
        return found

    def _skip(self, length: int) -> None:
        at = self.file.tell() + length
        if at > self.size:
            raise Bad(f"its header goes on beyond the end of the file at {self.size:,}")
        self.file.seek(at)


READER: CheckpointReader = GgufReader()
