"""A trace on disk, plain or gzipped, opened by content: its beginning, its bytes as a stream, its JSON."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from itertools import pairwise
from json import JSONDecodeError
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, cast

from opcost.core.files import head_of, length_of, opened
from opcost.core.parsing import parse, replace_lone_surrogates
from opcost.core.progress import sharing
from opcost.errors import SourceError

HEAD_BYTES = 1 << 16
"""How much of a file, unpacked, a reader sees when it is asked whether it reads it."""
HEADS = (HEAD_BYTES, 1 << 20, 1 << 24)
"""The same again where that much does not tell: what makes a trace may stand behind megabytes of metadata."""

GZIP = b"\x1f\x8b"
SMALL_UNPACKED = 32 << 20
MOST_PACKING = 100
"""Real traces are packed to a fortieth at the most. More than a hundred times its size is believed of no file that unpacks to
more than the bytes above: it was made to fill the memory."""
LARGEST_WHOLE = 128 << 20
"""Unpacked bytes of a trace that is not read as a stream."""

_PIECE = 1 << 20

DAMAGE = (OSError, EOFError, zlib.error)
"""What reading a damaged gzip file raises; `gzip.BadGzipFile` is an OSError."""


class TraceFile:
    """One file; nothing is read before it is asked for."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._fault = ""
        if self.path.is_dir():
            raise SourceError(
                f"{self.path} is a directory, not a trace",
                hint="name one file in it; `opcost analyze DIRECTORY` reads all of them as ranks",
            )
        head_of(self.path, 1)

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def size(self) -> int:
        """Bytes on the disk."""
        with opened(self.path) as file:
            return length_of(file)

    @cached_property
    def packed(self) -> bool:
        return head_of(self.path, len(GZIP)) == GZIP

    @cached_property
    def head(self) -> bytes:
        """The first bytes of the unpacked content; of a damaged gzip file, what can be unpacked."""
        return self._beginning(HEAD_BYTES)

    def heads(self) -> Iterator[bytes]:
        """Ever longer beginnings, for those who cannot tell by the first, as long as the file has more."""
        yield self.head
        for before, size in pairwise(HEADS):
            found = self._beginning(size)
            if len(found) <= before:
                return
            yield found

    def _beginning(self, size: int) -> bytes:
        found = bytearray()
        try:
            for piece in self.pieces():
                found += piece
                if len(found) >= size:
                    break
        except DAMAGE as exc:
            if not found:
                raise SourceError(f"{self.path} looks gzipped but cannot be unpacked: {exc}") from exc
        return bytes(memoryview(found)[:size])

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The unpacked content as a stream. ISA-L unpacks three times as fast as zlib and is taken where installed."""
        with opened(self.path) as file, sharing(lambda: (file.tell(), self.size)):
            if not self.packed:
                yield file
                return
            try:
                from isal.igzip import open as unpack  # type: ignore[import-not-found,unused-ignore]
            except ImportError:
                from gzip import open as unpack
            with unpack(file, "rb") as unpacked:
                yield cast("BinaryIO", _Believed(unpacked, self))

    def pieces(self) -> Iterator[bytes]:
        """The unpacked content piece by piece; damage is raised behind everything that can be unpacked before it."""
        # Not with ISA-L, and not with read: both lose what they have when they meet the damage.
        size = 0
        with opened(self.path) as file, gzip.open(file, "rb") if self.packed else nullcontext(file) as stream:
            while piece := stream.read1(HEAD_BYTES):  # type: ignore[union-attr]  # both are buffered
                size += len(piece)
                self.believe(size)
                yield piece

    @property
    def most_unpacked(self) -> int:
        """Bytes that a file of this size may be unpacked to."""
        return max(SMALL_UNPACKED, MOST_PACKING * self.size)

    def believe(self, size: int) -> None:
        """Raise if so many bytes came out of a file that is far too small for them."""
        if self.packed and size > self.most_unpacked:
            raise SourceError(
                f"{self.path} unpacks to more than {size >> 20} MiB from {self.size} bytes, which no trace does",
                hint="it was made to fill the memory; if it is a real trace after all, unpack it first",
            )

    def content(self) -> bytearray:
        """Everything, unpacked."""
        found = bytearray()  # which grows without a second one beside it
        with self.open() as stream:
            try:
                while piece := stream.read(_PIECE):
                    found += piece
                    self.check_whole(len(found))
            except DAMAGE as exc:
                fault = self.fault() or str(exc)
                raise SourceError(f"{self.path} cannot be unpacked to its end: {fault}", hint=TRUNCATED) from exc
        return found

    def unpackable(self, after: int = 0) -> bytes:
        """Of a damaged gzip file everything before the damage, from this byte on."""
        found = []
        size = 0
        for piece in self._members():
            size += len(piece)
            if size > after:
                found.append(piece[max(len(piece) - (size - after), 0) :])
            self.check_whole(size - after)
        return b"".join(found)

    def check_whole(self, size: int) -> None:
        """Raise if so many bytes are more than is read as a whole."""
        if size > LARGEST_WHOLE:
            raise SourceError(
                f"{self.path} has more than {LARGEST_WHOLE >> 20} MiB, and a trace of this format is read as a whole",
                hint="record fewer runs",
            )

    def fault(self) -> str:
        """What is wrong with a gzip file, where that can be said better than by the library that unpacks."""
        for _ in self._members():
            pass
        return self._fault

    def _members(self) -> Iterator[bytes]:
        """Unpack byte by byte where blocks cannot be unpacked; afterwards `_fault` says why it ended."""
        self._fault = ""
        size = 0
        with opened(self.path) as file:
            rest = file.read(HEAD_BYTES)
            while rest.startswith(GZIP):
                member = zlib.decompressobj(wbits=31)
                block = rest
                while block and not member.eof:
                    before = member.copy()
                    try:
                        piece = member.decompress(block)
                    except zlib.error as exc:
                        yield from _bytewise(before, block)
                        self._fault = f"its compressed content is damaged: {exc}"
                        return
                    size += len(piece)
                    self.believe(size)
                    yield piece
                    block = b"" if member.eof else file.read(HEAD_BYTES)
                if not member.eof:
                    self._fault = "it was cut off"
                    return
                rest = member.unused_data.lstrip(b"\0")
                while len(rest) < len(GZIP) and (more := file.read(HEAD_BYTES)):
                    rest = (rest + more).lstrip(b"\0")
            if rest:
                behind = len(rest) + self.size - file.tell()
                self._fault = f"{behind} bytes behind its compressed content are something else"

    def text(self) -> str:
        """Everything as text."""
        try:
            return self.content().decode("utf-8-sig")
        except ValueError as exc:
            raise SourceError(f"{self.path} is not UTF-8 text: {exc}") from exc

    def json(self, **hooks: Any) -> Any:
        """Everything parsed as one JSON document; a number that is none, which some writers put in, counts as missing."""
        text = replace_lone_surrogates(self.text())
        try:
            return parse(text, parse_constant=lambda _: None, **hooks)
        except JSONDecodeError as exc:
            raise SourceError(
                f"{self.path}: the JSON is damaged at line {exc.lineno}, column {exc.colno}: {exc.msg}",
                hint=advice(exc.msg),
            ) from exc
        except ValueError as exc:
            raise SourceError(f"{self.path}: the JSON cannot be read: {exc}") from exc


class _Believed(io.RawIOBase):
    """An unpacked stream that ends in an error where it becomes unbelievably long."""

    def __init__(self, stream: BinaryIO, file: TraceFile) -> None:
        self._stream = stream
        self._file = file
        self._size = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        most = self._file.most_unpacked - self._size + 1
        found = self._stream.read(most if size < 0 else min(size, most))
        self._count(len(found))
        return found

    def readinto(self, buffer: Any) -> int:
        read: int = self._stream.readinto(buffer)  # type: ignore[attr-defined]  # both libraries' streams have it
        self._count(read)
        return read

    def _count(self, read: int) -> None:
        self._size += read
        self._file.believe(self._size)


def _bytewise(member: Any, block: bytes) -> Iterator[bytes]:
    for place in range(len(block)):
        try:
            yield member.decompress(block[place : place + 1])
        except zlib.error:
            return


TRUNCATED = "the file was cut off; `opcost analyze --partial` (partial=True) reports what stands before the damage"


def advice(fault: str) -> str:
    """What to do about a fault that a JSON parser names in these words."""
    fault = fault.lower()
    if "extra data" in fault or "trailing characters" in fault:
        return "two files may have been written into one: separate them"
    return TRUNCATED if "truncated" in fault or "delimiter" in fault or "unterminated" in fault else REPAIR


REPAIR = "write the trace again; `opcost analyze --partial` (partial=True) reports what stands before the damage"
