"""Files that a user named: reading that never hangs, and writing that replaces a file as a whole.

Reading: a regular file is read in place. A pipe (`<(...)`, the standard input, a named pipe) is copied into an unnamed temporary
file as far as it is needed, because everything here is read more than once: first what it is, then what is in it. Devices,
sockets and directories are refused, and so is a file that changes while it is read.

Writing: into a new file beside the target, which replaces it once it is on the disk. Whatever happens on the way, a full disk,
Ctrl-C, a kill, the old file is untouched, and a reader sees one of the two whole. The new file has the permissions of the old
one, and a link is followed. What is not an ordinary file, as `/dev/stdout`, a pipe or a device, is written directly. The folder
must be writable too: a file that was overwritten in place could be lost.
"""

from __future__ import annotations

import errno
import io
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from os import PathLike, fspath
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from opcost.errors import OpcostError, SourceError, UnknownSource, WriteError

Named: TypeAlias = "str | PathLike[str]"

STDIN = "/dev/stdin"
LARGEST_PIPE = 2 << 30  # bytes that are kept of a pipe; a trace of a gigabyte may be unpacked into one
WRITER_TIMEOUT_S = 0.5  # how long a pipe may have no writer before that is an error

_BLOCK = 1 << 20
_KINDS = {stat.S_IFDIR: "directory", stat.S_IFCHR: "device", stat.S_IFBLK: "device", stat.S_IFSOCK: "socket"}
_HINT = "name a file; `-` reads what is piped in"

_kept: ContextVar[dict[tuple[int, int], _Pipe] | None] = ContextVar("_kept", default=None)


@contextmanager
def keep_pipes() -> Iterator[None]:
    """The contents of pipes are kept until the outermost of these blocks ends, so that each can be opened again."""
    if _kept.get() is not None:
        yield
        return
    kept: dict[tuple[int, int], _Pipe] = {}
    before = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(before)
        for pipe in kept.values():
            pipe.close()


@contextmanager
def opened(path: Named) -> Iterator[BinaryIO]:
    """The file, buffered and at its beginning; any fault is a `SourceError`."""
    try:
        with _checked(path) as file:
            yield file
    except OSError as exc:
        raise SourceError(f"{fspath(path)} cannot be read: {exc.strerror or exc}") from exc


def head_of(path: Named, length: int) -> bytes:
    """The first bytes."""
    with opened(path) as file:
        return file.read(length)


