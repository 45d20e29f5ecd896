"""Good files of traces, for the harness that changes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "data"
LARGEST = 64_000
"""Bytes of the largest file that is changed, by default: more would only be more of the same."""


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
