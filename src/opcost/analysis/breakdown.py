"""How devices were used, what bounds their operators, and where their time and memory went: parts that add up, and savings."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from statistics import median
from typing import TypeVar

from opcost.analysis.join import product_share, runs_tf32
from opcost.analysis.part import LABELS, Part, delays_of
from opcost.core.alike import alike_ranks, late_rank
from opcost.core.devices import Device
from opcost.core.graph import Note
from opcost.core.kinds import CONTRACTIONS
from opcost.core.names import is_collective, is_copy, is_transfer
from opcost.core.profile import (
    IDLE_IN_CALL,
    SECOND_NS,
    AllocationHolder,
    AllocatorMemory,
    AllocatorMemoryOverTime,
    Busy,
    CopySummary,
    Gain,
    Kernel,
    Profile,
    RankWait,
    extra_entries,
)
from opcost.core.sheet import Cell, Sheet, Table
from opcost.core.timeline import LONG_GAP, covered, long_gaps
from opcost.core.units import format_bytes


def kernels_by_device(profile: Profile) -> dict[tuple[int, str], list[Kernel]]:
    """The kernels of each rank and device; work without an operator has no rank of its own but that of a single rank."""
    found: dict[tuple[int, str], list[Kernel]] = {}
    for row in profile.rows:
        for kernel in row.kernels:
            found.setdefault((row.rank, kernel.device), []).append(kernel)
    ranks = {row.rank for row in profile.rows} or {0}
    rank = next(iter(ranks)) if len(ranks) == 1 else 0
    for kernel in profile.unattributed:
        found.setdefault((rank if kernel.rank is None else kernel.rank, kernel.device), []).append(kernel)
    return found


def devices(profile: Profile) -> tuple[Busy, ...]:
    """One entry per rank and device that ran kernels, in the order of first use.

    A profile whose rows stand for many executions has no start of each kernel; its reader reports how devices were used in
    `extra["devices"]`, a list of the fields of `Busy`, and without that nothing is claimed.
    """
    if "devices" in profile.extra:
        return tuple(extra_entries(profile.extra, "devices", Busy))
    found = kernels_by_device(profile)
    starts = [kernel.start_ns for kernels in found.values() for kernel in kernels]
    if any(row.count > 1 for row in profile.rows) or (len(starts) > 1 and not any(starts)):
        return ()
    owned: Counter[tuple[int, str]] = Counter()
    operators: Counter[tuple[int, str]] = Counter()
    for row in profile.rows:
        own = Counter((row.rank, kernel.device) for kernel in row.kernels)
        owned.update(own)
        operators.update(own.keys())
    return tuple(
        _busy(*key, kernels)._replace(operators=operators[key], owned=owned[key]) for key, kernels in found.items()
    )


def in_steps(profile: Profile) -> tuple[Busy, ...]:
    """The same in the marked steps but for the first, as readers that know them say in `extra["steps"]`; else of the whole."""
    return tuple(extra_entries(profile.extra, "steps", Busy)) or devices(profile)


def _busy(rank: int, device: str, kernels: Sequence[Kernel]) -> Busy:
    launches, delay, delay_p90 = delays_of(kernels)
    spans = sorted((kernel.start_ns, kernel.start_ns + kernel.duration_ns) for kernel in kernels)
    begin, end = spans[0][0], max(end for _, end in spans)
    gaps = long_gaps(spans, begin, end, len(spans), len(spans))
    since, until = gaps[0] if gaps else (begin, begin)
    return Busy(
        device=device, rank=rank, span_ns=end - begin, busy_ns=covered(spans), gaps=len(gaps),
        gap_ns=sum(until - since for since, until in gaps),
        longest_gap_ns=until - since, longest_gap_at_ns=since - begin,
        work_ns=sum(kernel.duration_ns for kernel in kernels), kernels=len(kernels),
        median_ns=median(kernel.duration_ns for kernel in kernels),
        launches=launches, delay_ns=delay, delay_p90_ns=delay_p90,
    )  # fmt: skip


# -- what bounds an operator -------------------------------------------------------------------------------------------------
#
# The ideal time is the longer of two: FLOPs at the peak of the units that do such products, and bytes at the peak of the memory.
# An operator that uses at least `NEAR` of either peak is bound by it, as in Nsight Compute. One that uses less, in kernels
# shorter than the host takes from one launch to the next, is launch-bound. Of longer ones, a kernel that takes longer than
# latencies explain and uses at least `FAR` of a peak is bound by that peak too; the others are latency-bound.

NEAR = 0.6  # share of a peak that counts as bound by it, and that a well-written operator is assumed to reach
FAR = 0.3
LONG_NS = 50_000
"""A kernel of this length has filled the device: neither its launch nor its first and last wave explain its time."""


def judged(parts: Iterable[Part], device: Device | None, uses: Iterable[Busy], *, tf32: bool) -> list[Part]:
    """The parts with their ideal time and what bounds them, on a device whose peaks may be known."""
    launch_every = {(use.rank, use.device): use.launch_every_ns for use in uses}
    found = []
    for part in parts:
        kernels, spent = part.kernels, part.device_ns or 0
        if kernels:
            peak, ideal = _least(part, device, tf32=tf32)
            every = None if part.row is None else launch_every.get((part.row.rank, kernels[0].device))
            if all(is_collective(kernel.name) for kernel in kernels):
                bound = "communication"
            elif all(is_transfer(kernel.name) for kernel in kernels):
                bound = "transfer"
            elif ideal is not None and ideal >= NEAR * spent:
                bound = peak
            elif every is not None and spent < every * part.launches:
                bound = "launch"
            elif ideal is None:
                bound = ""
            else:
                bound = peak if ideal >= FAR * spent and spent >= LONG_NS * part.launches else "latency"
            part = part._replace(ideal_ns=ideal, bound=bound)  # noqa: PLW2901 - the same, judged
        found.append(part)
    return found


def _least(part: Part, device: Device | None, *, tf32: bool) -> tuple[str, float | None]:
    """Whether compute or memory takes longer at the device's peaks, and how many nanoseconds."""
    if device is None or part.memory is None or part.computation is None or part.row is None:
        return "memory", None
    moved = part.memory * SECOND_NS / device.bandwidth if device.bandwidth else None
    if part.row.kind not in CONTRACTIONS:
        return "memory", moved
    peak = device.peak_flops(LABELS["dtype"](part), tf32=tf32 or runs_tf32(part.kernels))
    if not peak:
        return "memory", None
    computed = part.computation * product_share([part]) * SECOND_NS / peak
    return "compute" if computed >= (moved or 0.0) else "memory", max(computed, moved or 0.0)