def length_of(file: BinaryIO) -> int:
    """How many bytes an opened file has; it is at its beginning again afterwards."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def read_whole(path: Named, most: int, what: str) -> bytes:
    """The whole content, unless it is larger than any such file."""
    with opened(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise SourceError(f"{fspath(path)} has more than {most >> 20} MiB, which no {what} has")
    return content


def is_nameless(path: Named) -> bool:
    """Whether it is a pipe or an open descriptor, so that its name says nothing about its content."""
    return fspath(path).startswith((STDIN, "/dev/fd/", "/proc/self/fd/")) or Path(path).is_fifo()


@contextmanager
def _checked(path: Named) -> Iterator[BinaryIO]:
    """Open a regular file, or a pipe as a file with its content."""
    try:
        _refuse(path, Path(path).stat().st_mode)
        # Without blocking: opening a pipe without a writer would wait, and the file may have been replaced since the check.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise UnknownSource(f"there is no file {fspath(path)}") from exc
    except ValueError as exc:
        raise SourceError(f"{fspath(path)!r} cannot be read: {exc}") from exc
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        _refuse(path, found.st_mode)
        if stat.S_ISFIFO(found.st_mode):
            with _piped(path, descriptor, (found.st_dev, found.st_ino)) as content:
                yield content
        elif found.st_size == 0:  # also every file under /proc, some of which never end
            hint = "the program that wrote it may have ended too early"
            raise UnknownSource(f"{fspath(path)} is an empty file", hint=hint)
        else:
            fault: OpcostError | None = None
            try:
                yield file
            except OpcostError as exc:
                fault = exc
            after = os.fstat(descriptor)
            if (found.st_size, found.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                # What was read is of two files, which explains any fault.
                hint = "read it again when no program writes to it"
                raise SourceError(f"{fspath(path)} changed while it was read", hint=hint) from fault
            if fault is not None:
                raise fault


def _refuse(path: Named, mode: int) -> None:
    if (what := _KINDS.get(stat.S_IFMT(mode))) is not None:
        raise SourceError(f"{fspath(path)} cannot be read: it is a {what}, not a file", hint=_HINT)


@contextmanager
def _piped(path: Named, descriptor: int, key: tuple[int, int]) -> Iterator[BinaryIO]:
    kept = _kept.get()
    pipe = kept.get(key) if kept else None
    if pipe is None:
        pipe = _Pipe(fspath(path), os.dup(descriptor))
        if kept is not None:
            kept[key] = pipe
    try:
        yield cast("BinaryIO", io.BufferedReader(PositionedFile(pipe.read, lambda: pipe.fill(math.inf))))
    finally:
        if kept is None:
            pipe.close()


class _Pipe:
    """The content of a pipe, as far as it was needed, in a temporary file without a name."""

    def __init__(self, name: str, descriptor: int) -> None:
        from tempfile import TemporaryFile

        self._name = name
        self._source = descriptor
        self._file = TemporaryFile(buffering=0)  # noqa: SIM115 - closed below
        self._size = 0
        self._ended = False

    def close(self) -> None:
        os.close(self._source)
        self._file.close()

    def read(self, at: int, size: int) -> bytes:
        self.fill(at + size)
        return os.pread(self._file.fileno(), size, at)

    def fill(self, wanted: float) -> int:
        """Read from the pipe until there are `wanted` bytes, or no more; returns how many there are."""
        while self._size < wanted and not self._ended:
            block = os.read(self._source, _BLOCK) if self._size else self._first()
            self._ended = not block
            self._size += len(block)
            if self._size > LARGEST_PIPE:
                hint = "save it as a file"
                raise SourceError(f"more than {LARGEST_PIPE >> 30} GiB come through {self._name}", hint=hint)
            self._file.write(block)
        return self._size

    def _first(self) -> bytes:
        """The first block, waited for as long as there is a writer; a pipe without one is an error."""
        deadline = time.monotonic() + WRITER_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                block = os.read(self._source, _BLOCK)
            except BlockingIOError:  # a writer has it open
                os.set_blocking(self._source, True)
                block = os.read(self._source, _BLOCK)
                deadline = 0
            if block:
                os.set_blocking(self._source, True)
                return block
            time.sleep(0.01)
        hint = "the program that should write into it has ended, or has not started"
        raise SourceError(f"nothing comes through the pipe {self._name}", hint=hint)


class PositionedFile(io.RawIOBase):
    """What a function reads from a place on, as a file with a position of its own, so that it can be open more than once."""

    def __init__(self, read: Callable[[int, int], bytes], length: Callable[[], int]) -> None:
        self._read, self._length = read, length
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = self._length() if whence == os.SEEK_END else self._at if whence == os.SEEK_CUR else 0
        self._at = max(start + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        found = self._read(self._at, len(buffer))
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


# -- writing -----------------------------------------------------------------------------------------------------------

UNFINISHED = ".opcost-unfinished-"  # begins the name of the new file, should a kill leave it; no reader takes it
ABANDONED_AFTER = 3600  # seconds after which such a file was left by a killed run

_ABANDONED = re.compile(re.escape(UNFINISHED) + "[0-9a-f]{16}")
_OPEN_ALREADY = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})")
_MOST_LINKS = 40
_CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # errors of file systems without a flush

_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_HINTS = {
    errno.EISDIR: "name a file in it",
    errno.ENOENT: "make it first, or write elsewhere",
    errno.ENOSPC: "make room, or write elsewhere",
    errno.EDQUOT: "make room, or write elsewhere",
    errno.EFBIG: "allow larger files (ulimit -f), or write elsewhere",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def write_text(path: Named, text: str) -> None:
    """Replace a file by this text; half of a surrogate pair, which UTF-8 cannot hold, is written as its escape."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Named, data: bytes) -> None:
    """Replace a file by this content, or leave it as it is and raise `WriteError`."""
    try:
        if (stream := _stream(path)) is None:
            _replace(Path(os.path.realpath(path)), data)
            return
        with os.fdopen(os.dup(stream), "wb") if isinstance(stream, int) else stream.open("wb") as file:
            file.write(data)
    except BrokenPipeError:
        raise  # the reader of a pipe went away, which is not the file's fault
    except (OSError, ValueError) as exc:
        raise _fault(path, exc) from exc


