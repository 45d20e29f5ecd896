"""Where reduced files are kept, so that a run that was stopped goes on, and the next one has only what changed to read.

A table is named by the content of the file that it was made of, the reader, and the version of both. Nothing is written beside
a user's file unless that folder is named.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.core.files import opened, write_bytes
from opcost.errors import SourceError, WriteError
from opcost.traces.ranks.columns import CACHE_VERSION, NUMBERS, TEXTS
from opcost.version import __version__

if TYPE_CHECKING:
    import polars as pl

NOWHERE = "none"
SUFFIX = ".opcost.parquet"
LARGEST = 2 << 30
"""Bytes of all that is kept in the usual folder; above, what was not used for longest goes."""


def usual_folder() -> Path:
    """The folder of the user's caches on this system."""
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        home = Path.home() / "Library" / "Caches"
    else:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "opcost" / "ranks"


def folder_of(cache: str | PathLike[str] | None) -> Path | None:
    """The folder that is meant: None is the usual one, and "none" that nothing is kept."""
    if cache is None:
        return usual_folder()
    if str(cache) == NOWHERE:
        return None
    folder = Path(cache)
    if folder.exists() and not folder.is_dir():
        raise SourceError(f"{folder} is a file, and caches are kept in a folder", hint=f"name a folder, or {NOWHERE}")
    return folder.absolute()


class Kept:
    """The place of one file's table."""

    def __init__(self, folder: str, file: Path, reader: str | None) -> None:
        self._path = Path(folder) / f"{_key(file, reader)}{SUFFIX}"

    def read(self, pl: Any) -> pl.DataFrame | None:
        """The table, if it is there and whole; one that is broken or has other columns or types is made anew."""
        try:
            found: pl.DataFrame | None = pl.read_parquet(self._path)
        except (pl.exceptions.PolarsError, OSError):
            return None
        if not _has_columns(found, pl):
            return None
        with suppress(OSError):
            os.utime(self._path)
        return found

    def write(self, table: pl.DataFrame) -> None:
        """Keep a table; where nothing can be written, the next time costs the same again."""
        with suppress(WriteError, OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            content = BytesIO()
            table.write_parquet(content)
            write_bytes(self._path, content.getvalue())


def tidy(folder: Path) -> None:
    """Of the usual folder, take away what was not used for longest where there is too much."""
    if folder != usual_folder():
        return
    with suppress(OSError):
        kept = [(path, path.stat()) for path in folder.glob(f"*{SUFFIX}")]
        room = LARGEST
        for path, told in sorted(kept, key=lambda each: -each[1].st_mtime):
            room -= told.st_size
            if room < 0:
                path.unlink(missing_ok=True)


def _has_columns(table: Any, pl: Any) -> bool:
    """Whether the columns are those that are written, with their types."""
    kinds = table.schema
    return (
        list(kinds) == [*TEXTS, *NUMBERS]
        and all(kinds[name] == (pl.String if table.height else pl.Null) for name in TEXTS)
        and all(kinds[name].is_integer() or kinds[name] == pl.Null for name in NUMBERS)
    )


def _key(file: Path, reader: str | None) -> str:
    digest = hashlib.sha256(
        f"{__version__}:{CACHE_VERSION}:{reader or ''}:".encode()
    )  # processors have instructions for it
    with opened(file) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
