"""A Kineto trace decoded block by block: the events stream by, the file's other fields are kept.

The fields before the events are read first (`_header`). Then blocks are read into a window and decoded where they lie
(`_straight`); where that fails, at the end of the list or at a cut inside an event, `_decode` finds out which. The fields
behind the events come last (`_trailer`). Whether a cut was right is not guessed: what was cut inside an event does not decode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from opcost.core.parsing import mended, parse
from opcost.errors import SourceError
from opcost.traces.file import DAMAGE, REPAIR, TRUNCATED, TraceFile
from opcost.traces.kineto.cuts import end_of_event, separator_of
from opcost.traces.kineto.decoding import EventDecoder, decoders
from opcost.traces.kineto.window import Window

if TYPE_CHECKING:
    from opcost.traces.kineto.event import Event

BLOCK_BYTES = 1 << 16
"""What is decoded at once; the events of so many bytes stay in a processor's cache."""
LARGEST_HEAD = 1 << 24
"""If fields before the events are damaged, so much of the file is looked through before that is said."""
LARGEST_EVENT = 1 << 24
"""In so many bytes an event must end; a text or a list that never does is not waited for."""
LARGEST_TRAILER = 1 << 26
SMALLEST_EVENT = 32
"""Bytes that an event has at the least, taken over many: with a name and a time it has twice as many."""
TRIES = 16
"""How many cuts of one block are tried before it counts as damaged."""

_LIST = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
"""The key, and not a text that holds its name."""
_BARE = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
"""A list of events without an object around it."""
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_BYTE = re.compile(r"\(byte (\d+)\)")


class _Decoded(NamedTuple):
    """Events, how many bytes they took, and whether the list of events ended with them."""

    events: list[Event]
    used: int
    ended: bool


class _Damage(Exception):
    """The file cannot be read beyond here; `saved` are events of the last block that stand before the damage."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
        self.saved: list[Event] = []


class KinetoStream:
    """The events of one file in blocks, and afterwards `fields`: everything beside the events.

    `damage` is set if the file could not be read to its end and `partial` allowed that.
    """

    def __init__(self, file: TraceFile, *, partial: bool = False) -> None:
        self.file = file
        self.partial = partial
        self.fields: dict[str, Any] = {}
        self.damage = ""
        self.events = 0
        self._decoder = EventDecoder(decoders())
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
            if exc.saved:
                self.events += len(exc.saved)
                yield exc.saved

    def _blocks(self, stream: BinaryIO) -> Iterator[list[Event]]:
        window = Window(self._header(stream), BLOCK_BYTES)
        separator = b""
        ended = False
        while not ended:
            read, broken = self._more(stream, window)
            found = self._straight(window, separator)
            if found is None:
                buffer = window.content()
                separator = separator or separator_of(buffer)
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
        if cut is None:
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
        if cut < 0:
            if len(buffer) > LARGEST_EVENT:
                place = f"after event {self.events}, at byte {self._position}"
                raise _Damage(f"no event ends in the {len(buffer)} bytes {place}", REPAIR)
            return _Decoded([], 0, ended=False)
        fault: Exception | None = None
        for _ in range(TRIES):
            try:
                events = self._events(buffer, cut + separator.index(b"}") + 1)
            except self._faults as exc:
                if (end := _end_of_list(exc)) is not None:
                    return _Decoded(self._events(buffer, end, close=b""), end, ended=True)
                fault = fault or exc
                if isinstance(exc, self._decoder.by.invalid):
                    break
            else:
                return _Decoded(events, cut + len(separator) - 1, ended=False)
            cut = buffer.rfind(separator, 0, cut)
            if cut < 0:
                break
        raise self._damaged(buffer, separator, fault)

    def _last(self, buffer: bytes, separator: bytes, broken: str) -> _Decoded:
        """The events that are left when the file has no more blocks."""
        try:
            return _Decoded(self._events(buffer, len(buffer), close=b""), len(buffer), ended=True)
        except self._faults as exc:
            if (end := _end_of_list(exc)) is not None:
                return _Decoded(self._events(buffer, end, close=b""), end, ended=True)
            if self.partial:
                self.damage = broken or self._where(exc)
                return _Decoded(self._whole(buffer, separator), len(buffer), ended=True)
            if broken:
                raise _Damage(f"the file cannot be unpacked to its end: {broken}", TRUNCATED) from exc
            raise self._damaged(buffer, separator, exc) from exc

    def _events(self, buffer: bytes, end: int, *, close: bytes = b"]") -> list[Event]:
        """Decode the events before `end`; the opening bracket is put in front."""
        return self._decoder.decode(b"".join((b"[", memoryview(buffer)[:end], close)))

    def _whole(self, buffer: bytes, separator: bytes) -> list[Event]:
        """Of a damaged buffer, the events before the damage, found by halving."""
        closing = separator.find(b"}") + 1
        cuts = [found.start() for found in re.finditer(re.escape(separator), buffer)] if separator else []
        right, wrong = 0, len(cuts) + 1  # so many cuts are known to be right, and of so many the last is wrong
        best: list[Event] = []
        while wrong - right > 1:
            middle = (right + wrong) // 2
            try:
                best = self._events(buffer, cuts[middle - 1] + closing)
                right = middle
            except self._faults:
                wrong = middle
        end = end_of_event(buffer, cuts[right - 1] + len(separator) - 1 if right else 0)
        try:
            return best if end is None else self._events(buffer, end)
        except self._faults:
            return best

    def _damaged(self, buffer: bytes, separator: bytes, fault: Exception | None) -> Exception:
        """The error for a block that no cut makes readable; with `partial`, the events before the damage are kept back."""
        exc = _Damage(self._where(fault), TRUNCATED if "truncated" in str(fault) else REPAIR)
        if self.partial:
            exc.saved = self._whole(buffer, separator)
        return exc

    def _where(self, fault: Exception | None) -> str:
        text = str(fault)
        if "truncated" in text:
            return "the file ends in the middle of the list of events"
        found = _BYTE.search(text)
        at = self._position + (int(found[1]) - 1 if found else 0)
        near = f"after event {self.events}, at byte {at}" if found else f"after event {self.events}"
        what = text.partition(" (byte")[0].removeprefix("JSON is malformed: ")
        return f"the list of events is damaged {near} of the unpacked file: {what}"

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
            found = parse(mended(text.decode("utf-8")), parse_constant=lambda _: None)
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
