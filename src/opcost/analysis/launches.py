"""How far the host was ahead of its devices: queues and delays after launches over time, and where devices waited for it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from opcost.analysis.aggregate import percentile
from opcost.analysis.bounds import kernels_by_device
from opcost.analysis.critical_path import check_single
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.core.sheet import Cell, Field, Sheet, Table

OVER_TIME, BEHIND = "queue and launches over time", "where the host was behind"
PARTS = 10  # parts into which the time of a trace without steps is divided
FED = 8  # this many kernels in a row that were launched in time end a region in which the host was behind
MOST_REGIONS = 10
_WHOSE = (Field("rank", "number", dull=True), Field("device", "text"))


class Work(NamedTuple):
    """A kernel whose launch is known."""

    launched: int
    start: int
    end: int
    is_late: bool  # it was launched when the device had nothing left to do
    idle: int  # how long the device had been idle when it began


def launches(profile: Profile) -> Sheet:
    """Queues and delays in each step, or in each tenth of the time, and the regions in which devices waited for the host."""
    check_single(profile, "how far the host was ahead")
    over_time: list[tuple[Cell, ...]] = []
    regions: list[tuple[int, tuple[Cell, ...]]] = []
    for (rank, device), kernels in kernels_by_device(profile).items():
        rows = [row for row in profile.rows if row.rank == rank]
        kernels.sort(key=lambda kernel: kernel.start_ns)
        work = [*_work(kernels)]
        if work:
            over_time += [(rank, device, part, *_launched(work, *span)) for part, *span in _parts(rows, kernels)]
            regions += [(idle, (rank, device, *region)) for idle, region in _regions(work, rows)]
    regions.sort(key=lambda found: -found[0])
    tables = [
        Table.of(title=title, fields=(*_WHOSE, *fields), lines=lines, remarks=remarks if lines else ())
        for (title, fields, remarks), lines in zip(
            _TABLES, (over_time, [line for _, line in regions[:MOST_REGIONS]]), strict=True
        )
    ]
    return Sheet(name="launches", meta=profile.meta, tables=tuple(tables), notes=profile.notes)


_TABLES = (
    (
        OVER_TIME,
        (
            Field("part", "text"), Field("launches", "number"), Field("queue", "ratio"), Field("queue_max", "number"),
            Field("empty", "share"), Field("delay", "time"), Field("delay_p90", "time"), Field("late", "share"),
        ),
        (
            "queue: launched and not begun, the mean over time",
            "empty: the share of the time in which that is nothing",
            "late: of the kernels those that were launched when the device had nothing left to do",
        ),
    ),
    (
        BEHIND,
        (
            Field("from", "time"), Field("time", "time"), Field("kernels", "number"), Field("idle", "time"),
            Field("host_ran", "name"), Field("host_time", "time"),
        ),
        ("host_ran: the operator that the host spent most time in, without what it called",),
    ),
)  # fmt: skip
"""Title, fields and remarks of both tables."""


def _work(kernels: Iterable[Kernel]) -> Iterator[Work]:
    """The kernels whose launch is known, by start; all others keep the device busy too."""
    busy_until: int | None = None
    for kernel in kernels:
        start, end, launched = kernel.start_ns, kernel.start_ns + kernel.duration_ns, kernel.launched_ns
        free = start if busy_until is None else busy_until
        if launched is not None and launched <= start:
            yield Work(launched, start, end, launched > free, max(0, start - free))
        busy_until = max(free, end)


def _parts(rows: Sequence[ProfileRow], kernels: Sequence[Kernel]) -> Iterator[tuple[str, int, int]]:
    """The steps of the host, or tenths of the time of the device."""
    spans: dict[int, tuple[int, int]] = {}
    for row in rows:
        if row.step is not None and row.host_start_ns is not None:
            start, end = spans.get(row.step, (row.host_start_ns, 0))
            spans[row.step] = min(start, row.host_start_ns), max(end, row.host_start_ns + (row.host_ns or 0))
    if spans:
        yield from ((f"step {step}", *span) for step, span in sorted(spans.items()))
        return
    begin = min(kernel.start_ns if kernel.launched_ns is None else kernel.launched_ns for kernel in kernels)
    length = max(kernel.start_ns + kernel.duration_ns for kernel in kernels) - begin
    for part in range(PARTS):
        yield f"{part + 1}/{PARTS}", begin + length * part // PARTS, begin + length * (part + 1) // PARTS


def _launched(work: Sequence[Work], start: int, end: int) -> tuple[Cell, ...]:
    """Of the launches in this time: how many, what waited (mean, most, share of the time without any), and how long."""
    within = [each for each in work if start <= each.launched < end]
    waiting = [each for each in work if each.launched < end and each.start > start]
    changes = [(max(each.launched, start), 1) for each in waiting] + [(min(each.start, end), -1) for each in waiting]
    length = most = area = empty = 0
    reached = start
    for time, change in sorted(changes):
        area += length * (time - reached)
        empty += (time - reached) * (length == 0)
        reached, length = time, length + change
        most = max(most, length)
    whole = end - start
    queued: tuple[Cell, ...] = (None,) * 3
    if whole > 0:
        queued = area / whole, most, (empty + end - reached) / whole
    waited: tuple[Cell, ...] = (None,) * 3
    if within:
        delays = sorted(each.start - each.launched for each in within)
        late = sum(each.is_late for each in within)
        waited = median(delays), percentile([(delay, 1) for delay in delays], 90), late / len(within)
    return len(within), *queued, *waited


def _regions(work: Sequence[Work], rows: Sequence[ProfileRow]) -> Iterator[tuple[int, tuple[Cell, ...]]]:
    """Stretches of kernels that were launched late, with few others between them, and how long the device was idle there."""
    late = [place for place, each in enumerate(work) if each.is_late]
    own = sorted((row.host_start_ns, row.id, row) for row in rows if row.host_start_ns is not None and row.host_self_ns)
    starts = [start for start, _, _ in own]
    place = 0
    while place < len(late):
        last = place
        while last + 1 < len(late) and late[last + 1] - late[last] <= FED:
            last += 1
        members = work[late[place] : late[last] + 1]
        since, until = members[0].start - members[0].idle, members[-1].end
        spent: dict[str, int] = {}
        for _, _, row in own[bisect_right(starts, since) : bisect_right(starts, until)]:
            if row.provider != "user_annotation":
                spent[row.type] = spent.get(row.type, 0) + (row.host_self_ns or 0)
        most = max(spent, key=spent.__getitem__, default="")
        idle = sum(each.idle for each in members)
        yield idle, (since - work[0].start, until - since, len(members), idle, most, spent.get(most))
        place = last + 1