def is_stream(path: Named) -> bool:
    """Whether this is not an ordinary file but a stream, whose name says nothing about its content."""
    try:
        return _stream(path) is not None
    except (OSError, ValueError):
        return False


def check_writable(path: Named) -> None:
    """Raise, before minutes of work and not after them, where the result could not be written."""
    try:
        if _stream(path) is not None:
            return
        target = Path(os.path.realpath(path))
        _check_may_write(target, _stat(target))
        target.parent.stat()
        effective = os.access in os.supports_effective_ids
        if not os.access(target.parent, os.W_OK | os.X_OK, effective_ids=effective):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target.parent / UNFINISHED))
    except (OSError, ValueError) as exc:
        raise _fault(path, exc) from exc


def _replace(target: Path, data: bytes) -> None:
    old = _stat(target)
    _check_may_write(target, old)
    _remove_abandoned(target.parent)
    unfinished = target.with_name(UNFINISHED + os.urandom(8).hex())
    try:
        with unfinished.open("xb") as file:
            if old is not None:
                _keep_permissions(unfinished, old)
            file.write(data)
            file.flush()
            _sync(file)
        unfinished.replace(target)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


def _sync(file: BinaryIO) -> None:
    # Not inside `_replace`: a Ctrl-C at the end of a nested `try` would pass its handler by (Python 3.11).
    try:
        os.fsync(file.fileno())
    except OSError as exc:
        if exc.errno not in _CANNOT_SYNC:
            raise


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed runs left behind; one that still writes touched its file a moment ago."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _ABANDONED.fullmatch(entry.name):
                with suppress(OSError):
                    if entry.is_file(follow_symlinks=False) and time.time() - entry.stat().st_mtime > ABANDONED_AFTER:
                        os.unlink(entry.path)  # noqa: PTH108 - an entry of scandir


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _check_may_write(target: Path, old: os.stat_result | None) -> None:
    """A folder, or a file that is protected, is not replaced, even where the folder around it would allow that."""
    if old is not None:
        os.close(os.open(target, os.O_WRONLY))


def _keep_permissions(unfinished: Path, old: os.stat_result) -> None:
    """The mode of the old file and, where the user may give them away, its group and its owner."""
    if hasattr(os, "chown"):
        for owner, group in ((-1, old.st_gid), (old.st_uid, -1)):
            with suppress(OSError):
                os.chown(unfinished, owner, group)
    unfinished.chmod(stat.S_IMODE(old.st_mode))


def _stream(path: Named) -> int | Path | None:
    """The number of an open file, a pipe or a device; None for files and folders."""
    if (number := _descriptor(Path(path))) is not None:
        return number
    old = _stat(Path(path))
    return None if old is None or stat.S_ISREG(old.st_mode) or stat.S_ISDIR(old.st_mode) else Path(path)


def _descriptor(path: Path) -> int | None:
    """The number behind `/dev/stdout`, `/dev/fd/63` or a link to them.

    It may be an ordinary file, but one that other programs have open, so it must stay the same file.
    """
    for _ in range(_MOST_LINKS):
        name = os.path.normpath(path.absolute())
        if found := _OPEN_ALREADY.fullmatch(name):
            return int(found[1])
        try:
            path = Path(name).parent / Path(name).readlink()
        except (OSError, ValueError):
            return None
    return None


def _fault(path: Named, exc: OSError | ValueError) -> WriteError:
    """What, where, why, and what to do."""
    name = os.fspath(path)
    if not isinstance(exc, OSError):
        return WriteError(f"{name} cannot be written: {exc}", hint="choose another name")
    why, folder = exc.strerror or str(exc), Path(os.path.realpath(name)).parent
    hint = _HINTS.get(exc.errno or 0, "write elsewhere")
    if exc.errno == errno.EISDIR:
        why = "it is a folder"
    elif exc.errno == errno.ENOENT:
        why = f"there is no folder {folder}"
    elif exc.errno in _FORBIDDEN and UNFINISHED in str(exc.filename):
        why = f"{why} in the folder {folder}"
        hint = "a file is replaced as a whole, so its folder must be writable too; write elsewhere"
    with suppress(OSError):
        if _stream(path) is None and Path(path).is_file():
            why += "; the old file is unchanged"
    return WriteError(f"{name} cannot be written: {why}", hint=hint)
