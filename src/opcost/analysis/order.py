"""The order of lines: what each column sorts by, under its name and under its printed header."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from opcost.analysis.part import LABELS, Part
from opcost.core.answer import AnswerLine
from opcost.core.graph import TensorSpec
from opcost.errors import OpcostError, UnknownName


def _labelled(key: str) -> Callable[[AnswerLine], str | None]:
    return lambda line: line.labels.get(key)


def _extents(specs: Sequence[TensorSpec]) -> list[list[int]] | None:
    """Shapes that can be compared: an extent that is not known comes before every other."""
    return [[-1 if extent is None else extent for extent in spec.shape or ()] for spec in specs] or None


SORTED: dict[str, Callable[[AnswerLine], Any]] = {
    "time": lambda line: line.time_ns,
    "host": lambda line: line.host_ns,
    "device_time": lambda line: line.device_ns,
    "wait": lambda line: line.wait_ns,
    "count": lambda line: line.count,
    "launches": lambda line: line.launches,
    "per_call": lambda line: line.launches_per_call,
    "delay": lambda line: line.delay_ns,
    "delay_p90": lambda line: line.delay_p90_ns,
    "mean": lambda line: line.time_ns / line.count if line.time_ns is not None and line.count else None,
    "computation": lambda line: line.computation,
    "flops": lambda line: line.flops,
    "memory": lambda line: line.memory,
    "unpriced": lambda line: line.unpriced_share,
    "bandwidth": lambda line: line.bandwidth,
    "intensity": lambda line: line.intensity,
    "of_peak_flops": lambda line: line.of_peak_flops,
    "of_peak_bandwidth": lambda line: line.of_peak_bandwidth,
    "bound": lambda line: line.bound or None,
    "top_kernel": lambda line: line.kernels[0].name if line.kernels else None,
    "opr_id": lambda line: line.id,
    "in_shapes": lambda line: _extents(line.ins),
    "out_shapes": lambda line: _extents(line.outs),
    "note": lambda line: line.above_peak or None,
    **{key: _labelled(key) for key in LABELS if key != "bound"},
}
_ALIASES = {
    "cumulative": "time", "share": "time", "%": "time", "percent": "time", "self_time": "time", "device_self_time": "time",
    "host_self_time": "time", "operator": "name", "operator_info": "name", "opr_name": "name", "opr_type": "type",
    "id": "opr_id", "calls": "count", "flop/s": "flops", "flop/b": "intensity", "bytes": "memory", "input": "in_shapes",
    "output": "out_shapes", "kernels": "launches", "host_time": "host", "%_peak": "of_peak_flops",
    "%_bw": "of_peak_bandwidth", "launch_delay": "delay", "kernels/call": "per_call", "longest_kernel": "top_kernel",
    "%_unpriced": "unpriced",
}  # fmt: skip
"""Printed headers, and what they mean as an order: the running sum and the share grow with the time."""


def sort_key(order_by: str, percentiles: Sequence[float] = ()) -> tuple[Callable[[AnswerLine], Any], bool]:
    """What a wish sorts by, and whether the smallest comes first; `COL` and `-COL` are falling, `+COL` is rising."""
    bare = order_by.strip()
    name = bare.lstrip("+-").strip().lower().replace(" ", "_").replace("-", "_")
    percent = re.fullmatch(r"p(\d{1,3}(?:\.\d+)?)", name)
    if percent:
        if float(percent[1]) not in percentiles:
            raise OpcostError(
                f"there is no column {name}: that percentile was not asked for", hint=f"add --percentiles {percent[1]}"
            )
        place = percentiles.index(float(percent[1]))
        return (lambda line: line.percentiles[place] if line.percentiles else None), bare.startswith("+")
    name = re.sub(r"^(mean|max|min|median|p[\d.]+)_(?=(device|host)_time$)", "", name)
    name = _ALIASES.get(name, name)
    if name not in SORTED:
        raise UnknownName("column", order_by, [*SORTED, *_ALIASES])
    return SORTED[name], bare.startswith("+")


def sort_lines(
    pairs: Sequence[tuple[AnswerLine, Sequence[Part]]], order_by: str, percentiles: Sequence[float] = ()
) -> list[tuple[AnswerLine, Sequence[Part]]]:
    """Sorted, equal ones in their old order; lines without a value come last in both directions."""
    column, rising = sort_key(order_by, percentiles)
    known = [pair for pair in pairs if column(pair[0]) is not None]
    missing = [pair for pair in pairs if column(pair[0]) is None]
    return [*sorted(known, key=lambda pair: column(pair[0]), reverse=not rising), *missing]
