"""Answers to questions about a profile: lines with times, costs and rates. Plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from opcost.core.graph import Note, TensorSpec
from opcost.core.profile import RankWait
from opcost.core.rendering import Listed, Rendered, brief, brief_repr
from opcost.core.units import format_count, format_time

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
    priced_ns: float | None = None
    """The time in which that was done; operators without a cost model are not in it."""
    unpriced: float = 0
    """Executions without a cost model; with some, computation and memory are lower bounds."""
    unpriced_share: float | None = None
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
    share: float | None = None
    """Of the time of the whole profile."""
    cumulative_ns: float | None = None
    of_peak_flops: float | None = None
    """Achieved FLOP/s as a part of the device's peak; above 1 the peak, or the cost, does not apply."""
    of_peak_bandwidth: float | None = None
    ideal_ns: float | None = None
    """The least time of what has a cost model, at the peaks of the device: of FLOPs or of bytes, whichever takes longer."""
    bound: str = ""
    """What bounds it for most of its time: compute, memory, launch, latency, communication or transfer; empty is not known."""

    @property
    def flops(self) -> float | None:
        """FLOP per second, over the time in which they were done: on the device where there is one, else on the host."""
        return _per_second(self.computation, self.priced_ns)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second, over the same time."""
        return _per_second(self.memory, self.priced_ns)

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
    "count", "time_ns", "host_ns", "device_ns", "wait_ns", "computation", "memory", "priced_ns", "unpriced", "launches",
    "cumulative_ns", "ideal_ns",
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

    @property
    def idle_ns(self) -> int:
        return self.span_ns - self.busy_ns

    @property
    def overlap_ns(self) -> int:
        return self.work_ns - self.busy_ns

    @property
    def rated_ns(self) -> int:
        """The time that rates are parts of."""
        return self.span_ns - self.gap_ns

    @property
    def idle_causes(self) -> dict[str, int]:
        """Why the device was idle, as far as the trace shows; gaps that are events are left out."""
        host, synchronised, loading = self.idle_host_ns, self.idle_synchronised_ns, self.idle_input_ns
        causes = dict(
            zip(IDLE_CAUSES, (host, synchronised, loading, self.idle_launch_ns, self.idle_blocked_ns), strict=True)
        )
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


def over_runs(total: float | None, runs: int) -> float | None:
    """The part of one run in a sum over runs; a whole number where it is one."""
    if total is None:
        return None
    return total // runs if total % runs == 0 else total / runs


def _per_second(amount: float | None, time_ns: float | None) -> float | None:
    return amount * SECOND_NS / time_ns if amount is not None and time_ns else None
