"""What NVIDIA Nsight Systems exports: `nsys export --type sqlite`.

A kernel belongs to the innermost NVTX range that was open on the thread of its launch when it was launched; the launch is
found by its correlation and process. Ranges that PyTorch's `emit_nvtx` writes are its operators.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from math import prod
from typing import Any
from urllib.parse import quote

from opcost.core.graph import Note
from opcost.core.interrupts import garbage_collector_paused
from opcost.core.profile import Profile
from opcost.errors import SourceError
from opcost.traces.file import TraceFile
from opcost.traces.kineto.columns import Numbers
from opcost.traces.kineto.decoding import Args
from opcost.traces.kineto.reader import is_large, profile_of
from opcost.traces.launched import CALL, MARKED_OPERATOR, RANGE, LaunchColumns
from opcost.traces.registry import Reader

_KIND = b"CUPTI_ACTIVITY_KIND_"
_RANGES = b"NVTX_EVENTS"
_STRINGS = b"StringIds"
NESTED = (59, 70)  # types of NVTX events that are pushed and popped, and so are inside one another on their thread
STARTED = (60, 71)  # types of those that begin and end anywhere
COPIES = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
}  # fmt: skip
"""Directions of copies, as CUPTI numbers them; their names are those of Kineto's traces."""
_OPERATOR = re.compile(r"([^,]+)(?:, seq = (\d{1,18}))?, op_id = \d+(?:, |$)")
"""What PyTorch's `emit_nvtx` writes: name, sequence number, number. Shapes may follow, without element types: no cost."""
_NODE = re.compile(r"Backward\d*$")  # the end of the name of a node of the backward pass


class NsightReader:
    """NVTX ranges and calls of CUDA on the host, kernels, copies and graphs on devices."""

    name = "nsight"

    def sniff(self, head: bytes) -> bool:
        return head.startswith(MAGIC) and _STRINGS in head and (_KIND in head or _RANGES in head)

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        with garbage_collector_paused(), tables_of(file) as tables:
            found = _Export(tables)
            faulty = found.launches.faulty
            trace = found.launches.trace()
            if trace.columns.empty:
                none = f"none of its {faulty} events has a beginning and an end"
                fault = none if faulty else "no call and no device work in it"
                raise SourceError(f"{file.path}: {fault}", hint="record the trace again, while the model runs")
            trace.meta = {"source": file.name, "format": "nsight", **_meta(tables)}
            trace.file_notes = [*found.notes()]
            if faulty:
                trace.file_notes.append(Note("faulty", f"{faulty} events without valid times are left out"))
            return profile_of(trace, large=is_large(file))


READER: Reader = NsightReader()