def computes(part: Part) -> bool:
    """Whether it is neither communication nor a copy."""
    return not all(is_collective(kernel.name) or is_copy(kernel.name) for kernel in part.kernels)


# -- where the time of each device went -----------------------------------------------------------------------------------

WHOSE = "rank:number? device:text?"
TIME, COMPUTE, BESIDE, COPIES = "time of each device", "computing", "beside other work", "copies"
LONG_GAPS = "long gaps"


def breakdown(profile: Profile, uses: Sequence[Busy] | None = None) -> Sheet:
    """The time of each device from its first kernel to its last, by what it was spent on.

    Computing is beside its predicted time where the `uses` of devices have that.
    """
    uses = late_first(profile, devices(profile) if uses is None else uses)
    copies = extra_entries(profile.extra, "copies", CopySummary)
    copies.sort(key=lambda each: (each.rank, each.device, -each.time_ns))
    tables = (_times(uses, in_steps(profile)), _computing(uses), _beside(uses), _copies(late_first(profile, copies)))
    return Sheet(name="breakdown", meta=profile.meta, tables=tables, notes=profile.notes, alike=alike_of(profile))


def alike_of(profile: Profile) -> dict[int, str]:
    """The ranks that are shown for all that are alike; of one rank none."""
    uses = devices(profile)
    return alike_ranks(uses, waits_of(profile)) if len({use.rank for use in uses}) > 1 else {}


Of = TypeVar("Of", Busy, CopySummary, AllocatorMemory, AllocationHolder, AllocatorMemoryOverTime)


