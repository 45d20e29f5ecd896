"""A Kineto trace of any size, tabulated while it streams by: what repeats is one group, with every duration kept exactly.

A profile has an object for every execution; this has eight bytes for each of its times, so that a trace of gigabytes
fits into a few hundred megabytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from math import ceil
from os import PathLike
from typing import Any, NamedTuple

from opcost.core.graph import Note, Phase
from opcost.core.interrupts import garbage_collector_paused
from opcost.core.profile import CopySummary, Kernel, Profile, ProfileRow, Spread
from opcost.errors import SourceError
from opcost.traces.file import TraceFile
from opcost.traces.kineto.device_use import Uses, copies_of, device_uses, extra_of
from opcost.traces.kineto.lane import NONE
from opcost.traces.kineto.load import fault_notes, is_kineto, meta_of, rank_of, translate, wall_of
from opcost.traces.kineto.meaning import Meaning
from opcost.traces.kineto.memory_use import MemoryUse, memory_of
from opcost.traces.kineto.messages import Collective, collectives_of, exchanges
from opcost.traces.kineto.rows import REASONS, Translated
from opcost.traces.kineto.training import PHASES

LAUNCHING = 128
"""Is added to the state of a row, which is the number of the kind that has its price, if it does not have one itself."""


class Times:
    """Durations in nanoseconds, all of them."""

    __slots__ = ("values",)

    def __init__(self, values: Iterable[int] = ()) -> None:
        self.values = array("q", values)

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def total(self) -> int:
        return sum(self.values)

    @property
    def least(self) -> int:
        return min(self.values)

    @property
    def most(self) -> int:
        return max(self.values)

    def percentile(self, percent: float) -> int:
        """The smallest duration that so many percent do not exceed."""
        if not 0 <= percent <= 100:
            raise ValueError(f"{percent} is not a percentage")
        ordered = sorted(self.values)
        return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


class Queue(NamedTuple):
    """A kernel, and where it ran."""

    kernel: str
    device: str
    stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Executions that share operator, arguments, module, phase, step and thread, and whether they launched device work."""

    type: str
    provider: str
    meaning: Meaning
    module: str
    phase: Phase
    step: int | None
    thread: str
    device_total: int = 0
    """Time of the device work that these and the operators inside launched."""
    host: Times = field(default_factory=Times)
    host_self: Times = field(default_factory=Times)
    device: Times = field(default_factory=Times)
    kernels: dict[Queue, Times] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The groups of one trace, in the order of their first execution on each thread."""

    meta: Mapping[str, str]
    rank: int | None
    groups: tuple[Group, ...]
    unattributed: Mapping[tuple[Queue, str], Times]
    """Device work that no operator launched, and why: "graph", "outside" the window, or in "none"."""
    collectives: tuple[Collective, ...]
    """Every collective on a device, by start."""
    copies: tuple[CopySummary, ...]
    memory: MemoryUse
    devices: Uses
    wall_ns: int | None
    notes: tuple[Note, ...] = ()

    def profile(self) -> Profile:
        """The groups as rows that stand for many executions each, with sums of times."""
        rank = self.rank or 0
        has_device = bool(self.devices.whole)
        rows = []
        for number, group in enumerate(self.groups):
            kernels = tuple(_kernel(queue, times) for queue, times in group.kernels.items())
            spent = group.device.total if has_device else None
            rows.append(
                ProfileRow(
                    id=number,
                    name=group.type,
                    type=group.type,
                    kind=group.meaning.kind,
                    module=group.module,
                    phase=group.phase,
                    device=kernels[0].device if kernels else "cpu",
                    stream=kernels[0].stream if kernels else group.thread,
                    provider=group.provider,
                    rank=rank,
                    step=group.step,
                    host_ns=group.host.total,
                    host_self_ns=group.host_self.total,
                    device_ns=spent,
                    device_total_ns=group.device_total if has_device else None,
                    kernels=kernels,
                    ins=group.meaning.ins,
                    outs=group.meaning.outs,
                    attrs=group.meaning.attrs,
                    count=group.host.count,
                    spread=Spread(group.host_self.values, group.device.values) if group.host.count > 1 else None,
                )
            )
        lost = tuple(
            _kernel(queue, times)._replace(why="" if why == "none" else why, rank=self.rank)
            for (queue, why), times in self.unattributed.items()
        )
        alike = Note("grouped", "each row stands for all executions of an operator with the same arguments and module")
        notes = (*self.notes, alike)
        return Profile(
            meta=self.meta,
            rows=tuple(rows),
            unattributed=lost,
            wall_ns=self.wall_ns,
            notes=notes,
            extra=extra_of(self.devices, self.copies, exchanges(self.collectives, rank), self.memory),
        )


def _kernel(queue: Queue, times: Times) -> Kernel:
    spread = times.values if times.count > 1 else ()
    return Kernel(*queue, 0, times.total, count=times.count, spread=spread)


def read_table(path: str | PathLike[str], *, partial: bool = False, memory: bool | None = None) -> Table:
    """Tabulate a Kineto trace of any size."""
    file = TraceFile(path)
    if not any(map(is_kineto, file.heads())):
        raise SourceError(f"{file.path} is not a Kineto trace", hint="opcost.read_profile reads the other formats")
    return tabulate(file, partial=partial, memory=memory)


def tabulate(file: TraceFile, *, partial: bool = False, memory: bool | None = None) -> Table:
    """The same of a file that is known to be one."""
    with garbage_collector_paused():
        stream, translated = translate(file, partial=partial, memory=memory)
        notes = fault_notes(stream, translated.linked.columns)
        return table_of(translated, meta_of(file, stream.fields), rank_of(stream.fields), notes)


def table_of(translated: Translated, meta: Mapping[str, str], rank: int | None, notes: tuple[Note, ...]) -> Table:
    """The table of what was read of a file; `notes` come before those about who owns kernels."""
    return Table(
        meta=meta,
        rank=rank,
        groups=_groups(translated),
        unattributed=_unattributed(translated),
        collectives=collectives_of(translated),
        copies=copies_of(translated),
        memory=memory_of(translated),
        devices=device_uses(translated),
        wall_ns=wall_of(translated.linked),
        notes=notes + translated.notes(),
    )


class _Members(dict[Any, "array[int]"]):
    """Numbers of each group, by what they share."""

    def __missing__(self, key: tuple[int | None, ...]) -> array[int]:
        found = self[key] = array("q")
        return found


def _groups(translated: Translated) -> tuple[Group, ...]:
    linked = translated.linked
    rows, joined = linked.rows, linked.joined
    steps = linked.steps() if linked.columns.steps else repeat(None)
    # What launched nothing is no execution on the device, and what lies in one with a price has none: groups of their own.
    states = bytearray(translated.bearing.covered)
    for owner in set(linked.owner):
        if owner >= 0:
            states[owner] += LAUNCHING
    numbers: dict[tuple[int, int, int, int | None, str, int], int] = {}
    number_of = numbers.setdefault
    threads = translated.thread_of_rows()
    keys = zip(rows.signature, rows.module, rows.phase, steps, threads, states, strict=False)
    group_of = array("i", [number_of(key, len(numbers)) for key in keys])
    members: list[array[int]] = [array("i") for _ in numbers]
    add = [own.append for own in members]
    for row, number in enumerate(group_of):
        add[number](row)
    for number in {group_of[row] for row in joined}:
        members[number] = array("i", [row for row in members[number] if row not in joined])
    kernels: list[dict[Queue, Times]] = [{} for _ in members]
    work = linked.columns.device
    launched = _Members()
    for owner, name, queue, duration in zip(linked.owner, work.name, work.queue, work.duration, strict=True):
        if owner >= 0:
            launched[group_of[owner], name, queue].append(duration)
    for (number, name, queue), durations in launched.items():
        kernels[number][Queue(translated.kernel_names[name], *translated.queues[queue])] = Times(durations)
    return tuple(
        Group(
            type=linked.signatures[signature].name,
            provider=linked.columns.providers[linked.signatures[signature].sort],
            meaning=translated.bare(signature, covered=state % LAUNCHING, kernels=[queue.kernel for queue in queues]),
            module="" if module == NONE else linked.modules[module],
            phase=PHASES[phase],
            step=step,
            thread=thread,
            device_total=sum([linked.device_total[row] for row in own]) if translated.has_device else 0,
            host=_picked(rows.duration, own),
            host_self=_picked(rows.self_time, own),
            device=_picked(linked.device, own) if queues else Times(array("q", bytes(8 * len(own)))),
            kernels=queues,
        )
        for (signature, module, phase, step, thread, state), own, queues in zip(numbers, members, kernels, strict=True)
        if own
    )


def _picked(column: array[int], places: array[int]) -> Times:
    return Times([column[place] for place in places])


def _unattributed(translated: Translated) -> dict[tuple[Queue, str], Times]:
    work = translated.linked.columns.device
    found: dict[tuple[Queue, str], Times] = {}
    for place, owner in enumerate(translated.linked.owner):
        if owner < 0:
            queue = Queue(translated.kernel_names[work.name[place]], *translated.queues[work.queue[place]])
            found.setdefault((queue, REASONS.get(owner, "none")), Times()).values.append(work.duration[place])
    return found
