"""The reader of Kineto's traces: recognises one, reads it into columns, links them, and makes a profile of them."""

import re
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from opcost.core.graph import Note
from opcost.core.interrupts import garbage_collector_paused
from opcost.core.profile import Profile
from opcost.errors import SourceError, some
from opcost.traces.file import TraceFile, as_dict
from opcost.traces.kineto.columns import Columns
from opcost.traces.kineto.decoding import CATEGORIES
from opcost.traces.kineto.device_use import collectives_of, extra_of
from opcost.traces.kineto.link import link
from opcost.traces.kineto.stream import KinetoStream
from opcost.traces.kineto.table import TraceTable, table_of, timeline_of
from opcost.traces.kineto.trace import Capture, Trace, Unowned, captures_of, replayed
from opcost.traces.registry import Reader

BEGINNING = 1 << 10  # bytes in which the first field of a file is named
_SIGNS = re.compile(
    rb'"(?:schemaVersion|deviceProperties|baseTimeNanoseconds|distributedInfo|cuda_runtime_version|trace_id|correlation)"\s*:'
    rb'|"cat"\s*:\s*"(?:' + b"|".join(name.encode() for name in CATEGORIES if name != "Kernel") + rb')"'
)
"""Fields of the file, what links kernels to launches, and categories that no other profiler has."""
_OTHERS = re.compile(rb'\{\s*"(?:schema|profiler|graph_exec)"\s*:')
"""Beginnings of other tools' files, which may name the same fields; in none of them is a list of events."""
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')

LARGE_BYTES = 64 << 20
LARGE_PACKED_BYTES = LARGE_BYTES // 8  # A gzipped file may unpack to a hundred times its size
MANY = 20_000
"""Above this many executions and kernels a row of a profile is a group of executions that are alike, unless each is requested:
to make rows of all and to query those takes ten times as long as to read them. Of a large file it always is."""

_META = ("schemaVersion", "host_name", "trace_id", "record_shapes", "with_stack", "profile_memory", "with_flops")


class KinetoReader:
    """The Chrome trace that PyTorch's profiler writes."""

    name = "kineto"

    def sniff(self, head: bytes) -> bool:
        start = head[:BEGINNING].lstrip(b"\xef\xbb\xbf \t\r\n")
        if start[:1] not in (b"{", b"[") or _SIGNS.search(head) is None:
            return False
        return _OTHERS.match(start) is None or _EVENTS.search(head) is not None

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        return self.read_more(file, partial=partial)

    def read_more(
        self,
        file: TraceFile,
        *,
        partial: bool = False,
        memory: bool | None = None,
        timeline: bool = False,
        executions: bool = False,
        capture: TraceFile | None = None,
    ) -> Profile:
        """The same, with the memory over time if requested (None: where the file is not large).

        Rows of single executions have their times: of a small file, and if requested of one that is not large. Else
        the timeline has them, if requested. Graphs that were captured in another trace have the operators of that.
        """
        with garbage_collector_paused():
            captures = () if capture is None else captures_of(_read(capture, memory=False), capture.name)
            if capture is not None and not captures:
                hint = "name a trace of the run that captured it, from the beginning of the capture to its end"
                raise SourceError(f"{capture.path}: no graph is captured in this trace", hint=hint)
            found, large = _read(file, partial=partial, memory=memory), is_large(file)
            return profile_of(found, large=large, timeline=timeline, executions=executions, captures=captures)


READER: Reader = KinetoReader()


def read_table(path: str | PathLike[str], *, partial: bool = False, memory: bool | None = None) -> TraceTable:
    """The table of a Kineto trace of any size."""
    file = TraceFile(path)
    if not any(map(READER.sniff, file.heads())):
        raise SourceError(f"{file.path} is not a Kineto trace", hint="opcost.read_profile reads the other formats")
    return tabulate(file, partial=partial, memory=memory)


def tabulate(file: TraceFile, *, partial: bool = False, memory: bool | None = None) -> TraceTable:
    """The same of a file that is known to be one."""
    with garbage_collector_paused():
        return table_of(_read(file, partial=partial, memory=memory))


def is_large(file: TraceFile) -> bool:
    """Whether reading it takes so long that what few users need is not read."""
    return file.size > (LARGE_PACKED_BYTES if file.packed else LARGE_BYTES)


