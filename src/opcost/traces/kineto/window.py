"""The part of a file that is being decoded: read into one place, decoded there, and moved up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

_OPEN, _CLOSE = b"[]"


class Window:
    """Bytes between a stream and a decoder of lists; an opening bracket always stands in front of them.

    What was decoded from `closed` may refer to these bytes, so it must be used up before the window is moved.
    """

    def __init__(self, beginning: bytes, block: int) -> None:
        self._block = block
        self._bytes = bytearray(b"[" + beginning)
        self._end = len(self._bytes)

    def fill(self, stream: BinaryIO) -> int:
        """Read a block behind what is there, or as much as that already is; how many bytes came."""
        room = max(self._block, self._end)
        self._reserve(room)
        free = memoryview(self._bytes)[self._end : self._end + room]
        read: int = stream.readinto(free)  # type: ignore[attr-defined]  # every binary stream that is opened has it
        self._end += read
        return read

    def append(self, more: bytes) -> None:
        self._reserve(len(more))
        self._bytes[self._end : self._end + len(more)] = more
        self._end += len(more)

    def last(self, text: bytes) -> int | None:
        """Where this text stands for the last time."""
        place = self._bytes.rfind(text, 1, self._end)
        return None if place < 0 else place - 1

    def __len__(self) -> int:
        return self._end - 1

    def content(self) -> bytes:
        return bytes(memoryview(self._bytes)[1 : self._end])

    @contextmanager
    def closed(self, end: int) -> Iterator[memoryview]:
        """The bytes before `end` as a list: a bracket on either side."""
        place = end + 1
        under = self._bytes[place]
        self._bytes[place] = _CLOSE
        try:
            yield memoryview(self._bytes)[: place + 1]
        finally:
            self._bytes[place] = under

    def drop(self, count: int) -> None:
        """Forget so many bytes from the beginning."""
        left = self._end - 1 - count
        self._bytes[1 : 1 + left] = self._bytes[1 + count : self._end]
        self._end = 1 + left

    def _reserve(self, room: int) -> None:
        """Make room; the old bytes may still be referred to, so they stay as they are."""
        if self._end + room > len(self._bytes):
            self._bytes = self._bytes[: self._end] + bytes(2 * room)
