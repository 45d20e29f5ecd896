"""A file that a user named: opened here and nowhere else, so that nothing that can be named hangs or never ends.

A regular file is read where it lies. What comes through a pipe (`<(...)`, the standard input, a named pipe) is kept in a
temporary file without a name as far as it is asked for, because everything here is read more than once: first what it is,
then what is in it. Devices, sockets and directories are refused by what they are, and so is a file that changes while it
is read.
"""

from __future__ import annotations

import io
import math
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike, fspath
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from opcost.errors import OpcostError, SourceError, UnknownSource

Named: TypeAlias = "str | PathLike[str]"

STDIN = "/dev/stdin"
LARGEST_PIPE = 2 << 30
"""Bytes that are kept of a pipe; a trace of a gigabyte may be unpacked into one."""
NOBODY_WRITES_S = 0.5
"""How long a pipe may have no writer before it counts as one that nobody writes into."""

_BLOCK = 1 << 20
_KINDS = (
    (stat.S_ISDIR, "a directory, not a file"),
    (stat.S_ISCHR, "a device, not a file"),
    (stat.S_ISBLK, "a device, not a file"),
    (stat.S_ISSOCK, "a socket, not a file"),
)
_HINT = "name a file; `-` reads what is piped in"

_kept: ContextVar[dict[tuple[int, int], _Pipe] | None] = ContextVar("_kept", default=None)


@contextmanager
def pipes_kept() -> Iterator[None]:
    """What comes through pipes is kept until the outermost of these blocks ends, so that each can be opened again."""
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
    """The file, buffered and at its beginning; whatever goes wrong with it is one clear error."""
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


def whole(path: Named, most: int, what: str) -> bytes:
    """Everything, unless that is more than is believed of such a file."""
    with opened(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise SourceError(f"{fspath(path)} has more than {most >> 20} MiB, which no {what} has")
    return content


def is_nameless(path: Named) -> bool:
    """Whether it comes through a pipe or an open descriptor, so that its name tells nothing about it."""
    return fspath(path).startswith((STDIN, "/dev/fd/", "/proc/self/fd/")) or Path(path).is_fifo()


@contextmanager
def _checked(path: Named) -> Iterator[BinaryIO]:
    """Open what may be opened; a pipe is replaced by what comes through it."""
    try:
        _refuse(path, Path(path).stat().st_mode)
        # Without blocking: a pipe that nobody writes into would be waited for, and what is opened may no longer be
        # what was looked at.
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
            raise UnknownSource(
                f"{fspath(path)} is an empty file", hint="the program that wrote it may have ended too early"
            )
        else:
            yield from _unchanged(path, file, found)


def _refuse(path: Named, mode: int) -> None:
    for holds, what in _KINDS:
        if holds(mode):
            raise SourceError(f"{fspath(path)} cannot be read: it is {what}", hint=_HINT)


def _unchanged(path: Named, file: BinaryIO, before: os.stat_result) -> Iterator[BinaryIO]:
    """The file, and an error if it was written to meanwhile: what was read is then of two files, and no fault is its own."""
    fault: OpcostError | None = None
    try:
        yield file
    except OpcostError as exc:
        fault = exc
    after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise SourceError(
            f"{fspath(path)} changed while it was read", hint="read it again when nobody writes to it"
        ) from fault
    if fault is not None:
        raise fault


@contextmanager
def _piped(path: Named, descriptor: int, key: tuple[int, int]) -> Iterator[BinaryIO]:
    kept = _kept.get()
    pipe = kept.get(key) if kept else None
    if pipe is None:
        pipe = _Pipe(fspath(path), os.dup(descriptor))
        if kept is not None:
            kept[key] = pipe
    try:
        yield cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", _Again(pipe))))
    finally:
        if kept is None:
            pipe.close()


class _Pipe:
    """What comes through a pipe, as far as it was asked for, in a temporary file that has no name."""

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
        """Take from the pipe until there are so many bytes, or no more; how many there are."""
        while self._size < wanted and not self._ended:
            block = self._next() if self._size else self._first()
            self._ended = not block
            self._size += len(block)
            if self._size > LARGEST_PIPE:
                raise SourceError(
                    f"more than {LARGEST_PIPE >> 30} GiB come through {self._name}", hint="save it as a file"
                )
            self._file.write(block)
        return self._size

    def _next(self) -> bytes:
        return os.read(self._source, _BLOCK)

    def _first(self) -> bytes:
        """What comes first, waited for as long as there is a writer; a pipe that nobody writes into is an error."""
        deadline = time.monotonic() + NOBODY_WRITES_S
        while time.monotonic() < deadline:
            try:
                block = self._next()
            except BlockingIOError:  # somebody holds it open and will write
                os.set_blocking(self._source, True)
                block = self._next()
                deadline = 0
            if block:
                os.set_blocking(self._source, True)
                return block
            time.sleep(0.01)
        raise SourceError(
            f"nothing comes through the pipe {self._name}",
            hint="the program that should write into it has ended, or has not started",
        )


class _Again(io.RawIOBase):
    """A pipe as a file with a position of its own, so that it can be open more than once."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = self._pipe.fill(math.inf) if whence == os.SEEK_END else self._at if whence == os.SEEK_CUR else 0
        self._at = max(start + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        found = self._pipe.read(self._at, len(buffer))
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)
