"""Where the time went: one row per operator and device, plain data. All times are integer nanoseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from opcost.core.graph import NO_ATTRS, Attrs, Cost, Note, Phase, TensorSpec
from opcost.core.rendering import ListsTuples, brief, brief_repr
from opcost.core.units import format_time
from opcost.errors import SourceError


@brief_repr
class Spread(NamedTuple):
    """The times of each execution, in their order, of a row that sums many."""

    host_self_ns: Sequence[int]
    device_ns: Sequence[int]


@brief_repr
class Kernel(NamedTuple):
    """Work on a device that an operator launched."""

    name: str
    device: str
    stream: str
    start_ns: int
    duration_ns: int
    launched_ns: int | None = None  # when the host began to launch it; None of one that a captured graph replayed
    why: str = ""
    """Why it has no operator: "graph", a captured graph replayed it, or "outside", its launch is not in the trace."""
    count: int = 1  # type: ignore[assignment]  # a tuple has a method of this name
    """Number of executions; the duration is their sum."""
    rank: int | None = None  # of work without an operator, in a profile of many ranks; else its operator's
    spread: Sequence[int] = ()  # the duration of each execution where there are many, and it is known


@brief_repr
class ProfileRow(NamedTuple):
    """One execution of one operator as it was measured; None where the trace does not say."""

    id: int
    name: str  # the operator's own name in the model (`layer1.0.conv1`, MegEngine's variable, an ONNX node)
    type: str  # the framework's word for what it is (`aten::conv2d`, `ConvolutionForward`, `Conv`)
    kind: str = ""  # our word (see `core.kinds`), empty where it was not translated
    module: str = ""
    phase: Phase = "forward"
    device: str = ""
    stream: str = ""
    provider: str = ""
    rank: int = 0
    step: int | None = None
    host_start_ns: int | None = None
    host_ns: int | None = None  # duration on the host, with everything called inside
    host_self_ns: int | None = None
    device_ns: int | None = None  # sum of the kernels that this operator launched itself
    device_total_ns: int | None = None  # the same with those of the operators called inside
    kernels: tuple[Kernel, ...] = ()
    ins: tuple[TensorSpec, ...] = ()
    outs: tuple[TensorSpec, ...] = ()
    attrs: Attrs = NO_ATTRS
    cost: Cost | None = None
    count: int = 1  # type: ignore[assignment]  # a tuple has a method of this name
    """Number of executions that this row sums."""
    spread: Spread | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(ListsTuples):
    """What was measured, in the order of execution. The public class with queries is `opcost.profiles.Profile`."""

    meta: Mapping[str, str]  # source, format, versions, device names, threads, precision switches, clocks, ..
    rows: tuple[ProfileRow, ...]
    unattributed: tuple[Kernel, ...] = ()  # device work that no operator in the trace launched; never dropped
    wall_ns: int | None = None
    timed_ns: tuple[int, ...] = ()  # durations of runs that were timed without a profiler, if any
    notes: tuple[Note, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)  # what one format has and its own tool needs

    def __repr__(self) -> str:
        return brief(self, self._summary(), self.meta.get("source", ""))

    def _summary(self) -> list[str]:
        wall = "" if self.wall_ns is None else f"{format_time(self.wall_ns)} wall time"
        runs = f"{self.runs} runs" if self.runs > 1 else ""
        return [self.meta.get("format", ""), f"{len(self.rows):,} operators", runs, wall]

    @property
    def runs(self) -> int:
        """Runs of one model that opcost recorded; steps of other tools' traces may differ, so such a trace is one run."""
        steps = {row.step for row in self.rows} - {None} if self.meta.get("format") == "opcost" else ()
        return len(steps) or 1

    @property
    def usual_keys(self) -> tuple[str, ...]:
        """The default grouping of lines.

        Several runs of one model that opcost recorded, or of a compiled program, are one line per operator, and executions
        without a name of their own, as in most traces, one line per type. Where no operator launched a kernel, kernels are
        the lines.
        """
        if self.unattributed and not any(row.kernels for row in self.rows):
            return ("kernel",)
        if self.runs > 1 or self.meta.get("format") == "xla":
            return ("name", "type")
        return ("type",) if len(self.rows) > 1 and all(row.name == row.type for row in self.rows) else ()


# -- tables about a whole run, beside its rows: in `Profile.extra`, checked when they are read -------------------------

Entry = TypeVar("Entry", bound=NamedTuple)


class CopySummary(NamedTuple):
    """Copies of one type on one device; in `extra["copies"]`."""

    device: str
    rank: int
    name: str  # as the profiler writes it: `Memcpy HtoD (Pinned -> Device)`
    number: int
    time_ns: int
    bytes: int | None = None  # none where the trace does not have it


class CollectiveSummary(NamedTuple):
    """Collectives of one type and size on one device; in `extra["collectives"]`."""

    device: str
    rank: int
    name: str  # as the framework or the library calls it
    group: str  # the process group; empty where the trace does not have it, and so on below
    ranks: int | None  # members of the group
    bytes: int | None  # of one of them: the larger of what goes in and what comes out on a rank, as nccl-tests take it
    dtype: str
    algorithm: str  # from the kernel's name: `RING_LL`
    number: int
    time_ns: int
    least_ns: int
    median_ns: float


class RankWait(NamedTuple):
    """How long one rank waited for others in collectives, and they for it; in `extra["ranks"]`."""

    rank: int
    collective_ns: int
    wait_ns: int | None  # none where it is not compared with the others
    held_up_ns: int  # how long the others waited for this one, which came last
    last: int  # in how many collectives it was the one that others waited for


class AllocatorMemory(NamedTuple):
    """Memory of one device as its allocator reported it; in `extra["memory"]`."""

    device: str
    rank: int
    changes: int
    first_bytes: int  # allocated before the first change that the trace has
    last_bytes: int
    peak_bytes: int
    peak_at_ns: int  # when the most was allocated, from the first change on
    reserved_bytes: int | None  # the most that was reserved; None where the trace does not have it
    growth_bytes: float | None  # from step to step, the median but for the first; None without three steps


class AllocationHolder(NamedTuple):
    """What one operator in one module had allocated of what was there at the peak; in `extra["holders"]`."""

    device: str
    rank: int
    type: str
    module: str
    number: int
    bytes: int


class AllocatorMemoryOverTime(NamedTuple):
    """Memory in one step, or in a tenth of the time where there are none; in `extra["memory_over_time"]`."""

    device: str
    rank: int
    part: str
    peak_bytes: int
    last_bytes: int
    reserved_bytes: int | None


def extra_entries(extra: Mapping[str, object], key: str, shape: type[Entry]) -> list[Entry]:
    """The entries under a name; one that is not of this shape is an error."""
    make: Callable[..., Entry] = shape
    try:
        found = [make(**entry) for entry in extra.get(key, [])]  # type: ignore[attr-defined]
        msgspec.convert(list(map(tuple, found)), list[shape])  # type: ignore[valid-type]
    except (TypeError, msgspec.ValidationError) as exc:
        hint = "record the profile again"
        raise SourceError(f"what the profile says about its {key} is damaged", hint=hint) from exc
    return found
