"""Protocol buffers, read field by field: what is large, the weights, is found and never read.

A message is a run of fields, each a number with the way it is written, and its value: an integer, four or eight bytes, or a
length and that many bytes, which may be a message again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple, TypeAlias

from opcost.core.parsing import Bad

SMALL = 1 << 16  # Bytes of a piece that is read at once; of a larger one, the fields are walked in the file
_HEAD = 20  # Bytes that two numbers, tag and length, take at most


class FilePiece(NamedTuple):
    """A piece of a file that is too large to be read for nothing."""

    file: BinaryIO
    begin: int
    end: int

    def read(self, most: int) -> bytes:
        """All of it, if it has no more than `most` bytes."""
        if self.end - self.begin > most:
            raise Bad(f"{self.end - self.begin:,} bytes where at most {most:,} are expected")
        return _block(self.file, self.begin, self.end - self.begin)


Piece: TypeAlias = "bytes | FilePiece"
Field: TypeAlias = "int | bytes | FilePiece"


def size_of(piece: Piece) -> int:
    """How many bytes it has."""
    return len(piece) if isinstance(piece, bytes) else piece.end - piece.begin


def fields(message: Piece) -> Iterable[tuple[int, Field]]:
    """The fields of a message, by their numbers, in their order."""
    if isinstance(message, FilePiece):
        if message.end - message.begin > SMALL:
            return _walked(message)
        message = message.read(SMALL)
    return _listed(message)


def _listed(data: bytes) -> list[tuple[int, Field]]:
    """The fields of a message that is in memory. Nearly every tag and length has one byte, and takes no call here."""
    found: list[tuple[int, Field]] = []
    at, end = 0, len(data)
    try:
        while at < end:
            tag = data[at]
            at += 1
            if tag > 0x7F:
                tag, at = varint(data, at - 1)
            way = tag & 7
            if way == 2:
                length = data[at]
                at += 1
                if length > 0x7F:
                    length, at = varint(data, at - 1)
                stop = at + length
                if stop > end:
                    raise Bad(f"a field has {length:,} bytes, and {end - at:,} are left")
                found.append((tag >> 3, data[at:stop]))
                at = stop
            elif way == 0:
                value = data[at]
                at += 1
                if value > 0x7F:
                    value, at = varint(data, at - 1)
                found.append((tag >> 3, value))
            else:
                stop = at + _width(way)
                if stop > end:
                    raise Bad("a message ends inside of a number")
                found.append((tag >> 3, data[at:stop]))
                at = stop
    except IndexError:
        raise Bad("the file ends inside of a number") from None
    return found


def _width(way: int) -> int:
    """The bytes of a number that is not written byte by byte."""
    if way not in (1, 5):
        raise Bad(f"a field is written in the way {way}, which is not one of the format's")
    return 8 if way == 1 else 4


def _walked(message: FilePiece) -> Iterator[tuple[int, Field]]:
    """The fields of a large message; small ones are read, large ones are given as pieces of the file."""
    file, at, last = message
    while at < last:
        head = _block(file, at, min(_HEAD, last - at))
        tag, here = varint(head, 0)
        if (way := tag & 7) == 0:
            value, here = varint(head, here)
            at += here
            yield tag >> 3, value
            continue
        length, here = varint(head, here) if way == 2 else (_width(way), here)
        begin, at = at + here, at + here + length
        if at > last:
            raise Bad(f"a field has {length:,} bytes, and {last - begin:,} are left")
        yield tag >> 3, FilePiece(file, begin, at) if length > SMALL else _block(file, begin, length)


def _block(file: BinaryIO, at: int, length: int) -> bytes:
    """`length` bytes of a file from a place on; the file may have been read elsewhere meanwhile."""
    file.seek(at)
    found = file.read(length)
    if len(found) < length:
        raise Bad(f"the file ends at byte {at + len(found):,}, inside of a field")
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where the next thing begins."""
    found = shift = 0
    while True:
        try:
            byte = data[at]
        except IndexError:
            raise Bad("the file ends inside of a number") from None
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
        if shift > 63:
            raise Bad("a number has more than 64 bits")


def second_begins(head: bytes) -> bytes:
    """The first byte inside of field 2, where it follows a number in field 1: a letter of a text, or the tag of a message."""
    try:
        _, at = varint(head, 1)
        _, begin = varint(head, at + 1)
    except Bad:
        return b""
    return head[begin : begin + 1] if head[:1] == b"\x08" and head[at : at + 1] == b"\x12" else b""


def signed(value: int) -> int:
    """A whole number as the format means it, which writes negative ones as very large ones."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def integers(field: Field) -> list[int]:
    """Whole numbers: a single one, or many packed into one field."""
    if isinstance(field, int):
        return [field if field < 1 << 63 else signed(field)]
    data = _bytes(field)
    if not data or max(data) < 0x80:  # each has one byte
        return list(data)
    found, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        found.append(signed(value))
    return found


def floats(field: Field, form: str = "f") -> list[float]:
    """Numbers with a point: one, or many packed; `form` is `f` or `d`."""
    data = _bytes(field)
    width = struct.calcsize(form)
    if len(data) % width:
        raise Bad(f"{len(data)} bytes are no row of numbers of {width} bytes")
    return list(struct.unpack(f"<{len(data) // width}{form}", data))


def text(field: Field) -> str:
    """A text; what is not UTF-8 in it is replaced."""
    return (field if type(field) is bytes else _bytes(field)).decode("utf-8", "replace")


def long_text(field: Field, most: int) -> str:
    """A text of up to `most` bytes; a longer one is left out."""
    found = piece(field)
    if size_of(found) > most:
        return ""
    return (found if isinstance(found, bytes) else found.read(most)).decode("utf-8", "replace")


def whole(field: Field) -> int:
    """One whole number."""
    if not isinstance(field, int):
        raise Bad("there are bytes where a number should be")
    return signed(field)


def piece(field: Field) -> Piece:
    """A message, or bytes."""
    if isinstance(field, int):
        raise Bad("there is a number where a message should be")
    return field


def _bytes(field: Field) -> bytes:
    found = piece(field)
    return found if isinstance(found, bytes) else found.read(SMALL)


@dataclass(slots=True)
class MessageFields:
    """The fields of one message by number, each with all its values."""

    found: dict[int, list[Field]] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Piece) -> MessageFields:
        found: dict[int, list[Field]] = {}
        for number, value in fields(message):
            if number in found:
                found[number].append(value)
            else:
                found[number] = [value]
        return cls(found)

    def all(self, number: int) -> list[Field]:
        return self.found.get(number, [])

    def text(self, number: int) -> str:
        return text(self.found[number][-1]) if number in self.found else ""

    def whole(self, number: int, default: int = 0) -> int:
        return whole(self.found[number][-1]) if number in self.found else default

    def integers(self, number: int) -> list[int]:
        return [value for each in self.all(number) for value in integers(each)]

    def messages(self, number: int) -> list[MessageFields]:
        return [MessageFields.of(piece(each)) for each in self.all(number)]
