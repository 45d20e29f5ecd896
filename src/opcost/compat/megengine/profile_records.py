"""What MegEngine's profile tool selects, adds up and sorts: records in floating-point seconds, None where it says N/A."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Annotated, Any, TypeAlias

import msgspec

from opcost.core.graph import TensorSpec
from opcost.core.profile import Profile, ProfileRow
from opcost.errors import SourceError, UnknownName
from opcost.traces.megengine.graph import dtype_of

Number: TypeAlias = "int | float"

# What a reader wrote may come from a saved profile, and then from anywhere.
_Believed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | Annotated[float, msgspec.Meta(ge=-1e38, le=1e38)]
_Span = tuple[_Believed, _Believed, _Believed]
_Shape = list[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]]


class Footprint(msgspec.Struct):
    """What an operator computes and moves."""

    computation: _Believed | None = None
    memory: _Believed | None = None
    in_shapes: list[_Shape] | None = None
    in_layouts: list[list[Any] | None] | None = None
    out_shapes: list[_Shape] | None = None


class Operator(msgspec.Struct):
    """One operator of the graph: times as (start, kern, end) on each device and each host thread."""

    id: str
    name: str
    type: str
    device: list[_Span]
    host: list[_Span]
    dtypes: list[str]
    footprint: Footprint
    copies: bool = False  # It only moves data; its time is what `--copy-time` adds up

    def time(self, side: str, key: str) -> float | None:
        """Seconds to `end` or to `kern`, the longest of all places; None where it did not run."""
        spans: list[_Span] = self.device if side == "device" else self.host
        place = 2 if key == "end" else 1
        return max((span[place] - span[0] for span in spans), default=None)


class Record(Footprint, kw_only=True):
    """A line of the table: one operator, or several added up, which have a count and no shapes."""

    time: float
    info: dict[str, str | int]

    @property
    def flops(self) -> float | None:
        return _rate(self.computation, self.time)

    @property
    def bandwidth(self) -> float | None:
        return _rate(self.memory, self.time)


def _rate(amount: Number | None, time: float) -> float | None:
    if amount is None:
        return None
    if time:
        return amount / time
    return math.inf if amount else math.nan


def operators_of(profile: Profile) -> list[Operator]:
    """The operators of a profile: as MegEngine wrote them, or made from any other trace."""
    raw = profile.extra.get("megengine")
    if raw is not None:
        try:
            operators = msgspec.convert(raw, list[Operator])
        except (msgspec.ValidationError, UnicodeEncodeError) as exc:  # half a character in a text
            raise SourceError(f"the profile's MegEngine part is damaged: {exc}") from exc
        for operator in operators:
            operator.copies = operator.type == "Copy"
        return operators
    found = [_from_row(row) for row in profile.rows]
    if profile.unattributed:  # device work that no operator launched, as one more operator
        name = "(unattributed)"
        device = _span(sum(kernel.duration_ns for kernel in profile.unattributed))
        found.append(Operator("N/A", name, name, device, [], [], Footprint()))
    return found


def _from_row(row: ProfileRow) -> Operator:
    cost, wait = row.cost, row.attrs.get("wait_ns")
    footprint = Footprint(in_shapes=_shapes(row.ins), out_shapes=_shapes(row.outs))
    if cost:
        footprint.computation = cost.flops * row.count
        footprint.memory = (cost.bytes_read + cost.bytes_written) * row.count
    device = _span(row.device_ns, wait if isinstance(wait, int) else 0)
    host = _span(row.host_self_ns if row.host_self_ns is not None else row.host_ns)
    dtypes = [spec.dtype for spec in row.ins]
    copies = row.kind == "copy" or any(kernel.name.startswith("Memcpy") for kernel in row.kernels)
    return Operator(str(row.id), row.name, row.type, device, host, dtypes, footprint, copies)


def _shapes(specs: Sequence[TensorSpec]) -> list[list[Any]]:
    return [["?"] if spec.shape is None else list(spec.shape) for spec in specs]


def _span(duration_ns: int | None, wait_ns: int = 0) -> list[_Span]:
    return [] if duration_ns is None else [(0.0, wait_ns / 1e9, duration_ns / 1e9)]


def reads(operator: Operator, dtype: str) -> bool:
    """Whether some input has this element type, in MegEngine's word or ours, in any capitals."""
    wanted = (dtype_of(dtype) or dtype).casefold()
    return any(own.casefold() == wanted for own in operator.dtypes)


