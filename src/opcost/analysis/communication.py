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
    """What was exchanged, how quickly, and who kept whom waiting."""
    found = extra_entries(profile.extra, "collectives", CollectiveSummary)
    waited = extra_entries(profile.extra, "ranks", RankWait)
    return Sheet(
        name="communication",
        meta=profile.meta,
        tables=(_collectives(found), _ranks(waited)),
        notes=(*_none(found), *profile.notes),
    )


def _none(found: Sequence[CollectiveSummary]) -> tuple[Note, ...]:
    return () if found else (Note("collectives", "the profile has no collectives"),)


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
    lines = [tuple(_line(*key, same)[field.name] for field in fields) for key, same in groups.items()]
    time = next(place for place, field in enumerate(fields) if field.name == "time")
    lines.sort(key=lambda line: -line[time])  # type: ignore[operator]
    remarks = ("bandwidth as nccl-tests define it, at the shortest time: the rank that comes last waits for nobody",)
    return Table.of(title=COLLECTIVES, fields=fields, lines=tuple(lines), remarks=remarks if lines else ())


def _line(
    kind: str,
    group: str,
    ranks: int | None,
    moved: int | None,
    dtype: str,
    algorithm: str,
    same: Sequence[CollectiveSummary],
) -> dict[str, Cell]:
    """One sort and size, with the rates of the algorithm and of the busiest link at the shortest of all times."""
    least = min(each.least_ns for each in same)
    rate = moved * SECOND_NS / least if moved is not None and least else None
    factor = bus_factor(kind, ranks)
    return {
        "collective": kind, "bytes": moved,
        "calls": sum(each.number for each in same),
        "time": sum(each.time_ns for each in same),
        "bus_bandwidth": None if rate is None or factor is None else rate * factor,
        "median": median(each.median_ns for each in same),
        "ranks": ranks, "group": group, "dtype": dtype, "algorithm": algorithm, "algorithm_bandwidth": rate,
    }  # fmt: skip


def _ranks(waited: Sequence[RankWait]) -> Table:
    lines = tuple(
        (each.rank, each.collective_ns, each.wait_ns, each.held_up_ns, each.last)
        for each in sorted(waited, key=lambda each: (-each.held_up_ns, each.rank))
    )
    fields = (
        Field("rank", "number"),
        Field("collectives", "time"),
        Field("waiting", "time"),
        Field("held_up", "time"),
        Field("last", "number"),
    )
    return Table.of(title=RANKS, fields=fields, lines=lines, remarks=_straggler(waited))


def _straggler(waited: Sequence[RankWait]) -> tuple[str, ...]:
    """The rank that others waited for most, and how much of all waiting that was."""
    whole = sum(each.held_up_ns for each in waited)
    if not whole:
        return ()
    worst = max(waited, key=lambda each: each.held_up_ns)
    said = f"rank {worst.rank} came last in {worst.last:,} collectives: others waited {format_time(worst.held_up_ns)} for it"
    return (f"{said}, {100 * worst.held_up_ns / whole:.0f} % of all waiting",)
