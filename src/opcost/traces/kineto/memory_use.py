"""Memory over time, as the allocators of a trace told: the peak of each device, who held it, and what is left after steps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from statistics import median
from typing import NamedTuple

from opcost.core.profile import AllocationHolder, AllocatorMemory, AllocatorMemoryOverTime
from opcost.traces.kineto.categories import ANNOTATION, OPERATOR
from opcost.traces.kineto.lane import NONE
from opcost.traces.kineto.rows import Translated

EARLIER = "(before the trace)"
NOBODY = "(no operator)"
MOST_HOLDERS = 50
"""Of each device the largest are told one by one, the others together."""
OTHERS = "(others)"
TENTHS = 10
_DEVICE_TYPES = {0: "cpu", 1: "gpu"}


class MemoryUse(NamedTuple):
    """What is told of all devices."""

    held: tuple[AllocatorMemory, ...] = ()
    holders: tuple[AllocationHolder, ...] = ()
    over_time: tuple[AllocatorMemoryOverTime, ...] = ()


def memory_of(translated: Translated) -> MemoryUse:
    """The memory of each device that a trace tells of, in the order of first use."""
    memory = translated.linked.columns.memory
    if not memory.time:
        return MemoryUse()
    places: list[list[int]] = [[] for _ in memory.devices]
    add = [own.append for own in places]
    for place, device in enumerate(memory.place):
        add[device](place)
    names = [_name(*told) for told in memory.devices]
    callers = _Callers(translated)
    uses = [_Device(translated, names[device], found, callers) for device, found in enumerate(places)]
    return MemoryUse(
        tuple(use.held() for use in uses),
        tuple(holder for use in uses for holder in use.holders()),
        tuple(part for use in uses for part in use.over_time()),
    )


def _name(kind: object, number: object) -> str:
    word = _DEVICE_TYPES.get(kind, f"device type {kind}") if isinstance(kind, int) else "device"
    return word if word == "cpu" else f"{word}:{number}"


class _Callers:
    """Which operator was running on a thread of a trace at some time."""

    def __init__(self, translated: Translated) -> None:
        linked = translated.linked
        self._linked = linked
        self._sorts = [signature.sort for signature in linked.signatures]
        bounds = [*(first for _, first in linked.threads), len(linked)]
        ranges = {name: bounds[place : place + 2] for place, (name, _) in enumerate(linked.threads)}
        # The operators and annotations of a thread lie before its runtime calls.
        self._ranges = [
            (first, first + bisect_left(range(first, end), 1, key=self._is_leaf))
            for first, end in (ranges.get(f"{pid}/{tid}", (0, 0)) for pid, tid in linked.columns.memory.threads)
        ]

    def _is_leaf(self, row: int) -> int:
        return int(self._sorts[self._linked.rows.signature[row]] not in (OPERATOR, ANNOTATION))

    def at(self, thread: int, time: int) -> int:
        """The row of the innermost operator, or NONE."""
        first, end = self._ranges[thread]
        rows = self._linked.rows
        row = bisect_right(rows.start, time, first, end) - 1
        if row < first:
            return NONE
        while row != NONE and (
            rows.start[row] + rows.duration[row] <= time or self._sorts[rows.signature[row]] != OPERATOR
        ):
            row = rows.parent[row]
        return row


class _Device:
    """The changes of one device in the order of their times, with what was allocated after each."""

    def __init__(self, translated: Translated, name: str, places: list[int], callers: _Callers) -> None:
        memory = translated.linked.columns.memory
        self.translated = translated
        self.callers = callers
        self.name = name
        self.places = sorted(places, key=memory.time.__getitem__)
        self.times = [memory.time[place] for place in self.places]
        self.first = self._first()
        self.levels = self._levels()
        self.reserved = [memory.reserved[place] for place in self.places]
        self.peak = self.levels.index(max(self.levels))

    def _first(self) -> int:
        """Allocated before the first change."""
        memory, place = self.translated.linked.columns.memory, self.places[0]
        return max(0, memory.allocated[place] - memory.changed[place]) if memory.allocated[place] != NONE else 0

    def _levels(self) -> list[int]:
        """As the allocator told it, else the sum of all changes."""
        memory = self.translated.linked.columns.memory
        told = [memory.allocated[place] for place in self.places]
        if min(told) < 0:
            return list(accumulate([memory.changed[place] for place in self.places], initial=self.first))[1:]
        return told

    def held(self) -> AllocatorMemory:
        return AllocatorMemory(
            device=self.name,
            rank=self.translated.rank,
            changes=len(self.places),
            first_bytes=self.first,
            last_bytes=self.levels[-1],
            peak_bytes=self.levels[self.peak],
            peak_at_ns=self.times[self.peak] - self.times[0],
            reserved_bytes=_most(self.reserved),
            growth_bytes=self._growth(),
        )

    def _growth(self) -> float | None:
        steps = self.translated.steps
        ends = [self._level_at(step.end) for step in steps]
        growths = [after - before for before, after in pairwise(ends[1:])]
        return median(growths) if growths else None

    def _level_at(self, time: int) -> int:
        place = bisect_right(self.times, time) - 1
        return self.levels[place] if place >= 0 else self.first

    def holders(self) -> Iterator[AllocationHolder]:
        """What was allocated and not yet given back at the peak, by the operator and the module that asked for it."""
        linked, memory = self.translated.linked, self.translated.linked.columns.memory
        live: dict[int, int] = {}
        for place in self.places[: self.peak + 1]:
            if memory.changed[place] > 0:
                live[memory.address[place]] = place
            else:
                live.pop(memory.address[place], None)
        found: dict[tuple[str, str], list[int]] = {}
        for place in live.values():
            row = self.callers.at(memory.thread[place], memory.time[place])
            module = NONE if row == NONE else linked.rows.module[row]
            kind = NOBODY if row == NONE else linked.signatures[linked.rows.signature[row]].name
            entry = found.setdefault((kind, "" if module == NONE else linked.modules[module]), [0, 0])
            entry[0] += 1
            entry[1] += memory.changed[place]
        earlier = self.levels[self.peak] - sum(moved for _, moved in found.values())
        if earlier > 0:
            found[EARLIER, ""] = [0, earlier]
        ordered = sorted(found.items(), key=lambda item: -item[1][1])
        others = ordered[MOST_HOLDERS:]
        for (kind, where), (number, moved) in ordered[:MOST_HOLDERS]:
            yield AllocationHolder(self.name, self.translated.rank, kind, where, number, moved)
        if others:
            number, moved = (sum(entry[place] for _, entry in others) for place in range(2))
            yield AllocationHolder(self.name, self.translated.rank, OTHERS, "", number, moved)

    def over_time(self) -> Iterator[AllocatorMemoryOverTime]:
        """The peak in each step and what is left at its end."""
        for part, start, end in self._parts():
            low, high = (bisect_right(self.times, time) for time in (start, end))
            levels = [self._level_at(start), *self.levels[low:high]]
            reserved = _most([*self.reserved[max(low - 1, 0) : low], *self.reserved[low:high]])
            yield AllocatorMemoryOverTime(self.name, self.translated.rank, part, max(levels), levels[-1], reserved)

    def _parts(self) -> Iterator[tuple[str, int, int]]:
        if self.translated.steps:
            for step in self.translated.steps:
                yield f"step {step.number}", step.start, step.end
            return
        start, whole = self.times[0] - 1, self.times[-1] - self.times[0] + 1
        for tenth in range(TENTHS):
            yield f"{tenth + 1}/{TENTHS}", start + whole * tenth // TENTHS, start + whole * (tenth + 1) // TENTHS


def _most(reserved: Sequence[int]) -> int | None:
    """Zero is what an allocator tells that reserves nothing."""
    most = max(reserved, default=NONE)
    return most if most > 0 else None
