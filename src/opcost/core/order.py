"""In which order a step runs parts of its operators, each as often as there are microbatches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from opcost.core.rendering import brief, brief_record
from opcost.core.units import format_bytes

EventKind: TypeAlias = Literal[
    "begin", "forward", "backward", "input", "weight", "messages", "gather", "free", "reduce", "end"
]
"""What a stage of a pipeline does next: run a microbatch forward, or backward (all of it, for its input, or for its weights),
send and receive, gather parameters, free them, share out gradients. The first and the last are what is around the schedule."""


MARK = "opcost::event"
"""The operator that marks where an event begins, and where the last one has ended."""
RECEIVED = re.compile(r"received\.(\d+)\.(\w+)\.(\d+)\.(\d+)")
"""The name of what a stage receives: the stage, its phase, the microbatch, and which of several tensors."""


def received_name(stage: int, phase: str, microbatch: int, number: int) -> str:
    """The name of a tensor that a stage receives."""
    return f"received.{stage}.{phase}.{microbatch}.{number}"


class StageMessage(NamedTuple):
    """What a stage sends or receives."""

    what: Literal["send", "recv"]
    phase: Literal["forward", "backward"]
    stage: int
    microbatch: int


class StageEvent(NamedTuple):
    """What one rank does next."""

    kind: EventKind
    stage: int = -1
    microbatch: int = -1
    messages: tuple[StageMessage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceOrder:
    """The events of a step, of which equal ones are listed once among the operators of a graph, and the tensors that they make.

    Positions count the operators as they run.
    """

    parts: tuple[tuple[int, int], ...]
    """The operators of each part, as the first one and the one after the last one."""
    runs: Sequence[int]
    """The part that each event runs."""
    events: tuple[StageEvent, ...]
    storages: Sequence[int]
    """Of every tensor that is made the storage that it is like."""
    births: Sequence[int]
    deaths: Sequence[int]
    """The positions of the operators that make them, and before which they are gone."""
    released: Mapping[int, int]
    """The same of storages that are there before."""

    __repr__ = brief_record

    @property
    def begins(self) -> list[int]:
        """The position at which each event begins, and that at which the last one ends."""
        found = [0]
        for part in self.runs:
            first, end = self.parts[part]
            found.append(found[-1] + end - first)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """What one rank of a pipeline has and does in a step."""

    rank: int
    """Along the axis of the pipeline."""
    stages: str
    """The numbers of its stages."""
    blocks: str
    """The list of blocks, and which of them it has."""
    params: int
    macs: int
    flops: int
    in_flight: int
    """The most microbatches whose activations it keeps at once; of several stages each counts."""
    saved_bytes: int
    """Of these, at its peak, what is kept for the backward pass."""
    peak_bytes: int | None
    """None where it is unknown."""
    messages: int
    """What it sends to other ranks of the pipeline: activations and their gradients."""
    sent_bytes: int

    def __repr__(self) -> str:
        peak = "" if self.peak_bytes is None else f"peak {format_bytes(self.peak_bytes)}"
        return brief(self, [self.blocks, f"{self.in_flight} in flight", peak], f"rank {self.rank}")


def most_in_flight(events: Iterable[StageEvent]) -> int:
    """The most microbatches that have run forward and not yet all of their way back; without a way back one at a time."""
    events = [event for event in events if event.kind in ("forward", "backward", "weight")]
    if all(event.kind == "forward" for event in events):
        return min(1, len(events))
    now = most = 0
    for event in events:
        now += event.kind == "forward"
        most = max(most, now)
        now -= event.kind in ("backward", "weight")
    return most
