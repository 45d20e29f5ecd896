"""When everything of a trace ran, few enough to be drawn: threads of the host by levels of calls, and streams of devices."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from opcost.core.timeline import DEEPEST, LaneColumns, kernel_sort, lane_title, lanes_as_columns, thinned_lanes
from opcost.traces.kineto.lane import NONE, Lane
from opcost.traces.kineto.rows import Translated


def timeline_of(translated: Translated) -> dict[str, Any]:
    """The lanes as `Profile.extra["timeline"]` has them."""
    linked = translated.linked
    operators = [signature.name for signature in linked.signatures]
    kinds = [told.kind or name for told, name in zip(translated.meanings, operators, strict=True)]
    sorts = dict(zip(operators, kinds, strict=True))
    work = linked.columns.device
    for name, owner in dict(zip(work.name, linked.owner, strict=True)).items():
        kernel = translated.kernel_names[name]
        sorts[kernel] = kernel_sort(kernel, kinds[linked.rows.signature[owner]] if owner >= 0 else "")
    lanes = {title: _ordered(lane, operators) for title, lane in _host(translated)}
    for title, lane in _streams(translated):
        lanes[title] = _ordered(lane, translated.kernel_names)
    return lanes_as_columns(thinned_lanes(lanes), sorts)


def _ordered(lane: Lane, names: list[str]) -> LaneColumns:
    return LaneColumns(lane.start, lane.duration, lane.signature, names)


def _host(translated: Translated) -> Iterator[tuple[str, Lane]]:
    """Each thread, what was called inside of others below them."""
    linked = translated.linked
    rows = linked.rows
    level = array("b", bytes(len(linked)))
    for row, parent in enumerate(rows.parent):  # whoever calls stands before what it calls
        if parent != NONE:
            level[row] = min(level[parent] + 1, DEEPEST)
    firsts = [first for _, first in linked.threads]
    for (thread, _), (first, end) in zip(linked.threads, pairwise([*firsts, len(linked)]), strict=True):
        lanes = [Lane() for _ in range(DEEPEST + 1)]
        for row in range(first, end):
            if row in linked.joined:
                continue
            lane = lanes[level[row]]
            lane.start.append(rows.start[row])
            lane.duration.append(rows.duration[row])
            lane.signature.append(rows.signature[row])
        whose = f"host {thread}" if len(firsts) > 1 else "host"
        for depth, lane in enumerate(lanes[:DEEPEST]):
            if lane.start:
                yield f"{whose}{f' {depth + 1}' if depth else ''}", _sorted(lane)


def _streams(translated: Translated) -> list[tuple[str, Lane]]:
    work = translated.linked.columns.device
    lanes = [Lane() for _ in translated.queues]
    for start, duration, name, queue in zip(work.start, work.duration, work.name, work.queue, strict=True):
        lane = lanes[queue]
        lane.start.append(start)
        lane.duration.append(duration)
        lane.signature.append(name)
    titled = [
        (lane_title(*queue, (translated.kernel_names[name] for name in set(lane.signature))), _sorted(lane))
        for queue, lane in zip(translated.queues, lanes, strict=True)
        if lane.start
    ]
    return sorted(titled, key=lambda found: found[0])


def _sorted(lane: Lane) -> Lane:
    """By start; the columns that are not drawn are empty and take no part."""
    if any(after < before for before, after in pairwise(lane.start)):
        order = sorted(range(len(lane.start)), key=lane.start.__getitem__)
        for name in ("start", "duration", "signature"):
            column = getattr(lane, name)
            setattr(lane, name, array(column.typecode, [column[place] for place in order]))
    return lane