def profile_of(
    trace: Trace, *, large: bool, timeline: bool = False, executions: bool = False, captures: Sequence[Capture] = ()
) -> Profile:
    """The profile of a trace: every execution a row, or, of many, one row for all that are alike.

    Grouped rows may have a timeline beside them. Of replayed graphs, operators are found in these captures and in those of the
    trace itself, where executions are rows.
    """
    separate = executions or bool(captures) or (bool(trace.captured) and Unowned.GRAPH in trace.owner)
    if large or (not separate and len(trace) + len(trace.owner) > MANY):
        found = table_of(trace).profile
        return replace(found, extra={**found.extra, "timeline": timeline_of(trace)}) if timeline else found
    rows = trace.executions()
    replays, unattributed, replayed_kernels, replay_notes = replayed(trace, (*captures_of(trace), *captures))
    rows += tuple(row._replace(id=number) for number, row in enumerate(replays, len(rows)))
    return Profile(
        meta=trace.meta, rows=rows, unattributed=unattributed, wall_ns=trace.wall_ns,
        notes=trace.notes(replayed_kernels) + replay_notes, extra=extra_of(trace, collectives_of(trace)),
    )  # fmt: skip


def _read(file: TraceFile, *, partial: bool = False, memory: bool | None = None) -> Trace:
    """One file read and linked; changes of memory if requested, or of a file that is not large."""
    memory = not is_large(file) if memory is None else memory
    stream, columns = KinetoStream(file, partial=partial, memory=memory), Columns(memory=memory)
    for events in stream.blocks():
        columns.add(events)
    # What was left out of a file, and what was lost of a damaged one
    notes = []
    if stream.damage:
        notes.append(Note("partial", f"{stream.damage}; this is from the {stream.events} events before it"))
    left = [
        f"{len(places)} {kind} (the first at byte {places[0]} of the unpacked file)"
        for kind, places in stream.left_out.items()
    ]
    if columns.beyond:
        left.append(f"{columns.beyond} with a time beyond 64 bits of nanoseconds")
    if left:
        count = columns.beyond + sum(map(len, stream.left_out.values()))
        notes.append(Note("faulty", f"{count} events are left out: {', '.join(some(left))}"))
    if columns.empty:
        why = 'the list "traceEvents" is empty: nothing was recorded'
        if columns.untimed:
            why = f"none of its {columns.untimed} operators and kernels has a beginning ('ts') and a duration ('dur')"
        elif stream.damage:
            why = f"{stream.damage}, and no operator or kernel is before the damage"
        elif notes:
            why = "; ".join(note.text for note in notes)
        elif stream.events:
            why = f"none of its {stream.events} events is an operator, a call or a kernel"
        hint = "export the trace again, from a run in which operators or kernels were recorded"
        raise SourceError(f"{file.path}: {why}", hint=hint)
    columns.move_device_work()
    fields = stream.fields
    distributed = as_dict(fields.get("distributedInfo"))
    rank = written if type(written := distributed.get("rank")) is int else None
    base = fields.get("baseTimeNanoseconds")
    trace = link(columns, base if type(base) is int else 0, rank or 0)
    # Where the trace comes from and what it was recorded with
    meta = {"source": file.name, "format": "kineto"}
    devices = fields.get("deviceProperties")
    if names := [each.get("name") for each in devices if isinstance(each, dict)] if isinstance(devices, list) else []:
        meta["device"] = ", ".join(dict.fromkeys(str(name) for name in names))
    keys = ("backend", "rank", "world_size", "nccl_version")
    meta |= {key: str(distributed[key]) for key in keys if key in distributed}
    meta |= {key: str(fields[key]) for key in _META if key in fields}
    meta |= {key: str(value) for key, value in fields.items() if key.endswith("_version")}
    trace.meta, trace.written_rank, trace.file_notes = meta, rank, notes
    trace.groups = _groups(distributed.get("pg_config"))
    return trace


def _groups(listed: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The process groups of `distributedInfo` by name: description and ranks."""
    found = {}
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(each.get("ranks"), list):
            ranks = [rank for rank in each["ranks"] if type(rank) is int]
            found[str(each.get("pg_name", ""))] = str(each.get("pg_desc", "")), tuple(ranks)
    return found
