"""The largest size at which a model keeps to a limit of memory. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from opcost.core.brief import brief
from opcost.core.memory import Part
from opcost.core.plugin import COMPARISON_VIEWS
from opcost.core.shown import Shown
from opcost.core.units import format_bytes


class Counted(NamedTuple):
    """A size that was tried; the peak is None where the model does not run at it."""

    size: int
    peak_bytes: int | None
    fits: bool


class Advice(NamedTuple):
    """What the largest size would be under another option, found by counting too."""

    option: str
    value: str
    largest: int
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Fit(Shown):
    """The largest size that fits, the peaks at it and at the next one, and what would let more in. Print it, or ask it."""

    views: ClassVar[str] = COMPARISON_VIEWS

    source: str
    vary: str
    """What varies: batch, tokens, ..., or NAME=DIMENSION of an input."""
    largest: int
    inputs: str = ""
    """What the model was run on at the largest size: its inputs, how many tokens those are, and of training the loss."""
    peak_bytes: int
    """At the largest size."""
    next_peak_bytes: int | None
    """At the next one; None where the model does not run at it. Without a device it is above the limit."""
    reserved_bytes: int | None = None
    """Of a device: the least of its memory with which PyTorch's allocator holds the largest size, nearly; within the limit."""
    next_reserved_bytes: int | None = None
    """The same of the next one, above the limit."""
    limit_bytes: int
    device: str = ""
    """The device as whose allocator and kernels memory is told; empty: tensors alone, to the byte."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """What was counted: backward, optimizer, and other options that were given."""
    parts: Mapping[Part, int] = field(default_factory=dict)
    """What the peak at the largest size is made of."""
    counted: tuple[Counted, ...] = ()
    """The sizes that were really counted, rising."""
    advice: tuple[Advice, ...] = ()
    """The options under which more fits, the most first."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        held = f"{format_bytes(self.peak_bytes)} of {format_bytes(self.limit_bytes)}"
        return brief(self, [f"{self.vary} {self.largest:,}", held], self.source)
