"""A Kineto trace decoded block by block: the events stream by, the file's other fields are kept.

The fields before the events are read first (`_header`). Then blocks are read into a window and decoded where they lie
(`_straight`); where that fails, at the end of the list, at a cut inside an event or at a bad event, `_decode` finds out which.
The fields behind the events come last (`_trailer`). Whether a cut was right is not guessed: what was cut inside an event does
not decode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from opcost.core.parsing import parse, replace_lone_surrogates
from opcost.errors import SourceError
from opcost.traces.file import DAMAGE, REPAIR, TRUNCATED, TraceFile
from opcost.traces.kineto.cuts import separator_of
from opcost.traces.kineto.decoding import EventDecoder, decoders
from opcost.traces.kineto.sifting import blanks, sift
from opcost.traces.kineto.window import Window

if TYPE_CHECKING:
    from opcost.traces.kineto.event import Event

BLOCK_BYTES = 1 << 16
"""What is decoded at once; the events of so many bytes stay in a processor's cache."""
LARGEST_HEAD = 1 << 24
"""If fields before the events are damaged, so much of the file is looked through before that is said."""
LARGEST_EVENT = 1 << 24
"""In so many bytes an event must end; a text or a list that never does is not waited for."""
LARGEST_TRAILER = LARGEST_HEAD
SMALLEST_EVENT = 32
"""Bytes that an event has at the least, taken over many: with a name and a time it has twice as many."""
TRIES = 16
"""How many cuts of one block are tried before its events are taken apart."""
MOST_FAULTS = 1_000_000
"""So many bad events are left out one by one; a file of more is no trace, and would take minutes to say so."""
SIFTED_BYTES = 1 << 20
"""So many bytes without a cut are taken apart too: the file does not write the same between all events, and what waits for a
cut stays in memory."""

CUT = "the file ends in the middle of the list of events"

_LIST = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
"""The key, and not a text that holds its name."""
_BARE = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
"""A list of events without an object around it."""
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")


class _Decoded(NamedTuple):
    """Events, how many bytes they took, and whether the list of events ended with them."""

    events: list[Event]
    used: int
    ended: bool


