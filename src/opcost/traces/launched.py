"""Traces of other profilers (Nsight, XLA) that link device work to the calls that launched it, as Kineto's columns.

From there on they are read alike: which range launched what, why devices were idle, what copies moved.
"""

from typing import TypeAlias

from opcost.traces.file import LATEST_NS
from opcost.traces.kineto.columns import Columns
from opcost.traces.kineto.decoding import ANNOTATION, OPERATOR, RUNTIME, Args, Event
from opcost.traces.kineto.link import link
from opcost.traces.kineto.trace import Trace

RANGE, MARKED_OPERATOR, CALL, WORK = "user_annotation", "cpu_op", "cuda_runtime", "kernel"
"""What an event is, in Kineto's words: code that its author or a framework marked, a call of the runtime, work on a device."""
BLOCK = 4096  # events that are sorted into columns at once
LONGEST_NS = 1 << 51  # 26 days: microseconds as a float keep every nanosecond of a trace of that length

Location: TypeAlias = "tuple[int | float | str, int | float | str]"  # process and thread, or device and stream


class LaunchColumns:
    """Takes what a file has, and counts events without valid times; `ranges` is the tool's name for what marks code."""

    def __init__(self, ranges: str = "") -> None:
        providers = {OPERATOR: ranges, ANNOTATION: ranges, RUNTIME: "runtime"}
        self.columns = Columns(owners=(OPERATOR, ANNOTATION), providers=providers)
        self.faulty = 0
        self._base_ns: int | None = None  # the first time; all others are counted from it
        self._waiting: list[Event] = []

    def add(
        self, category: str, name: str, place: Location, start: object, end: object, args: Args | None = None
    ) -> None:
        """Add one event; a range has none of the arguments, a call and the work that it launched share a correlation."""
        if type(start) is int and type(end) is int and 0 <= start <= end <= LATEST_NS:
            if self._base_ns is None:
                self._base_ns = start
            since = start - self._base_ns
            if max(abs(since), end - start) <= LONGEST_NS:
                self._waiting.append(Event(category, name, *place, since / 1000, (end - start) / 1000, args))
                if len(self._waiting) == BLOCK:
                    self._sort()
                return
        self.faulty += 1

    def add_work(
        self, name: str, queue: Location, start: object, end: object, moved: object, correlation: int = -1,
        blocks_per_sm: float | None = None,
    ) -> None:  # fmt: skip
        """Add work on a device, given with its stream; `moved` are the bytes of a copy."""
        size = moved if type(moved) is int else None
        args = Args(device=queue[0], stream=queue[1], correlation=correlation, bytes=size, blocks_per_sm=blocks_per_sm)
        self.add(WORK, name, queue, start, end, args)

    def trace(self) -> Trace:
        """Everything, linked."""
        self._sort()
        return link(self.columns, self._base_ns or 0)

    def _sort(self) -> None:
        self.columns.add(self._waiting)
        self._waiting.clear()
