"""What NVIDIA Nsight Systems exports: `nsys export --type sqlite`.

A kernel belongs to the innermost NVTX range that was open on the thread of its launch when it was launched; the launch is
found by its correlation and process. Ranges that PyTorch's `emit_nvtx` writes are its operators.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from opcost.core.graph import Note
from opcost.core.interrupts import garbage_collector_paused
from opcost.core.profile import Profile
from opcost.traces.file import TraceFile
from opcost.traces.kineto.event import OperatorArgs
from opcost.traces.launched import Correlations, Teller, Told, launched_profile
from opcost.traces.sqlite import MAGIC, Tables, tables_of

if TYPE_CHECKING:
    from opcost.traces.registry import Reader

_KIND = b"CUPTI_ACTIVITY_KIND_"
_RANGES = b"NVTX_EVENTS"
_STRINGS = b"StringIds"
NESTED = (59, 70)
"""Types of NVTX events that are pushed and popped, and so lie in one another on their thread."""
STARTED = (60, 71)
"""Types of those that begin and end anywhere."""
COPIES = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
}  # fmt: skip
"""Directions of copies, as CUPTI numbers them; their names are those of Kineto's traces."""
_OPERATOR = re.compile(r"([^,]+)(?:, seq = (\d{1,18}))?, op_id = \d+(?:, |$)")
"""What PyTorch's `emit_nvtx` writes: name, sequence number, number. Shapes may follow, without element types: no price."""
_NODE = re.compile(r"Backward\d*$")
"""The end of the name of a node of the backward pass."""


class NsightReader:
    """NVTX ranges and calls of CUDA on the host, kernels, copies and graphs on devices."""

    name = "nsight"

    def sniff(self, head: bytes) -> bool:
        return head.startswith(MAGIC) and _STRINGS in head and (_KIND in head or _RANGES in head)

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        with garbage_collector_paused(), tables_of(file) as tables:
            found = _Export(tables)
            teller = Teller()
            meta = {"source": file.name, "format": "nsight", **_meta(tables)}
            return launched_profile(file, found.events(teller), teller, meta=meta, ranges="nvtx", notes=found.notes())


READER: Reader = NsightReader()


