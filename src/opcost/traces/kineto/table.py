"""A Kineto trace of any size, grouped: executions that are alike are one group, with every duration kept exactly.

A profile has an object for every execution; this has eight bytes for each of its times, so that a trace of gigabytes
fits into a few hundred megabytes. For such a trace the timeline is made of columns, too.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, repeat
from math import ceil
from typing import Any, NamedTuple

from opcost.core.graph import Note, Phase
from opcost.core.profile import CopySummary, Kernel, Profile, ProfileRow, Spread
from opcost.core.timeline import DEEPEST, LaneColumns, kernel_sort, lane_title, lanes_as_columns, thinned_lanes
from opcost.traces.kineto.columns import NONE, DeviceColumns
from opcost.traces.kineto.device_use import (
    Collective,
    Uses,
    collectives_of,
    copies_of,
    device_uses,
    exchanges,
    extra_of,
)
from opcost.traces.kineto.memory_use import MemoryUse, memory_of
from opcost.traces.kineto.modules import PHASES
from opcost.traces.kineto.operators import TracedOperator
from opcost.traces.kineto.trace import REASONS, HostRows, Trace

LAUNCHING = 128
"""Is added to the state of a row, which is the number of the kind that has its cost, if it does not have one itself."""


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
        """The smallest duration that this many percent do not exceed."""
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
    operator: TracedOperator
    module: str
    phase: Phase
    step: int | None
    thread: str
    device_total: int = 0  # Time of the device work that these and the operators inside launched
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
    collectives: tuple[Collective, ...]  # Every collective on a device, by start
    copies: tuple[CopySummary, ...]
    memory: MemoryUse
    devices: Uses
    wall_ns: int | None
    notes: tuple[Note, ...] = ()

    def profile(self) -> Profile:
        """The groups as rows of many executions each, with sums of times."""
        rank = self.rank or 0
        has_device = bool(self.devices.whole)
        rows = []
        for number, group in enumerate(self.groups):
            kernels = tuple(_kernel(queue, times) for queue, times in group.kernels.items())
            operator, host, own, device = group.operator, group.host, group.host_self, group.device
            row = ProfileRow(
                id=number, name=group.type, type=group.type, kind=operator.kind, module=group.module,
                phase=group.phase, device=kernels[0].device if kernels else "cpu",
                stream=kernels[0].stream if kernels else group.thread, provider=group.provider, rank=rank,
                step=group.step, host_ns=host.total, host_self_ns=own.total,
                device_ns=device.total if has_device else None,
                device_total_ns=group.device_total if has_device else None, kernels=kernels, ins=operator.ins,
                outs=operator.outs, attrs=operator.attrs, count=host.count,
                spread=Spread(own.values, device.values) if host.count > 1 else None,
            )  # fmt: skip
            rows.append(row)
        unattributed = tuple(
            _kernel(queue, times)._replace(why="" if why == "none" else why, rank=self.rank)
            for (queue, why), times in self.unattributed.items()
        )
        alike = "each row is a group of all executions of an operator with the same arguments and module"
        return Profile(
            meta=self.meta,
            rows=tuple(rows),
            unattributed=unattributed,
            wall_ns=self.wall_ns,
            notes=(*self.notes, Note("grouped", alike)),
            extra=extra_of(self.devices, self.copies, exchanges(self.collectives, rank), self.memory),
        )


def _kernel(queue: Queue, times: Times) -> Kernel:
    return Kernel(*queue, 0, times.total, count=times.count, spread=times.values if times.count > 1 else ())


def table_of(trace: Trace, meta: Mapping[str, str], rank: int | None, notes: tuple[Note, ...]) -> Table:
    """The table of a trace; `notes` come before those about owners of kernels."""
    work = trace.columns.device
    unattributed: defaultdict[tuple[Queue, str], Times] = defaultdict(Times)
    for place, reason in trace.unowned():
        queue = Queue(trace.kernel_names[work.name[place]], *trace.queues[work.queue[place]])
        unattributed[queue, REASONS.get(reason, "none")].values.append(work.duration[place])
    return Table(
        meta=meta, rank=rank, groups=_groups(trace), unattributed=unattributed, collectives=collectives_of(trace),
        copies=copies_of(trace), memory=memory_of(trace), devices=device_uses(trace), wall_ns=trace.wall_ns,
        notes=notes + trace.notes(),
    )  # fmt: skip


def _groups(trace: Trace) -> tuple[Group, ...]:
    rows = trace.rows
    steps = trace.step_of_rows() if trace.columns.steps else repeat(None)
    # What launched nothing is no execution on the device, and what is in one with a cost has none: groups of their own.
    states = bytearray(trace.nested.covered)
    for owner in {owner for _, owner in trace.owned()}:
        states[owner] += LAUNCHING
    numbers: dict[tuple[int, int, int, int | None, str, int], int] = {}
    number_of = numbers.setdefault
    keys = zip(rows.signature, rows.module, rows.phase, steps, trace.thread_of_rows(), states, strict=False)
    group_of = array("i", [number_of(key, len(numbers)) for key in keys])
    members: list[array[int]] = [array("i") for _ in numbers]
    add = [own.append for own in members]
    for row, number in enumerate(group_of):
        add[number](row)
    for number in {group_of[row] for row in trace.joined}:
        members[number] = array("i", [row for row in members[number] if row not in trace.joined])
    kernels: list[dict[Queue, Times]] = [{} for _ in members]
    work = trace.columns.device
    launched: defaultdict[tuple[int, int, int], array[int]] = defaultdict(partial(array, "q"))
    for place, owner in trace.owned():
        launched[group_of[owner], work.name[place], work.queue[place]].append(work.duration[place])
    for (number, name, queue), durations in launched.items():
        kernels[number][Queue(trace.kernel_names[name], *trace.queues[queue])] = Times(durations)
    found = []
    for (signature, module, phase, step, thread, state), own, queues in zip(numbers, members, kernels, strict=True):
        if not own:
            continue
        names = [queue.kernel for queue in queues]
        group = Group(
            type=trace.signatures[signature].name, provider=trace.columns.providers[trace.signatures[signature].sort],
            operator=trace.costed_operator(signature, covered=state % LAUNCHING, kernels=names),
            module="" if module == NONE else trace.modules[module], phase=PHASES[phase], step=step, thread=thread,
            device_total=sum([rows.device_total[row] for row in own]) if trace.has_device else 0,
            host=Times([rows.duration[row] for row in own]), host_self=Times([rows.self_time[row] for row in own]),
            device=Times([rows.device[row] for row in own] if queues else array("q", bytes(8 * len(own)))),
            kernels=queues,
        )  # fmt: skip
        found.append(group)
    return tuple(found)


# -- when everything ran, few enough to be drawn: threads of the host by levels of calls, and streams of devices


def timeline_of(trace: Trace) -> dict[str, Any]:
    """The lanes as `Profile.extra["timeline"]` has them."""
    operators = [signature.name for signature in trace.signatures]
    kinds = [operator.kind or name for operator, name in zip(trace.operators, operators, strict=True)]
    sorts = dict(zip(operators, kinds, strict=True))
    work = trace.columns.device
    for name, owner in dict(zip(work.name, trace.owner, strict=True)).items():
        kernel = trace.kernel_names[name]
        sorts[kernel] = kernel_sort(kernel, kinds[trace.rows.signature[owner]] if owner >= 0 else "")
    lanes = {title: _lane(rows, trace.rows, "signature", operators) for title, rows in _host(trace)}
    places: list[array[int]] = [array("i") for _ in trace.queues]
    for place, queue in enumerate(work.queue):
        places[queue].append(place)
    streams = {}
    for where, own in zip(trace.queues, places, strict=True):
        if own:
            title = lane_title(*where, (trace.kernel_names[name] for name in {work.name[place] for place in own}))
            streams[title] = _lane(own, work, "name", trace.kernel_names)
    return lanes_as_columns(thinned_lanes(lanes | dict(sorted(streams.items()))), sorts)


def _host(trace: Trace) -> Iterator[tuple[str, array[int]]]:
    """The rows of each thread, what was called inside of others below them."""
    level = array("b", bytes(len(trace)))
    for row, parent in enumerate(trace.rows.parent):  # a caller comes before what it calls
        if parent != NONE:
            level[row] = min(level[parent] + 1, DEEPEST)
    bounds = pairwise([*(first for _, first in trace.threads), len(trace)])
    for (thread, _), (first, end) in zip(trace.threads, bounds, strict=True):
        lanes = [array("i") for _ in range(DEEPEST + 1)]
        for row in range(first, end):
            if row not in trace.joined:
                lanes[level[row]].append(row)
        whose = f"host {thread}" if len(trace.threads) > 1 else "host"
        for depth, lane in enumerate(lanes[:DEEPEST]):
            if lane:
                yield f"{whose}{f' {depth + 1}' if depth else ''}", lane


def _lane(places: array[int], columns: HostRows | DeviceColumns, name: str, names: list[str]) -> LaneColumns:
    """Start, duration and name of these places, by start."""
    ordered = sorted(places, key=columns.start.__getitem__)
    starts, durations, named = (
        array(column.typecode, [column[place] for place in ordered])
        for column in (columns.start, columns.duration, getattr(columns, name))
    )
    return LaneColumns(starts, durations, named, names)
