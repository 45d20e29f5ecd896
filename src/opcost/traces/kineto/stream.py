"""A Kineto trace decoded block by block: the events stream by, the file's other fields are kept.

msgspec decodes; this file only finds where a block of events may end. Whether a cut was right is not guessed: a block
that was cut inside an event does not decode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO

from opcost.core.parsing import mended, parse
from opcost.errors import MissingFramework, SourceError
from opcost.traces.file import DAMAGE, REPAIR, TRUNCATED, TraceFile
from opcost.traces.kineto.categories import IGNORED
from opcost.traces.kineto.window import Window

if TYPE_CHECKING:
    from opcost.traces.kineto.event import Event

BLOCK_BYTES = 1 << 16
"""What is decoded at once; the events of so many bytes stay in a processor's cache."""
LARGEST_HEAD = 1 << 24
"""If fields before the events are damaged, so much of the file is looked through before that is said."""
LARGEST_FIRST = 1 << 22
"""In so many bytes the first event must end."""
LARGEST_EVENT = 1 << 24
"""In so many bytes an event must end; a text or a list that never does is not waited for."""
LARGEST_TRAILER = 1 << 26
SMALLEST_EVENT = 32
"""Bytes that an event has at the least, taken over many: with a name and a time it has twice as many."""
LIST = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
"""The key, and not a text that holds its name."""
BARE = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
"""A list of events without an object around it."""
TRIES = 16
"""How many cuts of one block are tried before it counts as damaged."""

EXACT_BELOW = 2.0**43
UNSURE = (2.0**42 - 1e11, 2.0**52 / 1000 + 1e11)
"""Microseconds as a float, times 1000 and rounded, are the right nanoseconds below 2**43: what the float is off is less than
half a nanosecond. Only from 2**42 to 2**52 nanoseconds does the product add half a step of its own. A day more on either
side, because only some events are looked at."""

SAMPLES = 8
STRANGE = 4
"""The quick decoder is no longer tried if it failed in more than one of so many blocks, and more often than this."""

