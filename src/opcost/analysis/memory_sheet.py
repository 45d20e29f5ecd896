"""Memory that a profile tells of: the peak of each device, who held it, and how it went over time."""

from __future__ import annotations

from opcost.core.graph import Note
from opcost.core.profile import Profile
from opcost.core.sheet import Field, Sheet, Table
from opcost.core.told import Held, HeldOver, Holder, told
from opcost.core.units import format_bytes

PEAK, HELD, OVER = "peak of each device", "held at the peak", "over time"
_NOTHING = "nothing is told of memory: record with profile_memory=True, and read a large file with memory=True"
_WHOSE = (Field("rank", "number", dull=True), Field("device", "text"))


def memory(profile: Profile) -> Sheet:
    """What allocators told while the trace was recorded."""
    peaks = told(profile.extra, "memory", Held)
    holders = told(profile.extra, "holders", Holder)
    over = told(profile.extra, "memory_over_time", HeldOver)
    missing = () if peaks else (Note("memory", _NOTHING),)
    return Sheet(
        name="memory", meta=profile.meta, tables=(_peaks(peaks), _holders(holders, peaks), _over(over)), notes=missing
    )


def _peaks(found: list[Held]) -> Table:
    fields = (
        *_WHOSE,
        Field("peak", "bytes"),
        Field("at", "time"),
        Field("reserved", "bytes"),
        Field("first", "bytes"),
        Field("last", "bytes"),
        Field("growth_per_step", "bytes", dull=True),
        Field("changes", "number"),
    )
    lines = [
        (
            each.rank,
            each.device,
            each.peak_bytes,
            each.peak_at_ns,
            each.reserved_bytes,
            each.first_bytes,
            each.last_bytes,
            each.growth_bytes,
            each.changes,
        )
        for each in found
    ]
    remarks = tuple(
        f"{each.device} keeps {format_bytes(round(each.growth_bytes))} more after each step"
        for each in found
        if each.growth_bytes is not None and each.growth_bytes > 0
    )
    return Table(title=PEAK, fields=fields, lines=tuple(lines), remarks=remarks)


def _holders(found: list[Holder], peaks: list[Held]) -> Table:
    whole = {(each.rank, each.device): each.peak_bytes for each in peaks}
    fields = (
        *_WHOSE,
        Field("operator", "name"),
        Field("module", "name", dull=True),
        Field("tensors", "number"),
        Field("bytes", "bytes"),
        Field("share", "share"),
    )
    lines = []
    for each in found:
        peak = whole.get((each.rank, each.device))
        share = each.bytes / peak if peak else None
        lines.append((each.rank, each.device, each.type, each.module, each.number, each.bytes, share))
    return Table(title=HELD, fields=fields, lines=tuple(lines))


def _over(found: list[HeldOver]) -> Table:
    fields = (
        *_WHOSE,
        Field("part", "text"),
        Field("peak", "bytes"),
        Field("last", "bytes"),
        Field("reserved", "bytes", dull=True),
    )
    lines = tuple(
        (each.rank, each.device, each.part, each.peak_bytes, each.last_bytes, each.reserved_bytes) for each in found
    )
    return Table(title=OVER, fields=fields, lines=lines)