class _Export:
    """The events of one export."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._strings, self._memories = (
            {number: text for number, text in tables.rows(table, *columns) if isinstance(text, str)}
            for table, *columns in (("StringIds", "id", "value"), ("ENUM_CUDA_MEM_KIND", "id", "label"))
        )
        self._unordered = 0  # ranges that begin and end anywhere
        self._open = 0  # ranges without an end
        self._numbers = Numbers[tuple[int, int]]()
        self.launches = LaunchColumns("nvtx")
        self._add_ranges()
        for start, end, name, thread, number in self._tables.rows(
            "CUPTI_ACTIVITY_KIND_RUNTIME", "start", "end", "nameId", optional=("globalTid", "correlationId")
        ):
            where = _thread(thread)
            called = self._text(name).partition("_v")[0]  # cudaLaunchKernel_v7000 is of the interface of CUDA 7.0
            self.launches.add(CALL, called, where, start, end, Args(correlation=self._correlation(where[0], number)))
        self._add_work()

    def notes(self) -> Iterator[Note]:
        if self._unordered:
            text = f"{self._unordered} NVTX ranges were started and ended, not pushed and popped, and own nothing"
            yield Note("ranges", f"{text}: they may cross one another")
        if self._open:
            yield Note("open", f"{self._open} NVTX ranges have no end and are left out")

    def _text(self, number: object) -> str:
        return self._strings.get(number, "")

    def _correlation(self, process: int, number: object) -> int:
        """One number for a process and a number of its own; below zero, which links nothing, where there is none."""
        return self._numbers[process, number] if type(number) is int else -1

    def _add_ranges(self) -> None:
        optional = ("eventType", "text", "textId", "globalTid")
        for start, end, sort, text, number, thread in self._tables.rows(
            "NVTX_EVENTS", "start", "end", optional=optional
        ):
            if sort in STARTED:
                self._unordered += 1
            elif sort not in NESTED and sort is not None:
                continue
            elif end is None:
                self._open += 1
            else:
                name, args = text if isinstance(text, str) else self._text(number), None
                if (found := _OPERATOR.match(name)) is not None:
                    name, sequence = found.groups()
                    # A node of the backward pass has the number of the operator that it is the gradient of; its forward
                    # thread is unknown.
                    backward = 1 if _NODE.search(name) else None
                    args = Args(sequence=-1 if sequence is None else int(sequence), forward_thread=backward)
                self.launches.add(MARKED_OPERATOR if args else RANGE, name, _thread(thread), start, end, args)

    def _add_work(self) -> None:
        """Kernels, copies and fills; and graphs that were traced as a whole, whose kernels are not in the file."""
        memory = self._memories.get

        def copy_name(kind: Any, source: Any, target: Any) -> str:
            ends = memory(source, ""), memory(target, "")
            between = f" ({' -> '.join(ends)})" if all(ends) else ""
            return f"Memcpy {COPIES.get(kind, 'of an unknown direction')}{between}"

        gpus = self._tables.rows("TARGET_INFO_GPU", optional=("cuDevice", "smCount"))
        multiprocessors = {gpu: count for gpu, count in gpus if type(count) is int and count > 0}
        tables: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {
            "KERNEL": (
                lambda name, short, *_: self._text(name) or self._text(short),
                ("demangledName", "shortName", "gridX", "gridY", "gridZ"),
            ),
            "MEMCPY": (copy_name, ("copyKind", "srcKind", "dstKind")),
            "MEMSET": (lambda kind: f"Memset ({memory(kind)})" if memory(kind) else "Memset", ("memKind",)),
            "GRAPH_TRACE": (lambda graph: f"CUDA graph {graph}", ("graphId",)),
        }
        for table, (name_of, more) in tables.items():
            optional = ("streamId", "correlationId", "globalPid", "bytes", *more)
            for start, end, device, stream, number, process, moved, *named in self._tables.rows(
                f"CUPTI_ACTIVITY_KIND_{table}", "start", "end", "deviceId", optional=optional
            ):
                queue = device if type(device) is int else 0, stream if type(stream) is int else 0
                correlation = self._correlation(_thread(process)[0], number)
                grid, processors = named[2:] if table == "KERNEL" else (), multiprocessors.get(device)
                is_known = len(grid) == 3 and all(type(extent) is int for extent in grid)
                blocks = prod(grid) / processors if is_known and processors else None
                self.launches.add_work(name_of(*named), queue, start, end, moved, correlation, blocks)


def _thread(identifier: object) -> tuple[int, int]:
    """Process and thread out of the number that Nsight makes of machine, process and thread."""
    return (identifier >> 24, identifier & 0xFFFFFF) if isinstance(identifier, int) else (0, 0)


def _meta(tables: Tables) -> dict[str, str]:
    names = [name for (name,) in tables.rows("TARGET_INFO_GPU", "name") if isinstance(name, str)]
    versions = dict(tables.rows("META_DATA_EXPORT", "name", "value"))
    found: dict[str, Any] = {
        "device": ", ".join(dict.fromkeys(names)),
        "nsight_version": versions.get("EXPORT_PRODUCT_VERSION"),
        "schemaVersion": versions.get("EXPORT_SCHEMA_VERSION"),
    }
    return {key: value for key, value in found.items() if isinstance(value, str) and value}


# -- tables of an untrusted SQLite file: only read, checked, nothing in it is executed
#
# What a file calls a table must be one: no view, no virtual table, no function and no recursion is evaluated. A damaged tree
# of pages may lead in circles, and rows may share pages, so no more rows and no longer texts are taken than the bytes of the
# file can hold.

MAGIC = b"SQLite format 3\0"
SMALLEST_ROW = 6  # Bytes that a row takes at the least: with its number, the head of its columns and one of each of two
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
            # Only names from this file, or from the SQLite file's own list of tables.
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
                fault = f"{self._file.path} has more rows, or longer texts, than its bytes can hold"
                raise SourceError(fault, hint=_REPAIR)
            yield row

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as exc:
            raise SourceError(f"{self._file.path} cannot be read as an SQLite file: {exc}", hint=_REPAIR) from exc


@contextmanager
def tables_of(file: TraceFile) -> Iterator[Tables]:
    """The tables of a file, which is opened so that nothing is written, locked or looked for beside it.

    What is packed or piped is read into memory first.
    """

    def authorized(action: int, first: str | None, *_: object) -> int:
        allowed = first == "table_info" if action == sqlite3.SQLITE_PRAGMA else action in _ALLOWED
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    is_plain = not file.packed and file.path.is_file()
    where = f"file:{quote(str(file.path.resolve()))}?mode=ro&immutable=1" if is_plain else ":memory:"
    try:
        connection = sqlite3.connect(where, uri=is_plain)
        size = file.size
        if not is_plain:
            if not hasattr(connection, "deserialize"):
                what = f"{file.path} is packed or piped, which Python 3.11 can read"
                raise SourceError(what, hint="unpack it into a file first")
            content = file.content()
            connection.deserialize(content)
            size = len(content)
    except sqlite3.Error as exc:
        raise SourceError(f"{file.path} cannot be opened as an SQLite file: {exc}", hint=_REPAIR) from exc
    with closing(connection):
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
            connection.execute(f"PRAGMA {setting}")
        if hasattr(connection, "setlimit"):  # since Python 3.11
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)  # type: ignore[attr-defined,unused-ignore]
        connection.set_authorizer(authorized)
        yield Tables(connection, file, size)
