"""Collectives of a trace: what the profiler wrote of each, beside its kernel or beside the operator that launched it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from statistics import median
from typing import Any, NamedTuple

from opcost.core.names import algorithm_of, element_bytes, short_kernel_name
from opcost.core.profile import CollectiveSummary
from opcost.traces.kineto.columns import APART, SPEAKS
from opcost.traces.kineto.rows import Translated


class Message(NamedTuple):
    """What a collective is and moves; None and empty where the trace does not say."""

    name: str = ""
    group: str = ""
    ranks: int | None = None
    bytes: int | None = None
    dtype: str = ""
    algorithm: str = ""


class Collective(NamedTuple):
    """One of them on a device."""

    device: str
    start: int
    duration: int
    message: Message


def collectives_of(translated: Translated) -> tuple[Collective, ...]:
    """Kernels that the profiler marked as collectives, or that bear the library's name, by start."""
    linked = translated.linked
    columns = linked.columns
    work, library, messages = columns.device, columns.library_kernels, list(columns.messages)
    named = {number for number, signature in enumerate(columns.signatures) if signature.name == SPEAKS}
    found = []
    for place, name in enumerate(work.name):
        marked = columns.collectives.get(place)
        if marked is None and name not in library:
            continue
        spelt: tuple[bytes, ...] = () if marked is None else messages[marked]
        owner = linked.owner[place]
        if marked is None and owner >= 0 and (signature := linked.rows.signature[owner]) in named:
            spelt = tuple(columns.signatures[signature].concrete.split(APART))
        message = _message(spelt, translated.kernel_names[name])
        device = translated.queues[work.queue[place]][0]
        found.append(Collective(device, translated.base_ns + work.start[place], work.duration[place], message))
    return tuple(sorted(found, key=lambda each: each.start))


@lru_cache(maxsize=1 << 12)
def _message(spelt: tuple[bytes, ...], kernel: str) -> Message:
    """The fields as the trace spells them: name, group, elements in and out, members, element type."""
    bare = short_kernel_name(kernel)
    if not any(spelt):
        return Message(name=bare, algorithm=algorithm_of(kernel))
    name, group, ins, outs, size, dtype = map(_value, spelt)
    width = element_bytes(dtype) if isinstance(dtype, str) else None
    moved = [elements for elements in (ins, outs) if type(elements) is int]
    return Message(
        name=bare if name is None else str(name),
        group="" if group is None else str(group),
        ranks=size if type(size) is int else None,
        bytes=max(moved) * width if moved and width else None,
        dtype=dtype if isinstance(dtype, str) else "",
        algorithm=algorithm_of(kernel),
    )


def _value(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:  # a number of thousands of digits
        return None


def exchanges(found: Sequence[Collective], rank: int) -> list[CollectiveSummary]:
    """Those of one sort and size on a device together, in the order of the first of each."""
    times: dict[tuple[str, Message], list[int]] = {}
    for each in found:
        times.setdefault((each.device, each.message), []).append(each.duration)
    return [
        CollectiveSummary(
            device=device,
            rank=rank,
            **message._asdict(),
            number=len(durations),
            time_ns=sum(durations),
            least_ns=min(durations),
            median_ns=median(durations),
        )
        for (device, message), durations in times.items()
    ]
