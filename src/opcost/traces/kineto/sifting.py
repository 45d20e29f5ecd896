"""Events one by one, where a block of them cannot be decoded at once: bad ones are left out, and what is wrong is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from opcost.traces.kineto.event import Event

TRIES = 16
"""How many places are looked at for the next event where one does not end."""

DEEPEST = 1000
"""Levels of a value; no decoder goes deeper, and brackets without an end are not counted to theirs."""

_GAP = re.compile(rb"[\s,]*")
_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_WORD = re.compile(rb"[^\s,{\[\]]+")
_FIELD = re.compile(r"at `\$\[\d+\](?:\.\w+)?\.(\w+)`")
_OPENING, _CLOSING = b"{[", b"}]"
_MARK = b'"ph"'
"""A field that every event has, and what stands inside of one does not."""


class Fault(NamedTuple):
    """What is wrong with an event, in words that fit behind a number of them, and where it begins."""

    kind: str
    place: int


class Sifted(NamedTuple):
    """The good events, what is wrong with the others, how many bytes that took, and whether the list ended with them."""

    events: list[Event]
    faults: list[Fault]
    used: int
    ended: bool


def blanks(text: bytes) -> int:
    """How many bytes stand before the first event."""
    found = _GAP.match(text)
    return found.end() if found else 0


def sift(
    text: bytes, separator: bytes, decode: Callable[[bytes], list[Event]], faults: tuple[type[Exception], ...]
) -> Sifted:
    """Take the events apart by their braces, as far as they end in this text, which begins with one."""
    apart = _Apart(text, separator, decode, faults)
    pieces = list(apart.pieces())
    bad: list[Fault] = []
    events = _decoded(apart, pieces, bad)
    return Sifted(events, sorted(apart.lost + bad, key=lambda fault: fault.place), apart.place, apart.ended)


class _Apart:
    """The places of the events in a text."""

    def __init__(
        self, text: bytes, separator: bytes, decode: Callable[[bytes], list[Event]], faults: tuple[type[Exception], ...]
    ) -> None:
        self.text, self.separator, self.decode, self.faults = text, separator, decode, faults
        self.place = 0
        self.ended = False
        self.lost: list[Fault] = []

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Beginning and end of each event; `place` is behind the last one, and behind what stands between."""
        text = self.text
        while True:
            start = self.place + blanks(memoryview(text)[self.place :])  # type: ignore[arg-type]
            if text[start : start + 1] == b"]":
                self.place, self.ended = start + 1, True
                return
            end = self._end(start)
            if end is None:
                end = self._next(start)
                if end is None:
                    return
                self.lost.append(Fault("whose text does not end", start))
            elif text[start : start + 1] == b"{":
                yield start, end
            else:
                self.lost.append(Fault("that are no objects", start))
            self.place = end + blanks(memoryview(text)[end:])  # type: ignore[arg-type]

    def _end(self, start: int) -> int | None:
        """Where the value ends that begins here; None where it does not, or only beyond what looks like the next event."""
        text = self.text
        if text[start : start + 1] in (b"{", b"[", b'"'):
            end = _end_of_value(text, start)
        else:
            word = _WORD.match(text, start)
            end = word.end() if word and word.end() < len(text) else None
        if end is not None and b"\n" in self.separator:  # which stands in no event
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
                    self.decode(b"[%b]" % self.text[place:end])
                except self.faults:
                    continue
                return place
        return None


def _end_of_value(text: bytes, start: int) -> int | None:
    depth = 0
    for found in _STRUCTURE.finditer(text, start):
        first = text[found.start()]
        depth += (first in _OPENING) - (first in _CLOSING)
        if depth <= 0:
            return found.end()
        if depth > DEEPEST:
            return None
    return None


def _decoded(apart: _Apart, pieces: list[tuple[int, int]], bad: list[Fault]) -> list[Event]:
    """The events of these pieces; the bad ones are found by halving."""
    if not pieces:
        return []
    try:
        return apart.decode(b"[%b]" % b",".join([apart.text[start:end] for start, end in pieces]))
    except apart.faults as exc:
        if len(pieces) == 1:
            bad.append(Fault(_kind(exc), pieces[0][0]))
            return []
    half = len(pieces) // 2
    return _decoded(apart, pieces[:half], bad) + _decoded(apart, pieces[half:], bad)


def _kind(fault: Exception) -> str:
    text = str(fault)
    if isinstance(fault, UnicodeDecodeError):
        return "that are not UTF-8 text"
    if (field := _FIELD.search(text)) is not None:
        return f"with a wrong value in {field[1]!r}"
    if isinstance(fault, RecursionError):
        return "that hold one another too deeply"
    return f"that are damaged ({text.partition(' (byte')[0].removeprefix('JSON is malformed: ').partition(' - at')[0]})"
