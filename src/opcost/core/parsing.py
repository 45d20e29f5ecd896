"""JSON and zip archives, checked before they are believed, and the tables that are part of the package."""

import json
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from reprlib import Repr
from typing import Any, BinaryIO, TypeVar, cast


def packaged_table(package: str, name: str) -> Any:
    """The JSON file of this name in a package, which may be a folder or in an archive."""
    return json.loads((files(package) / name).read_text(encoding="utf-8"))


# -- JSON of unknown origin --------------------------------------------------------------------------------------------

SMALL_TEXT = 8 << 20  # a text of this many bytes takes less than 300 MB when parsed, whatever is in it
BYTES_PER_CONTAINER = 12  # of `[],` in memory twenty times as many; real files have one in thirty bytes

_HALVES = re.compile(r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def parse(text: str, *, parse_constant: Callable[[str], Any] | None = None, **hooks: Any) -> Any:
    """The value of a text; any fault is a ValueError. NaN and Infinity are not JSON."""
    check_containers(text)
    try:
        return json.loads(text, parse_constant=parse_constant or _no_constant, **hooks)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def check_containers(text: str | bytes) -> None:
    """Raise ValueError for a large text of almost nothing but brackets, which would take too much memory."""
    if len(text) <= SMALL_TEXT:
        return
    marks: Any = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    containers = sum(text.count(mark) for mark in marks)
    if containers * BYTES_PER_CONTAINER > len(text):
        raise ValueError(f"its {len(text)} bytes hold {containers} lists and objects, which is not plausible")


def replace_lone_surrogates(text: str) -> str:
    """JSON in which half of a surrogate pair is replaced by U+FFFD."""
    if r"\ud" not in text and r"\uD" not in text:
        return text
    return _HALVES.sub(lambda found: r"\ufffd" if len(found[0]) == 6 else found[0], text)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


class Bad(Exception):
    """Something in a file is not what it must be; the text says what."""


class BadArchive(Bad):
    """Not an archive, or a damaged one."""


# -- zip archives ------------------------------------------------------------------------------------------------------

LARGEST_DIRECTORY = 8 << 20  # bytes of an archive's list of members: a hundred thousand of them

_ARCHIVE_FAULTS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, NotImplementedError, RuntimeError, EOFError, ValueError,
)  # fmt: skip
"""Raised by a damaged archive while it is opened or a member is read; OSError comes from the disk."""


@contextmanager
def archive_in(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    """The archive in an open file.

    Its members must be stored or deflated: no program whose files are read here uses another compression, and some of those
    need gigabytes to unpack.
    """
    checked = _CheckedFile(file)
    try:
        with zipfile.ZipFile(cast("BinaryIO", checked)) as archive:
            checked.listed = True
            for member in archive.infolist():
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise BadArchive(f"its member {member.filename[:80]!r} is packed in an unusual way")
            yield archive
    except _ARCHIVE_FAULTS as exc:
        raise BadArchive(str(exc) or type(exc).__name__) from exc


def read_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A member of up to `most` bytes; how large it is, is found by reading, since a header may lie."""
    with archive.open(name) as member:
        content = member.read(most + 1)
    if len(content) > most:
        raise BadArchive(f"{name[:100]!r} has more than {most >> 20} MiB")
    return content


class _CheckedFile:
    """A file whose list of members, which is read at once, is refused if it is implausibly long."""

    def __init__(self, file: BinaryIO) -> None:
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self._file = file
        self.listed = False

    def read(self, size: int = -1) -> bytes:
        if size > LARGEST_DIRECTORY and not self.listed:
            raise BadArchive(f"its list of members is said to have {size} bytes")
        return self._file.read(size)


# -- fields of a saved file, each checked to be what it must be ----------------------------------------------------------

LARGEST = 2**128  # no count of a real model comes near this; a larger one is damage, and could take for ever to print

T = TypeVar("T")


def instance(value: object, kind: type[T]) -> T:
    """The value, if it is of this type."""
    if not _is(value, kind):
        raise Bad(f"{short(value)} is not {_WORDS[kind]}")
    return value  # type: ignore[return-value]


def get(data: object, name: str, kind: type[T]) -> T:
    """The field of this name."""
    entries: Mapping[str, object] = instance(data, dict)
    if name not in entries:
        raise Bad(f"the field {name!r} is missing")
    value = entries[name]
    if not _is(value, kind):
        raise Bad(f"the field {name!r} holds {short(value)}, not {_WORDS[kind]}")
    return value  # type: ignore[return-value]


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def objects(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The field of this name, a list of objects."""
    return [instance(entry, dict) for entry in get(data, name, list)]


def short(value: object) -> str:
    """The value as text that fits into a message; of what is large or nested only a part is looked at."""
    text = _SHORT.repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 4, 60, 60, 60
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = _SHORT.maxfrozenset = 12
_WORDS: dict[type, str] = {dict: "an object", list: "a list", str: "a text", int: "an integer", bool: "true or false"}
