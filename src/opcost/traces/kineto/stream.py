"""A Kineto trace decoded block by block: the events stream by, the file's other fields are kept.

The fields before the events are read first (`_header`). Then blocks are decoded up to the last event that ends in them
(`_before_last`); where that fails, at the end of the list, at a cut inside an event or at a bad event, `_Sieve` takes the
block apart by its braces, leaves bad events out and records what is wrong with them. The fields behind the events come last
(`_trailer`). Whether a cut was right is not guessed: what was cut inside an event does not decode.
"""

import json
import re
from array import array
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from opcost.core.parsing import parse, replace_lone_surrogates
from opcost.errors import SourceError
from opcost.traces.file import REPAIR, TRUNCATED, TraceFile
from opcost.traces.kineto.decoding import FAULTS, Event, EventDecoder

BLOCK_BYTES = 1 << 16  # what is decoded at once; the events of this many bytes stay in a processor's cache
LARGEST_HEAD = 1 << 24
"""If fields before the events are damaged, this much of the file is searched before that is reported."""
LARGEST_EVENT = 1 << 24  # an event must end within this many bytes
LARGEST_FIRST = 1 << 22  # the first event must end within this many bytes for the separator of events to be found
LARGEST_TRAILER = LARGEST_HEAD
SMALLEST_EVENT = 32  # bytes that an event has at least, on average: with a name and a time it has twice as many
TRIES = 16  # how many beginnings of the next event behind a bad one are tried
MOST_FAULTS = 1_000_000
"""Bad events that are left out one by one; a file of more is no trace, and would take minutes to report."""
SIFTED_BYTES = 1 << 20
"""This many bytes without a cut are taken apart too: the file does not write the same between all events."""
DEEPEST = 1000  # levels of a value; no decoder goes deeper, and brackets without an end are not counted to theirs

CUT = "the file ends in the middle of the list of events"

_LIST = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')  # the key, and not a text that contains its name
_BARE = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")  # A list of events without an object around it
_NEXT = re.compile(r"\s*,\s*\{")
_GAP = re.compile(rb"[\s,]*")
_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_WORD = re.compile(rb"[^\s,{\[\]]+")
_FIELD = re.compile(r"at `\$\[\d+\](?:\.\w+)?\.(\w+)`")
_MARK = b'"ph"'  # A field that every event has, and nothing inside of an event does


class _Decoded(NamedTuple):
    """Events, how many bytes they took, and whether the list of events ended with them."""

    events: list[Event]
    used: int
    ended: bool = False