class _Damage(Exception):
    """The file cannot be read beyond here."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(slots=True)
class Left:
    """How many events of one fault are left out, and where the first of them begins."""

    count: int
    place: int


class KinetoStream:
    """The events of one file in blocks, and afterwards `fields`: everything beside the events.

    `left_out` are the events that are none, by what is wrong with them. `damage` is set if the file could not be read to its
    end and `partial` allowed that.
    """

    def __init__(self, file: TraceFile, *, partial: bool = False, memory: bool = False) -> None:
        self.file = file
        self.partial = partial
        self.fields: dict[str, Any] = {}
        self.damage = ""
        self.left_out: dict[str, Left] = {}
        self.events = 0
        self._decoder = EventDecoder(decoders(memory=memory))
        self._faults = self._decoder.by.faults
        self._position = 0
        """Offset of the window's first byte in the unpacked file, for messages."""
        self._read = 0
        self._broken = ""
        """Why the file cannot be unpacked further."""

    def blocks(self) -> Iterator[list[Event]]:
        """The events, in the order of the file."""
        try:
            with self.file.open() as stream:
                yield from self._blocks(stream)
        except _Damage as exc:
            if not self.partial:
                raise SourceError(f"{self.file.path}: {exc}", hint=exc.hint) from exc
            self.damage = str(exc)

    def _blocks(self, stream: BinaryIO) -> Iterator[list[Event]]:
        window = Window(self._header(stream), BLOCK_BYTES)
        separator = b""
        ended = False
        while not ended:
            read, broken = self._more(stream, window)
            found = self._straight(window, separator)
            if found is None:
                self._position += (between := blanks(window.content()))
                window.drop(between)
                buffer = window.content()
                if not separator or separator not in buffer:
                    separator = separator_of(buffer)
                found = self._decode(buffer, separator) if read else self._last(buffer, separator, broken)
            if found.events:
                self._count(len(found.events))
                yield found.events
            ended = found.ended
            self._position += found.used
            window.drop(found.used)
        self._trailer(window.content(), stream)

    def _count(self, events: int) -> None:
        """Count the events of a block; more than such bytes can hold are made to keep a reader busy."""
        self.events += events
        if self.events * SMALLEST_EVENT > self._position + LARGEST_EVENT:
            raise _Damage(f"{self.events} events stand in the first {self._position} bytes", REPAIR)

    def _straight(self, window: Window, separator: bytes) -> _Decoded | None:
        """The events before the last cut, decoded where they lie.

        None where there is no cut yet, it was wrong or the list has ended: then the slower way finds out which.
        """
        cut = window.last(separator) if separator else None
        if cut is None or len(window) - cut > SIFTED_BYTES:
            return None
        with window.closed(cut + separator.index(b"}") + 1) as text:
            try:
                events = self._decoder.decode(text)
            except self._faults:
                return None
        return _Decoded(events, cut + len(separator) - 1, ended=False) if events else None

    def _more(self, stream: BinaryIO, window: Window) -> tuple[int, str]:
        """Read another block: how many bytes came, and why none if the file is broken there."""
        if self._broken:
            return 0, self._broken
        try:
            read = window.fill(stream)
        except DAMAGE as exc:
            self._broken = self.file.fault() or str(exc)
            saved = self._salvage() if self.partial else b""
            window.append(saved)
            return len(saved), "" if saved else self._broken
        self._read += read
        return read, ""

    def _salvage(self) -> bytes:
        """What can be unpacked of the block in which unpacking failed."""
        return self.file.unpackable(self._read) if self.file.packed else b""

    def _header(self, stream: BinaryIO) -> bytes:
        """Read up to the first event and keep the fields before it; what was read beyond is returned."""
        window = Window(b"", BLOCK_BYTES)
        while True:
            read, broken = self._more(stream, window)
            buffer = window.content()
            if bare := _BARE.match(buffer):
                self._position = bare.end()
                return buffer[bare.end() :]
            fault: _Damage | None = None
            for found in _LIST.finditer(buffer):
                try:
                    self._keep(buffer[: found.start()].lstrip(b"\xef\xbb\xbf").rstrip().removesuffix(b",") + b"}", 0)
                except _Damage as exc:
                    fault = fault or exc  # perhaps a list of this name inside another field
                    continue
                self._position = found.end()
                return buffer[found.end() :]
            if not read or len(buffer) > LARGEST_HEAD:
                fault = fault or _Damage('the list "traceEvents" is missing', REPAIR)
                raise _Damage(broken, TRUNCATED) if broken else fault

    def _decode(self, buffer: bytes, separator: bytes) -> _Decoded:
        """The events up to the last cut that is right, or to the end of the list before it; none where no event has ended."""
        cut = buffer.rfind(separator) if separator else -1
        if cut < 0 and len(buffer) < SIFTED_BYTES:
            return _Decoded([], 0, ended=False)
        for _ in range(TRIES):
            if cut < 0 or len(buffer) - cut > SIFTED_BYTES:
                break
            try:
                events = self._events(buffer, cut + separator.index(b"}") + 1)
            except self._faults as exc:
                if (end := _end_of_list(exc)) is not None:
                    return _Decoded(self._events(buffer, end, close=b""), end, ended=True)
                if isinstance(exc, self._decoder.by.invalid):
                    break
            else:
                return _Decoded(events, cut + len(separator) - 1, ended=False)
            cut = buffer.rfind(separator, 0, cut)
        found = self._sifted(buffer, separator)
        if not found.used and len(buffer) > LARGEST_EVENT:
            place = f"after event {self.events}, at byte {self._position}"
            raise _Damage(f"no event ends in the {len(buffer)} bytes {place}", REPAIR)
        return found

    def _last(self, buffer: bytes, separator: bytes, broken: str) -> _Decoded:
        """The events that are left when the file has no more blocks."""
        try:
            return _Decoded(self._events(buffer, len(buffer), close=b""), len(buffer), ended=True)
        except self._faults as exc:
            if (end := _end_of_list(exc)) is not None:
                return _Decoded(self._events(buffer, end, close=b""), end, ended=True)
        found = self._sifted(buffer, separator)
        if found.ended:
            return found
        if not self.partial:
            unpacked = f"the file cannot be unpacked to its end: {broken}" if broken else CUT
            raise _Damage(unpacked, TRUNCATED)
        self.damage = broken or CUT
        return _Decoded(found.events, len(buffer), ended=True)

    def _sifted(self, buffer: bytes, separator: bytes) -> _Decoded:
        """The good events of a buffer, as far as events end in it; the others are left out, and counted."""
        found = sift(buffer, separator, self._decoder.decode_any, self._faults)
        for fault in found.faults:
            self.left_out.setdefault(fault.kind, Left(0, self._position + fault.place)).count += 1
        if sum(left.count for left in self.left_out.values()) > MOST_FAULTS:
            first = min(left.place for left in self.left_out.values())
            raise _Damage(f"more than {MOST_FAULTS:,} of its events are none, the first at byte {first}", REPAIR)
        return _Decoded(found.events, found.used, found.ended)

    def _events(self, buffer: bytes, end: int, *, close: bytes = b"]") -> list[Event]:
        """Decode the events before `end`; the opening bracket is put in front."""
        return self._decoder.decode(b"".join((b"[", memoryview(buffer)[:end], close)))

    def _trailer(self, rest: bytes, stream: BinaryIO) -> None:
        """The fields behind the events; the file must end with them."""
        window = Window(rest, BLOCK_BYTES)
        while True:
            read, broken = self._more(stream, window)
            if broken:
                raise _Damage(f"the file cannot be unpacked to its end: {broken}", TRUNCATED)
            if not read:
                break
            if len(window) > LARGEST_TRAILER:
                raise _Damage(f"the fields behind the events have more than {LARGEST_TRAILER >> 20} MiB", REPAIR)
        text = window.content().strip()
        if text.startswith(b","):
            self._keep(b"{" + text[1:], self._position)
        elif text not in {b"", b"}"}:
            self._keep(b"{" + text, self._position)
        elif not text and self.fields and not self.damage:
            raise _Damage("the file ends before its closing brace", TRUNCATED)

    def _keep(self, text: bytes, position: int) -> None:
        try:
            found = parse(replace_lone_surrogates(text.decode("utf-8")), parse_constant=lambda _: None)
        except json.JSONDecodeError as exc:
            if exc.msg == "Extra data":
                raise _Damage(
                    f"a second document begins at byte {position + exc.pos}",
                    "two files may have been written into one: separate them",
                ) from exc
            hint = TRUNCATED if "Unterminated" in exc.msg or exc.pos >= len(text.rstrip()) - 1 else REPAIR
            raise _Damage(f"the fields at byte {position + exc.pos} are damaged: {exc.msg}", hint) from exc
        except ValueError as exc:
            raise _Damage(f"the fields at byte {position} are damaged: {exc}", REPAIR) from exc
        if "traceEvents" in found:
            raise _Damage('there is a second list "traceEvents"', "two traces were put into one file: separate them")
        self.fields.update(found)


def _end_of_list(fault: Exception) -> int | None:
    """Where the list of events ended, if something behind it is all that is wrong.

    msgspec counts bytes from one, and the bracket put in front is not in the buffer.
    """
    found = _TRAILING.search(str(fault))
    return None if found is None else int(found[1]) - 2
