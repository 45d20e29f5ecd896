"""How the devices of a trace were used: busy time, sizes of kernels, and how long these waited after their launch."""

from __future__ import annotations

from array import array
from statistics import median, quantiles

from opcost.core.answer import Busy
from opcost.traces.kineto.launches import GRAPH
from opcost.traces.kineto.rows import Translated


def device_uses(translated: Translated) -> dict[str, Busy]:
    """The use of each device, in the order of first use in the file."""
    linked = translated.linked
    work = linked.columns.device
    places: dict[str, array[int]] = {}
    of_queue = [places.setdefault(device, array("i")) for device, _ in translated.queues]
    for place, queue in enumerate(work.queue):
        of_queue[queue].append(place)
    return {device: _use(translated, device, own) for device, own in places.items() if own}


def _use(translated: Translated, device: str, places: array[int]) -> Busy:
    linked = translated.linked
    work = linked.columns.device
    ordered = sorted(places, key=work.start.__getitem__)
    first = work.start[ordered[0]]
    busy, reached = 0, first
    for place in ordered:
        start = work.start[place]
        end = start + work.duration[place]
        if end > reached:
            busy += end - max(reached, start)
            reached = end
    durations = [work.duration[place] for place in places]
    owners = [owner for owner in [linked.owner[place] for place in places] if owner >= 0]
    delays = sorted(_delays(translated, places))
    return Busy(
        device=device,
        rank=translated.rank,
        span_ns=reached - first,
        busy_ns=busy,
        work_ns=sum(durations),
        kernels=len(durations),
        median_ns=median(durations),
        operators=len(set(owners)),
        owned=len(owners),
        launches=len(delays),
        delay_ns=median(delays) if delays else None,
        delay_p90_ns=_ninth_decile(delays) if delays else None,
    )


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
