"""Traces of other profilers (Nsight, rocprof, XLA) that link device work to the calls that launched it, as Kineto's columns.

From there on they are read alike: which range launched what, why devices were idle, what copies moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from opcost.core.graph import Note
from opcost.core.profile import Profile
from opcost.errors import SourceError
from opcost.traces.file import LATEST_NS, TraceFile
from opcost.traces.kineto.columns import Columns
from opcost.traces.kineto.decoding import ANNOTATION, DEVICE, OPERATOR, RUNTIME, Args
from opcost.traces.kineto.device_use import collectives_of, extra_of
from opcost.traces.kineto.link import link
from opcost.traces.kineto.reader import is_large, profile_of

BLOCK = 4096  # events that are sorted into columns at once
LONGEST_NS = 1 << 51  # 26 days: microseconds as a float keep every nanosecond of a trace of that length

Location: TypeAlias = "tuple[int | float | str, int | float | str]"  # process and thread, or device and stream


class LaunchEvent(NamedTuple):
    """One event, as the columns take it, with microseconds from the clock's base."""

    sort: int
    name: str
    pid: int | float | str
    tid: int | float | str
    ts: float
    dur: float
    args: Any = None


class LaunchEvents:
    """Makes events of what a file has, and counts those without valid times; each method gives one event or none."""

    def __init__(self) -> None:
        self.base_ns: int | None = None  # the first time; all others are counted from it
        self.faulty = 0
        self._numbers: dict[tuple[Any, int], int] = {}

    def correlation(self, process: Any, number: object) -> int:
        """One number for a process and a number of its own; below zero, which links nothing, where there is none."""
        return self._numbers.setdefault((process, number), len(self._numbers)) if type(number) is int else -1

    def range(
        self, name: str, thread: Location, start: object, end: object, args: Args | None = None
    ) -> Iterator[LaunchEvent]:
        """Code that its author or its framework marked; an operator where its arguments are given."""
        return self._event(ANNOTATION if args is None else OPERATOR, name, thread, start, end, args)

    def call(self, name: str, thread: Location, start: object, end: object, correlation: int) -> Iterator[LaunchEvent]:
        """A call of the device's runtime."""
        return self._event(RUNTIME, name, thread, start, end, Args(correlation=correlation))

    def work(
        self, name: str, queue: Location, start: object, end: object, correlation: int, moved: object = None
    ) -> Iterator[LaunchEvent]:
        """Work on a device, given with its stream; `moved` are the bytes of a copy."""
        size = moved if type(moved) is int else None
        args = Args(device=queue[0], stream=queue[1], correlation=correlation, bytes=size)
        return self._event(DEVICE, name, queue, start, end, args)

    def _event(
        self, sort: int, name: str, place: Location, start: object, end: object, args: Any
    ) -> Iterator[LaunchEvent]:
        if type(start) is int and type(end) is int and 0 <= start <= end <= LATEST_NS:
            if self.base_ns is None:
                self.base_ns = start
            since = start - self.base_ns
            if max(abs(since), end - start) <= LONGEST_NS:
                yield LaunchEvent(sort, name, *place, since / 1000, (end - start) / 1000, args)
                return
        self.faulty += 1


def launched_profile(
    file: TraceFile,
    events: Iterable[LaunchEvent],
    source: LaunchEvents,
    *,
    meta: Mapping[str, str],
    ranges: str,
    notes: Iterable[Note] = (),
) -> Profile:
    """The profile of these events, which `source` made; `ranges` is the tool's name for what marks code and owns launches."""
    columns = _columns(events, ranges)
    faulty = source.faulty
    if columns.empty:
        none = f"none of its {faulty} events has a beginning and an end"
        found = none if faulty else "no call and no device work in it"
        raise SourceError(f"{file.path}: {found}", hint="record the trace again, while the model runs")
    all_notes = list(notes)
    if faulty:
        all_notes.append(Note("faulty", f"{faulty} events without valid times are left out"))
    trace = link(columns, source.base_ns or 0)
    trace.meta, trace.file_notes = meta, all_notes
    return profile_of(trace, large=is_large(file))


def device_extra(events: Iterable[LaunchEvent]) -> dict[str, list[dict[str, Any]]]:
    """How devices were used, as `Profile.extra` has it, where only their work is known."""
    columns = _columns(events, "")
    if not columns.device.start:
        return {}
    trace = link(columns)
    return extra_of(trace, collectives_of(trace))


def _columns(events: Iterable[LaunchEvent], ranges: str) -> Columns:
    providers = {OPERATOR: ranges, ANNOTATION: ranges, RUNTIME: "runtime"}
    columns = Columns(owners=(OPERATOR, ANNOTATION), providers=providers)
    coming = iter(events)
    while block := list(islice(coming, BLOCK)):
        columns.add(block)  # type: ignore[arg-type]  # these have the fields of an event
    return columns
