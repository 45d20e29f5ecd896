"""Where the time went: one row per operator and device, and answers to questions about them. Plain data.

All times of a profile are integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from opcost.core.graph import NO_ATTRS, Attrs, Cost, Note, Phase, TensorSpec
from opcost.core.rendering import Listed, ListsTuples, Rendered, brief, brief_repr
from opcost.core.units import format_count, format_time
from opcost.errors import SourceError

if TYPE_CHECKING:
    from opcost.core.forecast import Forecast


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
    occupancy: float | None = None
    """Warps that ran on its multiprocessors, as a part of the most that can, as the profiler estimates it."""
    blocks_per_sm: float | None = None
    """Blocks of the launch for each multiprocessor; below 1 some of them had nothing to do."""


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
    group: str  # the axis of the mesh, or the process group; empty where the trace does not have it, and so on below
    ranks: int | None  # members of the group
    bytes: int | None  # of one of them: the larger of what goes in and what comes out on a rank, as nccl-tests take it
    dtype: str
    algorithm: str  # from the kernel's name: `RING_LL`
    number: int
    time_ns: int
    least_ns: int
    median_ns: float
    members: str = ""  # the ranks of the group, as `core.names.members_text` writes them
    exposed_ns: int | None = None  # of the time, that while nothing computed on the device


class RankWait(NamedTuple):
    """How long one rank waited for others in collectives, and they for it; in `extra["ranks"]`."""

    rank: int
    collective_ns: int
    wait_ns: int | None  # none where it is not compared with the others
    waited_for_ns: int  # how long the others waited for this one, which came last
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


# -- answers to questions about a profile: lines with times, costs and rates --------------------------------------------

LineRole: TypeAlias = Literal["row", "group", "rest", "unattributed", "total"]

SECOND_NS = 1_000_000_000
OWN_LABELS = ("name", "type", "kind", "module", "phase", "device", "stream", "provider", "rank", "step", "dtype")
"""The labels of a line of a single operator, from left to right."""


class KernelUse(NamedTuple):
    """A kernel that the operators of a line launched: how often, and how long all of that took."""

    name: str
    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLine:
    """One operator, or several as one; None is unknown."""

    role: LineRole = "row"
    labels: Mapping[str, str]
    """What it is: the requested keys, or everything that is known of a single operator."""
    id: int | None = None
    count: float = 1
    """Executions."""
    time_ns: float | None = None
    """The requested time: on the device or on the host, whole or waiting."""
    host_ns: float | None = None
    device_ns: float | None = None
    wait_ns: float | None = None
    computation: float | None = None
    """Floating-point operations."""
    memory: float | None = None
    """Bytes that must move without fusion."""
    costed_ns: float | None = None
    """The time in which that was done; operators without a cost model are not in it."""
    uncosted: float = 0
    """Executions without a cost model; with some, computation and memory are lower bounds."""
    uncosted_share: float | None = None
    """Of the time in which work was done, the part without a cost model."""
    ins: tuple[TensorSpec, ...] = ()
    outs: tuple[TensorSpec, ...] = ()
    percentiles: tuple[float, ...] = ()
    """Of the times of single executions, in the order of `Answer.percentiles`."""
    kernels: tuple[KernelUse, ...] = ()
    """The longest first."""
    launches: float = 0
    """Kernels that were launched, by all executions together."""
    delay_ns: float | None = None
    """From the launch of a kernel to its beginning, the median; unknown where the trace has no launches."""
    delay_p90_ns: float | None = None
    occupancy: float | None = None
    """Warps on the device as a part of the most that can run, and below blocks for each multiprocessor: means over the time of
    its kernels, as far as the trace has them."""
    blocks_per_sm: float | None = None
    share: float | None = None
    """Of the time of the whole profile."""
    cumulative_ns: float | None = None
    of_peak_flops: float | None = None
    """Achieved FLOP/s as a part of the device's peak; above 1 the peak, or the cost, does not apply."""
    of_peak_bandwidth: float | None = None
    predicted_ns: float | None = None
    """What it should take by the laws of the device for the recorded shapes; what has no prediction counts as measured."""
    ideal_ns: float | None = None
    """The least time of what has a cost model, at the peaks of the device: of FLOPs or of bytes, whichever takes longer."""
    bound: str = ""
    """What bounds it for most of its time: compute, memory, launch, latency, communication or transfer; empty is not known."""

    @property
    def flops(self) -> float | None:
        """FLOP per second, over the time in which they were done: on the device where there is one, else on the host."""
        return _per_second(self.computation, self.costed_ns)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second, over the same time."""
        return _per_second(self.memory, self.costed_ns)

    @property
    def intensity(self) -> float | None:
        """FLOP per byte."""
        return self.computation / self.memory if self.computation is not None and self.memory else None

    @property
    def launches_per_call(self) -> float | None:
        return self.launches / self.count if self.count and self.launches else None

    def per_run(self, runs: int) -> AnswerLine:
        """The same of one of this number of runs: all that is a sum, divided."""
        sums: dict[str, Any] = {name: over_runs(getattr(self, name), runs) for name in _SUMS}
        return replace(self, **sums)

    @property
    def above_peak(self) -> bool:
        return max(self.of_peak_flops or 0.0, self.of_peak_bandwidth or 0.0) > 1.0

    def __repr__(self) -> str:
        time = "" if self.time_ns is None else format_time(round(self.time_ns))
        share = "" if self.share is None else f"{self.share:.1%}"
        work = "" if self.computation is None else f"{format_count(self.computation)}FLOPs"
        return brief(
            self,
            [time, share, f"{self.count:,} times" if self.count != 1 else "", work],
            " ".join(self.labels.values()),
        )


_SUMS = (
    "count", "time_ns", "host_ns", "device_ns", "wait_ns", "computation", "memory", "costed_ns", "uncosted", "launches",
    "cumulative_ns", "ideal_ns", "predicted_ns",
)  # fmt: skip


IDLE_CAUSES = ("host-bound", "after synchronisation", "waiting for input", "launch latency", "blocked after launch")
IDLE_IN_CALL = "long launch calls"


@brief_repr
class Busy(NamedTuple):
    """How one device was used between its first and its last kernel."""

    device: str
    rank: int
    span_ns: int
    busy_ns: int  # time in which at least one kernel ran
    work_ns: int  # durations of all kernels; more than `busy_ns` where kernels ran side by side
    kernels: int
    median_ns: float
    operators: int = 0  # executions that launched a kernel here
    owned: int = 0  # kernels that they launched
    launches: int = 0  # kernels whose launch is known
    delay_ns: float | None = None  # from launch to beginning: the median of them, and what nine of ten stay below
    delay_p90_ns: float | None = None
    compute_ns: int | None = None  # of the busy time, while something computed; None: kernels are not classified
    communication_ns: int = 0  # of the busy time, while collectives ran and nothing computed; below, only copies
    stages_ns: int = 0  # of the last that in which the collectives were messages between the stages of a pipeline
    copies_ns: int = 0
    transfers_ns: int = 0  # of the last that in which one of them crossed the device's border
    all_communication_ns: int = 0  # time with a collective under way, and below with a copy, whatever else ran
    all_copies_ns: int = 0
    compute_work_ns: int = 0  # durations of all kernels that compute
    fed_ns: int = 0  # work whose successor was launched before it began: only there a shorter kernel gains time
    idle_host_ns: int = 0  # of the idle time, while the host had not launched the next work, as far as known
    idle_synchronised_ns: int = 0  # the same after the host had waited for the device
    idle_input_ns: int = 0  # the same while the host waited for the next batch
    idle_launch_ns: int = 0  # from the launch of the next work, or the end of the last, to its start: launch latency
    idle_blocked_ns: int = 0  # the rest: launched long ago, it waited for another stream, an event or memory
    idle_call_ns: int = 0  # while a launch took long to return, as the first call into a library; and which call
    idle_call: str = ""
    gaps: int = 0  # gaps that are events: over 20 % of the time without longer ones; in no cause and no rate
    gap_ns: int = 0
    longest_gap_ns: int = 0
    longest_gap_at_ns: int = 0  # from the first kernel on
    longest_gap_cause: str = ""
    launch_every_ns: float | None = None  # median from launch to launch: a shorter kernel ends before the next launch
    recomputed_ns: int = 0  # kernels that ran the forward pass again for a checkpoint, in the backward pass
    steps: int = 0  # marked steps; the first, which may warm up, then of the others median, shortest and longest
    first_step_ns: float | None = None
    step_ns: float | None = None
    least_step_ns: float | None = None
    most_step_ns: float | None = None
    mfu: float | None = (
        None  # of the steps but the first: the share of the peak that products use, without recomputed ones
    )
    of_predicted: float | None = None  # times of computing kernels, as a multiple of the predicted ones

    @property
    def idle_ns(self) -> int:
        return self.span_ns - self.busy_ns

    @property
    def overlap_ns(self) -> int:
        return self.work_ns - self.busy_ns

    @property
    def alone_ns(self) -> dict[str, int]:
        """The busy time in which nothing computed, by what ran."""
        return {
            "communication alone": self.communication_ns - self.stages_ns,
            "pipeline bubble": self.stages_ns,
            "copies alone": self.copies_ns,
        }

    @property
    def rated_ns(self) -> int:
        """The time that rates are parts of."""
        return self.span_ns - self.gap_ns

    @property
    def idle_causes(self) -> dict[str, int]:
        """Why the device was idle, as far as the trace shows; gaps that are events are left out."""
        host, after, loading = self.idle_host_ns, self.idle_synchronised_ns, self.idle_input_ns
        causes = dict(zip(IDLE_CAUSES, (host, after, loading, self.idle_launch_ns, self.idle_blocked_ns), strict=True))
        return causes | {f"{IDLE_IN_CALL} ({self.idle_call})" if self.idle_call else IDLE_IN_CALL: self.idle_call_ns}


@brief_repr
class Gain(NamedTuple):
    """Time that could be saved at the most."""

    what: str
    share: float  # of a step on the device, or from its first kernel to its last without marked steps; over all devices
    time_ns: float  # in one step, the mean of those that are marked but for the first; in the whole trace where none is
    command: str  # options of `opcost analyze` that show it


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Rendered):
    """Lines in the requested order, with totals, devices and notes. Print it, save it, or make a data frame of it."""

    kind: ClassVar[str] = "profile"

    meta: Mapping[str, str]
    side: Literal["device", "host"]
    keys: tuple[str, ...]
    """What lines were aggregated by; empty where each line is one operator."""
    how: str = ""
    """How they were aggregated: sum, mean, ..."""
    lines: tuple[AnswerLine, ...]
    percentiles: tuple[float, ...] = ()
    total_ns: float | None = None
    """Of the chosen side, over the whole profile, unattributed work included; never filtered."""
    host_ns: float | None = None
    device_ns: float | None = None
    unattributed_ns: float = 0
    wall_ns: float | None = None
    runs: int = 1
    """Runs of the model that the profile holds."""
    is_per_run: bool = False
    """Whether everything but times of single executions is that of one of these runs, and not of all."""
    devices: tuple[Busy, ...] = ()
    waited: tuple[RankWait, ...] = ()
    """Of many ranks, what each waited for the others and they for it."""
    gains: tuple[Gain, ...] = ()
    """The largest potential savings of the whole profile; empty where something was filtered away."""
    peak: str = ""
    """The device whose peaks were used, with their source."""
    notes: tuple[Note, ...] = field(default=())
    predicted: Forecast | None = field(default=None, repr=False, compare=False)
    """The prediction that the answer is about; None of what was measured."""

    @property
    def rows(self) -> tuple[AnswerLine, ...]:
        """The requested lines, without sums and unattributed time."""
        return Listed(line for line in self.lines if line.role == "row")

    def __iter__(self) -> Iterator[AnswerLine]:
        return iter(self.rows)

    def __repr__(self) -> str:
        total = "" if self.total_ns is None else f"{format_time(round(self.total_ns))} on the {self.side}"
        by = f"by {', '.join(self.keys)}" if self.keys else ""
        return brief(self, [total, f"{len(self.rows):,} lines {by}".rstrip()], self.meta.get("source", ""))


def weighted_mean(values: Iterable[tuple[float | None, float]]) -> float | None:
    """The mean of what is known, by weight; none where nothing weighs anything."""
    known = [(value, weight) for value, weight in values if value is not None]
    whole = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / whole if whole else None


def over_runs(total: float | None, runs: int) -> float | None:
    """The part of one run in a sum over runs; a whole number where it is one."""
    if total is None:
        return None
    return total // runs if total % runs == 0 else total / runs


def _per_second(amount: float | None, time_ns: float | None) -> float | None:
    return amount * SECOND_NS / time_ns if amount is not None and time_ns else None
