"""What one rank sends to the others: the collectives of a report, added up by axis of the mesh, type, phase and element type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from opcost.core.graph import Cost, Op, Phase, TensorSpec
from opcost.core.rendering import Listed, brief
from opcost.core.units import format_bytes
from opcost.errors import counted


class CostedOp(Protocol):
    """A row of a report: an operator, its tensors, and its cost where that is known."""

    @property
    def op(self) -> Op: ...
    @property
    def ins(self) -> tuple[TensorSpec, ...]: ...
    @property
    def outs(self) -> tuple[TensorSpec, ...]: ...
    @property
    def cost(self) -> Cost | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCost:
    """Collectives of one type along one axis of the mesh, in one phase and with one element type, as one rank takes part."""

    collective: str
    """all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, scatter, send or recv."""
    axis: str
    """The dimension of the `DeviceMesh` whose process group it uses; empty for other groups."""
    phase: Phase
    ranks: int | None
    """How many ranks take part; None where that is unknown."""
    dtype: str
    calls: int
    payload_bytes: int
    """What a rank hands in or gets, the larger side: of an all_gather the result, of a reduce_scatter what is summed."""
    wire_bytes: int
    """What a rank sends by the ring algorithm; what it receives is sent by others."""
    tree_bytes: int
    """The same where an all_reduce uses double binary trees: twice its payload."""
    overlap_flops: int = 0
    """FLOPs of the operators that may run beside them: from when they can begin to the first that needs what they make."""
    uncounted: int = 0
    """Calls among these whose bytes are unknown, as a shape depends on data."""

    def __repr__(self) -> str:
        along = f"{self.axis or 'no axis'} {self.ranks or '?'}"
        sent = f"{format_bytes(self.wire_bytes)} sent"
        return brief(self, [along, self.phase, self.dtype, counted(self.calls, "call"), sent], self.collective)


class _Alike(NamedTuple):
    """What the operators of one line have in common."""

    collective: str
    axis: str
    phase: Phase
    ranks: int | None
    dtype: str


def collectives_of(
    rows: Iterable[CostedOp], overlaps: Callable[[], Iterable[tuple[CostedOp, int]]] = tuple
) -> tuple[CollectiveCost, ...]:
    """The collectives among these rows, those that send most first; waiting is none.

    `overlaps` has every single one, and the FLOPs that may run beside it.
    """
    found: dict[_Alike, list[CostedOp]] = {}
    for row in rows:
        if row.op.kind == "collective" and row.op.attrs.get("fn") != "wait" and row.op.repeat:
            found.setdefault(_alike(row), []).append(row)
    beside: Counter[_Alike] = Counter()
    for row, flops in overlaps() if found else ():
        beside[_alike(row)] += flops
    lines = [_added_up(key, own, beside[key]) for key, own in found.items()]
    return Listed(sorted(lines, key=lambda line: (-line.wire_bytes, -line.payload_bytes)))


def _alike(row: CostedOp) -> _Alike:
    attrs, spec = row.op.attrs, next(iter((*row.ins, *row.outs)), None)
    group = attrs.get("group")
    return _Alike(
        collective=str(attrs.get("fn", "")),
        axis=str(attrs.get("axis", "")),
        phase=row.op.phase,
        ranks=group if isinstance(group, int) else None,
        dtype=spec.dtype if spec else "",
    )


def payload_of(row: CostedOp) -> int:
    """What a rank hands in or gets, the larger side."""
    return max(sum(spec.nbytes for spec in side if spec.known) for side in (row.ins, row.outs))


def _added_up(key: _Alike, rows: Iterable[CostedOp], beside: int) -> CollectiveCost:
    calls = payload = wire = tree = uncounted = 0
    for row in rows:
        times = row.op.repeat
        calls += times
        if row.cost is None:
            uncounted += times
            continue
        larger = payload_of(row)
        payload += larger * times
        wire += row.cost.bytes_read * times
        # Each rank is a leaf of one tree and inside the other, each with half of the tensor: going up it sends both halves, going
        # down one half to each of two ranks.
        tree += (2 * larger if key.collective == "all_reduce" and key.ranks != 1 else row.cost.bytes_read) * times
    return CollectiveCost(
        **key._asdict(), calls=calls, payload_bytes=payload, wire_bytes=wire, tree_bytes=tree, overlap_flops=beside,
        uncounted=uncounted,
    )  # fmt: skip
