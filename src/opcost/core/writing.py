"""Files written whole or not at all: into a new file beside the target, which takes its place once it is on the disk.

Whatever happens on the way, a full disk, Ctrl-C, a kill, the old file is as it was, and who reads meanwhile sees one of the
two whole. The new file has the permissions of the old one, and a link is followed. What is not an ordinary file, as
`/dev/stdout`, a pipe or a device, is written to as it is. The folder must be writable too: a file that was overwritten in
place could be lost.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

from opcost.errors import WriteError

Target: TypeAlias = "str | os.PathLike[str]"

UNFINISHED = ".opcost-unfinished-"
"""What the name of the new file begins with, should a kill leave it behind. It has no suffix by which anybody would read it,
and it is short, however long the target's name is."""
ABANDONED_AFTER = 3600
"""Seconds after which such a file is one that a killed run left."""

_ABANDONED = re.compile(re.escape(UNFINISHED) + "[0-9a-f]{16}")
_OPEN_ALREADY = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})")
_MOST_LINKS = 40
_CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What file systems answer that have nothing to flush to."""

_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_HINTS = {
    errno.EISDIR: "name a file in it",
    errno.ENOENT: "make it first, or write elsewhere",
    errno.ENOSPC: "make room, or write elsewhere",
    errno.EDQUOT: "make room, or write elsewhere",
    errno.EFBIG: "allow larger files (ulimit -f), or write elsewhere",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def write_text(path: Target, text: str) -> None:
    """Replace a file by this text; half of a surrogate pair, which UTF-8 cannot hold, is written as its escape."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Target, data: bytes) -> None:
    """Replace a file by this content, or leave it as it is and raise `WriteError`."""
    try:
        if (stream := _stream(path)) is None:
            _replace(_real(path), data)
            return
        with os.fdopen(os.dup(stream), "wb") if isinstance(stream, int) else stream.open("wb") as file:
            file.write(data)
    except BrokenPipeError:
        raise  # the reader of a pipe went away, which is not the file's fault
    except (OSError, ValueError) as exc:
        raise _fault(path, exc) from exc


def is_stream(path: Target) -> bool:
    """Whether this is not an ordinary file but something that is written to as it is, whose name says nothing of its content."""
    try:
        return _stream(path) is not None
    except (OSError, ValueError):
        return False


def check_writable(path: Target) -> None:
    """Raise, before minutes of work and not after them, for a place where the result could not be kept."""
    try:
        if _stream(path) is not None:
            return
        target = _real(path)
        _ask_leave(target, _stat(target))
        target.parent.stat()
        effective = os.access in os.supports_effective_ids
        if not os.access(target.parent, os.W_OK | os.X_OK, effective_ids=effective):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target.parent / UNFINISHED))
    except (OSError, ValueError) as exc:
        raise _fault(path, exc) from exc


def _replace(target: Path, data: bytes) -> None:
    old = _stat(target)
    _ask_leave(target, old)
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


def _remove_abandoned(folder: Path) -> None:
    """Remove what runs that were killed left behind; one that still writes touched its file a moment ago."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _ABANDONED.fullmatch(entry.name):
                with suppress(OSError):
                    if entry.is_file(follow_symlinks=False) and time.time() - entry.stat().st_mtime > ABANDONED_AFTER:
                        os.unlink(entry.path)  # noqa: PTH108 - an entry of scandir


def _real(path: Target) -> Path:
    return Path(os.path.realpath(path))


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _ask_leave(target: Path, old: os.stat_result | None) -> None:
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


def _sync(file: BinaryIO) -> None:
    try:
        os.fsync(file.fileno())
    except OSError as exc:
        if exc.errno not in _CANNOT_SYNC:
            raise


def _stream(path: Target) -> int | Path | None:
    """What is written to as it is: the number of an open file, a pipe or a device; None for files and folders."""
    if (number := _descriptor(Path(path))) is not None:
        return number
    old = _stat(Path(path))
    return None if old is None or stat.S_ISREG(old.st_mode) or stat.S_ISDIR(old.st_mode) else Path(path)


def _descriptor(path: Path) -> int | None:
    """The number behind `/dev/stdout`, `/dev/fd/63` or a link to them.

    There may be an ordinary file behind it, but one that others have open too, so it must stay the same file.
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


def _fault(path: Target, exc: OSError | ValueError) -> WriteError:
    """What, where, why, and what to do."""
    name = os.fspath(path)
    if not isinstance(exc, OSError):
        return WriteError(f"{name} cannot be written: {exc}", hint="choose another name")
    why, folder = exc.strerror or str(exc), _real(name).parent
    hint = _HINTS.get(exc.errno or 0, "write elsewhere")
    if exc.errno == errno.EISDIR:
        why = "it is a folder"
    elif exc.errno == errno.ENOENT:
        why = f"there is no folder {folder}"
    elif exc.errno in _FORBIDDEN and UNFINISHED in str(exc.filename):
        why = f"{why} in the folder {folder}"
        hint = "a file is replaced as a whole, so its folder must be writable too; write elsewhere"
    unchanged = "; the old file is unchanged" if _is_file(path) else ""
    return WriteError(f"{name} cannot be written: {why}{unchanged}", hint=hint)


def _is_file(path: Target) -> bool:
    try:
        return _stream(path) is None and Path(path).is_file()
    except OSError:
        return False
