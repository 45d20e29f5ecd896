"""What a model costs at each of many sizes. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from opcost.core.brief import Listed, brief, brief_record
from opcost.core.plugin import COMPARISON_VIEWS
from opcost.core.shown import Shown


class Point(NamedTuple):
    """One size of each variable, and what the model costs there."""

    sizes: tuple[int, ...]
    amounts: Mapping[str, int]
    """Quantities of the whole model by name; none where it does not run at these sizes."""
    counted: bool = True
    """Whether it was counted, or follows from polynomials through other points that were, checked at further ones."""
    latency_ns: int | None = None
    """As predicted of the device."""
    band_ns: tuple[int, int] | None = None
    """Four of five models that were measured lie inside such a band."""
    fits: bool | None = None
    """Whether the memory of the device is enough; None without a device, or where its size is not known."""

    def __repr__(self) -> str:
        return brief_record(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sweep(Shown):
    """Cost, memory and latency as functions of one or two sizes. Print it, save it, or ask it."""

    views: ClassVar[str] = COMPARISON_VIEWS

    source: str
    variables: tuple[str, ...]
    points: tuple[Point, ...]
    """The first variable varies slowest."""
    device: str = ""
    """The device of the latency, as whose allocator and kernels memory is told; empty: no latency, tensors alone."""
    asked: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", Listed(self.points))

    def __repr__(self) -> str:
        counted = sum(point.counted for point in self.points)
        said = [f"by {' and '.join(self.variables)}", f"{len(self.points):,} points, {counted:,} counted"]
        return brief(self, said, self.source)