_NOT_FINITE = re.compile(rb"([:\[,]\s*)(-?(?:nan|inf|infinity))(?=\s*[,}\]])", re.IGNORECASE)
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
        self._strange = self._decoded_blocks = 0

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
        while True:
            read, broken = self._more(stream, window)
            cut = window.rfind(separator) if separator else -1
            if cut >= 0 and (found := self._straight(window, cut + separator.index(b"}") + 1)):
                self._count(len(found))
                yield found
                used = cut + len(separator) - 1
                self._position += used
                window.drop(used)
                continue
            buffer = window.content()
            separator = separator or _separator(buffer)
            if read:
                cut = buffer.rfind(separator) if separator else -1
                if cut < 0:
                    if len(buffer) > LARGEST_EVENT:
                        raise _Damage(
                            f"no event ends in the {len(buffer)} bytes after event {self.events}, at byte {self._position}",
                            REPAIR,
                        )
                    continue
                events, used, ended = self._decode(buffer, cut, separator)
            else:
                events, used, ended = self._last(buffer, separator, broken)
            if events:
                self._count(len(events))
                yield events
            if broken and not ended:
                raise _Damage(f"the file cannot be unpacked to its end: {broken}", TRUNCATED)
            self._position += used
            window.drop(used)
            if ended:
                self._trailer(window.content(), stream)
                return

    def _count(self, events: int) -> None:
        """Count the events of a block; more than such bytes can hold are made to keep a reader busy."""
        self.events += events
        if self.events * SMALLEST_EVENT > self._position + LARGEST_EVENT:
            raise _Damage(f"{self.events} events stand in the first {self._position} bytes", REPAIR)

    def _straight(self, window: Window, end: int) -> list[Event]:
        """The events before `end`, decoded where they lie.

        Nothing where the cut was wrong or the list has ended: then the slower way finds out which.
        """
        with window.closed(end) as text:
            try:
                return self._decoded(text)
            except self._decoders.errors:
                return []

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
            if bare := BARE.match(buffer):
                self._position = bare.end()
                return buffer[bare.end() :]
            fault: _Damage | None = None
            for found in LIST.finditer(buffer):
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

    def _decoded(self, text: bytes | memoryview) -> list[Event]:
        """The events of a text; a number that is none, which some writers put into arguments, counts as missing."""
        try:
            return self._typed(text)
        except self._decoders.malformed as exc:
            finite = _NOT_FINITE.sub(_blank, bytes(text))
            if isinstance(exc, self._decoders.invalid) or finite == text:
                raise
        return self._typed(finite)

    def _typed(self, text: bytes | memoryview) -> list[Event]:
        if self._strange <= STRANGE or self._strange * STRANGE < self._decoded_blocks:
            self._decoded_blocks += 1
            try:
                return self._timed(text, self._decoders.quick, self._decoders.quick_exact)
            except self._decoders.invalid:
                self._strange += 1  # an event of a phase or a category that nobody knows
        return self._timed(text, self._decoders.plain, self._decoders.plain_exact)

    def _timed(self, text: bytes | memoryview, decoder: Any, exact: Any) -> list[Event]:
        if not self._exact:
            events: list[Event] = decoder.decode(text)
            sample = events[:: len(events) // SAMPLES + 1]  # one clock times all events of a file
            if not any(event.sort != IGNORED and _needs_decimals(event.ts) for event in sample):
                return events
            self._exact = True
        found: list[Event] = exact.decode(text)
        return found

    def _whole(self, buffer: bytes, separator: bytes) -> list[Event]:
        """Of a damaged buffer, the events before the damage, found by halving."""
        closing = separator.find(b"}") + 1
        cuts = [found.start() for found in re.finditer(re.escape(separator), buffer)] if separator else []
        low, high = 0, len(cuts)
        best: list[Event] = []
        while low < high:
            middle = (low + high + 1) // 2
            try:
                best = self._events(buffer, cuts[middle - 1] + closing, b"]")
                low = middle
            except self._decoders.errors:
                high = middle - 1
        last = _one_more(buffer, cuts[low - 1] + len(separator) - 1 if low else 0)
        try:
            return self._events(buffer, last, b"]") if last else best
        except self._decoders.errors:
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


class _Damage(Exception):
    """The file cannot be read beyond here; `saved` are events of the last block that stand before the damage."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
        self.saved: list[Event] = []


class _Decoders:
    """msgspec's decoders of a list of events: the quick ones know all phases and categories, the exact ones keep decimals."""

    def __init__(self) -> None:
        import msgspec

        from opcost.traces.kineto import event

        def decoder(of: Any) -> Any:
            return msgspec.json.Decoder(list[of])

        self.quick, self.quick_exact = decoder(event.quick(int | float)), decoder(event.quick(Decimal))
        self.plain, self.plain_exact = decoder(event.Event), decoder(event.DecimalEvent)
        self.errors = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
        self.invalid = msgspec.ValidationError
        self.malformed = msgspec.DecodeError


def _decoders() -> _Decoders:
    try:
        import msgspec  # noqa: F401
    except ModuleNotFoundError as exc:
        raise MissingFramework("reading a Kineto trace needs msgspec", hint="pip install msgspec") from exc
    return _made()


@cache
def _made() -> _Decoders:
    """Their types are put together once: that takes as long as a small trace."""
    return _Decoders()


def _blank(found: re.Match[bytes]) -> bytes:
    """An empty text as long as what it stands for, so that everything behind stays where it is."""
    return found[1] + b'""'.ljust(len(found[2]))


def _needs_decimals(time: float | None) -> bool:
    """Whether a float may be the wrong nanosecond, as on a clock that counts from 1970."""
    return type(time) is float and (time >= EXACT_BELOW or UNSURE[0] <= time < UNSURE[1])


def _end(found: re.Match[str]) -> int:
    """Where the list ended: msgspec counts bytes from one, and the bracket put in front is not in the buffer."""
    return int(found[1]) - 2


def _one_more(buffer: bytes, start: int) -> int:
    """Where the event ends that begins here; 0 where it does not end."""
    text = buffer[start:].decode("utf-8", "replace")
    try:
        _, end = json.JSONDecoder().raw_decode(text, len(text) - len(text.lstrip()))
    except (ValueError, RecursionError):
        return 0
    return start + len(text[:end].encode("utf-8", "replace"))


def _separator(buffer: bytes) -> bytes:
    """What stands between two events of this file, from the end of one to the beginning of the next."""
    text = buffer[:LARGEST_FIRST].decode("utf-8", "replace")
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
