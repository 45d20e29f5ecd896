"""Layer profiles of TensorRT's trtexec (`--exportProfile`)."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING

from opcost.core.profile import Profile, ProfileRow
from opcost.errors import SourceError
from opcost.traces.file import TRUNCATED, TraceFile

if TYPE_CHECKING:
    from opcost.traces.registry import Reader

NS_PER_MS = 1_000_000
_BEGINNING = re.compile(rb'^\s*\[\s*\{\s*"count"\s*:\s*\d+\s*\}')
_LAYER = re.compile(rb'^\s*\[[^\]]*"(averageMs|timeMs)"\s*:')


class TensorRtReader:
    """One row for each layer, standing for all iterations."""

    name = "tensorrt"

    def sniff(self, head: bytes) -> bool:
        return _BEGINNING.match(head) is not None or _LAYER.match(head) is not None

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        try:
            content = json.loads(file.text(), parse_float=Decimal, parse_int=Decimal)
        except (ValueError, RecursionError) as exc:
            raise SourceError(f"{file.path}: the JSON is damaged: {exc}", hint=TRUNCATED) from exc
        try:
            iterations = next((int(entry["count"]) for entry in content if "count" in entry), 1)
            layers = [entry for entry in content if "name" in entry]
            rows = tuple(
                ProfileRow(
                    id=number,
                    name=str(layer["name"]),
                    type="layer",
                    provider="tensorrt",
                    device="gpu:0",
                    device_ns=(spent := _ns(layer, iterations)),
                    device_total_ns=spent,
                    count=iterations,
                    attrs={"median_ns": round(layer["medianMs"] * NS_PER_MS)} if "medianMs" in layer else {},
                )
                for number, layer in enumerate(layers)
            )
        except (KeyError, TypeError, AttributeError, ArithmeticError, ValueError) as exc:
            raise SourceError(f"{file.path} looks like a profile of TensorRT but is damaged: {exc!r}") from exc
        return Profile(meta={"source": file.name, "format": "tensorrt", "runs": str(iterations)}, rows=rows)


READER: Reader = TensorRtReader()


def _ns(layer: dict[str, Decimal], iterations: int) -> int:
    total = layer["timeMs"] if "timeMs" in layer else layer["averageMs"] * iterations
    return round(total * NS_PER_MS)
