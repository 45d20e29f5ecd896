"""Where the time of each device went: parts that add up to it, what ran beside them, and what copies moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from opcost.analysis import bounds
from opcost.core.answer import SECOND_NS, Busy
from opcost.core.profile import Profile
from opcost.core.sheet import Cell, Field, Sheet, Table
from opcost.core.spans import LONG_GAP
from opcost.core.told import Copied, told

WHOSE = (Field("rank", "number", dull=True), Field("device", "text"))
TIME, BESIDE, COPIES = "time of each device", "beside other work", "copies"
LONG_GAPS = "long gaps"


def breakdown(profile: Profile) -> Sheet:
    """The time of each device from its first kernel to its last, by what it was spent on."""
    uses = bounds.devices(profile)
    return Sheet(
        name="breakdown",
        meta=profile.meta,
        tables=(_times(uses, bounds.in_steps(profile)), _beside(uses), _copies(told(profile.extra, "copies", Copied))),
        notes=profile.notes,
    )


def parts_of_time(use: Busy) -> dict[str, int]:
    """The parts, which add up to the span; without knowledge of kernels only busy and idle."""
    causes = {f"idle: {cause}": time for cause, time in use.idle_causes.items()}
    untold = use.idle_ns - use.gap_ns - sum(causes.values())
    working = (
        {"busy": use.busy_ns}
        if use.compute_ns is None
        else {
            "compute": use.compute_ns,
            "communication, exposed": use.communication_ns,
            "transfers, exposed": use.transfers_ns,
            "other copies, exposed": use.copies_ns - use.transfers_ns,
        }
    )
    return {**working, **causes, "idle: not known why": untold, LONG_GAPS: use.gap_ns}


def _times(uses: Sequence[Busy], in_steps: Sequence[Busy]) -> Table:
    lines: list[tuple[Cell, ...]] = []
    steps = {(use.rank, use.device): use for use in in_steps if use.steps}
    for use in uses:
        own = steps.get((use.rank, use.device))
        each = {} if own is None else {part: time / own.steps for part, time in parts_of_time(own).items()}
        for part, time in parts_of_time(use).items():
            if time:
                share = None if part == LONG_GAPS else time / use.rated_ns
                lines.append((use.rank, use.device, part, time, share, each.get(part, 0.0 if each else None)))
    fields = (*WHOSE, Field("part", "text"), Field("time", "time"), Field("share", "share"))
    total = sum(use.span_ns for use in uses)
    remarks = []
    if any(use.gaps for use in uses):
        remarks.append(
            f"{LONG_GAPS}: each longer than {LONG_GAP:.0%} of the time without longer ones; shares leave them out"
        )
    if steps and any(use.steps > own.steps for use in uses if (own := steps.get((use.rank, use.device)))):
        remarks.append("per_step: the mean of the steps after the first")
    return Table(
        title=TIME,
        fields=(*fields, Field("per_step", "time", dull=True)),
        lines=tuple(lines),
        total=("", "total", "", total, 1.0 if total else None, _each_step(uses, steps)),
        remarks=tuple(remarks),
    )


def _each_step(uses: Sequence[Busy], steps: Mapping[tuple[int, str], Busy]) -> float | None:
    known = [steps.get((use.rank, use.device)) for use in uses]
    return sum(own.span_ns / own.steps for own in known if own is not None) if all(known) and known else None


def _beside(uses: Sequence[Busy]) -> Table:
    """What took no time of its own, as a part of all of its sort."""
    lines = [
        (use.rank, use.device, what, time, time / whole)
        for use in uses
        if use.compute_ns is not None
        for what, time, whole in _hidden(use)
        if whole
    ]
    fields = (*WHOSE, Field("what", "text"), Field("time", "time"), Field("share", "share"))
    remarks = ("share: of all communication, of all copies, of the durations of all kernels",) if lines else ()
    return Table(title=BESIDE, fields=fields, lines=tuple(lines), remarks=remarks)


def _hidden(use: Busy) -> Iterator[tuple[str, int, int]]:
    yield "communication, overlapped", use.all_communication_ns - use.communication_ns, use.all_communication_ns
    yield "copies, overlapped", use.all_copies_ns - use.copies_ns, use.all_copies_ns
    yield "kernels side by side", use.overlap_ns, use.work_ns


def _copies(found: Sequence[Copied]) -> Table:
    lines = tuple(
        (
            each.rank,
            each.device,
            each.name,
            each.number,
            each.time_ns,
            each.bytes,
            each.bytes * SECOND_NS / each.time_ns if each.bytes is not None and each.time_ns else None,
        )
        for each in sorted(found, key=lambda each: (each.rank, each.device, -each.time_ns))
    )
    fields = (
        *WHOSE,
        Field("copy", "text"),
        Field("calls", "number"),
        Field("time", "time"),
        Field("bytes", "bytes"),
        Field("bandwidth", "bytes/s"),
    )
    return Table(title=COPIES, fields=fields, lines=lines)
