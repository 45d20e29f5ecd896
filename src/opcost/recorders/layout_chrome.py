"""A profile as a Chrome trace: what Perfetto and chrome://tracing show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opcost.core.escaping import json_text
from opcost.core.profile import Kernel, Profile, ProfileRow


def dumps(profile: Profile) -> str:
    """The trace as text: operators on the host, kernels on the device's streams, a flow from each to its kernels."""
    events = [*_names(profile)]
    for row in profile.rows:
        events.extend(_row(row))
    events.extend(_kernel(kernel, "(unattributed)") for kernel in profile.unattributed)
    start = min((row.host_start_ns for row in profile.rows if row.host_start_ns is not None), default=0)
    document = {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": start,
        "metadata": dict(profile.meta),
        "traceEvents": [_relative(event, start) for event in events],
    }
    return json_text(document, halves=False)


def _names(profile: Profile) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": "host", "tid": 0, "args": {"name": "host"}}
    devices = {k.device for row in profile.rows for k in row.kernels} | {k.device for k in profile.unattributed}
    for device in sorted(devices):
        yield {"ph": "M", "name": "process_name", "pid": device, "tid": 0, "args": {"name": device}}


def _row(row: ProfileRow) -> Iterator[dict[str, Any]]:
    if row.host_start_ns is None or row.host_ns is None:
        return
    args: dict[str, Any] = {
        "module": row.module,
        "type": row.type,
        "phase": row.phase,
        "step": row.step,
        "inputs": [f"{spec}:{spec.dtype}" for spec in row.ins],
        "outputs": [f"{spec}:{spec.dtype}" for spec in row.outs],
    }
    if row.kind:
        args["kind"] = row.kind
    if row.cost is not None:
        args |= {"flops": row.cost.flops, "bytes": row.cost.bytes_read + row.cost.bytes_written}
    yield {
        "ph": "X", "cat": row.provider or "op", "name": row.name, "pid": "host", "tid": row.rank,
        "ts": row.host_start_ns, "dur": row.host_ns, "args": args,
    }  # fmt: skip
    for number, kernel in enumerate(row.kernels):
        flow = {"cat": "launch", "name": "launch", "id": f"{row.id}.{number}"}
        yield {"ph": "s", **flow, "pid": "host", "tid": row.rank, "ts": row.host_start_ns}
        yield {"ph": "f", "bp": "e", **flow, "pid": kernel.device, "tid": kernel.stream, "ts": kernel.start_ns}
        yield _kernel(kernel, row.name)


def _kernel(kernel: Kernel, operator: str) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "kernel", "name": kernel.name, "pid": kernel.device, "tid": kernel.stream,
        "ts": kernel.start_ns, "dur": kernel.duration_ns, "args": {"operator": operator},
    }  # fmt: skip


def _relative(event: dict[str, Any], start: int) -> dict[str, Any]:
    """Chrome's times are microseconds; counted from the first event, a float holds every nanosecond."""
    if "ts" in event:
        event["ts"] = (event["ts"] - start) / 1000
    if "dur" in event:
        event["dur"] /= 1000
    return event
