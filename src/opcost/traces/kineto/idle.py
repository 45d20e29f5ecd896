"""Why a device of a trace had nothing to do: what its next piece of work waited for.

Where the host launched that work only after the device had run dry, the host was behind: because it had waited for the device
itself (synchronisation), for the next batch (input), or for its own code. From the launch on it is the launch that took time, and
where that is longer than launches take, whatever else the work waited for: an event, another stream.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from opcost.traces.kineto.link import Linked
from opcost.traces.kineto.steps import LOADS

SYNCHRONISES = "Synchronize"


class Idle(NamedTuple):
    """Nanoseconds without work on a device, by cause; what has no launch in the trace has no cause."""

    host: int = 0
    synchronised: int = 0
    input: int = 0
    launch: int = 0
    blocked: int = 0


LONGEST_LAUNCH = 50_000
"""Nanoseconds; work that was launched and does not begin within them waits for something else than its launch."""


class Causes:
    """What the host did in a trace that keeps devices waiting."""

    def __init__(self, linked: Linked) -> None:
        self._linked = linked
        self._ends = sorted(start + duration for start, duration in _spans(linked, SYNCHRONISES))
        loads = sorted(_spans(linked, LOADS))
        self._load_starts = [start for start, _ in loads]
        self._load_ends = [start + duration for start, duration in loads]

    def of(self, ordered: Sequence[int]) -> Idle:
        """The gaps between pieces of device work, given by their places in the order of their starts."""
        work, launch_of = self._linked.columns.device, self._linked.launched.get
        starts, durations, correlations = work.start, work.duration, work.correlation
        loads = bool(self._load_starts)
        host = synchronised = loading = launch = blocked = 0
        reached = starts[ordered[0]]
        for place in ordered:
            start = starts[place]
            if start > reached and (began := launch_of(correlations[place])) is not None:
                fed = min(start, max(reached, began))
                launching = min(start - fed, LONGEST_LAUNCH)
                launch += launching
                blocked += start - fed - launching
                if fed > reached:
                    waited = self._loading(reached, fed) if loads else 0
                    loading += waited
                    if self._synchronised(reached, fed):
                        synchronised += fed - reached - waited
                    else:
                        host += fed - reached - waited
            end = start + durations[place]
            reached = max(reached, end)
        return Idle(host, synchronised, loading, launch, blocked)

    def _synchronised(self, start: int, end: int) -> bool:
        """Whether the host came back from waiting for the device in this time."""
        place = bisect_left(self._ends, start)
        return place < len(self._ends) and self._ends[place] <= end

    def _loading(self, start: int, end: int) -> int:
        """How much of this time the host waited for the next batch; such waits of one process do not overlap."""
        found = 0
        for place in range(max(bisect_right(self._load_starts, start) - 1, 0), len(self._load_starts)):
            if self._load_starts[place] >= end:
                break
            found += max(0, min(end, self._load_ends[place]) - max(start, self._load_starts[place]))
        return min(found, end - start)


def _spans(linked: Linked, word: str) -> list[tuple[int, int]]:
    """Start and duration of all that has this word in its name."""
    wanted = {number for number, signature in enumerate(linked.signatures) if word in signature.name}
    rows = linked.rows
    return [(rows.start[row], rows.duration[row]) for row in _rows_of(rows.signature, wanted)] if wanted else []


def _rows_of(signatures: array[int], wanted: set[int]) -> list[int]:
    return [row for row, signature in enumerate(signatures) if signature in wanted]