def late_first(profile: Profile, entries: Sequence[Of]) -> list[Of]:
    """Entries about ranks; before all others those of the rank that is waited for."""
    late = late_rank(devices(profile), waits_of(profile))
    return sorted(entries, key=lambda entry: late is not None and entry.rank != late.rank)


def waits_of(profile: Profile) -> list[RankWait]:
    """Of each rank how long it waited for others in collectives, and they for it; nothing of a single rank."""
    return extra_entries(profile.extra, "ranks", RankWait)


def parts_of_time(use: Busy) -> dict[str, int]:
    """The parts, which add up to the span; without knowledge of kernels only busy and idle."""
    causes = {f"idle: {cause}": time for cause, time in use.idle_causes.items()}
    unexplained = use.idle_ns - use.gap_ns - sum(causes.values())
    working = (
        {"busy": use.busy_ns}
        if use.compute_ns is None
        else {
            "compute": use.compute_ns,
            "communication, exposed": use.communication_ns - use.stages_ns,
            "pipeline bubble": use.stages_ns,
            "transfers, exposed": use.transfers_ns,
            "other copies, exposed": use.copies_ns - use.transfers_ns,
        }
    )
    return {**working, **causes, "idle: not known why": unexplained, LONG_GAPS: use.gap_ns}


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
    total = sum(use.span_ns for use in uses)
    known = [own for use in uses if (own := steps.get((use.rank, use.device))) is not None]
    each_step = sum(own.span_ns / own.steps for own in known) if known and len(known) == len(uses) else None
    remarks = []
    if any(use.gaps for use in uses):
        remarks.append(
            f"{LONG_GAPS}: each longer than {LONG_GAP:.0%} of the time without longer ones; shares leave them out"
        )
    if steps and any(use.steps > own.steps for use in uses if (own := steps.get((use.rank, use.device)))):
        remarks.append("per_step: the mean of the steps after the first")
    sums = "", "", "total", total, 1.0 if total else None, each_step
    columns = f"{WHOSE} part:text time:time share:share per_step:time?"
    return Table.of(TIME, columns, lines, total=sums, remarks=remarks)


def _computing(uses: Sequence[Busy]) -> Table:
    """Kernels that compute beside what the laws of their device say of them, and how much of its peak the steps use."""
    lines = []
    for use in uses:
        if use.of_predicted is not None or use.mfu is not None:
            expected = round(use.compute_work_ns / use.of_predicted) if use.of_predicted else None
            lines.append((use.rank, use.device, use.compute_work_ns, expected, use.of_predicted, use.mfu))
    remarks = ("predicted: of kernels without a prediction as much longer as the others",) if lines else ()
    return Table.of(COMPUTE, f"{WHOSE} time:time predicted:time! ratio:ratio! mfu:share!", lines, remarks=remarks)


def _beside(uses: Sequence[Busy]) -> Table:
    """What took no time of its own, as a part of all of its sort."""
    lines = []
    for use in uses:
        hidden = use.all_communication_ns - use.communication_ns, use.all_copies_ns - use.copies_ns, use.overlap_ns
        wholes = use.all_communication_ns, use.all_copies_ns, use.work_ns
        names = "communication, overlapped", "copies, overlapped", "kernels side by side"
        for what, time, whole in zip(names, hidden, wholes, strict=True):
            if whole and use.compute_ns is not None:
                lines.append((use.rank, use.device, what, time, time / whole))
    remarks = ("share: of all communication, of all copies, of the durations of all kernels",) if lines else ()
    return Table.of(BESIDE, f"{WHOSE} what:text time:time share:share", lines, remarks=remarks)


def _copies(found: Sequence[CopySummary]) -> Table:
    lines = []
    for each in found:
        rate = each.bytes * SECOND_NS / each.time_ns if each.bytes is not None and each.time_ns else None
        lines.append((each.rank, each.device, each.name, each.number, each.time_ns, each.bytes, rate))
    return Table.of(COPIES, f"{WHOSE} copy:text calls:number time:time bytes:bytes bandwidth:bytes/s", lines)


# -- memory -------------------------------------------------------------------------------------------------------------

