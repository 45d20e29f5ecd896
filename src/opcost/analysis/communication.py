"""What ranks exchanged: collectives by type, group and size beside what their links could do, exposed time, and stragglers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from opcost.analysis.breakdown import alike_of, devices, waits_of
from opcost.core.devices import device_named_in
from opcost.core.graph import Note
from opcost.core.names import MESSAGES, bus_factor, collective_kind, members_of
from opcost.core.profile import SECOND_NS, CollectiveSummary, Profile, RankWait, extra_entries
from opcost.core.sheet import Cell, Sheet, Table
from opcost.core.units import format_time
from opcost.distributed.clusters import GIGA, Cluster, usual_cluster
from opcost.distributed.collectives import KINDS, collective_ns
from opcost.errors import counted

COLLECTIVES, GROUPS, RANKS = "collectives", "groups", "ranks"


def communication(profile: Profile, cluster: Cluster | str | None = None) -> Sheet:
    """What was exchanged, how quickly beside what the links of a cluster could do, and which ranks kept others waiting.

    Without a cluster it is the usual one of the device in the trace.
    """
    found = extra_entries(profile.extra, "collectives", CollectiveSummary)
    device = device_named_in(profile.meta)
    usual = None if device is None else usual_cluster(device.name)
    connected = usual if cluster is None else Cluster.of(cluster)
    exchanged = [Exchanged.of(each, connected) for each in found]
    remarks = []
    if connected is not None and any(each.predicted_ns is not None for each in exchanged):
        speeds = (
            f"{connected.within / GIGA:g} GB/s within a node of {connected.gpus}, {connected.between / GIGA:g} between"
        )
        why = f", the usual one of {device.name}; --cluster names another" if cluster is None and device else ""
        remarks.append(f"predicted, of_link: {connected.name}, {speeds}{why}")
    none = () if found else (Note("collectives", "the profile has no collectives"),)
    tables = (_collectives(exchanged, remarks), _groups(exchanged, profile), _ranks(waits_of(profile)))
    notes = (*none, *profile.notes)
    return Sheet(name="communication", meta=profile.meta, tables=tables, notes=notes, alike=alike_of(profile))


class Exchanged(NamedTuple):
    """Collectives of one type, group and size on one rank, with what a cluster takes for one of them."""

    kind: str
    found: CollectiveSummary
    predicted_ns: float | None = None
    link: float | None = None  # bytes per second of the links that it uses, as they are printed

    @classmethod
    def of(cls, found: CollectiveSummary, cluster: Cluster | None) -> Exchanged:
        """What is known of a collective in a cluster."""
        kind = collective_kind(found.name) or found.name
        ranks = 2 if kind in MESSAGES else found.ranks
        if cluster is None or ranks is None or ranks < 2 or kind not in KINDS:
            return cls(kind, found)
        nodes = cluster.nodes_of((members_of(found.members) or range(ranks))[:ranks])
        link = cluster.link(kind, ranks, nodes)
        if found.bytes is None:
            return cls(kind, found, link=link)
        return cls(kind, found, collective_ns(kind, found.bytes, ranks, nodes, cluster), link)


def _collectives(exchanged: Sequence[Exchanged], remarks: Sequence[str]) -> Table:
    """Those of all ranks together: each took part in the same."""
    groups: dict[tuple[str, str, int | None, int | None, str, str], list[Exchanged]] = {}
    for each in exchanged:
        found = each.found
        key = each.kind, found.group, found.ranks, found.bytes, found.dtype, found.algorithm
        groups.setdefault(key, []).append(each)
    lines: list[tuple[int, tuple[Cell, ...]]] = []
    for (kind, group, ranks, moved, dtype, algorithm), same in groups.items():
        # The rates of the algorithm and of the busiest link, at the shortest of all times
        least = min(each.found.least_ns for each in same)
        rate = moved * SECOND_NS / least if moved is not None and least else None
        factor = bus_factor(kind, ranks)
        bus = None if rate is None or factor is None else rate * factor
        links = [each.link for each in same if each.link is not None]
        used = None if bus is None or not links else bus / min(links)
        calls, time = sum(each.found.number for each in same), sum(each.found.time_ns for each in same)
        middle = median(each.found.median_ns for each in same)
        expected = [each.predicted_ns for each in same if each.predicted_ns is not None]
        predicted = median(expected) if expected else None
        lines.append(
            (time, (kind, group, moved, calls, time, middle, predicted, bus, used, _exposed(same), ranks, dtype, algorithm, rate))
        )  # fmt: skip
    lines.sort(key=lambda line: -line[0])
    how = "bandwidth as nccl-tests define it, at the shortest time: the rank that comes last waits for no other rank"
    columns = (
        "collective:text group:text? bytes:bytes calls:number time:time median:time predicted:time! bus_bandwidth:bytes/s "
        "of_link:share! exposed:time! ranks:number? dtype:text? algorithm:text? algorithm_bandwidth:bytes/s"
    )
    return Table.of(COLLECTIVES, columns, [line for _, line in lines], remarks=(how, *remarks) if lines else ())


def _groups(exchanged: Sequence[Exchanged], profile: Profile) -> Table:
    """Of each axis of the mesh, or group, the time of its collectives and that which nothing hid; of all ranks together."""
    whole = sum(use.rated_ns for use in devices(profile))
    groups: dict[tuple[str, int | None], list[Exchanged]] = {}
    for each in exchanged:
        groups.setdefault((each.found.group, each.found.ranks), []).append(each)
    lines: list[tuple[float, tuple[Cell, ...]]] = []
    for (group, ranks), same in groups.items():
        time, exposed = sum(each.found.time_ns for each in same), _exposed(same)
        expected = [each.predicted_ns * each.found.number for each in same if each.predicted_ns is not None]
        predicted = sum(expected) if len(expected) == len(same) else None
        share = exposed / whole if exposed is not None and whole else None
        calls = sum(each.found.number for each in same)
        lines.append((exposed or 0, (group, ranks, calls, time, predicted, exposed, share)))
    lines.sort(key=lambda line: -line[0])
    columns = "group:text ranks:number! calls:number time:time predicted:time! exposed:time! share:share!"
    remarks = ("exposed: nothing computed on the rank, waiting for others included; share: of the time of all devices",)
    return Table.of(GROUPS, columns, [line for _, line in lines], remarks=remarks if lines else ())


def _exposed(same: Sequence[Exchanged]) -> int | None:
    """How long they ran while nothing computed; None where that is not known of all."""
    times = [each.found.exposed_ns for each in same]
    return None if None in times else sum(time for time in times if time is not None)


def _ranks(waited: Sequence[RankWait]) -> Table:
    ordered = sorted(waited, key=lambda each: (-each.waited_for_ns, each.rank))
    lines = tuple((each.rank, each.collective_ns, each.wait_ns, each.waited_for_ns, each.last) for each in ordered)
    # The rank that others waited for most, and how much of all waiting that was
    whole = sum(each.waited_for_ns for each in waited)
    remarks: tuple[str, ...] = ()
    if whole:
        worst = max(waited, key=lambda each: each.waited_for_ns)
        share = 100 * worst.waited_for_ns / whole
        spent = f"others waited {format_time(worst.waited_for_ns)} for it, {share:.0f} % of all waiting"
        remarks = (f"rank {worst.rank} came last in {counted(worst.last, 'collective')}: {spent}",)
    return Table.of(
        RANKS, "rank:number collectives:time waiting:time waited_for:time last:number", lines, remarks=remarks
    )
