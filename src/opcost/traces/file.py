"""A trace on disk, plain or gzipped, opened by content: its beginning, its bytes as a stream, its JSON."""

import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from json import JSONDecodeError
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, cast

from opcost.core.files import head_of, length_of, opened
from opcost.core.graph import Note
from opcost.core.parsing import parse, replace_lone_surrogates
from opcost.core.progress import sharing
from opcost.errors import SourceError

HEAD_BYTES = 1 << 16  # how much of a file, unpacked, `Reader.sniff` is given
HEADS = (HEAD_BYTES, 1 << 20, 1 << 24)
"""The same again where that is undecided: the events of a trace may come after megabytes of metadata."""

GZIP = b"\x1f\x8b"
SMALL_UNPACKED = 32 << 20
MOST_PACKING = 100
"""Real traces are packed to a fortieth at the most. More than a hundred times its size is believed of no file that unpacks to
more than the bytes above: it was made to fill the memory."""
LARGEST_WHOLE = 128 << 20  # unpacked bytes of a trace that is not read as a stream

_PIECE = 1 << 20


class TraceFile:
    """One file, read lazily."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self.fault = ""
        """What is wrong with a gzip file, once its content has been read to the end."""
        if self.path.is_dir():
            hint = "name one file in it; `opcost analyze DIRECTORY` reads all of them as ranks"
            raise SourceError(f"{self.path} is a directory, not a trace", hint=hint)
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
        """Ever longer beginnings, where the first is undecided, as long as the file has more."""
        yield self.head
        for before, size in pairwise(HEADS):
            found = self._beginning(size)
            if len(found) <= before:
                return
            yield found

    def _beginning(self, size: int) -> bytes:
        found = b""
        with self.open() as stream:
            while len(found) < size and (piece := stream.read(size - len(found))):
                found += piece
        if self.fault and not found:
            raise SourceError(f"{self.path} looks gzipped but cannot be unpacked: {self.fault}")
        return found

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The unpacked content as a stream; of a damaged gzip file it ends before the damage, and then `fault` has the reason."""
        self.fault = ""
        with opened(self.path) as file, sharing(lambda: (file.tell(), self.size)):
            yield cast("BinaryIO", _Unpacked(self._unpacked(file))) if self.packed else file

    @property
    def most_unpacked(self) -> int:
        """Bytes that a file of this size may be unpacked to."""
        return max(SMALL_UNPACKED, MOST_PACKING * self.size)

    def content(self, *, partial: bool = False) -> bytearray:
        """Everything, unpacked; with `partial`, of a damaged gzip file what is before the damage."""
        found = bytearray()  # which grows without a second one beside it
        with self.open() as stream:
            while piece := stream.read(_PIECE):
                found += piece
                if len(found) > LARGEST_WHOLE:
                    fault = f"has more than {LARGEST_WHOLE >> 20} MiB, and a trace of this format is read as a whole"
                    raise SourceError(f"{self.path} {fault}", hint="record fewer runs")
        if self.fault and not partial:
            raise SourceError(f"{self.path} cannot be unpacked to its end: {self.fault}", hint=TRUNCATED)
        return found

    def _unpacked(self, file: BinaryIO) -> Iterator[bytes]:
        """The content in pieces. ISA-L unpacks three times as fast as zlib and is taken where installed.

        It loses what it has when it meets damage, where zlib begins again.
        """
        try:
            from isal import isal_zlib as library  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            library = zlib
        size = 0
        for piece in self._pieces(file, library):
            size += len(piece)
            yield piece
        if self.fault and library is not zlib:
            file.seek(0)
            for piece in self._pieces(file, zlib):
                yield piece[max(size, 0) :]
                size -= len(piece)

    def _pieces(self, file: BinaryIO, library: Any) -> Iterator[bytes]:
        """What one library unpacks of the members of a gzip file, up to its end or damage."""
        size = 0
        rest = file.read(HEAD_BYTES)
        while rest.startswith(GZIP):
            member = library.decompressobj(wbits=31)
            block = rest
            while block and not member.eof:
                before = member.copy() if library is zlib else None
                try:
                    piece = member.decompress(block)
                except library.error as exc:
                    self.fault = f"its compressed content is damaged: {exc}"
                    if before is not None:
                        yield _before_damage(before, block)
                    return
                size += len(piece)
                if size > self.most_unpacked:
                    raise SourceError(
                        f"{self.path} unpacks to more than {size >> 20} MiB from {self.size} bytes, which no trace does",
                        hint="it was made to fill the memory; if it is a real trace after all, unpack it first",
                    )
                yield piece
                block = b"" if member.eof else file.read(HEAD_BYTES)
            if not member.eof:
                self.fault = "it was cut off"
                return
            rest = member.unused_data.lstrip(b"\0")
            while len(rest) < len(GZIP) and (more := file.read(HEAD_BYTES)):
                rest = (rest + more).lstrip(b"\0")
        if rest:
            behind = len(rest) + self.size - file.tell()
            self.fault = f"{behind} bytes behind its compressed content are something else"

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
            fault = f"{self.path}: the JSON is damaged at line {exc.lineno}, column {exc.colno}: {exc.msg}"
            raise SourceError(fault, hint=advice(exc.msg)) from exc
        except ValueError as exc:
            raise SourceError(f"{self.path}: the JSON cannot be read: {exc}") from exc