def records_of(operators: Sequence[Operator], time_of: Callable[[Operator], float | None]) -> list[Record]:
    """A record of every operator that ran and passed."""
    found = []
    for operator in operators:
        if (time := time_of(operator)) is not None:
            info: dict[str, str | int] = {"name": operator.name, "type": operator.type, "id": operator.id}
            found.append(Record(time=time, info=info, **msgspec.structs.asdict(operator.footprint)))
            found[-1].computation = found[-1].computation or None
    return found


def aggregate(records: Sequence[Record], by: str | None, how: str) -> list[Record]:
    """Records of one type, or all of them, as one; time, computation and memory each on their own."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(str(record.info["type"]) if by == "type" else "all", []).append(record)
    found = []
    for name, members in groups.items():
        time = _combined(how, [record.time for record in members], pairwise_sum)
        computation, memory = (
            _combined(how, [getattr(record, amount) for record in members]) for amount in ("computation", "memory")
        )
        info: dict[str, str | int] = {"type": name, "count": len(members), "id": "N/A"}
        found.append(Record(time=time or 0.0, info=info, computation=computation or None, memory=memory))
    return found


def _combined(how: str, numbers: Sequence[Number | None], total: Callable[[Any], Number] = sum) -> Number | None:
    """Numbers as one; N/A counts as greater than any number, and a mean is of all members, also those that are N/A."""
    known = [number for number in numbers if number is not None]
    if not known or (how == "max" and len(known) < len(numbers)):
        return None
    if how in ("max", "min"):
        return max(known) if how == "max" else min(known)
    return total(known) / len(numbers) if how == "mean" else total(known)


def pairwise_sum(numbers: Sequence[float]) -> float:
    """The sum in the order in which NumPy adds, so that even its last digit is the same."""
    count = len(numbers)
    if count > 128:
        half = count // 2 - count // 2 % 8
        return pairwise_sum(numbers[:half]) + pairwise_sum(numbers[half:])
    whole = count - count % 8
    a, b, c, d, e, f, g, h = (reduce(add, numbers[place:whole:8], 0.0) for place in range(8))
    return reduce(add, numbers[whole:], ((a + b) + (c + d)) + ((e + f) + (g + h)))


_COLUMNS = (
    "time", "computation", "memory", "flops", "bandwidth", "opr_id", "in_shapes", "out_shapes", "name", "type", "count",
)  # fmt: skip
_ALIASES = {
    "self_time": "time", "device_self_time": "time", "host_self_time": "time", "cumulative": "time", "percent": "time",
    "operator_info": "name", "opr_name": "name", "opr_type": "type", "id": "opr_id", "opr_count": "count",
}  # fmt: skip
"""Printed headers, and the column that they mean: the running sum grows with the time."""


def sort(records: Sequence[Record], order_by: str) -> list[Record]:
    """By a column, falling, or rising with a `+` before it; what is missing comes last in both directions."""
    wanted = order_by.lstrip("+-").strip().lower().replace(" ", "_").replace("-", "_")
    wanted = _ALIASES.get(wanted, wanted)
    if wanted not in _COLUMNS:
        raise UnknownName("column", order_by, [*_COLUMNS, *_ALIASES])

    def column(record: Record) -> Any:
        if wanted == "opr_id":
            number = record.info["id"]
            return int(number) if isinstance(number, str) and number.isdecimal() and len(number) < 20 else None
        return record.info.get(wanted) if wanted in ("name", "type", "count") else getattr(record, wanted)

    known: list[Record] = []
    missing: list[Record] = []
    for record in records:
        value = column(record)
        (missing if value is None or (isinstance(value, float) and math.isnan(value)) else known).append(record)
    return [*sorted(known, key=column, reverse=not order_by.startswith("+")), *missing]
