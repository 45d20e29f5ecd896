"""Traces of MXNet's profiler (`mx.profiler.dump`), and its aggregate table (`mx.profiler.dumps`), as JSON or text."""

import re
from decimal import Decimal
from typing import Any

from opcost.core.graph import Note
from opcost.core.profile import Profile, ProfileRow
from opcost.errors import SourceError
from opcost.traces.file import (
    NS_PER_MS,
    TraceFile,
    args_of,
    events_of,
    executions,
    hashable,
    microseconds,
    nanoseconds,
    text,
    wall_of,
)
from opcost.traces.registry import Reader

_TRACE = re.compile(rb'^\s*\{\s*"traceEvents"\s*:')
_MARKS = re.compile(rb'"cpu pinned/"|"cat"\s*:\s*"(operator|MXNET_C_API|Device Storage)"|"cpu/0"')
_AGGREGATE = re.compile(rb'^\s*\{\s*"Time"\s*:\s*\{')
_TABLE = re.compile(rb"^\s*Profile Statistics")
_LINE = re.compile(r"(\S.*?)\s+(\d+)" + r"\s+(-?\d+\.\d+)" * 4)
API = "MXNET_C_API"  # Calls of the library, which include the operators that they wait on: their time is counted there

_MEASURED = {
    "_copy": "copy", "_copyto": "copy", "identity": "copy", "CopyCPU2GPU": "copy", "CopyGPU2CPU": "copy", "_set_value": "create",
    **dict.fromkeys(("_sg_mkldnn_conv", "_sg_onednn_conv"), "conv"),
    **dict.fromkeys(("_sg_mkldnn_fully_connected", "_sg_onednn_fully_connected"), "matmul"),
}  # fmt: skip
"""What only a run has: in a graph a copy is the same tensor again, and what oneDNN fused is more than the part in its name."""


class MxnetReader:
    """Pairs of begin and end events; the asynchronous twin that MXNet writes of each is left out."""

    name = "mxnet"

    def sniff(self, head: bytes) -> bool:
        head = head.lstrip(b"\xef\xbb\xbf")
        is_trace = _TRACE.match(head) is not None and _MARKS.search(head) is not None
        return is_trace or any(pattern.match(head) is not None for pattern in (_AGGREGATE, _TABLE))

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        meta = {"source": file.name, "format": "mxnet"}
        head = file.head.lstrip(b"\xef\xbb\xbf")
        if _AGGREGATE.match(head) or _TABLE.match(head):
            entries = _aggregate(file) if _AGGREGATE.match(head) else _table(file)
            # One row for each name of the table; MXNet rounds its milliseconds to four digits.
            sums = [
                ProfileRow(
                    id=number, name=name, type=name, kind=mxnet_kind(name), provider=domain, host_ns=spent,
                    host_self_ns=spent, count=count,
                )
                for number, (domain, name, count, spent) in enumerate(entry for entry in entries if entry[0] != API)
            ]  # fmt: skip
            return Profile(meta=meta, rows=tuple(sums))
        events, notes = events_of(file, partial=partial)
        rows, unfinished = _pairs(events)
        if unfinished:
            notes.append(Note("unfinished", f"{unfinished} operators have no end in the trace and are left out"))
        wall = wall_of((row.host_start_ns or 0, row.host_ns or 0) for row in rows)
        return Profile(meta=meta, rows=rows, wall_ns=wall, notes=tuple(notes))


READER: Reader = MxnetReader()


def mxnet_kind(name: str) -> str:
    """The kind that the front end gives to an operator of this name; a gradient has that of its operator."""
    from opcost.frontends.mxnet.infer import kind_of  # a large table, which only traces of MXNet need

    operator = name.removeprefix("_backward_")
    return _MEASURED.get(operator) or kind_of(operator)


def _pairs(events: list[dict[str, Any]]) -> tuple[tuple[ProfileRow, ...], int]:
    """Each operator's begin and end on its device and thread, innermost first to end, and how many never ended."""
    devices = {
        hashable(event.get("pid")): str(args_of(event)["name"])
        for event in events
        if event.get("ph") == "M" and event.get("name") == "process_name" and "name" in args_of(event)
    }
    begun: dict[tuple[Any, Any, str], list[int]] = {}
    found: list[tuple[int, int, str, Any, Any]] = []
    for event in events:
        if event.get("cat") != "operator" or event.get("ph") not in ("B", "E"):
            continue
        time = microseconds(event, "ts")
        name, pid, tid = text(event, "name"), hashable(event.get("pid")), hashable(event.get("tid"))
        stack = begun.setdefault((pid, tid, name), [])
        if event["ph"] == "B":
            stack.append(time)
        elif stack:
            start = stack.pop()
            found.append((start, time - start, name, pid, tid))
    found.sort(key=lambda entry: entry[0])
    rows = tuple(
        ProfileRow(
            id=number, name=name, type=name, kind=mxnet_kind(name), device=devices.get(pid, str(pid)),
            stream=str(tid), provider="operator", host_start_ns=start, host_ns=duration, host_self_ns=duration,
        )
        for number, (start, duration, name, pid, tid) in enumerate(found)
    )  # fmt: skip
    return rows, sum(map(len, begun.values()))


def _aggregate(file: TraceFile) -> list[tuple[str, str, int, int]]:
    """Domain, name, executions and nanoseconds."""
    try:
        domains = file.json(parse_float=Decimal, parse_int=Decimal)["Time"]
        return [
            (domain, name, executions(entry["Count"]), nanoseconds(entry["Total"], NS_PER_MS))
            for domain, table in domains.items()
            for name, entry in table.items()
        ]
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as exc:
        raise SourceError(f"{file.path} looks like MXNet's aggregate table but is damaged: {exc!r}") from exc


def _table(file: TraceFile) -> list[tuple[str, str, int, int]]:
    """The same from the printed table, where a domain is a line above one of equals signs."""
    found = []
    domain, timed, before = "", False, ""
    for line in map(str.strip, file.text().splitlines()):
        if line and not line.strip("="):
            domain, timed = before, False
        elif line.startswith("Name "):
            timed = "Time (ms)" in line
        elif timed and (fields := _LINE.fullmatch(line)) is not None:
            try:
                count, spent = executions(Decimal(fields[2])), nanoseconds(Decimal(fields[3]), NS_PER_MS)
            except ValueError as exc:
                raise SourceError(f"{file.path}: the line of {fields[1][:80]!r} is damaged: {exc}") from exc
            found.append((domain, fields[1], count, spent))
        before = line
    return found
