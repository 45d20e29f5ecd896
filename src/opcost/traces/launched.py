"""Traces of other profilers that tie device work to the calls that launched it, told in the columns of Kineto's.

From there on they are read alike: who launched what, what kept devices idle, what copies moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from opcost.core.graph import Note
from opcost.core.profile import Profile
from opcost.errors import SourceError
from opcost.traces.file import TraceFile
from opcost.traces.kineto.categories import ANNOTATION, DEVICE, OPERATOR, RUNTIME
from opcost.traces.kineto.columns import Columns
from opcost.traces.kineto.event import CallArgs, DeviceArgs, OperatorArgs
from opcost.traces.kineto.link import link
from opcost.traces.kineto.load import is_large
from opcost.traces.kineto.profile import extra_of_work, profile_of
from opcost.traces.kineto.rows import Translated
from opcost.traces.kineto.steps import steps_of
from opcost.traces.values import LATEST_NS

BLOCK = 4096
"""Events that are sorted into columns at once."""
LONGEST_NS = 1 << 51
"""26 days: microseconds as a float keep every nanosecond of so long a trace."""


class Told(NamedTuple):
    """One event, as the columns take it, with microseconds from the clock's base."""

    sort: int
    name: str
    pid: int | str
    tid: int | str
    ts: float
    dur: float
    args: Any = None


@dataclass(slots=True)
class Teller:
    """Makes events of what a file says, and counts what is none."""

    base_ns: int | None = None
    """The first time that is met; all others are told from it."""
    faulty: int = 0

    def range(
        self,
        name: str,
        thread: tuple[int | str, int | str],
        start: object,
        end: object,
        args: OperatorArgs | None = None,
    ) -> Iterator[Told]:
        """What the program was at, as its author or its framework marked it; an operator where its arguments are told."""
        yield from self._event(ANNOTATION if args is None else OPERATOR, name, thread, start, end, args)

    def call(
        self, name: str, thread: tuple[int | str, int | str], start: object, end: object, correlation: int
    ) -> Iterator[Told]:
        """A call of the device's runtime."""
        yield from self._event(RUNTIME, name, thread, start, end, CallArgs(correlation))

    def work(
        self,
        name: str,
        queue: tuple[int | str, int | str],
        start: object,
        end: object,
        correlation: int,
        moved: int | None = None,
    ) -> Iterator[Told]:
        """Work on a device, given with its stream."""
        args = DeviceArgs(device=queue[0], stream=queue[1], correlation=correlation, bytes=moved)
        yield from self._event(DEVICE, name, queue, start, end, args)

    def _event(
        self, sort: int, name: str, thread: tuple[int | str, int | str], start: object, end: object, args: Any
    ) -> Iterator[Told]:
        if type(start) is not int or type(end) is not int or not 0 <= start <= end <= LATEST_NS:
            self.faulty += 1
            return
        if self.base_ns is None:
            self.base_ns = start
        since = start - self.base_ns
        if abs(since) > LONGEST_NS or end - start > LONGEST_NS:
            self.faulty += 1
            return
        yield Told(sort, name, *thread, since / 1000, (end - start) / 1000, args)


@dataclass(slots=True)
class Correlations:
    """One number for each pair of a process and a number that is its own."""

    known: dict[tuple[Any, int], int] = field(default_factory=dict)

    def of(self, process: Any, number: object) -> int:
        """The number of a pair; below zero, which ties nothing, where there is none."""
        return self.known.setdefault((process, number), len(self.known)) if type(number) is int else -1


def launched_profile(
    file: TraceFile,
    events: Iterable[Told],
    teller: Teller,
    *,
    meta: Mapping[str, str],
    ranges: str,
    notes: Iterable[Note] = (),
) -> Profile:
    """The profile of these events; `ranges` is what the tool calls that which marks code, and which owns what it launched."""
    columns = _columns(events, ranges)
    lost = teller.faulty
    if columns.empty:
        seen = (
            f"none of its {lost} events has a beginning and an end" if lost else "it holds no call and no device work"
        )
        raise SourceError(f"{file.path}: {seen}", hint="record the trace again, while the model runs")
    found = list(notes)
    if lost:
        found.append(Note("faulty", f"{lost} events are left out, whose times are none"))
    steps = steps_of(columns)  # the lanes are used up by what follows
    translated = Translated(link(columns), teller.base_ns or 0, 0, steps)
    return profile_of(translated, meta, None, tuple(found), large=is_large(file))


def device_extra(events: Iterable[Told]) -> dict[str, list[dict[str, Any]]]:
    """How devices were used, as a profile says it beside its rows, where only their work is known."""
    columns = _columns(events, "")
    return extra_of_work(Translated(link(columns))) if columns.device.start else {}


def _columns(events: Iterable[Told], ranges: str) -> Columns:
    providers = {OPERATOR: ranges, ANNOTATION: ranges, RUNTIME: "runtime"}
    columns = Columns(owners=(OPERATOR, ANNOTATION), providers=providers)
    coming = iter(events)
    while block := list(islice(coming, BLOCK)):
        columns.add(block)  # type: ignore[arg-type]  # these have what is asked of an event
    return columns
