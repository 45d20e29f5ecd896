"""The rows of a profile as parts that can be filtered, grouped and added up: an operator, or one of its kernels."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import floor
from operator import attrgetter
from typing import Any, NamedTuple

from opcost.analysis.where import Dimension, QueryField
from opcost.core.graph import TensorSpec
from opcost.core.names import is_copy
from opcost.core.profile import SECOND_NS, AnswerLine, Kernel, KernelUse, LineRole, Profile, ProfileRow, weighted_mean
from opcost.core.timeline import covered
from opcost.errors import OpcostError, UnknownName
from opcost.options import Measure, Side

UNATTRIBUTED = "(unattributed)"
_REASONS = {"graph": "(unattributed: captured graph)", "outside": "(unattributed: launch not in the trace)"}
NOWHERE = "(none)"  # the label of parts that have nothing to say for a key

_BY_KERNEL = ("kernel", "stream", "device")  # keys that a kernel answers better than the operator that launched it


class Part(NamedTuple):
    """Something that took time; `row` is None for device work that no operator launched."""

    row: ProfileRow | None
    time_ns: int
    host_ns: int | None
    device_ns: int | None
    wait_ns: int | None
    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    computation: int | None
    memory: int | None
    kernels: tuple[Kernel, ...]
    singles: tuple[Sequence[int], Sequence[int], Sequence[int]] = ((), (), ())
    """Time, host and device time of each execution, of a part of several executions that has them."""
    waiting: tuple[int, int] | None = None
    """From when to when it waited, where there is one clock: waits of several operators overlap, and are no sum."""
    ideal_ns: float | None = None
    """The least time that it can take at the device's peaks; unknown without a cost or a peak."""
    bound: str = ""  # what bounds it, as far as it was judged or predicted
    predicted_ns: float | None = None  # what it should take by the laws of its device

    @property
    def costed(self) -> bool:
        return self.computation is not None

    @property
    def launches(self) -> int:
        """Kernels launched."""
        return sum(kernel.count for kernel in self.kernels)

    @property
    def work_ns(self) -> int | None:
        """The time in which the work was done: on the device where there is one, else on the host."""
        return self.host_ns if self.device_ns is None else self.device_ns


def usual_side(profile: Profile) -> Side:
    """The device where the trace has times of it, else the host."""
    on_device = profile.unattributed or any(row.device_ns is not None for row in profile.rows)
    return "device" if on_device else "host"


def parts_of(profile: Profile, side: Side, measure: Measure, *, keys: Iterable[str] = ()) -> list[Part]:
    """Everything that ran on this side; split into kernels where a key is about them."""
    split = side == "device" and measure == "time" and any(key in _BY_KERNEL for key in keys)
    launching = bool(profile.unattributed) or any(row.kernels for row in profile.rows)
    found: list[Part] = []
    one_clock = all(note.code != "clocks" for note in profile.notes)
    for row in profile.rows:
        part = _part(row, side, measure, one_clock=one_clock)
        # Where kernels are recorded, an operator without one was never on the device.
        if part is None or (side == "device" and launching and not row.kernels and not row.device_ns):
            continue
        # Kernels side by side on several devices do not add up to the row's time.
        adds_up = sum(kernel.duration_ns for kernel in row.kernels) == row.device_ns
        found += _kernels(part) if split and len(row.kernels) > 1 and adds_up else [part]
    return found


def unattributed_parts(profile: Profile) -> list[Part]:
    """Device work without an operator, one part per kernel."""
    found = []
    for kernel in profile.unattributed:
        time, spread = kernel.duration_ns, kernel.spread
        found.append(Part(None, time, None, time, None, kernel.count, None, None, (kernel,), (spread, (), spread)))
    return found


def self_host_ns(row: ProfileRow) -> int | None:
    """Time on the host without what was called inside."""
    return row.host_ns if row.host_self_ns is None else row.host_self_ns