class _Damage(Exception):
    """The file cannot be read beyond here."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class KinetoStream:
    """The events of one file in blocks, and afterwards `fields`: everything beside the events.

    `left_out` has where bad events begin, by what is wrong with them. `damage` is set if the file could not be read to its end
    and `partial` allowed that.
    """

    def __init__(self, file: TraceFile, *, partial: bool = False, memory: bool = False) -> None:
        self.file = file
        self.partial = partial
        self.fields: dict[str, Any] = {}
        self.damage = ""
        self.left_out: dict[str, array[int]] = {}
        self.events = 0
        self._decoder = EventDecoder(memory=memory)
        self._position = 0  # offset of the buffer's first byte in the unpacked file, for messages

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
        buffer = self._header(stream)
        separator = b""
        ended = False
        while not ended:
            more = stream.read(max(BLOCK_BYTES, len(buffer)))
            buffer += more
            found = self._before_last(buffer, separator) if separator else None
            if found is None:
                self._position += (between := _behind_blanks(buffer))
                buffer = buffer[between:]
                if not separator or separator not in buffer:
                    separator = _separator_of(buffer)
                    found = self._before_last(buffer, separator) if separator else None
                found = found or self._sifted(buffer, separator, is_last=not more)
            if found.events:
                self.events += len(found.events)
                if self.events * SMALLEST_EVENT > self._position + LARGEST_EVENT:  # made to keep a reader busy
                    raise _Damage(f"there are {self.events} events in the first {self._position} bytes", REPAIR)
                yield found.events
            ended = found.ended
            self._position += found.used
            buffer = buffer[found.used :]
        self._trailer(buffer, stream)

    def _before_last(self, buffer: bytes, separator: bytes) -> _Decoded | None:
        """The events before the last separator.

        None where there is none yet, it is inside an event, an event is bad or the list has ended: `_Sieve`, which is slower,
        finds out which.
        """
        cut = buffer.rfind(separator)
        if cut < 0 or len(buffer) - cut > SIFTED_BYTES:
            return None
        end = cut + separator.index(b"}") + 1
        try:
            events = self._decoder.decode(b"".join((b"[", memoryview(buffer)[:end], b"]")))
        except FAULTS:
            return None
        return _Decoded(events, cut + len(separator) - 1) if events else None

    def _header(self, stream: BinaryIO) -> bytes:
        """Read up to the first event and keep the fields before it; what was read beyond is returned."""
        buffer = b""
        while True:
            more = stream.read(max(BLOCK_BYTES, len(buffer)))
            buffer += more
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
            if not more or len(buffer) > LARGEST_HEAD:
                fault = fault or _Damage('the list "traceEvents" is missing', REPAIR)
                raise _Damage(self.file.fault, TRUNCATED) if self.file.fault else fault

    def _sifted(self, buffer: bytes, separator: bytes, *, is_last: bool) -> _Decoded:
        """The good events of a buffer, as far as events end in it; the others are left out, and counted."""
        if not is_last and len(buffer) < SIFTED_BYTES and (not separator or separator not in buffer):
            return _Decoded([], 0)
        sieve = _Sieve(buffer, separator, self._decoder)
        events = sieve.good(list(sieve.pieces()))
        for place, fault in sorted(sieve.faults):
            self.left_out.setdefault(fault, array("q")).append(self._position + place)
        if sum(map(len, self.left_out.values())) > MOST_FAULTS:
            first = min(places[0] for places in self.left_out.values())
            raise _Damage(f"more than {MOST_FAULTS:,} of its events are none, the first at byte {first}", REPAIR)
        if is_last and not sieve.ended:
            broken = self.file.fault
            if not self.partial:
                raise _Damage(f"the file cannot be unpacked to its end: {broken}" if broken else CUT, TRUNCATED)
            self.damage = broken or CUT
            return _Decoded(events, len(buffer), ended=True)
        if not sieve.place and len(buffer) > LARGEST_EVENT:
            where = f"after event {self.events}, at byte {self._position}"
            raise _Damage(f"no event ends in the {len(buffer)} bytes {where}", REPAIR)
        return _Decoded(events, sieve.place, sieve.ended)

    def _trailer(self, rest: bytes, stream: BinaryIO) -> None:
        """The fields behind the events; the file must end with them."""
        more = b" "
        while more:
            more = stream.read(max(BLOCK_BYTES, len(rest)))
            rest += more
            if self.file.fault:
                raise _Damage(f"the file cannot be unpacked to its end: {self.file.fault}", TRUNCATED)
            if more and len(rest) > LARGEST_TRAILER:
                raise _Damage(f"the fields behind the events have more than {LARGEST_TRAILER >> 20} MiB", REPAIR)
        text = rest.strip()
        if text not in {b"", b"}"}:
            self._keep(b"{" + text.removeprefix(b","), self._position)
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


def _separator_of(buffer: bytes) -> bytes:
    """From the end of an event to the beginning of the next one, as this file writes it; empty if that is not seen yet.

    The indentation before the closing brace belongs to it, so that the same bytes inside an event are seldom taken for it.
    """
    text = buffer[:LARGEST_FIRST].decode("utf-8", "replace")
    try:
        _, end = json.JSONDecoder().raw_decode(text, len(text) - len(text.lstrip()))
    except (ValueError, RecursionError):
        return b""
    found = _NEXT.match(text, end)
    if found is None:
        return b""
    _, broken, indent = text[:end].rpartition("}")[0].rpartition("\n")
    return (("\n" + indent if broken and not indent.strip() else "") + "}" + found[0]).encode()


def _behind_blanks(text: bytes, place: int = 0) -> int:
    """Where the first event from here on begins."""
    found = _GAP.match(text, place)
    return found.end() if found else place


class _Sieve:
    """The events of a text one by one, as far as they end in it; the text begins with one."""

    def __init__(self, text: bytes, separator: bytes, decoder: EventDecoder) -> None:
        self.text, self.separator, self.decoder = text, separator, decoder
        self.place = 0
        self.ended = False
        self.faults: list[tuple[int, str]] = []
        """Where a bad event begins and what is wrong, in words that fit behind a number of them."""

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Beginning and end of each event; `place` is behind the last one, and behind what is between."""
        text = self.text
        while True:
            start = _behind_blanks(text, self.place)
            if text[start : start + 1] == b"]":
                self.place, self.ended = start + 1, True
                return
            end = self._end(start)
            if end is None:
                end = self._next(start)
                if end is None:
                    return
                self.faults.append((start, "whose text does not end"))
            elif text[start : start + 1] == b"{":
                yield start, end
            else:
                self.faults.append((start, "that are no objects"))
            self.place = _behind_blanks(text, end)

    def good(self, pieces: list[tuple[int, int]]) -> list[Event]:
        """The events of these pieces; the bad ones are found by halving."""
        if not pieces:
            return []
        text = b"[%b]" % b",".join([self.text[start:end] for start, end in pieces])
        try:
            return self.decoder.decode(text)
        except FAULTS as exc:
            if len(pieces) == 1:
                self.faults.append((pieces[0][0], _fault_of(exc)))
                return []
        half = len(pieces) // 2
        return self.good(pieces[:half]) + self.good(pieces[half:])

    def _end(self, start: int) -> int | None:
        """Where the value ends that begins here; None where it does not, or only beyond what looks like the next event."""
        text = self.text
        if text[start : start + 1] in (b"{", b"[", b'"'):
            end = _end_of_value(text, start)
        else:
            word = _WORD.match(text, start)
            end = word.end() if word and word.end() < len(text) else None
        if end is not None and b"\n" in self.separator:  # which occurs in no event
            cut = text.find(self.separator, start, end)
            if 0 <= cut < end - len(self.separator):
                return None
        return end

    def _next(self, start: int) -> int | None:
        """Where the next good event begins, if one can be found."""
        place = start
        for _ in range(TRIES if self.separator else 0):
            cut = self.text.find(self.separator, place + 1)
            if cut < 0:
                return None
            place = cut + len(self.separator) - 1
            end = _end_of_value(self.text, place)
            if end is not None and _MARK in self.text[place:end]:
                try:
                    self.decoder.decode(b"[%b]" % self.text[place:end])
                except FAULTS:
                    continue
                return place
        return None


def _end_of_value(text: bytes, start: int) -> int | None:
    depth = 0
    for found in _STRUCTURE.finditer(text, start):
        first = text[found.start()]
        depth += (first in b"{[") - (first in b"}]")
        if depth <= 0:
            return found.end()
        if depth > DEEPEST:
            return None
    return None


def _fault_of(fault: Exception) -> str:
    text = str(fault)
    if isinstance(fault, UnicodeDecodeError):
        return "that are not UTF-8 text"
    if (field := _FIELD.search(text)) is not None:
        return f"with a wrong value in {field[1]!r}"
    if isinstance(fault, RecursionError):
        return "that hold one another too deeply"
    return f"that are damaged ({text.partition(' (byte')[0].removeprefix('JSON is malformed: ').partition(' - at')[0]})"
