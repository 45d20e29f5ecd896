"""The critical path of a run: what of host, launches, kernels and collectives decides how long it takes, and what would help."""

from __future__ import annotations

from collections.abc import Iterable

from opcost.analysis import busy
from opcost.analysis.dependencies import Dependencies, Path, check_single
from opcost.core.profile import Profile
from opcost.core.sheet import Cell, Field, Sheet, Table
from opcost.core.units import format_time

BOUNDS, PARTS = "critical path", "operators on it"
MOST_TRIED = 12
"""Operators of which it is told what half of their time would win: each takes a walk through all links."""


def critical_path(profile: Profile) -> Sheet:
    """The longest chain of dependencies by what it is spent on, and by operator with what it would win to halve its time."""
    check_single(profile, "the critical path")
    ranks = sorted({row.rank for row in profile.rows})
    steps = max((use.steps for use in busy.devices(profile)), default=0)
    bounds: list[tuple[Cell, ...]] = []
    parts: list[tuple[Cell, ...]] = []
    lengths = []
    outside = 0
    for rank in ranks:
        found = Dependencies(profile, rank)
        path = found.longest()
        lengths.append(path.length_ns)
        outside += sum(found.outside_ns.get(link.target, 0) for link in path.links if not link.time_ns)
        bounds += [(rank, *line) for line in _bounds(found, path, steps)]
        parts += [(rank, *line) for line in _parts(found, path, steps)]
    spent = (Field("time", "time"), Field("share", "share"), Field("per_step", "time", dull=True))
    gain = (Field("halved", "time"), Field("gain", "share"))
    rank_field = Field("rank", "number", dull=True)
    each = sum(lengths) / steps if steps else None
    remarks = ["halved: by so much the path is shorter if all of this takes half of its time, on the path or not"]
    if outside:
        what = "lie between operators of the host and count as nothing: the program itself, or waits that the trace does not show"
        remarks.append(f"{format_time(outside)} more {what}")
    return Sheet(
        name="critical path",
        meta=profile.meta,
        tables=(
            Table(
                title=BOUNDS,
                fields=(rank_field, Field("bound", "text"), *spent, *gain),
                lines=tuple(bounds),
                total=("", "total", sum(lengths), 1.0, each, "", "") if bounds else None,
                remarks=tuple(remarks),
            ),
            Table(
                title=PARTS,
                fields=(
                    rank_field,
                    Field("operator", "name"),
                    Field("bound", "text"),
                    Field("links", "number"),
                    *spent,
                    *gain,
                ),
                lines=tuple(parts),
            ),
        ),
        notes=profile.notes,
    )


def _bounds(found: Dependencies, path: Path, steps: int) -> Iterable[tuple[Cell, ...]]:
    times: dict[str, int] = {}
    members: dict[str, list[int]] = {}
    names = list(found.groups)
    for number, group in enumerate(names):
        members.setdefault(group.bound, []).append(number)
    for link in path.links:
        if link.time_ns:
            bound = names[link.group].bound
            times[bound] = times.get(bound, 0) + link.time_ns
    for bound, time in sorted(times.items(), key=lambda item: -item[1]):
        yield bound, *_spent(time, path, steps), *_won(found, path, members[bound])


def _parts(found: Dependencies, path: Path, steps: int) -> Iterable[tuple[Cell, ...]]:
    times: dict[int, list[int]] = {}
    for link in path.links:
        if link.time_ns:
            times.setdefault(link.group, []).append(link.time_ns)
    names = list(found.groups)
    ordered = sorted(times, key=lambda number: -sum(times[number]))
    for place, number in enumerate(ordered):
        own = times[number]
        gain = _won(found, path, [number]) if place < MOST_TRIED else (None, None)
        yield names[number].name, names[number].bound, len(own), *_spent(sum(own), path, steps), *gain


def _spent(time: int, path: Path, steps: int) -> tuple[Cell, ...]:
    return time, time / path.length_ns if path.length_ns else None, time / steps if steps else None


def _won(found: Dependencies, path: Path, groups: Iterable[int]) -> tuple[Cell, Cell]:
    won = path.length_ns - found.length_if_halved(groups)
    return won, won / path.length_ns if path.length_ns else None
