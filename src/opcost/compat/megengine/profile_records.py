"""What MegEngine's profile tool selects, adds up and sorts: records in floating-point seconds, None where it says N/A."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, TypeAlias

import msgspec

from opcost.core.graph import TensorSpec
from opcost.core.profile import Profile, ProfileRow
from opcost.errors import SourceError, UnknownName
from opcost.traces.megengine.graph import dtype_of

Number: TypeAlias = "int | float"
Shapes: TypeAlias = "list[list[Any]]"

_START, _KERN, _END = range(3)
NO_SHAPES = "None"  # What the tool writes for the shapes of several operators together


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of the graph: times as (start, kern, end) on each device and each host thread."""

    id: str
    name: str
    type: str
    device: Sequence[Sequence[float]] = ()
    host: Sequence[Sequence[float]] = ()
    dtypes: Sequence[str] = ()
    computation: Number | None = None
    memory: Number | None = None
    in_shapes: Shapes | None = None
    in_layouts: Sequence[Sequence[int] | None] | None = None
    out_shapes: Shapes | None = None
    copies: bool = False  # It only moves data; its time is what `--copy-time` adds up

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
        return int(number) if isinstance(number, str) and number.isdecimal() and len(number) < 20 else None


def operators_of(profile: Profile) -> list[Operator]:
    """The operators of a profile: as MegEngine wrote them, or made from any other trace."""
    raw = profile.extra.get("megengine")
    if raw is None:
        found = [_from_row(row) for row in profile.rows]
        if profile.unattributed:  # device work that no operator launched, as one more operator
            name = "(unattributed)"
            device = _span(sum(kernel.duration_ns for kernel in profile.unattributed))
            found.append(Operator(id="N/A", name=name, type=name, device=device))
        return found
    try:
        return [_from_megengine(entry) for entry in msgspec.convert(raw, list[_Entry])]
    except (msgspec.ValidationError, UnicodeEncodeError) as exc:  # half a character in a text
        raise SourceError(f"the profile's MegEngine part is damaged: {exc}") from exc


# What a reader wrote here may come from a saved profile, and then from anywhere.
_Believed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | Annotated[float, msgspec.Meta(ge=-1e38, le=1e38)]
_Span = tuple[_Believed, _Believed, _Believed]
_Shape = list[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]]


class _Footprint(msgspec.Struct):
    computation: _Believed | None = None
    memory: _Believed | None = None
    in_shapes: list[_Shape] | None = None
    in_layouts: list[list[Any] | None] | None = None
    out_shapes: list[_Shape] | None = None


class _Entry(msgspec.Struct):
    id: str
    name: str
    type: str
    device: list[_Span]
    host: list[_Span]
    dtypes: list[str]
    footprint: _Footprint


def _from_megengine(entry: _Entry) -> Operator:
    fields = msgspec.structs.asdict(entry) | msgspec.structs.asdict(entry.footprint)
    del fields["footprint"]
    fields["computation"] = entry.footprint.computation or None
    return Operator(**fields, copies=entry.type == "Copy")


def _from_row(row: ProfileRow) -> Operator:
    cost = row.cost
    wait = row.attrs.get("wait_ns")
    return Operator(
        id=str(row.id),
        name=row.name,
        type=row.type,
        device=_span(row.device_ns, wait if isinstance(wait, int) else 0),
        host=_span(row.host_self_ns if row.host_self_ns is not None else row.host_ns),
        dtypes=[spec.dtype for spec in row.ins],
        computation=(cost.flops * row.count or None) if cost else None,
        memory=(cost.bytes_read + cost.bytes_written) * row.count if cost else None,
        in_shapes=_shapes(row.ins),
        out_shapes=_shapes(row.outs),
        copies=row.kind == "copy" or any(kernel.name.startswith("Memcpy") for kernel in row.kernels),
    )


def _shapes(specs: Sequence[TensorSpec]) -> Shapes:
    return [["?"] if spec.shape is None else list(spec.shape) for spec in specs]


def _span(duration_ns: int | None, wait_ns: int = 0) -> list[tuple[float, float, float]]:
    return [] if duration_ns is None else [(0.0, wait_ns / 1e9, duration_ns / 1e9)]


def records_of(operators: Sequence[Operator], time_of: Callable[[Operator], float | None]) -> list[Record]:
    """A record of every operator that ran and passed."""
    shared = ("computation", "memory", "in_shapes", "in_layouts", "out_shapes")
    return [
        Record(
            time=time,
            info={"name": operator.name, "type": operator.type, "id": operator.id},
            **{name: getattr(operator, name) for name in shared},
        )
        for operator in operators
        if (time := time_of(operator)) is not None
    ]


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
        computation, memory = combine([r.computation for r in members]), combine([r.memory for r in members])
        info: dict[str, str | int] = {"type": name, "count": len(members), "id": "N/A"}
        found.append(
            Record(
                time=_TIMES[how](times), info=info, computation=computation or None, memory=memory, in_shapes=NO_SHAPES,
                out_shapes=NO_SHAPES,
            )
        )  # fmt: skip
    return found


def _known(numbers: Sequence[Number | None]) -> list[Number]:
    return [number for number in numbers if number is not None]


def _mean(numbers: Sequence[Number | None]) -> Number | None:
    """Of all members, also those that are not known."""
    known = _known(numbers)
    return sum(known) / len(numbers) if known else None


_COMBINE: dict[str, Callable[[Sequence[Number | None]], Number | None]] = {
    "max": lambda numbers: None if None in numbers else max(_known(numbers)),  # N/A counts as greater than any number
    "min": lambda numbers: min(_known(numbers), default=None),
    "sum": lambda numbers: sum(_known(numbers)) if _known(numbers) else None,
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


_TIMES: dict[str, Callable[[Sequence[float]], float]] = {
    "max": max, "min": min, "sum": pairwise_sum, "mean": lambda times: pairwise_sum(times) / len(times),
}  # fmt: skip
_COLUMNS: dict[str, Callable[[Record], Any]] = {
    **{name: attrgetter(name) for name in ("time", "computation", "memory", "flops", "bandwidth", "opr_id")},
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
