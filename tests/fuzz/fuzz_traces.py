"""Good files of traces, for the harness that changes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "data"
LARGEST = 64_000
"""Bytes of the largest file that is changed, if nobody says: more would only be more of the same."""


def traces(*patterns: str, most: int = 40, largest: int = LARGEST) -> list[bytes]:
    """Files of the folder of traces, lists of events shortened to some from everywhere."""
    found = []
    for path in sorted(path for pattern in patterns for path in DATA.glob(pattern) if "key_averages" not in path.name):
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        if ".json" in path.name:
            content = json.dumps(_shortened(json.loads(content), most)).encode()
        found.append(content)
    return [content for content in found if len(content) < largest]


def _shortened(document: Any, most: int) -> Any:
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list) or len(events) <= most:
        return document
    kept = [*events[: most // 2], *events[len(events) // 2 : len(events) // 2 + most // 2]]
    return {**document, "traceEvents": kept} if isinstance(document, dict) else kept


def tensorrt() -> list[bytes]:
    layers = [
        {"count": 10},
        {"name": "conv1 + Relu_1", "timeMs": 1.2345, "averageMs": 0.12345, "medianMs": 0.123, "percentage": 60},
        {"name": "fc", "averageMs": 0.08, "percentage": 40},
    ]
    names = ("startEnqMs", "endEnqMs", "startInMs", "inMs", "startComputeMs", "computeMs", "startOutMs", "outMs")
    times = [{name: place / 8 + step for place, name in enumerate(names)} for step in range(3)]
    return [json.dumps(layers).encode(), json.dumps(times).encode()]


def rocprof() -> list[bytes]:
    """Both forms of AMD's profilers, as they are documented."""
    times = {
        "start_timestamp": 10,
        "end_timestamp": 20,
        "thread_id": 9,
        "correlation_id": {"internal": 1, "ancestor": 2},
    }
    work = {"kernel_id": 3, "agent_id": {"handle": 7}, "queue_id": {"handle": 2}}
    run = {
        "metadata": {"pid": 41},
        "agents": [{"id": {"handle": 7}, "type": 2, "product_name": "AMD Instinct MI300X"}],
        "strings": {
            "buffer_records": [
                {"kind": "A", "operations": ["hipLaunchKernel", "MEMORY_COPY_HOST_TO_DEVICE", "roctxRange"]}
            ],
            "marker_api": [{"key": 1, "value": "layer"}],
        },
        "kernel_symbols": [{"kernel_id": 3, "formatted_kernel_name": "gemm"}],
        "buffer_records": {
            "marker_api": [{"kind": 0, "operation": 2, **times}],
            "hip_api": [{"kind": 0, "operation": 0, **times}],
            "hsa_api": [{"kind": 0, "operation": 0, **times}],
            "kernel_dispatch": [{"dispatch_info": work, **times}],
            "memory_copy": [{"kind": 0, "operation": 1, "bytes": 64, "dst_agent_id": {"handle": 7}, **times}],
        },
    }
    names = {0: "Markers and Ranges", 1: "COPY", 2: "CPU HIP API", 6: "GPU0"}
    args = {"BeginNs": "5000", "EndNs": "9000", "dev-id": "0", "queue-id": "1"}
    events = [
        *({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in names.items()),
        *({"ph": "X", "name": "hipLaunch", "pid": pid, "tid": 1, "ts": 5, "dur": 4, "args": args} for pid in names),
        {"ph": "s", "cat": "DataFlow", "name": "dep", "id": 1, "pid": 2, "tid": 1, "ts": 5},
        {"ph": "t", "cat": "DataFlow", "name": "dep", "id": 1, "pid": 6, "tid": 1, "ts": 5},
    ]
    return [json.dumps({"rocprofiler-sdk-tool": [run]}).encode(), json.dumps({"traceEvents": events}).encode()]
