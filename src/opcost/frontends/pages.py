"""The bytes of a dump, read as they are asked for: a graph is small, the weights between its tables may be gigabytes.

A map of the file would be shorter, but a file that is cut while it is mapped ends the process. A read that comes back short
is an error like any other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from opcost.core.reading import length_of, opened
from opcost.errors import SourceError

SMALL = 4 << 20
"""Bytes of a file that is read at once."""
_SHIFT = 14
"""Of a larger one, pages of so many bits are read."""
_MOST_PAGES = 2048
"""So many pages are kept, 32 MiB."""


class Pages:
    """Numbers and pieces of a file by their position; who asks has checked that they lie inside."""

    __slots__ = ("_file", "_mask", "_pages", "_shift", "size", "what")

    def __init__(self, content: bytes | BinaryIO, size: int, what: str) -> None:
        self.size = size
        self.what = what
        self._pages: dict[int, bytes] = {}
        self._file: BinaryIO | None = None
        self._shift = 63
        if isinstance(content, bytes):
            self._pages[0] = content
        else:
            self._file, self._shift = content, _SHIFT
        self._mask = (1 << self._shift) - 1

    def unpack(self, form: struct.Struct, at: int) -> tuple[Any, ...]:
        """What stands here in this form."""
        page = self._pages.get(at >> self._shift)
        if page is None:
            page = self._page(at >> self._shift)
        inside = at & self._mask
        if inside + form.size <= len(page):
            return form.unpack_from(page, inside)
        return form.unpack(self.piece(at, form.size))

    def piece(self, at: int, size: int) -> bytes:
        """So many bytes from here on."""
        if self._file is None:
            found = self._pages[0][at : at + size]
        else:
            self._file.seek(at)
            found = self._file.read(size)
        if len(found) < size:
            raise SourceError(
                f"{self.what} became shorter while it was read: {size} bytes were expected at byte {at}",
                hint="read it again when nobody writes to it",
            )
        return found

    def beginning(self, size: int) -> bytes:
        """The first bytes, or all if there are fewer."""
        return self.piece(0, min(size, self.size))

    def _page(self, number: int) -> bytes:
        if len(self._pages) >= _MOST_PAGES:
            self._pages.clear()
        start = number << self._shift
        page = self._pages[number] = self.piece(start, min(1 << self._shift, self.size - start))
        return page


@contextmanager
def pages_of(path: str | Path) -> Iterator[Pages]:
    """The bytes of a file, as long as it is open."""
    with opened(path) as file:
        size = length_of(file)
        yield Pages(file.read(size) if size <= SMALL else file, size, str(path))
