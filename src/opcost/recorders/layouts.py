"""A profile in the layouts of other tools: MegEngine's `load_and_run --profile`, which its `profile_analyze` reads, and Chrome.

MegEngine keeps one execution per operator, so of several steps the last is written. Its times are seconds from the first
event: `end - start` is an operator's time and `kern - start` the wait before its first kernel.
"""

from collections.abc import Iterator
from itertools import count
from math import prod
from typing import Any

from opcost.core.escaping import json_text
from opcost.core.graph import TensorSpec
from opcost.core.profile import Kernel, Profile, ProfileRow

NO_OPERATOR = "(unattributed)"
_DTYPES = {
    "float32": "Float32", "float16": "Float16", "bfloat16": "BFloat16", "int8": "Int8", "uint8": "Uint8",
    "int16": "Int16", "uint16": "Uint16", "int32": "Int32", "bool": "Bool", "complex64": "Complex64",
}  # fmt: skip
"""MegEngine's words; a type that it has no word for keeps ours."""


def megengine_json(profile: Profile) -> str:
    """The last step as MegEngine would have written it."""
    return json_text(layout(profile))


def layout(profile: Profile) -> dict[str, Any]:
    """The last step as a document in MegEngine's layout."""
    last = max((row.step for row in profile.rows if row.step is not None), default=None)
    rows = [row for row in profile.rows if row.step == last]
    starts = [row.host_start_ns for row in rows if row.host_start_ns is not None]
    zero = min((*starts, *(kernel.start_ns for row in rows for kernel in row.kernels)), default=0)
    numbers = map(str, count())  # operators and variables share one series
    with_device = profile.meta.get("host_only") != "True"
    tables: list[dict[str, Any]] = [{} for _ in range(5)]
    device, host, footprint, operators, variables = tables

    def span(start: int, duration: int) -> dict[str, float]:
        begin = (start - zero) / 1e9
        return {"start": begin, "kern": begin, "end": (start - zero + duration) / 1e9}

    for row in (*rows, *_unattributed(profile, min(starts, default=0))):
        number = next(numbers)
        kind, _, index = row.device.partition(":")
        node = f'CompNode("{kind or "cpu"}{index or 0}:0" from "xpux:0")'
        sides: dict[str, list[str]] = {"in": [], "out": []}
        for (side, its), specs in zip(sides.items(), (row.ins, row.outs), strict=True):
            for i, spec in enumerate(specs):
                its.append(next(numbers))
                variables[its[-1]] = _variable(its[-1], f"{row.name}:{side}{i}", spec, node)
        operators[number] = {
            "id": number, "name": row.name, "type": row.type, "input": sides["in"], "output": sides["out"],
            "waiting_spec": None, "extra": {"module": row.module, "kind": row.kind, "phase": row.phase},
            "node_type": "operator",
        }  # fmt: skip
        # What MegEngine calls an operator's memory: the bytes of its inputs and outputs
        traffic = sum(spec.nbytes for spec in (*row.ins, *row.outs) if spec.known)
        footprint[number] = {
            "computation": (row.cost.flops or None) if row.cost is not None else None,
            "memory": row.cost.bytes_read + row.cost.bytes_written if row.cost is not None else traffic,
            "in_shapes": [list(spec.dims) if spec.known else [] for spec in row.ins],
            "out_shapes": [list(spec.dims) if spec.known else [] for spec in row.outs],
            "param": dict(row.attrs),
        }
        own = row.host_self_ns if row.host_self_ns is not None else row.host_ns
        on_host = None if row.host_start_ns is None or own is None else span(row.host_start_ns, own)
        if on_host is not None:
            host[number] = {"host": on_host}
        if row.kernels and with_device:
            # Kernels of several streams overlap; an operator's device time is their sum, as everywhere in a profile.
            device[number] = {node: span(min(kernel.start_ns for kernel in row.kernels), row.device_ns or 0)}
        elif row.device_ns is None and on_host is not None and with_device:
            device[number] = {node: dict(on_host)}  # on the CPU the host is the device
    return {
        "profiler": {"device": device, "host": host, "opr_footprint": footprint, "opr_internal_pf": {}},
        "graph_exec": {"comp_seq": list(operators), "operator": operators, "var": variables, "mem_chunk": {}},
    }


def _variable(number: str, name: str, spec: TensorSpec, node: str) -> dict[str, Any]:
    plan = None
    if spec.known:
        strides = [prod(spec.dims[axis + 1 :]) for axis in range(len(spec.dims))]
        layout = {"dtype": _DTYPES.get(spec.dtype, spec.dtype), "shape": list(spec.dims), "stride": strides}
        plan = {"layout": layout, "offset_byte": 0, "mem_chunk_id": f"chk{number}"}
    return {
        "id": number, "name": name, "comp_node": node, "flag": [], "mem_plan": plan, "static_infer_tags": {},
        "node_type": "var",
    }  # fmt: skip


def _unattributed(profile: Profile, first: int) -> Iterator[ProfileRow]:
    """Device work of the last step that no operator launched, as one operator per device: MegEngine knows no other place."""
    devices: dict[str, list[Kernel]] = {}
    for kernel in profile.unattributed:
        if kernel.start_ns >= first:
            devices.setdefault(kernel.device, []).append(kernel)
    for device, kernels in devices.items():
        total = sum(kernel.duration_ns for kernel in kernels)
        yield ProfileRow(
            id=-1, name=NO_OPERATOR, type=NO_OPERATOR, device=device, device_ns=total, kernels=tuple(kernels)
        )


# -- a profile as a Chrome trace, for Perfetto and chrome://tracing


def chrome_json(profile: Profile) -> str:
    """The trace as text: operators on the host, kernels on the device's streams, a flow from each to its kernels."""
    devices = {k.device for row in profile.rows for k in row.kernels} | {k.device for k in profile.unattributed}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": place, "tid": 0, "args": {"name": place}}
        for place in ("host", *sorted(devices))
    ]
    for row in profile.rows:
        events.extend(_chrome_row(row))
    events.extend(_chrome_kernel(kernel, "(unattributed)") for kernel in profile.unattributed)
    start = min((row.host_start_ns for row in profile.rows if row.host_start_ns is not None), default=0)
    for event in events:  # Chrome's times are microseconds; counted from the first event, a float has every nanosecond
        if "ts" in event:
            event["ts"] = (event["ts"] - start) / 1000
        if "dur" in event:
            event["dur"] /= 1000
    document = {
        "displayTimeUnit": "ms", "baseTimeNanoseconds": start, "metadata": dict(profile.meta), "traceEvents": events,
    }  # fmt: skip
    return json_text(document, halves=False)


def _chrome_row(row: ProfileRow) -> Iterator[dict[str, Any]]:
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
        yield _chrome_kernel(kernel, row.name)


def _chrome_kernel(kernel: Kernel, operator: str) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "kernel", "name": kernel.name, "pid": kernel.device, "tid": kernel.stream,
        "ts": kernel.start_ns, "dur": kernel.duration_ns, "args": {"operator": operator},
    }  # fmt: skip
