"""How the devices of a trace were used: busy and idle time and why, sizes of kernels, and their delays after the launch."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from statistics import median, quantiles

from opcost.core.answer import Busy
from opcost.core.spans import covered
from opcost.traces.kineto.columns import DeviceColumns
from opcost.traces.kineto.idle import Causes
from opcost.traces.kineto.launches import GRAPH
from opcost.traces.kineto.rows import Translated

COPIES = ("Memcpy", "Memset", "Copy")
"""How profilers name what moves and clears memory."""


def device_uses(translated: Translated) -> dict[str, Busy]:
    """The use of each device, in the order of first use in the file."""
    linked = translated.linked
    work = linked.columns.device
    places: dict[str, array[int]] = {}
    of_queue = [places.setdefault(device, array("i")) for device, _ in translated.queues]
    for place, queue in enumerate(work.queue):
        of_queue[queue].append(place)
    causes = Causes(linked)
    return {device: _use(translated, causes, device, own) for device, own in places.items() if own}


def _use(translated: Translated, causes: Causes, device: str, places: array[int]) -> Busy:
    linked = translated.linked
    work = linked.columns.device
    ordered = sorted(places, key=work.start.__getitem__)
    durations = [work.duration[place] for place in places]
    owners = [owner for owner in [linked.owner[place] for place in places] if owner >= 0]
    delays = sorted(_delays(translated, places))
    busy = _covered(work, ordered)
    computing, communicating = _computing(translated, ordered)
    idle = causes.of(ordered)
    steps = [end - start for start, end, _ in sorted(linked.columns.steps)]
    return Busy(
        device=device,
        rank=translated.rank,
        span_ns=max(map(int.__add__, [work.start[place] for place in places], durations)) - work.start[ordered[0]],
        busy_ns=busy,
        work_ns=sum(durations),
        kernels=len(durations),
        median_ns=median(durations),
        operators=len(set(owners)),
        owned=len(owners),
        launches=len(delays),
        delay_ns=median(delays) if delays else None,
        delay_p90_ns=_ninth_decile(delays) if delays else None,
        communication_ns=communicating - computing,
        copies_ns=busy - communicating,
        idle_host_ns=idle.host,
        idle_synchronised_ns=idle.synchronised,
        idle_input_ns=idle.input,
        idle_launch_ns=idle.launch,
        steps=len(steps),
        first_step_ns=steps[0] if steps else None,
        step_ns=median(steps[1:] or steps) if steps else None,
    )


def _computing(translated: Translated, ordered: list[int]) -> tuple[int, int]:
    """The time in which something computed, and that in which something computed or communicated."""
    columns = translated.linked.columns
    work = columns.device
    collectives = columns.library_kernels | {work.name[place] for place in columns.collectives}
    copies = {number for number, name in enumerate(translated.kernel_names) if name.startswith(COPIES)}
    both = [place for place in ordered if work.name[place] not in copies] if copies else ordered
    computes = [place for place in both if work.name[place] not in collectives] if collectives else both
    with_both = _covered(work, both)
    return (with_both if computes is both else _covered(work, computes)), with_both


def _covered(work: DeviceColumns, ordered: Iterable[int]) -> int:
    """The time in which at least one of these, which are ordered by their starts, was under way."""
    starts, durations = work.start, work.duration
    return covered((starts[place], starts[place] + durations[place]) for place in ordered)


def _delays(translated: Translated, places: array[int]) -> list[int]:
    """From launch to beginning; two clocks that disagree tell nothing, and what a graph replays nobody launched."""
    linked = translated.linked
    work, owner, launched = linked.columns.device, linked.owner, linked.launched
    found = [
        work.start[place] - launched[work.correlation[place]]
        for place in places
        if owner[place] != GRAPH and work.correlation[place] in launched
    ]
    return [delay for delay in found if delay >= 0]


def _ninth_decile(ordered: list[int]) -> float:
    return quantiles(ordered, n=10, method="inclusive")[8] if len(ordered) > 1 else ordered[0]
