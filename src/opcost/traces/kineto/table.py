"""A Kineto trace of any size, grouped: executions that are alike are one group, with every duration kept exactly.

A profile has an object for every execution; this has eight bytes for each of its times, so that a trace of gigabytes
fits into a few hundred megabytes. For such a trace the timeline is made of columns, too.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import pairwise, repeat
from typing import Any, NamedTuple

from opcost.core.graph import Note
from opcost.core.profile import Kernel, Profile, ProfileRow, Spread
from opcost.core.timeline import DEEPEST, LaneColumns, kernel_sort, lane_title, lanes_as_columns, thinned_lanes
from opcost.traces.kineto.columns import NONE, DeviceColumns, Numbers
from opcost.traces.kineto.device_use import Collective, collectives_of, extra_of
from opcost.traces.kineto.trace import REASONS, HostRows, Trace

LAUNCHING = 128
"""Is added to the state of a row, which is the number of the kind that has its cost, if it does not have one itself."""
GROUPED = "grouped"  # the note that rows are groups


class TraceTable(NamedTuple):
    """The groups of one trace, in the order of their first execution on each thread, and what a profile only sums up."""

    profile: Profile
    rank: int | None
    host: list[array[int]]  # of each row, the time of every execution on the host with everything called inside
    collectives: tuple[Collective, ...]  # every collective on a device, by start


def table_of(trace: Trace) -> TraceTable:
    """The table of a trace."""
    work, rank = trace.columns.device, trace.written_rank
    unattributed: defaultdict[tuple[int, int, int], array[int]] = defaultdict(partial(array, "i"))
    for place, reason in trace.unowned():
        unattributed[work.name[place], work.queue[place], reason].append(place)
    rows, host = _grouped_rows(trace)
    collectives = collectives_of(trace)
    alike = "each row is a group of all executions of an operator with the same arguments and module"
    profile = Profile(
        meta=trace.meta, rows=tuple(rows),
        unattributed=tuple(
            _kernel(trace, name, queue, places)._replace(why=REASONS.get(reason, ""), rank=rank)
            for (name, queue, reason), places in unattributed.items()
        ),
        wall_ns=trace.wall_ns, notes=(*trace.notes(), Note(GROUPED, alike)), extra=extra_of(trace, collectives),
    )  # fmt: skip
    return TraceTable(profile, rank, host, collectives)


def _kernel(trace: Trace, name: int, queue: int, places: array[int]) -> Kernel:
    """All executions of a kernel on one stream."""
    work, count = trace.columns.device, len(places)
    durations = array("q", [work.duration[place] for place in places])
    where = trace.kernel_names[name], *trace.queues[queue]
    occupancy, blocks = work.fill(places)
    spread = durations if count > 1 else ()
    return Kernel(*where, 0, sum(durations), count=count, spread=spread, occupancy=occupancy, blocks_per_sm=blocks)


def _grouped_rows(trace: Trace) -> tuple[list[ProfileRow], list[array[int]]]:
    """One row for all executions that share operator, arguments, module, phase, step and thread; and the host's time of each.

    What launched nothing is no execution on the device, and what is in one with a cost has none: rows of their own.
    """
    rows = trace.rows
    steps = trace.step_of_rows() if trace.columns.steps else repeat(None)
    states = bytearray(trace.nested.covered)
    for owner in {owner for _, owner in trace.owned()}:
        states[owner] += LAUNCHING
    numbers = Numbers[tuple[int, int, int, int | None, str, int]]()
    keys = zip(rows.signature, rows.module, rows.phase, steps, trace.thread_of_rows(), states, strict=False)
    group_of = array("i", map(numbers.__getitem__, keys))
    members: list[array[int]] = [array("i") for _ in numbers]
    add = [own.append for own in members]
    for row, number in enumerate(group_of):
        add[number](row)
    for number in {group_of[row] for row in trace.joined}:
        members[number] = array("i", [row for row in members[number] if row not in trace.joined])
    work = trace.columns.device
    launched: defaultdict[tuple[int, int, int], array[int]] = defaultdict(partial(array, "i"))
    for place, owner in trace.owned():
        launched[group_of[owner], work.name[place], work.queue[place]].append(place)
    kernels: list[list[Kernel]] = [[] for _ in members]
    for (number, name, queue), places in launched.items():
        kernels[number].append(_kernel(trace, name, queue, places))
    found: list[ProfileRow] = []
    host: list[array[int]] = []
    for (_, _, _, step, _, _), own, launches in zip(numbers, members, kernels, strict=True):
        if not own:
            continue
        host.append(array("q", [rows.duration[row] for row in own]))
        own_times = array("q", [rows.self_time[row] for row in own])
        device = array("q", [rows.device[row] for row in own] if launches else bytes(8 * len(own)))
        grouped = trace.row(len(found), own[0], step, launches)._replace(
            host_start_ns=None, host_ns=sum(host[-1]), host_self_ns=sum(own_times),
            device_ns=sum(device) if trace.has_device else None,
            device_total_ns=sum([rows.device_total[row] for row in own]) if trace.has_device else None,
            count=len(own), spread=Spread(own_times, device) if len(own) > 1 else None,
        )  # fmt: skip
        found.append(grouped)
    return found, host


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
