"""Why a device of a trace had nothing to do: what its next piece of work waited for.

Where the host launched that work only after the device had run dry, the host was behind: because it had waited for the device
itself (synchronisation), for the next batch (input), or for its own code. While the call that launches it runs it is that call,
which takes long where it loads a module or a library. After the call it is the launch that takes time, and beyond what launches
take, whatever else the work waited for: an event, another stream.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from opcost.core.answer import IDLE_CAUSES
from opcost.core.timeline import long_gaps
from opcost.traces.kineto.link import Linked
from opcost.traces.kineto.steps import LOADS

SYNCHRONISES = "Synchronize"


class Idle(NamedTuple):
    """Nanoseconds without work on a device, by cause; what has no launch in the trace has no cause."""

    host: int
    synchronised: int
    input: int
    launch: int
    blocked: int
    call: int
    call_name: str
    """The call that most of that was spent in."""
    gaps: int = 0
    """Gaps that are events of their own, and not part of the times above: how many, and how long together."""
    gap: int = 0
    longest_gap: int = 0
    longest_gap_at: int = 0
    """From the beginning on."""
    longest_gap_cause: str = ""


LONGEST_LAUNCH = 50_000
"""Nanoseconds; work that does not begin within them after its launch waits for something else, and a call that takes longer
does more than to launch."""


class Causes:
    """What the host did in a trace that keeps devices waiting."""

    def __init__(self, linked: Linked) -> None:
        self._linked = linked
        self._ends = sorted(start + duration for start, duration in _spans(linked, SYNCHRONISES))
        loads = sorted(_spans(linked, LOADS))
        self._load_starts = [start for start, _ in loads]
        self._load_ends = [start + duration for start, duration in loads]

    def of(self, ordered: Sequence[int], begin: int, end: int, most_gaps: int) -> Idle:
        """The gaps between pieces of device work, given by their places in the order of their starts, from `begin` to `end`.

        Long gaps are events, as long as there are no more than `most_gaps` of them.
        """
        work = self._linked.columns.device
        starts, durations = work.start, work.duration
        spans = ((starts[place], starts[place] + durations[place]) for place in ordered)
        long = long_gaps(spans, begin, end, len(ordered), most_gaps)
        excepted = {since for since, _ in long}
        spent, alone = _Spent(), _Spent()
        reached = begin
        for place in ordered:
            if starts[place] > reached:
                if reached not in excepted:
                    self._add(spent, reached, place)
                elif reached == long[0][0]:
                    self._add(alone, reached, place)
            reached = max(reached, starts[place] + durations[place])
        if not long:
            return spent.idle()
        since, until = long[0]
        return spent.idle()._replace(
            gaps=len(long),
            gap=sum(until - since for since, until in long),
            longest_gap=until - since,
            longest_gap_at=since - begin,
            longest_gap_cause=alone.main,
        )

    def _add(self, spent: _Spent, reached: int, place: int) -> None:
        """Find why the device was idle from `reached` until this work began."""
        linked = self._linked
        call = linked.launches.get(linked.columns.device.correlation[place])
        if call is None:
            return
        rows, start = linked.rows, linked.columns.device.start[place]
        launched = min(start, max(reached, rows.start[call]))
        returned = min(start, max(launched, rows.start[call] + rows.duration[call]))
        if returned - launched > LONGEST_LAUNCH:
            name = linked.signatures[rows.signature[call]].name
            spent.calls[name] = spent.calls.get(name, 0) + returned - launched
        else:
            spent.launch += returned - launched
        launching = min(start - returned, LONGEST_LAUNCH)
        spent.launch += launching
        spent.blocked += start - returned - launching
        if launched > reached:
            waited = self._loading(reached, launched) if self._load_starts else 0
            spent.input += waited
            if self._synchronised(reached, launched):
                spent.synchronised += launched - reached - waited
            else:
                spent.host += launched - reached - waited

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


class _Spent:
    """Idle time by cause, while it is added up."""

    __slots__ = ("blocked", "calls", "host", "input", "launch", "synchronised")

    def __init__(self) -> None:
        self.host = self.synchronised = self.input = self.launch = self.blocked = 0
        self.calls: dict[str, int] = {}

    def idle(self) -> Idle:
        times = self.host, self.synchronised, self.input, self.launch, self.blocked
        return Idle(*times, sum(self.calls.values()), max(self.calls, key=self.calls.__getitem__, default=""))

    @property
    def main(self) -> str:
        """The causes of at least a tenth of it, the largest first; empty where none is known."""
        found = self.idle()
        times = dict(zip(IDLE_CAUSES, found[:5], strict=True)) | {f"in {found.call_name}": found.call}
        whole = sum(times.values())
        large = sorted(
            (cause for cause, time in times.items() if 10 * time >= whole > 0), key=lambda cause: -times[cause]
        )
        if len(large) < 2:
            return "".join(large)
        return ", ".join(f"{cause} {100 * times[cause] / whole:.0f} %" for cause in large)


def _spans(linked: Linked, word: str) -> list[tuple[int, int]]:
    """Start and duration of all that has this word in its name."""
    wanted = {number for number, signature in enumerate(linked.signatures) if word in signature.name}
    rows = linked.rows
    return [(rows.start[row], rows.duration[row]) for row in _rows_of(rows.signature, wanted)] if wanted else []


def _rows_of(signatures: array[int], wanted: set[int]) -> list[int]:
    return [row for row, signature in enumerate(signatures) if signature in wanted]
