"""One file from its bytes to operators in our words, and what the file says about itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from opcost.core.graph import Note
from opcost.errors import SourceError, some
from opcost.traces.file import TraceFile
from opcost.traces.kineto.categories import CATEGORIES
from opcost.traces.kineto.columns import Columns
from opcost.traces.kineto.link import Linked, link
from opcost.traces.kineto.rows import Translated
from opcost.traces.kineto.steps import steps_of
from opcost.traces.kineto.stream import KinetoStream

BEGINNING = 1 << 10
"""Bytes in which the first field of a file is named."""

_SIGNS = re.compile(
    rb'"(?:schemaVersion|deviceProperties|baseTimeNanoseconds|distributedInfo|cuda_runtime_version|trace_id|correlation)"\s*:'
    rb'|"cat"\s*:\s*"(?:' + b"|".join(name.encode() for name in CATEGORIES if name != "Kernel") + rb')"'
)
"""Fields of the file, what ties kernels to launches, and categories that no other profiler has."""
_OTHERS = re.compile(rb'\{\s*"(?:schema|profiler|graph_exec)"\s*:')
"""Beginnings of other tools' files, which may name the same fields; in none of them is a list of events."""
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')


def is_kineto(head: bytes) -> bool:
    """Whether a file that begins with these bytes is such a trace."""
    start = head[:BEGINNING].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] not in (b"{", b"[") or _SIGNS.search(head) is None:
        return False
    return _OTHERS.match(start) is None or _EVENTS.search(head) is not None


LARGE_BYTES = 64 << 20
LARGE_PACKED_BYTES = LARGE_BYTES // 8
"""A gzipped file may hold a hundred times its size."""


def is_large(file: TraceFile) -> bool:
    """Whether reading it takes so long that nothing is read which few ask for."""
    return file.size > (LARGE_PACKED_BYTES if file.packed else LARGE_BYTES)


def translate(file: TraceFile, *, partial: bool = False, memory: bool | None = None) -> tuple[KinetoStream, Translated]:
    """Stream a file into columns and tie them together; changes of memory only if asked for, or of a file that is not large."""
    stream = KinetoStream(file, partial=partial, memory=not is_large(file) if memory is None else memory)
    columns = Columns()
    for events in stream.blocks():
        try:
            columns.add(events)
        except OverflowError:
            columns.add([event for event in events if columns.fits(event)])
    if columns.empty:
        raise SourceError(f"{file.path}: {_nothing(stream, columns)}", hint=_EXPORT_AGAIN)
    columns.move_device_work()
    fields = stream.fields
    base = fields.get("baseTimeNanoseconds")
    steps = steps_of(columns)  # the lanes are used up by what follows
    base_ns = base if type(base) is int else 0
    return stream, Translated(link(columns), base_ns, rank_of(fields) or 0, steps)


_EXPORT_AGAIN = "export the trace again, from a run in which operators or kernels were recorded"


def _nothing(stream: KinetoStream, columns: Columns) -> str:
    """Why nothing of a trace was kept."""
    if columns.untimed:
        return f"none of its {columns.untimed} operators and kernels has a beginning ('ts') and a duration ('dur')"
    if stream.damage:
        return f"{stream.damage}, and no operator or kernel stands before the damage"
    if stream.left_out or columns.beyond:
        return "; ".join(note.text for note in fault_notes(stream, columns))
    return f"none of its {stream.events} events is an operator, a call or a kernel" if stream.events else _NO_EVENTS


_NO_EVENTS = 'the list "traceEvents" is empty: nothing was recorded'


def fault_notes(stream: KinetoStream, columns: Columns) -> tuple[Note, ...]:
    """What was left out of a file, and what was lost of a damaged one."""
    found = []
    if stream.damage:
        found.append(Note("partial", f"{stream.damage}; this is what {stream.events} events before it tell"))
    left = [
        f"{left.count} {kind} (the first at byte {left.place} of the unpacked file)"
        for kind, left in stream.left_out.items()
    ]
    if columns.beyond:
        left.append(f"{columns.beyond} with a time beyond 64 bits of nanoseconds")
    if left:
        count = columns.beyond + sum(left.count for left in stream.left_out.values())
        found.append(Note("faulty", f"{count} events are left out: {', '.join(some(left))}"))
    return tuple(found)


def rank_of(fields: Mapping[str, Any]) -> int | None:
    """The rank that a distributed run wrote into its trace; None where it did not, which is not rank 0."""
    distributed = fields.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    return rank if type(rank) is int else None


def wall_of(linked: Linked) -> int | None:
    """From the beginning of the first row or kernel to the end of the last; None where they are on different clocks."""
    if linked.skew:
        return None
    work = linked.columns.device
    ends = [start + duration for start, duration in zip(work.start, work.duration, strict=True)]
    wall = max([linked.last, *ends]) - min([linked.first, *work.start])
    return wall if wall >= 0 else None


def meta_of(file: TraceFile, fields: Mapping[str, Any]) -> dict[str, str]:
    """Where the trace comes from and what it was recorded with."""
    meta = {"source": file.name, "format": "kineto"}
    devices = fields.get("deviceProperties")
    names = [device.get("name") for device in devices if isinstance(device, dict)] if isinstance(devices, list) else []
    if names:
        meta["device"] = ", ".join(dict.fromkeys(str(name) for name in names))
    distributed = fields.get("distributedInfo")
    if isinstance(distributed, dict):
        for key in ("backend", "rank", "world_size", "nccl_version"):
            if key in distributed:
                meta[key] = str(distributed[key])
    for key in (
        "schemaVersion",
        "host_name",
        "trace_id",
        "record_shapes",
        "with_stack",
        "profile_memory",
        "with_flops",
    ):
        if key in fields:
            meta[key] = str(fields[key])
    meta.update({key: str(value) for key, value in fields.items() if key.endswith("_version")})
    return meta