def _part(row: ProfileRow, side: Side, measure: Measure, *, one_clock: bool) -> Part | None:
    # From the operator's beginning to its first kernel: how long, as the trace has it or by its one clock, and then when
    host, wait, waiting, given = self_host_ns(row), None, None, row.attrs.get("wait_ns")
    if one_clock and isinstance(given, int):
        wait = given
    elif one_clock and row.host_start_ns is not None and row.kernels:
        first = min(kernel.start_ns for kernel in row.kernels)
        if first >= row.host_start_ns:
            wait, waiting = first - row.host_start_ns, (row.host_start_ns, first)
    time = wait if measure == "wait" else row.device_ns if side == "device" else host
    if time is None:
        return None
    cost = row.cost
    computation = memory = None
    if cost is not None:
        computation = cost.flops * row.count
        memory = (cost.bytes_read + cost.bytes_written) * row.count
    part = Part(row, time, host, row.device_ns, wait, row.count, computation, memory, row.kernels, waiting=waiting)
    if "bound" in row.attrs:
        part = part._replace(bound=str(row.attrs["bound"]))
    if row.spread is None:
        return part
    spread = row.spread.host_self_ns, row.spread.device_ns
    return part._replace(singles=(() if measure == "wait" else spread[side == "device"], *spread))


def _kernels(part: Part) -> Iterator[Part]:
    """One part per kernel; the first represents the execution, and the cost goes with those that do the work.

    A kernel does as much of an operator's work as it takes of their time, and none where it only prepares it.
    """
    kernels = part.kernels
    works = [not is_copy(kernel.name) for kernel in kernels]
    if not any(works):
        works = [True] * len(kernels)
    shares = [kernel.duration_ns if works[place] else 0 for place, kernel in enumerate(kernels)]
    if not any(shares):
        shares = [int(place == works.index(True)) for place in range(len(kernels))]
    reached = [*accumulate(shares, initial=0)]

    def shared_out(amount: int | None, place: int) -> int | None:
        """Whole numbers that are as the shares are, and add up to the amount."""
        if amount is None:
            return None
        return amount * reached[place + 1] // reached[-1] - amount * reached[place] // reached[-1]

    for place, kernel in enumerate(kernels):
        time, spread = kernel.duration_ns, kernel.spread
        own = part if place == 0 else part._replace(host_ns=0, wait_ns=None, waiting=None, count=0)
        yield own._replace(
            time_ns=time, device_ns=time, kernels=(kernel,), singles=(spread, (), spread),
            computation=shared_out(part.computation, place), memory=shared_out(part.memory, place),
        )  # fmt: skip


# -- labels


def _of_row(read: Callable[[ProfileRow], str]) -> Callable[[Part], str]:
    return lambda part: _loose(part) if part.row is None else read(part.row)


def _rank(part: Part) -> int | None:
    return part.row.rank if part.row else part.kernels[0].rank


def _loose(part: Part) -> str:
    return _REASONS.get(part.kernels[0].why, UNATTRIBUTED)


def _by_kernel(name: str) -> Callable[[Part], str]:
    return lambda part: str(getattr(part.kernels[0] if part.kernels else part.row, name, ""))


LABELS: dict[str, Callable[[Part], str]] = {
    **{name: _of_row(attrgetter(name)) for name in ("name", "type", "kind", "module", "phase", "provider")},
    "bound": lambda part: part.bound or ("" if part.row else _loose(part)),
    "shape": _of_row(lambda row: shapes_text(row.ins)),
    "out_shape": _of_row(lambda row: shapes_text(row.outs)),
    "dtype": _of_row(lambda row: next((spec.dtype for spec in (*row.ins, *row.outs)), "")),
    "rank": lambda part: _loose(part) if (rank := _rank(part)) is None else str(rank),
    "step": _of_row(lambda row: "" if row.step is None else str(row.step)),
    "kernel": lambda part: (
        part.kernels[0].name if len(part.kernels) == 1 else "(several kernels)" if part.kernels else "(no kernel)"
    ),
    "device": _by_kernel("device"),
    "stream": _by_kernel("stream"),
}
"""Keys to aggregate by."""


