"""How long each collective of a report takes between the ranks of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opcost.core.collectives import CostedOp, payload_of
from opcost.core.overlap import Sent, Timeline
from opcost.core.profile import ProfileRow
from opcost.core.report import Report
from opcost.core.timeline import Span, lanes_as_columns, thinned_lanes
from opcost.distributed.clusters import Cluster
from opcost.distributed.collectives import collective_ns
from opcost.distributed.mesh import Mesh


@dataclass(frozen=True, kw_only=True)
class Network:
    """A cluster, and where one rank of a mesh is in it; without a mesh the ranks of each group are neighbours."""

    cluster: Cluster
    mesh: Mesh | None = None
    rank: int = 0
    in_parts: str = ""
    """The axis that gathers and scatters piece by piece beside products (async tensor parallelism)."""
    sums: bool = False
    """Ranks of `ep` have the same tokens, and sum what their experts make."""

    @classmethod
    def of(cls, report: Report, cluster: Cluster, in_parts: str = "") -> Network:
        """The cluster of the rank that was counted."""
        mesh = Mesh.of(report.meta["mesh"]) if "mesh" in report.meta else None
        sums = report.meta.get("expert_parallel") == "sums"
        return cls(cluster=cluster, mesh=mesh, rank=int(report.meta.get("rank", 0)), in_parts=in_parts, sums=sums)

    @property
    def ranks_per_batch(self) -> int:
        """How many ranks compute parts of the same tokens."""
        return 1 if self.mesh is None else self.mesh.pp * self.mesh.tp * (self.mesh.ep if self.sums else 1)

    def taken_ns(self, row: CostedOp) -> float:
        """The time of a collective, without waiting for other ranks."""
        attrs = row.op.attrs
        group = attrs.get("group")
        ranks = group if isinstance(group, int) else 1
        nodes = self.cluster.nodes(self.mesh, self.rank, str(attrs.get("axis", "")), ranks)
        return row.op.repeat * collective_ns(str(attrs.get("fn", "")), payload_of(row), ranks, nodes, self.cluster)

    def message_ns(self, row: CostedOp) -> float:
        """The time of one message to the next stage of a pipeline, or the one before."""
        ranks = range(2) if self.mesh is None else self.mesh.group(self.rank, "pp")
        own = 0 if self.mesh is None else self.mesh.coordinates(self.rank)["pp"]
        peer = row.op.attrs.get("peer")
        pair = {ranks[own], ranks[peer if isinstance(peer, int) else own - 1]}
        return collective_ns("send", payload_of(row), 2, self.cluster.nodes_of(pair), self.cluster)

    def beside(self, rows: Sequence[ProfileRow], found: Timeline, device: str) -> list[ProfileRow]:
        """All rows of a rank, with times that add up to the whole: what runs beside other operators takes none."""
        alone = (row._replace(device_ns=0, device_total_ns=0) if row.id in found.beside else row for row in rows)
        return sorted((*alone, *(_row(sent, device) for sent in found.sent)), key=lambda row: row.id)


def lanes(found: Timeline, rows: Sequence[ProfileRow]) -> dict[str, Any]:
    """What a rank computes and when it waits, and what it sends on each axis, as `Profile.extra["timeline"]` has lanes."""
    named = {row.id: f"{row.module}.{row.type}" if row.module else row.type for row in rows}
    sorts = {named[row.id]: row.kind for row in rows}
    computed = [(named[number], begin, end) for number, begin, end in found.ran if end > begin]
    waits = [(f"waits for {axis or 'others'}", begin, end) for axis, begin, end in found.waits]
    sorts |= dict.fromkeys((name for name, _, _ in waits), "collective")
    spans = {"compute": [_span(*each) for each in (*computed, *waits)]}
    sent = [(each.axis, each.row.op.id, each.start_ns, each.end_ns) for each in found.sent]
    for axis, number, begin, end in (*sent, *(each for each in found.copied if each[3] > each[2])):
        spans.setdefault(axis or "collectives", []).append(_span(named[number], begin, end))
    return lanes_as_columns(thinned_lanes(spans), sorts)


def _span(name: str, begin: float, end: float) -> Span:
    return Span(round(begin), round(end) - round(begin), name)


def _row(sent: Sent, device: str) -> ProfileRow:
    """The row of a collective, whose time is that by which it makes operators later: they wait for it, or are slowed."""
    op, waited = sent.row.op, round(sent.exposed_ns + sent.slowing_ns)
    return ProfileRow(
        id=op.id, name=op.module or op.raw, type=op.raw, kind=op.kind, module=op.module, phase=op.phase,
        device=device, device_ns=waited, device_total_ns=waited, ins=sent.row.ins, outs=sent.row.outs,
        attrs={**op.attrs, "bound": "network", "ideal_ns": 0, "sending_ns": round(sent.taken_ns)},
        cost=sent.row.cost, count=op.repeat,
    )  # fmt: skip
