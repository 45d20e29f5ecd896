"""Tables of an SQLite file that somebody else wrote: only read, never believed, nothing in it is carried out.

Whatever a file calls a table must be one: no view, no virtual table, no function and no recursion is asked. A damaged tree of
pages may lead in circles, and rows may share their pages, so no more rows and no longer texts are taken than the bytes of the
file can hold.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

from opcost.errors import SourceError
from opcost.traces.file import TraceFile

MAGIC = b"SQLite format 3\0"
SMALLEST_ROW = 6
"""Bytes that a row takes at the least: with its number, the head of its columns and one of each of two."""
LONGEST_TEXT = 1 << 20
_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA)
_REPAIR = "export it again: nsys export --type sqlite"


class Tables:
    """The tables of one file, by their names."""

    def __init__(self, connection: sqlite3.Connection, file: TraceFile, size: int) -> None:
        self._connection = connection
        self._file = file
        self._size = size
        self._rows_left = max(size // SMALLEST_ROW, 1)
        with self._readable():
            found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
            self.columns = {
                name: self._columns(name)
                for name, sql in self._counted(found)
                if isinstance(name, str) and isinstance(sql, str) and sql.upper().startswith("CREATE TABLE")
            }

    def rows(self, table: str, *columns: str, optional: Sequence[str] = ()) -> Iterator[tuple[Any, ...]]:
        """These columns of every row, in the order of the file; nothing where there is no such table.

        A column that must be there and is not is an error; an optional one is None then.
        """
        if table not in self.columns:
            return
        missing = [column for column in columns if column not in self.columns[table]]
        if missing:
            raise SourceError(f"{self._file.path}: its table {table} has no column {missing[0]!r}", hint=_REPAIR)
        wanted = [*columns, *(column if column in self.columns[table] else None for column in optional)]
        listed = ", ".join("NULL" if column is None else f'"{column}"' for column in wanted)
        with self._readable():
            # Only names that stand above, or that the file's own list of tables holds as they are.
            yield from self._counted(self._connection.execute(f'SELECT {listed} FROM "{table}" NOT INDEXED'))  # noqa: S608

    def _columns(self, table: str) -> frozenset[str]:
        name = table.replace('"', '""')
        return frozenset(row[1] for row in self._counted(self._connection.execute(f'PRAGMA table_info("{name}")')))

    def _counted(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        bytes_left = self._size
        for row in rows:
            self._rows_left -= 1
            bytes_left -= sum(len(each) for each in row if isinstance(each, (str, bytes)))
            if self._rows_left < 0 or bytes_left < 0:
                raise SourceError(
                    f"{self._file.path} has more rows, or longer texts, than its bytes can hold", hint=_REPAIR
                )
            yield row

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as exc:
            raise SourceError(f"{self._file.path} cannot be read as an SQLite file: {exc}", hint=_REPAIR) from exc


@contextmanager
def tables_of(file: TraceFile) -> Iterator[Tables]:
    """The tables of a file, which is opened so that nothing is written, locked or looked for beside it."""
    try:
        connection, size = _opened(file)
    except sqlite3.Error as exc:
        raise SourceError(f"{file.path} cannot be opened as an SQLite file: {exc}", hint=_REPAIR) from exc
    with closing(connection):
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
            connection.execute(f"PRAGMA {setting}")
        if hasattr(connection, "setlimit"):  # since Python 3.11
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)  # type: ignore[attr-defined,unused-ignore]
        connection.set_authorizer(_authorized)
        yield Tables(connection, file, size)


def _opened(file: TraceFile) -> tuple[sqlite3.Connection, int]:
    """A connection, and the size of the content; what is packed or piped is read into memory first."""
    if not file.packed and file.path.is_file():
        where = f"file:{quote(str(file.path.resolve()))}?mode=ro&immutable=1"
        return sqlite3.connect(where, uri=True), file.size
    connection = sqlite3.connect(":memory:")
    if not hasattr(connection, "deserialize"):
        raise SourceError(
            f"{file.path} is packed or piped, which Python 3.11 can read", hint="unpack it into a file first"
        )
    content = file.content()
    connection.deserialize(content)
    return connection, len(content)


def _authorized(action: int, first: str | None, *_: object) -> int:
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first == "table_info" else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