def shapes_text(specs: Sequence[TensorSpec]) -> str:
    """`1x3x224x224, 64x3x7x7`."""
    return ", ".join(map(str, specs))


def label(part: Part, key: str, depth: int | None = None) -> str:
    """What a part is called under a key; modules are cut to a depth."""
    text = LABELS[key](part)
    if key == "module" and depth is not None and part.row is not None:
        text = ".".join(text.split(".")[:depth])
    return text


# -- fields


_QUANTITIES: dict[str, tuple[Dimension, str]] = {
    "time": ("time", "time_ns"), "host": ("time", "host_ns"), "device_time": ("time", "device_ns"),
    "wait": ("time", "wait_ns"), "count": ("count", "count"), "launches": ("count", "launches"),
    "computation": ("count", "computation"), "memory": ("bytes", "memory"),
}  # fmt: skip
"""Dimension and attribute of what a part has itself."""
_HEADERS = {
    "calls": "count", "kernels": "launches", "bytes": "memory", "host_time": "host", "launch_delay": "delay",
    "input": "in_shapes", "output": "out_shapes", "longest_kernel": "top_kernel", "blocks/sm": "blocks_per_sm",
}  # fmt: skip
"""What tables call some of them."""


def fields(total_ns: float | None, line_of: Callable[[Part], AnswerLine] | None = None) -> dict[str, QueryField]:
    """What a condition may compare of a part; shares are of this total, and those of peaks as its line by itself has them."""

    def of_line(name: str) -> Callable[[Part], Any]:
        return lambda part: None if line_of is None else getattr(line_of(part), name)

    def rate(amount: int | None, by: float | None, scale: int = 1) -> float | None:
        return amount * scale / by if amount is not None and by else None

    def delay(part: Part) -> int | None:
        """The longest wait of its kernels after their launch."""
        found = [kernel.start_ns - kernel.launched_ns for kernel in part.kernels if kernel.launched_ns is not None]
        return max(found, default=None)

    found = {name: QueryField("text", read) for name, read in LABELS.items() if name not in ("rank", "step", "kernel")}
    found |= {name: QueryField(dimension, attrgetter(read)) for name, (dimension, read) in _QUANTITIES.items()}
    found |= {
        "delay": QueryField("time", delay),
        "flops": QueryField("count", lambda part: rate(part.computation, part.work_ns, SECOND_NS)),
        "bandwidth": QueryField("bytes", lambda part: rate(part.memory, part.work_ns, SECOND_NS)),
        "intensity": QueryField("count", lambda part: rate(part.computation, part.memory)),
        "share": QueryField("ratio", lambda part: rate(part.time_ns, total_ns)),
        "occupancy": QueryField("ratio", of_line("occupancy")),
        "blocks_per_sm": QueryField("count", of_line("blocks_per_sm")),
        "of_peak_flops": QueryField("ratio", of_line("of_peak_flops")),
        "of_peak_bandwidth": QueryField("ratio", of_line("of_peak_bandwidth")),
        "uncosted": QueryField("ratio", of_line("uncosted_share")),
        "predicted": QueryField("time", of_line("predicted_ns")),
        "per_call": QueryField("count", lambda part: rate(part.launches or None, part.count)),
        "rank": QueryField("count", _rank),
        "step": QueryField("count", lambda part: part.row.step if part.row else None),
        "id": QueryField("count", lambda part: part.row.id if part.row else None),
        "kernel": QueryField("text", lambda part: tuple(kernel.name for kernel in part.kernels)),
        "input_dtype": QueryField("text", lambda part: tuple(spec.dtype for spec in part.row.ins) if part.row else ()),
    }
    found |= {"in_shapes": found["shape"], "out_shapes": found["out_shape"], "top_kernel": found["kernel"]}
    return found | {header: found[name] for header, name in _HEADERS.items()}


