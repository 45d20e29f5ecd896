"""What TensorRT's trtexec measures: layers (`--exportProfile`) and iterations (`--exportTimes`)."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from opcost.core.profile import Profile, ProfileRow
from opcost.errors import SourceError
from opcost.traces.file import NS_PER_MS, TraceFile, events_of, executions, nanoseconds, wall_of
from opcost.traces.registry import Reader

_BEGINNING = re.compile(rb'^\s*\[\s*\{\s*"count"\s*:\s*\d+\s*\}')
_LAYER = re.compile(rb'^\s*\[[^\]]*"(averageMs|timeMs)"\s*:')
_TIMES = re.compile(rb'^\s*\[\s*\{[^}]*"computeMs"\s*:')
_STAGES = {
    "input to device": ("startInMs", "inMs"),
    "compute": ("startComputeMs", "computeMs"),
    "output to host": ("startOutMs", "outMs"),
}


class TensorRtReader:
    """One row for each layer, standing for all iterations; or for each stage of each iteration."""

    name = "tensorrt"

    def sniff(self, head: bytes) -> bool:
        return any(pattern.match(head) is not None for pattern in (_BEGINNING, _LAYER, _TIMES))

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        content, notes = events_of(file, partial=partial)
        meta, wall, runs = {"source": file.name, "format": "tensorrt"}, None, len(content)
        try:
            if _TIMES.match(file.head):
                rows = tuple(_stages(content))
                wall = wall_of((row.host_start_ns or 0, row.device_ns or 0) for row in rows)
            else:
                runs = next((executions(entry["count"]) for entry in content if "count" in entry), 1)
                rows = tuple(_layers([entry for entry in content if "name" in entry], runs))
        except (KeyError, TypeError, AttributeError, ArithmeticError, ValueError) as exc:
            raise SourceError(f"{file.path} looks like a profile of TensorRT but is damaged: {exc!r}") from exc
        return Profile(meta={**meta, "runs": str(runs)}, rows=rows, wall_ns=wall, notes=tuple(notes))


READER: Reader = TensorRtReader()


def _layers(layers: list[dict[str, Any]], runs: int) -> Iterator[ProfileRow]:
    for number, layer in enumerate(layers):
        spent = _ns(layer, "timeMs") if "timeMs" in layer else _ns(layer, "averageMs", runs)
        yield ProfileRow(
            id=number, name=str(layer["name"]), type="layer", provider="tensorrt", device="gpu:0",
            device_ns=spent, device_total_ns=spent, count=runs,
            attrs={"median_ns": _ns(layer, "medianMs")} if "medianMs" in layer else {},
        )  # fmt: skip


def _stages(iterations: list[dict[str, Any]]) -> Iterator[ProfileRow]:
    """Of each iteration what the device did; the host's part, to put the work into its queue, goes with the computation."""
    for step, iteration in enumerate(iterations):
        enqueue = _ns(iteration, "endEnqMs") - _ns(iteration, "startEnqMs")
        for place, (stage, (start, duration)) in enumerate(_STAGES.items()):
            spent = _ns(iteration, duration)
            yield ProfileRow(
                id=step * len(_STAGES) + place, name=stage, type=stage, provider="tensorrt", device="gpu:0",
                step=step, host_start_ns=_ns(iteration, start), host_ns=enqueue if stage == "compute" else 0,
                host_self_ns=enqueue if stage == "compute" else 0,
                device_ns=spent, device_total_ns=spent,
            )  # fmt: skip


def _ns(entry: dict[str, Any], key: str, times: int = 1) -> int:
    """Milliseconds, with the decimals that the file has."""
    return nanoseconds(Decimal(str(entry[key])), NS_PER_MS * times)
