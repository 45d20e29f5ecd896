"""A trace on disk, plain or gzipped, opened by content: its beginning, its bytes as a stream, its JSON."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, cast

from opcost.errors import SourceError, UnknownSource

HEAD_BYTES = 1 << 16
"""How much of a file, unpacked, a reader sees when it is asked whether it reads it."""

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
        if not self.path.is_file():
            raise UnknownSource(f"there is no file {self.path}")
        if self.path.stat().st_size == 0:
            raise SourceError(f"{self.path} is empty", hint="the program that was profiled may have ended too early")

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def packed(self) -> bool:
        with self.path.open("rb") as file:
            return file.read(2) == b"\x1f\x8b"

    @cached_property
    def head(self) -> bytes:
        """The first bytes of the unpacked content; of a damaged gzip file, what can be unpacked."""
        found = b""
        try:
            for piece in self.pieces():
                found += piece
                if len(found) >= HEAD_BYTES:
                    break
        except DAMAGE as exc:
            if not found:
                raise SourceError(f"{self.path} looks gzipped but cannot be unpacked: {exc}") from exc
        return found[:HEAD_BYTES]

    def open(self) -> BinaryIO:
        """The unpacked content as a stream. ISA-L unpacks three times as fast as zlib and is taken where installed."""
        if not self.packed:
            return self.path.open("rb")
        try:
            from isal import igzip  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            return cast("BinaryIO", gzip.open(self.path, "rb"))
        return cast("BinaryIO", igzip.open(self.path, "rb"))

    def pieces(self) -> Iterator[bytes]:
        """The unpacked content piece by piece; damage is raised behind everything that can be unpacked before it."""
        # Not with ISA-L, and not with read: both lose what they have when they meet the damage.
        with gzip.open(self.path, "rb") if self.packed else self.path.open("rb") as stream:
            while piece := stream.read1(HEAD_BYTES):
                yield piece

    def content(self) -> bytes:
        """Everything, unpacked."""
        with self.open() as stream:
            try:
                return stream.read()
            except DAMAGE as exc:
                fault = self.fault() or str(exc)
                raise SourceError(f"{self.path} cannot be unpacked to its end: {fault}", hint=TRUNCATED) from exc

    def unpackable(self) -> bytes:
        """Of a damaged gzip file everything before the damage."""
        return b"".join(self._members())

    def fault(self) -> str:
        """What is wrong with a gzip file, where that can be said better than by the library that unpacks."""
        for _ in self._members():
            pass
        return self._fault

    def _members(self) -> Iterator[bytes]:
        """Unpack byte by byte where blocks cannot be unpacked; afterwards `_fault` says why it ended."""
        self._fault = ""
        rest = self.path.read_bytes()
        while rest.startswith(b"\x1f\x8b"):
            member = zlib.decompressobj(wbits=31)
            place = 0
            while place < len(rest) and not member.eof:
                block = rest[place : place + HEAD_BYTES]
                before = member.copy()
                try:
                    yield member.decompress(block)
                except zlib.error as exc:
                    yield from _bytewise(before, block)
                    self._fault = f"its compressed content is damaged: {exc}"
                    return
                place += len(block)
            if not member.eof:
                self._fault = "it was cut off"
                return
            rest = member.unused_data.lstrip(b"\0")
        if rest:
            self._fault = f"{len(rest)} bytes behind its compressed content are something else"

    def text(self) -> str:
        """Everything as text."""
        try:
            return io.TextIOWrapper(io.BytesIO(self.content()), encoding="utf-8-sig").read()
        except ValueError as exc:
            raise SourceError(f"{self.path} is not UTF-8 text: {exc}") from exc

    def json(self) -> Any:
        """Everything parsed as one JSON document."""
        text = self.text()
        try:
            return json.loads(text)
        except json.JSONDecodeError as exc:
            raise SourceError(
                f"{self.path}: the JSON is damaged at line {exc.lineno}, column {exc.colno}: {exc.msg}",
                hint=advice(exc.msg),
            ) from exc
        except (ValueError, RecursionError) as exc:
            raise SourceError(f"{self.path}: the JSON cannot be read: {exc}") from exc


def _bytewise(member: Any, block: bytes) -> Iterator[bytes]:
    for place in range(len(block)):
        try:
            yield member.decompress(block[place : place + 1])
        except zlib.error:
            return


TRUNCATED = "the file was cut off; --partial (partial=True) reports what stands before the damage"


def advice(fault: str) -> str:
    """What to do about a fault that a JSON parser names in these words."""
    fault = fault.lower()
    if "extra data" in fault or "trailing characters" in fault:
        return "two files may have been written into one: separate them"
    return TRUNCATED if "truncated" in fault or "delimiter" in fault or "unterminated" in fault else REPAIR


REPAIR = "write the trace again; --partial (partial=True) reports what stands before the damage"
