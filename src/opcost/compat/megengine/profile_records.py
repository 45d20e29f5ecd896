"""What MegEngine's profile tool selects, adds up and sorts: records in floating-point seconds, None where it says N/A."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from opcost.core.checked import LARGEST, Bad, counts_of, get, instance, texts_of
from opcost.core.profile import Profile, ProfileRow
from opcost.errors import SourceError, UnknownName
from opcost.traces.megengine.meaning import dtype_of

Number: TypeAlias = "int | float"
Shapes: TypeAlias = "list[list[Any]]"

_START, _KERN, _END = range(3)
NO_SHAPES = "None"
"""What the tool writes for the shapes of several operators together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of the graph: times as (start, kern, end) on each device and each host thread."""

    id: str
    name: str
    type: str
    device: Sequence[Sequence[float]]
    host: Sequence[Sequence[float]]
    dtypes: Sequence[str]
    computation: Number | None
    memory: Number | None
    in_shapes: Shapes | None
    in_layouts: Sequence[Sequence[int] | None] | None
    out_shapes: Shapes | None
    copies: bool = False
    """It only moves data; its time is what `--copy-time` adds up."""

    def time(self, side: str, key: str) -> float | None:
        """Seconds to `end` or to `kern`, the longest of all places; None where it did not run."""
        spans = self.device if side == "device" else self.host
        place = _END if key == "end" else _KERN
        return max((span[place] - span[_START] for span in spans), default=None)


@dataclass(slots=True, kw_only=True)
class Record:
    """A line of the table: one operator, or several added up."""

    time: float
    info: dict[str, str | int]
    computation: Number | None
    memory: Number | None
    in_shapes: Shapes | str | None
    out_shapes: Shapes | str | None
    in_layouts: Sequence[Sequence[int] | None] | None = None

    @property
    def flops(self) -> float | None:
        return _rate(self.computation, self.time)

    @property
    def bandwidth(self) -> float | None:
        return _rate(self.memory, self.time)

    @property
    def opr_id(self) -> int | str | None:
        number = self.info["id"]
        return int(number) if isinstance(number, str) and number.isdecimal() else None


def operators_of(profile: Profile) -> list[Operator]:
    """The operators of a profile: as MegEngine wrote them, or made from any other trace."""
    raw = profile.extra.get("megengine")
    if raw is None:
        found = [_from_row(row) for row in profile.rows]
        return [*found, _unattributed(profile)] if profile.unattributed else found
    if not isinstance(raw, Sequence):
        raise SourceError("the profile's MegEngine part is no list of operators")
    try:
        return [_from_megengine(_checked(entry)) for entry in raw]
    except Bad as exc:
        raise SourceError(f"the profile's MegEngine part is damaged: {exc}") from exc


def _checked(entry: object) -> dict[str, Any]:
    """What a reader wrote here may come from a saved profile, and then from anywhere."""
    data = instance(entry, dict)
    texts_of([get(data, name, str) for name in ("id", "name", "type")])
    texts_of(get(data, "dtypes", list))
    footprint = get(data, "footprint", dict)
    numbers = [footprint.get(name) for name in ("computation", "memory")]
    spans = [instance(span, list) for side in ("device", "host") for span in get(data, side, list)]
    if any(len(span) != 3 or not all(map(_is_number, span)) for span in spans):
        raise Bad("an operator's times are not three numbers")
    if not all(number is None or _is_number(number) for number in numbers):
        raise Bad("what an operator computes and moves is no number")
    for name in ("in_shapes", "out_shapes"):
        for shape in instance(footprint.get(name) or [], list):
            counts_of(shape)
    for strides in instance(footprint.get("in_layouts") or [], list):
        if strides is not None:
            instance(strides, list)
    return data


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def _from_megengine(entry: Mapping[str, Any]) -> Operator:
    footprint = entry["footprint"]
    return Operator(
        id=entry["id"],
        name=entry["name"],
        type=entry["type"],
        device=entry["device"],
        host=entry["host"],
        dtypes=entry["dtypes"],
        computation=footprint.get("computation") or None,
        memory=footprint.get("memory"),
        in_shapes=footprint.get("in_shapes"),
        in_layouts=footprint.get("in_layouts"),
        out_shapes=footprint.get("out_shapes"),
        copies=entry["type"] == "Copy",
    )


def _from_row(row: ProfileRow) -> Operator:
    cost = row.cost
    wait = row.attrs.get("wait_ns")
    return Operator(
        id=str(row.id),
        name=row.name,
        type=row.type,
        device=_span(row.device_ns, wait if isinstance(wait, int) else 0),
        host=_span(row.host_self_ns if row.host_self_ns is not None else row.host_ns, 0),
        dtypes=[spec.dtype for spec in row.ins],
        computation=(cost.flops * row.count or None) if cost else None,
        memory=(cost.bytes_read + cost.bytes_written) * row.count if cost else None,
        in_shapes=[list(spec.shape or ("?",)) if spec.shape != () else [] for spec in row.ins],
        in_layouts=None,
        out_shapes=[list(spec.shape or ("?",)) if spec.shape != () else [] for spec in row.outs],
        copies=row.kind == "copy" or any(kernel.name.startswith("Memcpy") for kernel in row.kernels),
    )


def _unattributed(profile: Profile) -> Operator:
    """Device work that no operator launched, as one more operator."""
    return Operator(
        id="N/A",
        name="(unattributed)",
        type="(unattributed)",
        device=_span(sum(kernel.duration_ns for kernel in profile.unattributed), 0),
        host=(),
        dtypes=(),
        computation=None,
        memory=None,
        in_shapes=None,
        in_layouts=None,
        out_shapes=None,
    )


def _span(duration_ns: int | None, wait_ns: int) -> list[tuple[float, float, float]]:
    return [] if duration_ns is None else [(0.0, wait_ns / 1e9, duration_ns / 1e9)]


def records_of(operators: Sequence[Operator], time_of: Callable[[Operator], float | None]) -> list[Record]:
    """A record of every operator that ran and passed."""
    found = []
    for operator in operators:
        time = time_of(operator)
        if time is not None:
            info: dict[str, str | int] = {"name": operator.name, "type": operator.type, "id": operator.id}
            found.append(
                Record(
                    time=time,
                    info=info,
                    computation=operator.computation,
                    memory=operator.memory,
                    in_shapes=operator.in_shapes,
                    in_layouts=operator.in_layouts,
                    out_shapes=operator.out_shapes,
                )
            )
    return found


def reads(operator: Operator, dtype: str) -> bool:
    """Whether some input has this element type, in MegEngine's word or ours, in any capitals."""
    wanted = (dtype_of(dtype) or dtype).casefold()
    return any(own.casefold() == wanted for own in operator.dtypes)


