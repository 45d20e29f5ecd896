"""The bytes of a dump, read when they are needed: a graph is small, the weights between its tables may be gigabytes.

A map of the file would be shorter, but a file that is cut while it is mapped ends the process. A read that comes back short
is an error like any other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from opcost.core.files import length_of, opened
from opcost.errors import SourceError

SMALL = 4 << 20  # Bytes of a file that is read at once
_SHIFT = 14  # Of a larger one, pages of 2**14 bytes are read
_MOST_PAGES = 2048  # Pages that are kept, 32 MiB


class Pages:
    """Numbers and pieces of a file by their position; the caller has checked that they are inside."""

    __slots__ = ("_file", "_mask", "_pages", "_shift", "size", "what")

    def __init__(self, content: bytes | BinaryIO, size: int, what: str) -> None:
        self.size = size
        self.what = what
        self._pages: dict[int, bytes] = {}
        self._file: BinaryIO | None = None
        self._shift = 63
        if isinstance(content, bytes):
            self._pages[0] = content
        else:
            self._file, self._shift = content, _SHIFT
        self._mask = (1 << self._shift) - 1

    def unpack(self, form: struct.Struct, at: int) -> tuple[Any, ...]:
        """The numbers at a place in this form."""
        number = at >> self._shift
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) >= _MOST_PAGES:
                self._pages.clear()
            start = number << self._shift
            page = self._pages[number] = self.piece(start, min(1 << self._shift, self.size - start))
        inside = at & self._mask
        if inside + form.size <= len(page):
            return form.unpack_from(page, inside)
        return form.unpack(self.piece(at, form.size))

    def piece(self, at: int, size: int) -> bytes:
        """`size` bytes from a place on."""
        if self._file is None:
            found = self._pages[0][at : at + size]
        else:
            self._file.seek(at)
            found = self._file.read(size)
        if len(found) < size:
            fault = f"{self.what} became shorter while it was read: {size} bytes were expected at byte {at}"
            raise SourceError(fault, hint="read it again when no other process writes to it")
        return found

    def beginning(self, size: int) -> bytes:
        """The first bytes, or all if there are fewer."""
        return self.piece(0, min(size, self.size))


@contextmanager
def pages_of(path: str | Path) -> Iterator[Pages]:
    """The bytes of a file, as long as it is open."""
    with opened(path) as file:
        size = length_of(file)
        yield Pages(file.read(size) if size <= SMALL else file, size, str(path))


# -- flatbuffers: every offset and length is checked before it is used ------------------------------------------------------
#
# Files come from anywhere. A position outside the buffer, a string of a gigabyte, or a million references to one and the
# same vector end in one clear error: what is read is paid for from a budget that grows with the file, so no file can make
# the reader work or allocate more than its own size justifies.

U8, I8, U16, U32, I32, U64, F32, F64 = (struct.Struct(f"<{code}") for code in "BbHIiQfd")

LONGEST_TEXT = 1 << 16  # Bytes of the longest name that is believed; those of real files stay below a few hundred
LONGEST_LIST = 1 << 16
"""Elements of the longest list that is believed: operators of a model, inputs of an operator. Data is not a list."""
READS_PER_BYTE = 8  # How often, on average, a byte may be read: some strings and all virtual tables are shared


class Buffer:
    """One flatbuffer, from `start` to `end` of a file."""

    __slots__ = ("_budget", "_vtables", "data", "end", "start", "what")

    def __init__(self, data: Pages, start: int, end: int, what: str) -> None:
        self.data, self.start, self.end, self.what = data, start, end, what
        self._budget = READS_PER_BYTE * (end - start) + LONGEST_TEXT
        self._vtables: dict[int, tuple[int, tuple[int, ...]]] = {}

    def broken(self, fault: str, at: int) -> SourceError:
        """The error that says what is wrong at which byte of the file."""
        hint = "the file was cut or changed on its way: fetch or dump it again"
        return SourceError(f"{self.what} is damaged: {fault}, at byte {at}", hint=hint)

    def check(self, at: int, size: int) -> int:
        """The position itself, if this many bytes may be read there."""
        if at < self.start or at + size > self.end:
            raise self.broken(f"{size} bytes are expected outside the graph ({self.start} to {self.end})", at)
        self._budget -= size
        if self._budget < 0:
            raise self.broken("the same bytes are referred to over and over", at)
        return at

    def number(self, form: struct.Struct, at: int) -> int:
        found: int = self.data.unpack(form, self.check(at, form.size))[0]
        return found

    def follow(self, at: int) -> int:
        """Where the offset stored here leads to; it always leads forward."""
        offset = self.number(U32, at)
        if not 4 <= offset <= self.end - at:
            raise self.broken(f"an offset of {offset} leads out of the graph", at)
        return at + offset

    def text(self, at: int) -> str:
        """The string at this position; what is no UTF-8 is kept readable and not refused."""
        size = self.number(U32, at)
        if size > LONGEST_TEXT:
            raise self.broken(f"a name of {size} bytes is claimed", at)
        start = self.check(at + 4, size)
        return self.data.piece(start, size).decode("utf-8", "backslashreplace")

    def vector(self, at: int, width: int) -> tuple[int, int]:
        """Where the elements of a vector begin, and how many there are."""
        count = self.number(U32, at)
        if count * width > self.end - at - 4:
            raise self.broken(f"a list of {count} elements is claimed, more than the file holds", at)
        return at + 4, count

    def root(self, identifier: bytes) -> FlatTable:
        """The outermost table, after the size and the identifier that this kind of graph must carry."""
        found = self.data.piece(self.check(self.start + 4, 4), 4)
        if found != identifier:
            raise self.broken(f"the graph calls itself {found!r}, where {identifier!r} is expected", self.start + 4)
        return FlatTable(self, self.follow(self.start))

    def vtable(self, at: int) -> tuple[int, tuple[int, ...]]:
        """Size of the tables with this virtual table, and the place of each field inside them (0: not stored)."""
        found = self._vtables.get(at)
        if found is None:
            size = self.number(U16, at)
            if size < 4 or size % 2:
                raise self.broken(f"a table's description is {size} bytes long", at)
            self.check(at, size)
            inside, *slots = struct.unpack(f"<{size // 2 - 1}H", self.data.piece(at + 2, size - 2))
            if any(slot and not 4 <= slot < inside for slot in slots):
                raise self.broken(f"a field is outside its table of {inside} bytes", at)
            found = self._vtables[at] = (inside, tuple(slots))
        return found


class FlatTable:
    """One table of a flatbuffer; fields are read by their slot in the schema."""

    __slots__ = ("_inside", "_slots", "at", "buffer")

    def __init__(self, buffer: Buffer, at: int) -> None:
        self.buffer, self.at = buffer, at
        self._inside, self._slots = buffer.vtable(at - buffer.number(I32, at))
        buffer.check(at, self._inside)

    def _field(self, slot: int, width: int) -> int:
        """Position of a field, or 0 where it is not stored."""
        inside = self._slots[slot] if slot < len(self._slots) else 0
        if inside and inside + width > self._inside:
            raise self.buffer.broken(f"field {slot} is partly outside its table", self.at)
        return self.at + inside if inside else 0

    def number(self, slot: int, form: struct.Struct, default: Any = 0) -> Any:
        at = self._field(slot, form.size)
        return self.buffer.data.unpack(form, at)[0] if at else default

    def text(self, slot: int) -> str:
        """A string, empty where there is none."""
        at = self._field(slot, 4)
        return self.buffer.text(self.buffer.follow(at)) if at else ""

    def table(self, slot: int) -> FlatTable | None:
        at = self._field(slot, 4)
        return FlatTable(self.buffer, self.buffer.follow(at)) if at else None

    def data(self, slot: int) -> tuple[int, int]:
        """Position and length of raw bytes, however many; (0, 0) where there are none."""
        at = self._field(slot, 4)
        return self.buffer.vector(self.buffer.follow(at), 1) if at else (0, 0)

    def vector(self, slot: int, width: int) -> tuple[int, int] | None:
        """Position and length of a list of elements of this size, None where there is none."""
        at = self._field(slot, 4)
        if not at:
            return None
        start, count = self.buffer.vector(self.buffer.follow(at), width)
        if count > LONGEST_LIST:
            raise self.buffer.broken(f"a list of {count} elements is not plausible", start)
        return start, count

    def numbers(self, slot: int, code: str, width: int) -> tuple[int, ...]:
        """A list of numbers with this struct code."""
        at, count = self.vector(slot, width) or (0, 0)
        size = count * width
        return struct.unpack(f"<{count}{code}", self.buffer.data.piece(self.buffer.check(at, size), size)) if at else ()

    def positions(self, slot: int) -> Iterator[int]:
        """Where the elements of a vector of offsets are."""
        start, count = self.vector(slot, 4) or (0, 0)
        for at in range(start, start + 4 * count, 4):
            yield self.buffer.follow(at)

    def tables(self, slot: int) -> Iterator[FlatTable]:
        """The tables of a vector; none of them may be listed twice."""
        seen: set[int] = set()
        for at in self.positions(slot):
            if at in seen:
                raise self.buffer.broken("a table is listed twice", at)
            seen.add(at)
            yield FlatTable(self.buffer, at)

    def texts(self, slot: int) -> tuple[str, ...]:
        return tuple(self.buffer.text(at) for at in self.positions(slot))
