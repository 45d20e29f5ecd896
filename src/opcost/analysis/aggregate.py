"""Several parts as one line: sum, mean, max, min, median or a percentile, applied to each quantity on its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import floor
from operator import attrgetter
from typing import Any

from opcost.analysis.part import LABELS, NOWHERE, Part, label
from opcost.core.graph import TensorSpec
from opcost.core.profile import AnswerLine, Kernel, KernelUse, LineRole
from opcost.core.timeline import covered
from opcost.errors import OpcostError, UnknownName
from opcost.options import Measure

HOWS = ("sum", "mean", "max", "min", "median")
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,3})?)")

TOP_KERNELS = 5  # kernels that a line names


def check_how(how: str) -> None:
    """Raise for a way to aggregate that does not exist."""
    if how not in HOWS and not _PERCENTILE.fullmatch(how):
        raise UnknownName("way to aggregate", how, [*HOWS, "p90"])


def check_keys(keys: Sequence[str]) -> None:
    """Raise for a key that does not exist, or that is named twice."""
    for key in keys:
        if key not in LABELS:
            raise UnknownName("key to aggregate by", key, LABELS)
    if len(set(keys)) != len(keys):
        raise OpcostError(f"a key is named twice: {', '.join(keys)}")


def group(parts: Sequence[Part], keys: Sequence[str], depth: int | None) -> dict[tuple[str, ...], list[Part]]:
    """Parts by their labels, in the order of first appearance."""
    found: dict[tuple[str, ...], list[Part]] = {}
    for part in parts:
        found.setdefault(tuple(label(part, key, depth) or NOWHERE for key in keys), []).append(part)
    return found


def combine(
    parts: Sequence[Part],
    how: str,
    *,
    labels: Mapping[str, str],
    percentiles: Sequence[float] = (),
    role: LineRole = "row",
    measure: Measure = "time",
) -> AnswerLine:
    """The line of a group; it has shapes where all its operators have the same."""
    first = parts[0].row
    alike = first is not None and all(
        part.row and (part.row.ins, part.row.outs) == (first.ins, first.outs) for part in parts
    )
    kernels = [kernel for part in parts for kernel in part.kernels]
    delays = delays_of(kernels)
    # How long they waited: what waits at the same time waits once, where it is known when
    waits = _times([(part.wait_ns, part.count, ()) for part in parts], how)
    if how == "sum":
        given = [part.wait_ns for part in parts if part.wait_ns is not None and part.waiting is None]
        spans = [part.waiting for part in parts if part.waiting is not None]
        waits = sum(given) + union(spans) if given or spans else None
    # The time in which the work was done, of each execution where it is known, and of that what has no cost model
    worked = [(part.work_ns, part.count, part.singles[1 if part.device_ns is None else 2]) for part in parts]
    priced = [time if part.priced else (None, part.count, ()) for part, time in zip(parts, worked, strict=True)]
    work = sum(part.work_ns or 0 for part in parts)
    unpriced = sum(part.work_ns or 0 for part in parts if not part.priced)
    spent: Counter[str] = Counter()
    for part in parts:
        spent[part.bound] += part.time_ns
    times = [(part.time_ns, part.count, part.singles[0]) for part in parts]
    # Of single executions; a part of several that it does not have counts as often as its mean
    single_times = [(single, 1) for part in parts for single in part.singles[0]] if percentiles else []
    means = [(part.time_ns / (part.count or 1), part.count or 1) for part in parts if not part.singles[0]]
    ordered: list[tuple[float, int]] = sorted([*single_times, *means])
    # The kernels that took longest, those of one name together
    launched, spent_in = Counter[str](), Counter[str]()
    for kernel in kernels:
        launched[kernel.name] += kernel.count
        spent_in[kernel.name] += kernel.duration_ns
    uses = [KernelUse(name, count, spent_in[name]) for name, count in launched.items()]
    return AnswerLine(
        role=role, labels=labels, count=sum(part.count for part in parts),
        time_ns=waits if measure == "wait" else _times(times, how),
        host_ns=_times([(part.host_ns, part.count, part.singles[1]) for part in parts], how),
        device_ns=_times([(part.device_ns, part.count, part.singles[2]) for part in parts], how), wait_ns=waits,
        computation=_costs([(part.computation, part.count) for part in parts], how),
        memory=_costs([(part.memory, part.count) for part in parts], how), priced_ns=_times(priced, how),
        unpriced=sum(part.count for part in parts if not part.priced), unpriced_share=unpriced / work if work else None,
        ins=first.ins if first is not None and alike else (), outs=first.outs if first is not None and alike else (),
        percentiles=tuple(percentile(ordered, percent) for percent in percentiles),
        kernels=tuple(sorted(uses, key=lambda use: -use.time_ns)[:TOP_KERNELS]),
        launches=sum(part.launches for part in parts), delay_ns=percentile(delays, 50) if delays else None,
        delay_p90_ns=percentile(delays, 90) if delays else None,
        ideal_ns=_costs([(part.ideal_ns, part.count) for part in parts], how),
        bound=max(spent, key=spent.__getitem__, default=""),
    )  # fmt: skip


def union(spans: Iterable[tuple[int, int]]) -> int:
    """Length of the time that at least one span covers."""
    return covered(sorted(spans))


def percentile(weighted: Sequence[tuple[float, int]], percent: float) -> float:
    """Between the two nearest of the sorted values, in proportion; each value counts as often as its weight."""

    def at(place: int) -> float:
        for value, weight in weighted:
            place -= weight
            if place < 0:
                return value
        return weighted[-1][0]

    last = sum(weight for _, weight in weighted) - 1
    place = last * percent / 100
    low, high = at(floor(place)), at(min(floor(place) + 1, last))
    return low + (high - low) * (place - floor(place))


def delays_of(kernels: Sequence[Kernel]) -> list[tuple[int, int]]:
    """How long each kernel waited after its launch, sorted; two clocks that disagree give nothing."""
    found = [kernel.start_ns - kernel.launched_ns for kernel in kernels if kernel.launched_ns is not None]
    return sorted((delay, 1) for delay in found if delay >= 0)


def _times(values: Sequence[tuple[int | None, int, Sequence[int]]], how: str) -> float | None:
    """Unknown times are left out; the mean is over all executions, and the others are of single ones where these are known."""
    known: list[tuple[float, int]] = []
    for value, count, singles in values:
        if value is not None and singles and how not in ("sum", "mean"):
            known += [(single, 1) for single in singles]
        elif value is not None:
            known.append((value, count))
    return _apply(known, sum(count for _, count, _ in values), how) if known else None


def _costs(values: Sequence[tuple[float | None, int]], how: str) -> float | None:
    """The unknown adds nothing to a sum and a mean, and is greater than every number: no maximum where it takes part."""
    known = [(value, count) for value, count in values if value is not None]
    if not known or (how == "max" and len(known) < len(values)):
        return None
    return _apply(known, sum(count for _, count in values), how)


def _apply(known: Sequence[tuple[float, int]], executions: int, how: str) -> float:
    if how in ("sum", "mean"):
        total = sum(value for value, _ in known)
        return total if how == "sum" else total / (executions or 1)
    singles = sorted((value / count if count > 1 else value, count or 1) for value, count in known)
    if how in ("max", "min"):
        return singles[-1 if how == "max" else 0][0]
    found = _PERCENTILE.fullmatch(how)
    return percentile(singles, float(found[1]) if found else 50.0)


# -- order: The order of lines: what each column sorts by, under its name and under its printed header.


def _extents(specs: Sequence[TensorSpec]) -> list[list[int]] | None:
    """Shapes that can be compared: an extent that is not known comes before every other."""
    return [[-1 if extent is None else extent for extent in spec.shape or ()] for spec in specs] or None


_ATTRIBUTES = {
    "time": "time_ns", "host": "host_ns", "device_time": "device_ns", "wait": "wait_ns", "count": "count",
    "launches": "launches", "per_call": "launches_per_call", "delay": "delay_ns", "delay_p90": "delay_p90_ns",
    "computation": "computation", "flops": "flops", "memory": "memory", "unpriced": "unpriced_share",
    "bandwidth": "bandwidth", "intensity": "intensity", "of_peak_flops": "of_peak_flops",
    "of_peak_bandwidth": "of_peak_bandwidth", "opr_id": "id",
}  # fmt: skip
SORTED: dict[str, Callable[[AnswerLine], Any]] = {
    **{name: attrgetter(attribute) for name, attribute in _ATTRIBUTES.items()},
    "mean": lambda line: line.time_ns / line.count if line.time_ns is not None and line.count else None,
    "bound": lambda line: line.bound or None,
    "top_kernel": lambda line: line.kernels[0].name if line.kernels else None,
    "in_shapes": lambda line: _extents(line.ins),
    "out_shapes": lambda line: _extents(line.outs),
    "note": lambda line: line.above_peak or None,
    **{key: partial(lambda key, line: line.labels.get(key), key) for key in LABELS if key != "bound"},
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
    """What an option sorts by, and whether the smallest comes first; `COL` and `-COL` are falling, `+COL` is rising."""
    bare = order_by.strip()
    name = bare.lstrip("+-").strip().lower().replace(" ", "_").replace("-", "_")
    percent = re.fullmatch(r"p(\d{1,3}(?:\.\d+)?)", name)
    if percent:
        if float(percent[1]) not in percentiles:
            hint = f"add --percentiles {percent[1]}"
            raise OpcostError(f"there is no column {name}: that percentile was not requested", hint=hint)
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