PEAK, LIVE, OVER = "peak of each device", "live at the peak", "over time"
_NOTHING = "the profile has no memory events: record with profile_memory=True, and read a large file with memory=True"


def memory(profile: Profile) -> Sheet:
    """What allocators reported while the trace was recorded: peaks, what allocated them, and how they changed over time."""
    peaks = late_first(profile, extra_entries(profile.extra, "memory", AllocatorMemory))
    missing = () if peaks else (Note("memory", _NOTHING),)
    sizes = "peak:bytes at:time reserved:bytes first:bytes last:bytes growth_per_step:bytes? changes:number"
    names = (
        "rank", "device", "peak_bytes", "peak_at_ns", "reserved_bytes", "first_bytes", "last_bytes", "growth_bytes", "changes",
    )  # fmt: skip
    remarks = tuple(
        f"{each.device} keeps {format_bytes(round(each.growth_bytes))} more after each step"
        for each in peaks
        if each.growth_bytes is not None and each.growth_bytes > 0
    )
    whole = {(each.rank, each.device): each.peak_bytes for each in peaks}
    live = []
    for each in late_first(profile, extra_entries(profile.extra, "holders", AllocationHolder)):
        peak = whole.get((each.rank, each.device))
        share = each.bytes / peak if peak else None
        live.append((each.rank, each.device, each.type, each.module, each.number, each.bytes, share))
    read = attrgetter("rank", "device", "part", "peak_bytes", "last_bytes", "reserved_bytes")
    over_time = late_first(profile, extra_entries(profile.extra, "memory_over_time", AllocatorMemoryOverTime))
    tables = (
        Table.of(PEAK, f"rank:number? device:text {sizes}", map(attrgetter(*names), peaks), remarks=remarks),
        Table.of(LIVE, f"{WHOSE} operator:name module:name? tensors:number bytes:bytes share:share", live),
        Table.of(OVER, f"{WHOSE} part:text peak:bytes last:bytes reserved:bytes?", map(read, over_time)),
    )
    return Sheet(name="memory", meta=profile.meta, tables=tables, notes=missing, alike=alike_of(profile))


# -- potential savings --------------------------------------------------------------------------------------------------
#
# Upper bounds by cause that count nothing twice. A device's time in the marked steps, or from its first kernel to its last,
# falls into parts that do not overlap: idle by cause, collectives alone, copies alone, and the time in which something
# computes. Of the first three all can be saved: of collectives as much as there is computing to hide them behind, and what a
# rank waits in them for others is separate; of copies those that cross the device's border. Of the last it is what kernels take
# beyond the time at `NEAR` of the peak that bounds them, or all that they take where they recompute. That is scaled down
# twice: by the share of the time that kernels have to themselves, and by the share of the work whose successor was launched
# before it began, for elsewhere a shorter kernel only lets the device wait longer.

MOST = 3
LEAST_SHARE = 0.005  # less of the time is not worth a line

_BREAKDOWN, _RANKS = "--view breakdown", "--view communication"
_OVER_TIME = {
    "idle: host-bound": "--view launches",
    "idle: launch latency": "--view launches",
    "idle: after synchronisation": "--view critical-path",
}
"""What shows better than the breakdown where a loss is, if it is known when everything ran."""


