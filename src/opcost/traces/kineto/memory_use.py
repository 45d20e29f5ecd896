"""Memory over time, from the allocations in a trace: the peak of each device, what allocated it, and what is left after steps."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from statistics import median
from typing import Any

from opcost.core.profile import AllocationHolder, AllocatorMemory, AllocatorMemoryOverTime
from opcost.traces.kineto.columns import NONE
from opcost.traces.kineto.decoding import ANNOTATION, OPERATOR
from opcost.traces.kineto.trace import Trace

EARLIER = "(before the trace)"
NO_OPERATOR = "(no operator)"
OTHERS = "(others)"
MOST_HOLDERS = 50  # of each device the largest are listed one by one, the others together
TENTHS = 10
_DEVICE_TYPES = {0: "cpu", 1: "gpu"}


def memory_of(trace: Trace) -> dict[str, Sequence[Any]]:
    """The memory of each device whose allocations are in a trace, in the order of first use, as `Profile.extra` names it."""
    memory = trace.columns.memory
    if not memory.time:
        return {}
    places: list[list[int]] = [[] for _ in memory.devices]
    for place, device in enumerate(memory.place):
        places[device].append(place)
    callers, uses = _Callers(trace), []
    for (kind, number), found in zip(memory.devices, places, strict=True):
        word = _DEVICE_TYPES.get(kind, f"device type {kind}") if isinstance(kind, int) else "device"
        uses.append(_AllocatedMemory(trace, word if word == "cpu" else f"{word}:{number}", found, callers))
    return {
        "memory": [use.peak_use() for use in uses],
        "holders": [holder for use in uses for holder in use.holders()],
        "memory_over_time": [part for use in uses for part in use.over_time()],
    }


class _Callers:
    """Which operator was running on a thread of a trace at some time."""

    def __init__(self, trace: Trace) -> None:
        self._rows = rows = trace.rows
        self._sorts = [signature.sort for signature in trace.signatures]
        bounds = [*(first for _, first in trace.threads), len(trace)]
        ranges = {name: bounds[place : place + 2] for place, (name, _) in enumerate(trace.threads)}

        def is_leaf(row: int) -> bool:
            return self._sorts[rows.signature[row]] not in (OPERATOR, ANNOTATION)

        # The operators and annotations of a thread come before its runtime calls.
        self._ranges = [
            (first, first + bisect_left(range(first, end), 1, key=is_leaf))
            for first, end in (ranges.get(f"{pid}/{tid}", (0, 0)) for pid, tid in trace.columns.memory.threads)
        ]

    def at(self, thread: int, time: int) -> int | None:
        """The row of the innermost operator."""
        first, end = self._ranges[thread]
        rows = self._rows
        row = bisect_right(rows.start, time, first, end) - 1
        while row >= first and (
            rows.start[row] + rows.duration[row] <= time or self._sorts[rows.signature[row]] != OPERATOR
        ):
            row = rows.parent[row]
        return row if row >= first else None


class _AllocatedMemory:
    """The changes of one device in the order of their times, with what was allocated after each."""

    def __init__(self, trace: Trace, name: str, places: list[int], callers: _Callers) -> None:
        memory = trace.columns.memory
        self.trace = trace
        self.callers = callers
        self.name = name
        self.places = sorted(places, key=memory.time.__getitem__)
        self.times = [memory.time[place] for place in self.places]
        self.reserved = [memory.reserved[place] for place in self.places]
        self.levels = [memory.allocated[place] for place in self.places]
        self.first = max(0, self.levels[0] - memory.changed[self.places[0]]) if self.levels[0] != NONE else 0
        """Allocated before the first change."""
        if min(self.levels) < 0:  # the allocator did not write them: the sum of all changes
            changes = [memory.changed[place] for place in self.places]
            self.levels = list(accumulate(changes, initial=self.first))[1:]
        self.peak = self.levels.index(max(self.levels))

    def peak_use(self) -> AllocatorMemory:
        ends = [self._level_at(step.end) for step in self.trace.steps]
        growths = [after - before for before, after in pairwise(ends[1:])]
        return AllocatorMemory(
            device=self.name, rank=self.trace.rank, changes=len(self.places), first_bytes=self.first,
            last_bytes=self.levels[-1], peak_bytes=self.levels[self.peak],
            peak_at_ns=self.times[self.peak] - self.times[0], reserved_bytes=_most(self.reserved),
            growth_bytes=median(growths) if growths else None,
        )  # fmt: skip

    def _level_at(self, time: int) -> int:
        place = bisect_right(self.times, time) - 1
        return self.levels[place] if place >= 0 else self.first

    def holders(self) -> Iterator[AllocationHolder]:
        """What was allocated and not yet freed at the peak, by operator and module."""
        trace, memory = self.trace, self.trace.columns.memory
        live: dict[int, int] = {}
        for place in self.places[: self.peak + 1]:
            if memory.changed[place] > 0:
                live[memory.address[place]] = place
            else:
                live.pop(memory.address[place], None)
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for place in live.values():
            row = self.callers.at(memory.thread[place], memory.time[place])
            key = (NO_OPERATOR, "") if row is None else (trace.name_of(row), trace.module_of(row))
            number, allocated = found.get(key, (0, 0))
            found[key] = number + 1, allocated + memory.changed[place]
        earlier = self.levels[self.peak] - sum(allocated for _, allocated in found.values())
        if earlier > 0:
            found[EARLIER, ""] = 0, earlier
        ordered = sorted(found.items(), key=lambda item: -item[1][1])
        for (kind, module), (number, allocated) in ordered[:MOST_HOLDERS]:
            yield AllocationHolder(self.name, trace.rank, kind, module, number, allocated)
        if others := [entry for _, entry in ordered[MOST_HOLDERS:]]:
            number, allocated = map(sum, zip(*others, strict=True))
            yield AllocationHolder(self.name, trace.rank, OTHERS, "", number, allocated)

    def over_time(self) -> Iterator[AllocatorMemoryOverTime]:
        """The peak in each step, or in each tenth of a run without steps, and what is left at its end."""
        parts = [(f"step {step.number}", step.start, step.end) for step in self.trace.steps]
        if not parts:
            start, whole = self.times[0] - 1, self.times[-1] - self.times[0] + 1
            cuts = [start + whole * tenth // TENTHS for tenth in range(TENTHS + 1)]
            parts = [(f"{tenth}/{TENTHS}", *cut) for tenth, cut in enumerate(pairwise(cuts), 1)]
        for part, start, end in parts:
            low, high = (bisect_right(self.times, time) for time in (start, end))
            levels = [self._level_at(start), *self.levels[low:high]]
            reserved = _most([*self.reserved[max(low - 1, 0) : low], *self.reserved[low:high]])
            yield AllocatorMemoryOverTime(self.name, self.trace.rank, part, max(levels), levels[-1], reserved)


def _most(reserved: Sequence[int]) -> int | None:
    """Zero is what an allocator writes that reserves nothing."""
    most = max(reserved, default=NONE)
    return most if most > 0 else None