def _before_damage(member: Any, block: bytes) -> bytes:
    """What a damaged block has before the damage, byte by byte."""
    found = bytearray()
    with suppress(zlib.error):
        for place in range(len(block)):
            found += member.decompress(block[place : place + 1])
    return bytes(found)


class _Unpacked(io.RawIOBase):
    """Unpacked pieces as a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = filter(None, pieces)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        rest = self._rest or memoryview(next(self._pieces, b""))
        taken = min(len(buffer), len(rest))
        buffer[:taken] = rest[:taken]
        self._rest = rest[taken:]
        return taken


TRUNCATED = "the file was cut off; `opcost analyze --partial` (partial=True) reports what is before the damage"


def advice(fault: str) -> str:
    """What to do about a fault that a JSON parser names in these words."""
    fault = fault.lower()
    if "extra data" in fault or "trailing characters" in fault:
        return "two files may have been written into one: separate them"
    return TRUNCATED if any(word in fault for word in ("truncated", "delimiter", "unterminated")) else REPAIR


REPAIR = "write the trace again; `opcost analyze --partial` (partial=True) reports what is before the damage"


# -- the events of a small Chrome trace, decoded at once, with what is before the damage of a broken file

NS_PER_US, NS_PER_MS = 1000, 1_000_000

_LIST = re.compile(r'"traceEvents"\s*:\s*\[|^\s*\[')


def events_of(file: TraceFile, *, partial: bool = False) -> tuple[list[dict[str, Any]], list[Note]]:
    """The events, and a note of what is wrong with the file where `partial` allows that."""
    try:
        return _whole(file), []
    except SourceError as exc:
        if not partial:
            raise
        fault = exc.message
    # Not above, where the error still refers to what was read of the file. One event after another until one is damaged:
    text = file.content(partial=True).decode("utf-8-sig", "replace")
    opening = _LIST.search(text)
    events: list[dict[str, Any]] = []
    place = opening.end() if opening else len(text)
    gap = re.compile(r"[\s,]*")
    while True:
        skipped = gap.match(text, place)
        try:
            event, place = json.JSONDecoder().raw_decode(text, skipped.end() if skipped else place)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            return events, [Note("partial", f"{fault}; this is what is before it")]
        events.append(event)


def _whole(file: TraceFile) -> list[dict[str, Any]]:
    content = file.json()
    found = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(found, list):
        raise SourceError(f'{file.path}: "traceEvents" is not a list of events')
    faulty = next((place for place, event in enumerate(found) if not isinstance(event, dict)), None)
    if faulty is not None:
        raise SourceError(f"{file.path}: event {faulty} is not an object but {str(found[faulty])[:40]!r}")
    return found


def text(event: dict[str, Any], key: str) -> str:
    """A field as text, empty where it is missing."""
    value = event.get(key)
    return value if isinstance(value, str) else ""


def microseconds(event: dict[str, Any], key: str) -> int:
    """A field that must be a whole number of microseconds such as a clock gives, also as text, in nanoseconds."""
    value = event.get(key)
    if isinstance(value, str) and value.isdecimal() and len(value) <= 30:
        value = int(value)
    if type(value) is not int or abs(value) > LATEST_NS // NS_PER_US:
        raise SourceError(f"the event {text(event, 'name')!r} has no whole number of microseconds in {key!r}")
    return value * NS_PER_US


def wall_of(spans: Iterable[tuple[int, int]]) -> int | None:
    """From the first start to the last end, given starts and durations; None without any."""
    ends = [(start, start + duration) for start, duration in spans]
    return max(end for _, end in ends) - min(start for start, _ in ends) if ends else None


# -- numbers and names of a trace, each checked to be one that can be added up, divided and printed

LATEST_NS = 2**62  # 146 years: a time of a clock since 1970 is below, and so is every duration
MOST_ELEMENTS = 2**63
MOST_AXES = 64


def nanoseconds(value: object, unit: int) -> int:
    """A time in this unit as nanoseconds, to the nearest; a `ValueError` where it is no number, or none of a clock."""
    if not _is_between(value, -LATEST_NS // unit, LATEST_NS // unit):
        raise ValueError(f"{str(value)[:40]!r} is not a time")
    return round(value * unit)  # type: ignore[operator]  # it is a number


def executions(value: object) -> int:
    """How often something ran; a `ValueError` where that is no count."""
    if isinstance(value, float) or not _is_between(value, 0, MOST_ELEMENTS):
        raise ValueError(f"{str(value)[:40]!r} is not a count")
    return int(value)  # type: ignore[call-overload,no-any-return]  # it is a number


def _is_between(value: object, least: int, most: int) -> bool:
    if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool):
        return False
    return not (isinstance(value, Decimal) and value.is_nan()) and least <= value <= most


def is_shape(extents: object) -> bool:
    """Whether this is a list of extents (below zero: unknown) of a tensor that fits into some memory."""
    if not isinstance(extents, list) or len(extents) > MOST_AXES or not all(type(extent) is int for extent in extents):
        return False
    elements: int = prod(max(abs(extent), 1) for extent in extents)
    return elements < MOST_ELEMENTS


def hashable(value: Any) -> int | float | str:
    """A process, a thread or a stream as a key; whatever else it may be, as its text."""
    return value if isinstance(value, (int, float, str)) else str(value)[:80]


def as_dict(value: object) -> dict[str, Any]:
    """An object of JSON; empty where it is something else."""
    return value if isinstance(value, dict) else {}


def args_of(event: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an event of a Chrome trace."""
    return as_dict(event.get("args"))
