"""Protocol buffers, read field by field: what is large, the weights, is found and never read.

A message is a run of fields, each a number with the way it is written, and its value: an integer, four or eight bytes, or a
length and so many bytes, which may be a message again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, TypeAlias

from opcost.core.checked import Bad

SMALL = 1 << 16
"""Bytes of a piece that is read at once; of a larger one, the fields are walked in the file."""
_HEAD = 20
"""Bytes that two numbers, tag and length, take at most."""


class Span(NamedTuple):
    """A piece of a file that is too large to be read for nothing."""

    file: BinaryIO
    begin: int
    end: int

    def read(self, most: int) -> bytes:
        """All of it, if it has no more than so many bytes."""
        if self.end - self.begin > most:
            raise Bad(f"{self.end - self.begin:,} bytes where at most {most:,} are expected")
        self.file.seek(self.begin)
        found = self.file.read(self.end - self.begin)
        if len(found) < self.end - self.begin:
            raise Bad(f"the file ends at byte {self.begin + len(found):,}, inside of a field")
        return found


Piece: TypeAlias = "bytes | Span"
Field: TypeAlias = "int | bytes | Span"


def size_of(piece: Piece) -> int:
    """How many bytes it has."""
    return len(piece) if isinstance(piece, bytes) else piece.end - piece.begin


def fields(message: Piece) -> Iterator[tuple[int, Field]]:
    """The fields of a message, by their numbers, in their order."""
    if isinstance(message, Span):
        if message.end - message.begin > SMALL:
            yield from _walked(message)
            return
        message = message.read(SMALL)
    at, end = 0, len(message)
    while at < end:
        number, value, at = _field(message, at, end)
        yield number, value


def _field(data: bytes, at: int, end: int) -> tuple[int, Field, int]:
    tag, at = varint(data, at)
    match tag & 7:
        case 0:
            value, at = varint(data, at)
            return tag >> 3, value, at
        case 2:
            length, at = varint(data, at)
            if at + length > end:
                raise Bad(f"a field has {length:,} bytes, and {end - at:,} are left")
            return tag >> 3, data[at : at + length], at + length
        case 1 | 5 as way:
            width = 8 if way == 1 else 4
            if at + width > end:
                raise Bad("a message ends inside of a number")
            return tag >> 3, data[at : at + width], at + width
    raise Bad(f"a field is written in the way {tag & 7}, which is not one of the format's")


def _walked(message: Span) -> Iterator[tuple[int, Field]]:
    """The fields of a large message; small ones are read, large ones are told by where they lie."""
    file, at, end = message
    while at < end:
        file.seek(at)
        head = file.read(min(_HEAD, end - at))
        tag, width = varint(head, 0)
        if tag & 7 != 2:
            number, value, width = _field(head, 0, len(head))
            yield number, value
            at += width
            continue
        length, width = varint(head, width)
        begin, at = at + width, at + width + length
        if at > end:
            raise Bad(f"a field has {length:,} bytes, and {end - begin:,} are left")
        piece = Span(file, begin, at)
        yield tag >> 3, piece.read(SMALL) if length <= SMALL else piece


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


def signed(value: int) -> int:
    """A whole number as the format means it, which writes negative ones as very large ones."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def integers(field: Field) -> list[int]:
    """Whole numbers: one that stands alone, or many packed into one field."""
    if isinstance(field, int):
        return [signed(field)]
    data = field if isinstance(field, bytes) else field.read(SMALL)
    found, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        found.append(signed(value))
    return found


def floats(field: Field, form: str = "f") -> list[float]:
    """Numbers with a point: one, or many packed; `form` says of how many bytes."""
    data = _bytes(field)
    width = struct.calcsize(form)
    if len(data) % width:
        raise Bad(f"{len(data)} bytes are no row of numbers of {width} bytes")
    return list(struct.unpack(f"<{len(data) // width}{form}", data))


def text(field: Field) -> str:
    """A text; what is not UTF-8 in it is replaced."""
    return _bytes(field).decode("utf-8", "replace")


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