# -- several parts as one line: each quantity on its own ---------------------------------------------------------------

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
    _, delay, delay_p90 = delays_of(kernels)
    # How long they waited: what waits at the same time waits once, where it is known when
    waits = _times([(part.wait_ns, part.count, ()) for part in parts], how)
    if how == "sum":
        given = [part.wait_ns for part in parts if part.wait_ns is not None and part.waiting is None]
        spans = [part.waiting for part in parts if part.waiting is not None]
        waits = sum(given) + covered(sorted(spans)) if given or spans else None
    # The time in which the work was done, of each execution where it is known, and of that what has no cost model
    worked = [(part.work_ns, part.count, part.singles[1 if part.device_ns is None else 2]) for part in parts]
    costed = [time if part.costed else (None, part.count, ()) for part, time in zip(parts, worked, strict=True)]
    work = sum(part.work_ns or 0 for part in parts)
    uncosted = sum(part.work_ns or 0 for part in parts if not part.costed)
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
        memory=_costs([(part.memory, part.count) for part in parts], how), costed_ns=_times(costed, how),
        uncosted=sum(part.count for part in parts if not part.costed), uncosted_share=uncosted / work if work else None,
        ins=first.ins if first is not None and alike else (), outs=first.outs if first is not None and alike else (),
        percentiles=tuple(percentile(ordered, percent) for percent in percentiles),
        kernels=tuple(sorted(uses, key=lambda use: -use.time_ns)[:TOP_KERNELS]),
        launches=sum(part.launches for part in parts), delay_ns=delay, delay_p90_ns=delay_p90,
        occupancy=weighted_mean((kernel.occupancy, kernel.duration_ns) for kernel in kernels),
        blocks_per_sm=weighted_mean((kernel.blocks_per_sm, kernel.duration_ns) for kernel in kernels),
        ideal_ns=_costs([(part.ideal_ns, part.count) for part in parts], how), predicted_ns=_predicted(parts, how),
        bound=max(spent, key=spent.__getitem__, default=""),
    )  # fmt: skip


def _predicted(parts: Sequence[Part], how: str) -> float | None:
    """The predicted time, if one of them has one; that of the others is as it was measured."""
    if all(part.predicted_ns is None for part in parts):
        return None
    times = [part.device_ns if part.predicted_ns is None else part.predicted_ns for part in parts]
    return _costs([(time, part.count) for time, part in zip(times, parts, strict=True)], how)


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


def delays_of(kernels: Sequence[Kernel]) -> tuple[int, float | None, float | None]:
    """How many kernels began after their launch, two clocks that disagree left out; and their delay, median and 90 %."""
    found = [kernel.start_ns - kernel.launched_ns for kernel in kernels if kernel.launched_ns is not None]
    delays = sorted((delay, 1) for delay in found if delay >= 0)
    return (len(delays), percentile(delays, 50), percentile(delays, 90)) if delays else (0, None, None)


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


_ATTRIBUTES = {name: read for name, (_, read) in _QUANTITIES.items()} | {
    "per_call": "launches_per_call", "delay": "delay_ns", "delay_p90": "delay_p90_ns", "flops": "flops",
    "uncosted": "uncosted_share", "bandwidth": "bandwidth", "intensity": "intensity", "of_peak_flops": "of_peak_flops",
    "of_peak_bandwidth": "of_peak_bandwidth", "predicted": "predicted_ns",
    "opr_id": "id", "occupancy": "occupancy", "blocks_per_sm": "blocks_per_sm",
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
_ALIASES = _HEADERS | {
    "cumulative": "time", "share": "time", "%": "time", "percent": "time", "self_time": "time", "device_self_time": "time",
    "host_self_time": "time", "operator": "name", "operator_info": "name", "opr_name": "name", "opr_type": "type",
    "id": "opr_id", "flop/s": "flops", "flop/b": "intensity", "%_peak": "of_peak_flops", "%_bw": "of_peak_bandwidth",
    "kernels/call": "per_call", "%_uncosted": "uncosted", "%_occupancy": "occupancy",
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