class _Export:
    """The events of one export."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._correlations = Correlations()
        self._strings = {
            number: text for number, text in tables.rows("StringIds", "id", "value") if isinstance(text, str)
        }
        self._memories = {
            number: text for number, text in tables.rows("ENUM_CUDA_MEM_KIND", "id", "label") if isinstance(text, str)
        }
        self._unordered = 0
        """Ranges that begin and end anywhere."""
        self._open = 0
        """Ranges that nobody ended."""

    def events(self, teller: Teller) -> Iterator[Told]:
        yield from self._ranges(teller)
        yield from self._calls(teller)
        yield from self._kernels(teller)
        yield from self._moves(teller)
        yield from self._graphs(teller)

    def notes(self) -> Iterator[Note]:
        """Asked when all events have been."""
        if self._unordered:
            text = f"{self._unordered} NVTX ranges were started and ended, not pushed and popped, and own nothing"
            yield Note("ranges", f"{text}: they may lie across one another")
        if self._open:
            yield Note("open", f"{self._open} NVTX ranges have no end and are left out")

    def _text(self, number: object) -> str:
        return self._strings.get(number, "")

    def _ranges(self, teller: Teller) -> Iterator[Told]:
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
                name, args = _operator(text if isinstance(text, str) else self._text(number))
                yield from teller.range(name, _thread(thread), start, end, args)

    def _calls(self, teller: Teller) -> Iterator[Told]:
        for start, end, name, thread, number in self._tables.rows(
            "CUPTI_ACTIVITY_KIND_RUNTIME", "start", "end", "nameId", optional=("globalTid", "correlationId")
        ):
            where = _thread(thread)
            called = self._text(name).partition("_v")[0]  # cudaLaunchKernel_v7000 is of the interface of CUDA 7.0
            yield from teller.call(called, where, start, end, self._correlations.of(where[0], number))

    def _kernels(self, teller: Teller) -> Iterator[Told]:
        optional = ("streamId", "correlationId", "globalPid", "demangledName", "shortName")
        for start, end, device, stream, number, process, name, short in self._tables.rows(
            "CUPTI_ACTIVITY_KIND_KERNEL", "start", "end", "deviceId", optional=optional
        ):
            called = self._text(name) or self._text(short)
            yield from self._work(teller, called, (device, stream), (start, end), (process, number))

    def _moves(self, teller: Teller) -> Iterator[Told]:
        optional = ("streamId", "correlationId", "globalPid", "bytes", "copyKind", "srcKind", "dstKind")
        for start, end, device, stream, number, process, moved, kind, *ends in self._tables.rows(
            "CUPTI_ACTIVITY_KIND_MEMCPY", "start", "end", "deviceId", optional=optional
        ):
            memories = [self._memories.get(each, "") for each in ends]
            between = f" ({' -> '.join(memories)})" if all(memories) else ""
            name = f"Memcpy {COPIES.get(kind, 'of an unknown direction')}{between}"
            yield from self._work(teller, name, (device, stream), (start, end), (process, number), moved)
        for start, end, device, stream, number, process, moved, kind in self._tables.rows(
            "CUPTI_ACTIVITY_KIND_MEMSET", "start", "end", "deviceId", optional=(*optional[:4], "memKind")
        ):
            memory = self._memories.get(kind, "")
            name = f"Memset ({memory})" if memory else "Memset"
            yield from self._work(teller, name, (device, stream), (start, end), (process, number), moved)

    def _graphs(self, teller: Teller) -> Iterator[Told]:
        """Graphs that were traced as a whole, which is as usual: what ran in them is not told."""
        optional = ("streamId", "correlationId", "globalPid", "graphId")
        for start, end, device, stream, number, process, graph in self._tables.rows(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "start", "end", "deviceId", optional=optional
        ):
            yield from self._work(teller, f"CUDA graph {graph}", (device, stream), (start, end), (process, number))

    def _work(
        self,
        teller: Teller,
        name: str,
        queue: tuple[object, object],
        times: tuple[object, object],
        launch: tuple[object, object],
        moved: object = None,
    ) -> Iterator[Told]:
        device, stream = (each if type(each) is int else 0 for each in queue)
        process, number = launch
        correlation = self._correlations.of(_process(process), number)
        yield from teller.work(name, (device, stream), *times, correlation, moved if type(moved) is int else None)


def _process(identifier: object) -> int:
    """A process out of the number that Nsight makes of machine, process and thread."""
    return identifier >> 24 if isinstance(identifier, int) else 0


def _thread(identifier: object) -> tuple[int, int]:
    return _process(identifier), identifier & 0xFFFFFF if isinstance(identifier, int) else 0


def _operator(text: str) -> tuple[str, OperatorArgs | None]:
    """The name of a range and, of an operator of PyTorch, what is told of its arguments."""
    found = _OPERATOR.match(text)
    if found is None:
        return text, None
    name, sequence = found.groups()
    # A node of the backward pass bears the number of the operator that it is the gradient of; that of its thread is not told.
    backward = 1 if _NODE.search(name) else None
    return name, OperatorArgs(sequence=-1 if sequence is None else int(sequence), forward_thread=backward)


def _meta(tables: Tables) -> dict[str, str]:
    names = [name for (name,) in tables.rows("TARGET_INFO_GPU", "name") if isinstance(name, str)]
    versions = dict(tables.rows("META_DATA_EXPORT", "name", "value"))
    told: dict[str, Any] = {
        "device": ", ".join(dict.fromkeys(names)),
        "nsight_version": versions.get("EXPORT_PRODUCT_VERSION"),
        "schemaVersion": versions.get("EXPORT_SCHEMA_VERSION"),
    }
    return {key: value for key, value in told.items() if isinstance(value, str) and value}
