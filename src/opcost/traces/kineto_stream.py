"""A Kineto trace decoded block by block: the events stream by, the file's other fields are kept.

msgspec decodes; this file only finds where a block of events may end. Whether a cut was right is not guessed: a block
that was cut inside an event does not decode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from opcost.errors import MissingFramework, SourceError
from opcost.traces.file import DAMAGE, REPAIR, TRUNCATED, TraceFile

if TYPE_CHECKING:
    from opcost.traces.kineto_event import Event

BLOCK_BYTES = 1 << 20
PIECE_BYTES = 1 << 10
LIST = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
"""The key, and not a text that holds its name."""
BARE = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
"""A list of events without an object around it."""
TRIES = 16
"""How many cuts of one block are tried before it counts as damaged."""

EXACT_BELOW = 2.0**43
"""Microseconds with three decimals below this are exact in nanoseconds after rounding a float; above, decimals are read."""

SAMPLES = 64

_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_BYTE = re.compile(r"\(byte (\d+)\)")


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
        self._position = 0
        """Offset of the buffer's first byte in the unpacked file, for messages."""
        self._read = 0
        self._broken = ""
        self._decoders = _decoders()
        self._exact = False

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
        buffer = self._header(stream)
        separator = b""
        while True:
            block, broken = self._more(stream)
            cut = block.rfind(separator) if separator else -1
            if cut >= 0 and (found := self._straight(buffer, block, cut + separator.index(b"}") + 1)):
                self.events += len(found)
                yield found
                used = cut + len(separator) - 1
                self._position += len(buffer) + used
                buffer = block[used:]
                continue
            buffer += block
            separator = separator or _separator(buffer)
            if block:
                cut = buffer.rfind(separator) if separator else -1
                if cut < 0:
                    continue
                events, used, ended = self._decode(buffer, cut, separator)
            else:
                events, used, ended = self._last(buffer, separator, broken)
            if events:
                self.events += len(events)
                yield events
            if broken and not ended:
                raise _Damage(f"the file cannot be unpacked to its end: {broken}", TRUNCATED)
            self._position += used
            buffer = buffer[used:]
            if ended:
                self._trailer(buffer, stream)
                return

    def _straight(self, rest: bytes, block: bytes, end: int) -> list[Event]:
        """The events of what is left of the last block and of this one, without copying them together first.

        Nothing where the cut was wrong or the list has ended: then the slower way finds out which.
        """
        try:
            return self._decoded(b"".join((b"[", rest, memoryview(block)[:end], b"]")))
        except self._decoders.errors:
            return []

    def _more(self, stream: BinaryIO) -> tuple[bytes, str]:
        """The next block, and why there is none if the file is broken there."""
        if self._broken:
            return b"", self._broken
        try:
            block = stream.read(BLOCK_BYTES)
        except DAMAGE as exc:
            self._broken = str(exc)
            block = self._salvage() if self.partial else b""
            return block, "" if block else self._broken
        self._read += len(block)
        return block, ""

    def _salvage(self) -> bytes:
        """What can be unpacked of the block in which unpacking failed: read again, in small pieces."""
        found = b""
        with self.file.open() as stream:
            try:
                left = self._read
                while left:
                    left -= len(stream.read(min(left, BLOCK_BYTES)))
                while piece := stream.read(PIECE_BYTES):
                    found += piece
            except DAMAGE:
                pass  # as it did before
        return found

    def _header(self, stream: BinaryIO) -> bytes:
        """Read up to the first event and keep the fields before it; what was read beyond is returned."""
        buffer = b""
        while True:
            found = BARE.match(buffer) or LIST.search(buffer)
            if found is not None:
                break
            block, broken = self._more(stream)
            if not block:
                raise _Damage(broken or 'the list "traceEvents" is missing', TRUNCATED if broken else REPAIR)
            buffer += block
        if found.re is LIST:
            self._keep(buffer[: found.start()].lstrip(b"\xef\xbb\xbf").rstrip().removesuffix(b",") + b"}", 0)
        self._position = found.end()
        return buffer[found.end() :]

    def _decode(self, buffer: bytes, cut: int, separator: bytes) -> tuple[list[Event], int, bool]:
        """Events up to a cut, how many bytes they took, and whether the list of events ended before the cut."""
        closing = separator.index(b"}") + 1
        fault: Exception | None = None
        for _ in range(TRIES):
            if cut < 0:
                break
            try:
                return self._events(buffer, cut + closing, b"]"), cut + len(separator) - 1, False
            except self._decoders.errors as exc:
                if (found := _TRAILING.search(str(exc))) is not None:
                    end = _end(found)
                    return self._events(buffer, end, b""), end, True
                fault = fault or exc
                if isinstance(exc, self._decoders.invalid):
                    break
            cut = buffer.rfind(separator, 0, cut)
        raise self._damaged(buffer, separator, fault)

    def _last(self, buffer: bytes, separator: bytes, broken: str) -> tuple[list[Event], int, bool]:
        """The events that are left when the file has no more blocks."""
        try:
            return self._events(buffer, len(buffer), b""), len(buffer), True
        except self._decoders.errors as exc:
            if (found := _TRAILING.search(str(exc))) is not None:
                end = _end(found)
                return self._events(buffer, end, b""), end, True
            if self.partial:
                self.damage = broken or self._where(exc)
                return self._whole(buffer, separator), len(buffer), True
            if broken:
                raise _Damage(f"the file cannot be unpacked to its end: {broken}", TRUNCATED) from exc
            raise self._damaged(buffer, separator, exc) from exc

    def _events(self, buffer: bytes, end: int, close: bytes) -> list[Event]:
        """Decode the events before `end`; the opening bracket is put in front."""
        return self._decoded(b"".join((b"[", memoryview(buffer)[:end], close)))

    def _decoded(self, text: bytes) -> list[Event]:
        if not self._exact:
            events = self._decoders.fast.decode(text)
            sample = events[:: len(events) // SAMPLES + 1]  # one clock times all events of a file
            if not any(type(event.ts) is float and event.ts >= EXACT_BELOW for event in sample):
                return events
            self._exact = True  # a clock that counts from 1970: a float has steps of a quarter of a microsecond there
        return self._decoders.exact.decode(text)

    def _whole(self, buffer: bytes, separator: bytes) -> list[Event]:
        """Of a damaged buffer, the events before the damage, found by halving."""
        if not separator:
            return []
        closing = separator.index(b"}") + 1
        cuts = [found.start() for found in re.finditer(re.escape(separator), buffer)]
        low, high = 0, len(cuts)
        best: list[Event] = []
        while low < high:
            middle = (low + high + 1) // 2
            try:
                best = self._events(buffer, cuts[middle - 1] + closing, b"]")
                low = middle
            except self._decoders.errors:
                high = middle - 1
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

    def _trailer(self, buffer: bytes, stream: BinaryIO) -> None:
        """The fields behind the events; the file must end with them."""
        while True:
            block, broken = self._more(stream)
            if broken:
                raise _Damage(f"the file cannot be unpacked to its end: {broken}", TRUNCATED)
            if not block:
                break
            buffer += block
        text = buffer.strip()
        if text.startswith(b","):
            self._keep(b"{" + text[1:], self._position)
        elif text not in {b"", b"}"}:
            self._keep(b"{" + text, self._position)
        elif not text and self.fields and not self.damage:
            raise _Damage("the file ends before its closing brace", TRUNCATED)

    def _keep(self, text: bytes, position: int) -> None:
        try:
            found = json.loads(text)
        except json.JSONDecodeError as exc:
            if exc.msg == "Extra data":
                raise _Damage(
                    f"a second document begins at byte {position + exc.pos}",
                    "two files may have been written into one: separate them",
                ) from exc
            raise _Damage(f"the fields at byte {position + exc.pos} are damaged: {exc.msg}", REPAIR) from exc
        except (ValueError, RecursionError) as exc:
            raise _Damage(f"the fields at byte {position} are damaged: {exc}", REPAIR) from exc
        if "traceEvents" in found:
            raise _Damage('there is a second list "traceEvents"', "two traces were put into one file: separate them")
        self.fields.update(found)


class _Damage(Exception):
    """The file cannot be read beyond here; `saved` are events of the last block that stand before the damage."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
        self.saved: list[Event] = []


class _Decoders:
    """msgspec's decoders of a list of events: with float times, and with decimal ones."""

    def __init__(self) -> None:
        import msgspec

        from opcost.traces.kineto_event import DecimalEvent, Event

        self.fast: Any = msgspec.json.Decoder(list[Event])
        self.exact: Any = msgspec.json.Decoder(list[DecimalEvent])
        self.errors = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
        self.invalid = msgspec.ValidationError


def _decoders() -> _Decoders:
    try:
        return _Decoders()
    except ModuleNotFoundError as exc:
        if exc.name != "msgspec":
            raise
        raise MissingFramework("reading a Kineto trace needs msgspec", hint="pip install 'opcost[traces]'") from exc


def _end(found: re.Match[str]) -> int:
    """Where the list ended: msgspec counts bytes from one, and the bracket put in front is not in the buffer."""
    return int(found[1]) - 2


def _separator(buffer: bytes) -> bytes:
    """What stands between two events of this file, from the end of one to the beginning of the next."""
    text = (
        buffer.decode("utf-8", "replace")
        if len(buffer) < BLOCK_BYTES
        else buffer[:BLOCK_BYTES].decode("utf-8", "replace")
    )
    start = len(text) - len(text.lstrip())
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return b""
    found = re.compile(r"\s*,\s*\{").match(text, end)
    if found is None:
        return b""
    line = text[:end].rpartition("}")[0].rpartition("\n")
    indent = "\n" + line[2] if line[1] and not line[2].strip() else ""
    return (indent + "}" + found[0]).encode()
