"""Zip archives that a user named: listed and read in little memory, and whatever is wrong with one is one clear error."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

LARGEST_DIRECTORY = 8 << 20
"""Bytes of an archive's list of members: a hundred thousand of them."""

_FAULTS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, NotImplementedError, RuntimeError, EOFError, ValueError,
)  # fmt: skip
"""What a damaged archive raises while it is opened or a member of it is read; OSError is what the disk raises."""


class BadArchive(Exception):
    """It is not an archive, or a damaged one; the text says why."""


@contextmanager
def archive_in(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    """The archive in an open file.

    Its members are stored or deflated: none of the programs whose files are read here writes another packing, and some
    need gigabytes to unpack.
    """
    careful = _Careful(file)
    try:
        with zipfile.ZipFile(cast("BinaryIO", careful)) as archive:
            careful.listed = True
            for member in archive.infolist():
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise BadArchive(f"its member {member.filename[:80]!r} is packed in an unusual way")
            yield archive
    except _FAULTS as exc:
        raise BadArchive(str(exc) or type(exc).__name__) from exc


class _Careful:
    """A file whose list of members, which is read at once, is not read if it is unbelievably long."""

    def __init__(self, file: BinaryIO) -> None:
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self._file = file
        self.listed = False

    def read(self, size: int = -1) -> bytes:
        if size > LARGEST_DIRECTORY and not self.listed:
            raise BadArchive(f"its list of members is said to have {size} bytes")
        return self._file.read(size)
