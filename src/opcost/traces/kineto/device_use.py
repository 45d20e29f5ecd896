"""How the devices of a trace were used: busy and idle time and why, sizes of kernels, and their delays after the launch."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import pairwise
from statistics import median, quantiles
from typing import Any, NamedTuple

from opcost.core.answer import Busy
from opcost.core.names import is_copy, is_transfer
from opcost.core.profile import CollectiveSummary, CopySummary
from opcost.core.timeline import covered
from opcost.traces.kineto.columns import DeviceColumns
from opcost.traces.kineto.idle import Causes
from opcost.traces.kineto.launches import GRAPH
from opcost.traces.kineto.link import Linked
from opcost.traces.kineto.memory_use import MemoryUse
from opcost.traces.kineto.rows import Translated
from opcost.traces.kineto.training import RECOMPUTE


class Uses(NamedTuple):
    """How the devices of a trace were used, in the order of first use in the file."""

    whole: tuple[Busy, ...] = ()
    """From the first kernel of a device to its last."""
    steps: tuple[Busy, ...] = ()
    """In the marked steps, but for the first of several."""


def device_uses(translated: Translated) -> Uses:
    """The use of each device."""
    work = translated.linked.columns.device
    places: dict[str, array[int]] = {}
    of_queue = [places.setdefault(device, array("i")) for device, _ in translated.queues]
    for place, queue in enumerate(work.queue):
        of_queue[queue].append(place)
    causes = Causes(translated.linked)
    used = {device: own for device, own in places.items() if own}
    whole = (_use(translated, causes, device, own) for device, own in used.items())
    steps = (_use_of_steps(translated, causes, device, own) for device, own in used.items())
    return Uses(tuple(whole), tuple(use for use in steps if use is not None))


def _use_of_steps(translated: Translated, causes: Causes, device: str, places: array[int]) -> Busy | None:
    """The use of a device by what was launched in steps: from the end of the work before them to the end of theirs."""
    linked = translated.linked
    work = linked.columns.device
    steps = translated.steps[1:] or translated.steps
    if not steps or linked.skew:  # steps are on the clock of the host
        return None
    launched = [linked.launched(work.correlation[place]) for place in places]
    times = [work.start[place] if time is None else time for place, time in zip(places, launched, strict=True)]
    own = array("i", [p for p, time in zip(places, times, strict=True) if steps[0].start <= time < steps[-1].end])
    earlier = [p for p, time in zip(places, times, strict=True) if time < steps[0].start]
    if not own:
        return None
    begin = min(work.start[place] for place in own)
    if earlier and len(translated.steps) > 1:
        begin = min(begin, max(work.start[place] + work.duration[place] for place in earlier))
    found = _use(translated, causes, device, own, begin, most_gaps=len(steps) - 1)
    return found._replace(steps=len(steps))


def extra_of(
    uses: Uses, copies: Iterable[CopySummary], collectives: Iterable[CollectiveSummary], memory: MemoryUse
) -> dict[str, list[dict[str, Any]]]:
    """What a profile says of its devices beside its rows; nothing is said of what there is none of."""
    parts: dict[str, Iterable[Any]] = {
        "devices": uses.whole,
        "steps": uses.steps,
        "copies": copies,
        "collectives": collectives,
        "memory": memory.held,
        "holders": memory.holders,
        "memory_over_time": memory.over_time,
    }
    told = {name: [entry._asdict() for entry in entries] for name, entries in parts.items()}
    return {name: entries for name, entries in told.items() if entries or name == "devices"}


def copies_of(translated: Translated) -> tuple[CopySummary, ...]:
    """What copies of each sort moved on each device, in the order of the file."""
    columns = translated.linked.columns
    work, names = columns.device, translated.kernel_names
    moves = {number for number, name in enumerate(names) if is_copy(name)}
    if not moves:
        return ()
    times: dict[tuple[str, int], list[int]] = {}
    for name, queue, duration in zip(work.name, work.queue, work.duration, strict=True):
        if name in moves:
            entry = times.setdefault((translated.queues[queue][0], name), [0, 0])
            entry[0] += 1
            entry[1] += duration
    moved: dict[tuple[str, int], int] = {}
    for (queue, name), count in columns.moved.items():
        key = translated.queues[queue][0], name
        moved[key] = moved.get(key, 0) + count
    return tuple(
        CopySummary(device, translated.rank, names[name], number, time, moved.get((device, name)))
        for (device, name), (number, time) in times.items()
    )


def _use(
    translated: Translated,
    causes: Causes,
    device: str,
    places: array[int],
    begin: int | None = None,
    *,
    most_gaps: int | None = None,
) -> Busy:
    linked = translated.linked
    work, phases = linked.columns.device, linked.rows.phase
    ordered = sorted(places, key=work.start.__getitem__)
    durations = [work.duration[place] for place in places]
    owners = [owner for owner in [linked.owner[place] for place in places] if owner >= 0]
    delays = sorted(_delays(translated, places))
    busy = _covered(work, ordered)
    classes = _Classes(translated, ordered)
    steps = [step.end - step.start for step in translated.steps]
    begin = work.start[ordered[0]] if begin is None else begin
    end = max(map(int.__add__, [work.start[place] for place in places], durations))
    # What nearly every step has is a habit, and no event.
    most = most_gaps if most_gaps is not None else max(1, len(steps) - 2) if len(steps) > 1 else len(places)
    idle = causes.of(ordered, begin, end, most)
    later_steps = steps[1:] or steps
    return Busy(
        device=device,
        rank=translated.rank,
        span_ns=end - begin,
        busy_ns=busy,
        work_ns=sum(durations),
        kernels=len(durations),
        median_ns=median(durations),
        operators=len(set(owners)),
        owned=len(owners),
        launches=len(delays),
        delay_ns=median(delays) if delays else None,
        delay_p90_ns=_ninth_decile(delays) if delays else None,
        compute_ns=classes.computing,
        communication_ns=classes.working - classes.computing,
        copies_ns=busy - classes.working,
        transfers_ns=classes.transferring - classes.working,
        all_communication_ns=_covered(work, classes.collectives),
        all_copies_ns=_covered(work, classes.copies),
        compute_work_ns=sum([work.duration[place] for place in classes.computes]),
        fed_ns=_fed(linked, ordered),
        launch_every_ns=_launch_every(linked, ordered),
        recomputed_ns=sum(
            [
                work.duration[place]
                for place in places
                if (owner := linked.owner[place]) >= 0 and phases[owner] == RECOMPUTE
            ]
        ),
        idle_host_ns=idle.host,
        idle_synchronised_ns=idle.synchronised,
        idle_input_ns=idle.input,
        idle_launch_ns=idle.launch,
        idle_blocked_ns=idle.blocked,
        idle_call_ns=idle.call,
        idle_call=idle.call_name,
        gaps=idle.gaps,
        gap_ns=idle.gap,
        longest_gap_ns=idle.longest_gap,
        longest_gap_at_ns=idle.longest_gap_at,
        longest_gap_cause=idle.longest_gap_cause,
        steps=len(steps),
        first_step_ns=steps[0] if steps else None,
        step_ns=median(later_steps) if steps else None,
        least_step_ns=min(later_steps, default=None),
        most_step_ns=max(later_steps, default=None),
    )


class _Classes:
    """The work of a device by what it does, each in the order of starts, and the time in which one of several was under way."""

    def __init__(self, translated: Translated, ordered: list[int]) -> None:
        columns = translated.linked.columns
        work, names = columns.device, translated.kernel_names
        speaks = columns.library_kernels | {work.name[place] for place in columns.collectives}
        moves = {number for number, name in enumerate(names) if is_copy(name)}
        crosses = {number for number in moves if is_transfer(names[number])}
        others = [place for place in ordered if work.name[place] not in moves] if moves else ordered
        self.copies = [place for place in ordered if work.name[place] in moves] if moves else []
        self.computes = [place for place in others if work.name[place] not in speaks] if speaks else others
        self.collectives = [place for place in others if work.name[place] in speaks] if speaks else []
        self.working = _covered(work, others)
        """Something computed or communicated."""
        self.computing = _covered(work, self.computes) if speaks else self.working
        with_transfers = [place for place in ordered if work.name[place] not in moves - crosses]
        self.transferring = _covered(work, with_transfers) if crosses else self.working
        """Something computed, communicated or crossed the border."""


def _covered(work: DeviceColumns, ordered: Iterable[int]) -> int:
    """The time in which at least one of these, which are ordered by their starts, was under way."""
    starts, durations = work.start, work.duration
    return covered((starts[place], starts[place] + durations[place]) for place in ordered)


def _fed(linked: Linked, ordered: list[int]) -> int:
    """The time of work whose successor on the device had been launched before it began."""
    work, launch_of = linked.columns.device, linked.launched
    starts, correlations = work.start, work.correlation
    found = 0
    for place, following in pairwise(ordered):
        launch = launch_of(correlations[following])
        if launch is not None and launch <= starts[place]:
            found += work.duration[place]
    return found


def _launch_every(linked: Linked, ordered: list[int]) -> float | None:
    """From one launch to the next, the median of them."""
    calls, correlations, starts = linked.launches, linked.columns.device.correlation, linked.rows.start
    times = sorted({starts[calls[number]] for place in ordered if (number := correlations[place]) in calls})
    return median([later - earlier for earlier, later in pairwise(times)]) if len(times) > 1 else None


def _delays(translated: Translated, places: array[int]) -> list[int]:
    """From launch to beginning; two clocks that disagree tell nothing, and what a graph replays nobody launched."""
    linked = translated.linked
    work, owner, calls, starts = linked.columns.device, linked.owner, linked.launches, linked.rows.start
    found = [
        work.start[place] - starts[calls[work.correlation[place]]]
        for place in places
        if owner[place] != GRAPH and work.correlation[place] in calls
    ]
    return [delay for delay in found if delay >= 0]


def _ninth_decile(ordered: list[int]) -> float:
    return quantiles(ordered, n=10, method="inclusive")[8] if len(ordered) > 1 else ordered[0]
