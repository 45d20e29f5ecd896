"""Collectives of a profile by sort, group and size, with their rates, and which ranks others waited for."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from opcost.core.answer import SECOND_NS
from opcost.core.graph import Note
from opcost.core.names import bus_factor, collective_kind
from opcost.core.profile import CollectiveSummary, Profile, RankWait, extra_entries
from opcost.core.sheet import Cell, Field, Sheet, Table
from opcost.core.units import format_time

COLLECTIVES, RANKS = "collectives", "ranks"


def communication(profile: Profile) -> Sheet:
    """What was exchanged, how quickly, and which ranks kept others waiting."""
    found = extra_entries(profile.extra, "collectives", CollectiveSummary)
    waited = extra_entries(profile.extra, "ranks", RankWait)
    none = () if found else (Note("collectives", "the profile has no collectives"),)
    tables = (_collectives(found), _ranks(waited))
    return Sheet(name="communication", meta=profile.meta, tables=tables, notes=(*none, *profile.notes))


def _collectives(found: Sequence[CollectiveSummary]) -> Table:
    """Those of all ranks together: each took part in the same."""
    groups: dict[tuple[str, str, int | None, int | None, str, str], list[CollectiveSummary]] = {}
    for each in found:
        kind = collective_kind(each.name) or each.name
        groups.setdefault((kind, each.group, each.ranks, each.bytes, each.dtype, each.algorithm), []).append(each)
    fields = (
        Field("collective", "text"), Field("bytes", "bytes"), Field("calls", "number"), Field("time", "time"),
        Field("bus_bandwidth", "bytes/s"), Field("median", "time"), Field("ranks", "number", dull=True),
        Field("group", "text", dull=True), Field("dtype", "text", dull=True),
        Field("algorithm", "text", dull=True), Field("algorithm_bandwidth", "bytes/s"),
    )  # fmt: skip
    lines: list[tuple[int, tuple[Cell, ...]]] = []
    for (kind, group, ranks, moved, dtype, algorithm), same in groups.items():
        # The rates of the algorithm and of the busiest link, at the shortest of all times
        least = min(each.least_ns for each in same)
        rate = moved * SECOND_NS / least if moved is not None and least else None
        factor = bus_factor(kind, ranks)
        bus = None if rate is None or factor is None else rate * factor
        calls, time = sum(each.number for each in same), sum(each.time_ns for each in same)
        middle = median(each.median_ns for each in same)
        lines.append((time, (kind, moved, calls, time, bus, middle, ranks, group, dtype, algorithm, rate)))
    lines.sort(key=lambda line: -line[0])
    remarks = (
        "bandwidth as nccl-tests define it, at the shortest time: the rank that comes last waits for no other rank",
    )
    return Table.of(
        title=COLLECTIVES, fields=fields, lines=tuple(line for _, line in lines), remarks=remarks if lines else ()
    )


def _ranks(waited: Sequence[RankWait]) -> Table:
    ordered = sorted(waited, key=lambda each: (-each.held_up_ns, each.rank))
    lines = tuple((each.rank, each.collective_ns, each.wait_ns, each.held_up_ns, each.last) for each in ordered)
    times = (Field("collectives", "time"), Field("waiting", "time"), Field("held_up", "time"))
    fields = (Field("rank", "number"), *times, Field("last", "number"))
    # The rank that others waited for most, and how much of all waiting that was
    whole = sum(each.held_up_ns for each in waited)
    remarks: tuple[str, ...] = ()
    if whole:
        worst = max(waited, key=lambda each: each.held_up_ns)
        spent = f"others waited {format_time(worst.held_up_ns)} for it, {100 * worst.held_up_ns / whole:.0f} % of all waiting"
        remarks = (f"rank {worst.rank} came last in {worst.last:,} collectives: {spent}",)
    return Table.of(title=RANKS, fields=fields, lines=lines, remarks=remarks)
