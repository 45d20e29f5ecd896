"""Where the time went: one row per operator and device, plain data. All times are integer nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from opcost.core.cost import Cost
from opcost.core.graph import NO_ATTRS, Attrs, Note, Phase, TensorSpec
from opcost.core.rendering import Listed, brief, brief_record
from opcost.core.units import format_time


class Spread(NamedTuple):
    """Of a row that stands for many executions the times of each, in their order."""

    host_self_ns: Sequence[int]
    device_ns: Sequence[int]

    def __repr__(self) -> str:
        return brief_record(self)


class Kernel(NamedTuple):
    """Work on a device that an operator launched."""

    name: str
    device: str
    stream: str
    start_ns: int
    duration_ns: int
    launched_ns: int | None = None
    """When the host began to launch it; of one replayed with a captured graph nobody did."""
    why: str = ""
    """Why no operator has it: "graph", a captured graph replayed it, or "outside", its launch is not in the trace."""
    count: int = 1  # type: ignore[assignment]  # a tuple has a method of this name
    """Executions that this stands for, with the sum of their durations."""
    rank: int | None = None
    """Of work without an operator in a profile of many ranks; the other work is of its operator's rank."""
    spread: Sequence[int] = ()
    """Of work that stands for many executions the duration of each, where it is known."""

    def __repr__(self) -> str:
        return brief_record(self)


class ProfileRow(NamedTuple):
    """One execution of one operator as it was measured; None where the trace does not say."""

    id: int
    name: str
    """The operator's own name in the model (`layer1.0.conv1`, MegEngine's variable, an ONNX node)."""
    type: str
    """The framework's word for what it is (`aten::conv2d`, `ConvolutionForward`, `Conv`)."""
    kind: str = ""
    """Our word (see `core.kinds`), empty where nobody translated it."""
    module: str = ""
    phase: Phase = "forward"
    device: str = ""
    stream: str = ""
    provider: str = ""
    rank: int = 0
    step: int | None = None
    host_start_ns: int | None = None
    host_ns: int | None = None
    """Duration on the host, with everything called inside."""
    host_self_ns: int | None = None
    device_ns: int | None = None
    """Sum of the kernels that this operator launched itself."""
    device_total_ns: int | None = None
    """The same with those of the operators called inside."""
    kernels: tuple[Kernel, ...] = ()
    ins: tuple[TensorSpec, ...] = ()
    outs: tuple[TensorSpec, ...] = ()
    attrs: Attrs = NO_ATTRS
    cost: Cost | None = None
    count: int = 1  # type: ignore[assignment]  # a tuple has a method of this name
    """Executions that this row stands for."""
    spread: Spread | None = None

    def __repr__(self) -> str:
        return brief_record(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What was measured, in the order of execution. Users hold one that answers questions: `opcost.profiles.Profile`."""

    meta: Mapping[str, str]
    """Source, format, versions, device names, threads, precision switches, clocks, ..."""
    rows: tuple[ProfileRow, ...]
    unattributed: tuple[Kernel, ...] = ()
    """Device work that no operator in the trace launched; always shown, never dropped."""
    wall_ns: int | None = None
    timed_ns: tuple[int, ...] = ()
    """Durations of runs that were timed without a profiler, if any."""
    notes: tuple[Note, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)
    """What only one format has and its own tool needs (MegEngine's footprint and copy times)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", Listed(self.rows))
        object.__setattr__(self, "unattributed", Listed(self.unattributed))

    def __repr__(self) -> str:
        return brief(self, self._said(), self.meta.get("source", ""))

    def _said(self) -> list[str]:
        """What a prompt tells of it."""
        wall = "" if self.wall_ns is None else f"{format_time(self.wall_ns)} wall time"
        runs = f"{self.runs} runs" if self.runs > 1 else ""
        return [self.meta.get("format", ""), f"{len(self.rows):,} operators", runs, wall]

    @property
    def runs(self) -> int:
        """Runs of one model that opcost recorded; steps of another's trace may each be something else, and are one."""
        steps = {row.step for row in self.rows} - {None} if self.meta.get("format") == "opcost" else ()
        return len(steps) or 1

    @property
    def usual_keys(self) -> tuple[str, ...]:
        """What lines are added up by if nobody says.

        Several runs of one model that opcost recorded, or of a compiled program, are one line per operator, and executions
        without a name of their own, as in most traces, one line per type. Where no operator launched a kernel, kernels are
        the lines.
        """
        if self.unattributed and not any(row.kernels for row in self.rows):
            return ("kernel",)
        if self.runs > 1 or self.meta.get("format") == "xla":
            return ("name", "type")
        return ("type",) if len(self.rows) > 1 and all(row.name == row.type for row in self.rows) else ()