def aggregate(records: Sequence[Record], by: str | None, how: str) -> list[Record]:
    """Records of one type, or all of them, as one; time, computation and memory each on their own."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(str(record.info["type"]) if by == "type" else "all", []).append(record)
    combine = _COMBINE[how]
    found = []
    for name, members in groups.items():
        times = [record.time for record in members]
        time = (
            pairwise_sum(times)
            if how == "sum"
            else pairwise_sum(times) / len(times)
            if how == "mean"
            else combine(times)
        )
        found.append(
            Record(
                time=time or 0.0,
                info={"type": name, "count": len(members), "id": "N/A"},
                computation=combine([record.computation for record in members]) or None,
                memory=combine([record.memory for record in members]),
                in_shapes=NO_SHAPES,
                out_shapes=NO_SHAPES,
            )
        )
    return found


def _sum(numbers: Sequence[Number | None]) -> Number | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _mean(numbers: Sequence[Number | None]) -> Number | None:
    total = _sum(numbers)
    return None if total is None else total / len(numbers)


def _max(numbers: Sequence[Number | None]) -> Number | None:
    """N/A counts as greater than any number."""
    return None if None in numbers else max(number for number in numbers if number is not None)


def _min(numbers: Sequence[Number | None]) -> Number | None:
    return min((number for number in numbers if number is not None), default=None)


_COMBINE: dict[str, Callable[[Sequence[Number | None]], Number | None]] = {
    "max": _max,
    "min": _min,
    "sum": _sum,
    "mean": _mean,
}


def pairwise_sum(numbers: Sequence[float]) -> float:
    """The sum in the order in which NumPy adds, so that even its last digit is the same."""
    count = len(numbers)
    if count < 8:
        total = 0.0
        for number in numbers:
            total += number
        return total
    if count <= 128:
        parts = list(numbers[:8])
        whole = count - count % 8
        for start in range(8, whole, 8):
            for place in range(8):
                parts[place] += numbers[start + place]
        total = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]))
        for number in numbers[whole:]:
            total += number
        return total
    half = count // 2
    half -= half % 8
    return pairwise_sum(numbers[:half]) + pairwise_sum(numbers[half:])


_COLUMNS: dict[str, Callable[[Record], Any]] = {
    "time": lambda record: record.time,
    "computation": lambda record: record.computation,
    "memory": lambda record: record.memory,
    "flops": lambda record: record.flops,
    "bandwidth": lambda record: record.bandwidth,
    "opr_id": lambda record: record.opr_id,
    "in_shapes": lambda record: None if record.in_shapes == NO_SHAPES else record.in_shapes,
    "out_shapes": lambda record: None if record.out_shapes == NO_SHAPES else record.out_shapes,
    "name": lambda record: record.info.get("name"),
    "type": lambda record: record.info["type"],
    "count": lambda record: record.info.get("count"),
}
_ALIASES = {
    "self_time": "time", "device_self_time": "time", "host_self_time": "time", "cumulative": "time", "percent": "time",
    "operator_info": "name", "opr_name": "name", "opr_type": "type", "id": "opr_id", "opr_count": "count",
}  # fmt: skip
"""Printed headers, and the column that they mean: the running sum grows with the time."""


def sort(records: Sequence[Record], order_by: str) -> list[Record]:
    """By a column, falling, or rising with a `+` before it; what is missing comes last in both directions."""
    rising = order_by.startswith("+")
    wanted = order_by.lstrip("+-").strip().lower().replace(" ", "_").replace("-", "_")
    wanted = _ALIASES.get(wanted, wanted)
    if wanted not in _COLUMNS:
        raise UnknownName("column", order_by, [*_COLUMNS, *_ALIASES])
    column = _COLUMNS[wanted]
    known: list[Record] = []
    missing: list[Record] = []
    for record in records:
        value = column(record)
        (missing if value is None or (isinstance(value, float) and math.isnan(value)) else known).append(record)
    return [*sorted(known, key=column, reverse=not rising), *missing]


def _rate(amount: Number | None, time: float) -> float | None:
    if amount is None:
        return None
    if time:
        return amount / time
    return math.inf if amount else math.nan