def gains_of(
    uses: Sequence[Busy], parts: Sequence[Part], waited: Sequence[RankWait] = (), whole: Sequence[Busy] = ()
) -> tuple[Gain, ...]:
    """The largest of them, over all devices whose use is known in full; `whole` is their use outside of steps too."""
    waits = {each.rank: each.wait_ns or 0 for each in waited}
    last = max(waited, key=lambda each: each.waited_for_ns, default=None)
    known = {(use.rank, use.device): use for use in uses if use.compute_ns is not None and use.rated_ns > 0}
    all_of = {(use.rank, use.device): use for use in whole}
    alone = len({rank for rank, _ in known}) == 1 and all(part.count == 1 for part in parts)
    shown = _OVER_TIME if alone else {}  # of many ranks, and of many executions as one, it is not known when each was
    lost: list[tuple[tuple[int, str], str, str, float]] = []  # device, to what, what shows it, nanoseconds
    for key, use in known.items():
        # What ranks waited is known of the whole trace: of that, the collectives in steps that nothing hides have their part.
        everywhere = all_of.get(key, use).all_communication_ns
        collectives = use.communication_ns - use.stages_ns
        wait = min(float(collectives), waits.get(use.rank, 0) * collectives / (everywhere or 1))
        for cause, idle in use.idle_causes.items():
            what = f"idle: {cause}"
            command = shown.get(what, _BREAKDOWN)
            if use.idle_call and cause.startswith(IDLE_IN_CALL):
                command = f"--side host --type {use.idle_call}"
            lost.append((key, what, command, idle))
        hidden = use.all_communication_ns - use.communication_ns
        exposed = min(collectives - wait, max(0, (use.compute_ns or 0) - hidden))
        lost.append((key, "communication that nothing hides", _BREAKDOWN, exposed))
        lost.append((key, "pipeline bubble", _RANKS, use.stages_ns))
        lost.append((key, "copies that could run beside kernels", _BREAKDOWN, use.transfers_ns))
        if wait and last is not None:
            lost.append((key, f"unbalanced ranks: {last.rank} comes last most", _RANKS, wait))
    lost += _inside_of_kernels(known, all_of, parts)
    sums: dict[tuple[str, str], tuple[float, float]] = {}
    for device, what, command, time in lost:
        use = known[device]
        shares, times = sums.get((what, command), (0.0, 0.0))
        sums[what, command] = shares + time / use.rated_ns, times + time / max(use.steps, 1)
    gains = [
        Gain(what=what, command=command, share=share / len(known), time_ns=time / len(known))
        for (what, command), (share, time) in sums.items()
        if share / len(known) >= LEAST_SHARE
    ]
    return tuple(sorted(gains, key=lambda gain: -gain.share)[:MOST])


def _inside_of_kernels(
    uses: Mapping[tuple[int, str], Busy], whole: Mapping[tuple[int, str], Busy], parts: Iterable[Part]
) -> Iterator[tuple[tuple[int, str], str, str, float]]:
    """What kernels could save: the device, what it is lost to, what shows it, and the time."""
    spent: dict[tuple[tuple[int, str], tuple[str, str]], float] = {}
    reached: dict[str, tuple[float, float]] = {}
    numbers = sorted({part.row.step for part in parts if part.row is not None and part.row.step is not None})
    later = {*(numbers[1:] or numbers)}
    for part in parts:
        row = part.row
        device = (row.rank, part.kernels[0].device) if row is not None and part.kernels else None
        use = uses.get(device) if device is not None else None
        if row is None or device is None or use is None or not computes(part) or not part.device_ns:
            continue
        if later and use.steps and row.step not in later:
            continue
        saved = float(part.device_ns)
        if row.phase == "recompute":
            key = ("recomputing what a checkpoint did not keep", """--where 'phase == "recompute"'""")
        elif part.ideal_ns is None or part.ideal_ns >= NEAR * part.device_ns:
            continue
        else:
            saved -= part.ideal_ns / NEAR
            if part.bound == "launch":
                key = ("kernels shorter than a launch", """--where 'bound == "launch"'""")
            else:
                key = (row.type, f"--type {row.type} --aggregate-by shape")
                ideal, time = reached.get(row.type, (0.0, 0.0))
                reached[row.type] = ideal + part.ideal_ns, time + part.device_ns
        own = use.compute_ns / use.compute_work_ns if use.compute_ns and use.compute_work_ns else 0.0
        fed = min(1.0, use.fed_ns / use.work_ns) if use.work_ns else 0.0
        if not later and device in whole and whole[device].compute_work_ns:  # which rows are of steps is not known
            own *= use.compute_work_ns / whole[device].compute_work_ns
        spent[device, key] = spent.get((device, key), 0.0) + saved * own * fed
    for (device, (what, command)), time in spent.items():
        if what in reached:
            what = f"{what} at {100 * reached[what][0] / reached[what][1]:.0f} % of its bound"  # noqa: PLW2901
        yield device, what, command, time
