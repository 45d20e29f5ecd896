"""What comparing, fitting, sweeping and checking give. Plain data, which views show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

from opcost.core.graph import MemoryPart
from opcost.core.limits import Limit, Quantity, find_quantity
from opcost.core.rendering import Picture, Rendered, brief, brief_record, brief_repr
from opcost.core.report import Uncounted
from opcost.core.units import format_bytes, format_time

EntryPart: TypeAlias = Literal["total", "kind", "module", "operator", "type", "kernel"]
Change: TypeAlias = Literal["added", "removed", "changed", "same", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One of the compared sources: its name and origin."""

    label: str  # as it was named; the second of the same name has a number
    facts: Mapping[str, str]  # framework, version, inputs, mode: the conditions of its numbers
    notes: tuple[str, ...] = ()

    __repr__ = brief_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One quantity of one thing, with an amount for each source: None where it is not known, or the thing not there."""

    part: EntryPart
    name: str = ""  # the kind or the path of the module; empty for the whole, and for the module at the root
    type: str = ""
    detail: str = ""  # what else distinguishes it from others of its name, such as the shapes of an operator
    quantity: Quantity
    amounts: tuple[int | None, ...]
    present: tuple[bool, ...]  # whether each source has this at all
    partial: tuple[bool, ...]  # the amount is a lower bound, because an operator has no cost model

    @property
    def change(self) -> Change:
        """What became of it from the first source to the last."""
        if self.present[0] != self.present[-1]:
            return "removed" if self.present[0] else "added"
        if self.present[0] and None in (self.amounts[0], self.amounts[-1]):
            return "unknown"
        return "same" if self.amounts[0] == self.amounts[-1] else "changed"

    @property
    def changed(self) -> bool:
        """Whether it is known to differ."""
        return self.change not in ("same", "unknown")

    @property
    def difference(self) -> int | None:
        """The last amount less the first; what is not there costs nothing, and what is not known has no difference."""
        first, last = (self.amounts[place] if self.present[place] else 0 for place in (0, -1))
        return None if first is None or last is None else last - first

    def __repr__(self) -> str:
        amounts = " | ".join("?" if amount is None else f"{amount:,}" for amount in self.amounts)
        return brief(self, [f"{self.quantity.name} {amounts}", self.change], f"{self.part} {self.name}".rstrip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Rendered):
    """What several models cost, one amount for each. Print it, save it, or read its entries."""

    sources: tuple[Compared, ...]
    entries: tuple[Entry, ...]
    changes: bool = False
    """It is about changes from the first source to the last: of kinds and modules only those that differ."""

    def __repr__(self) -> str:
        changed = sum(entry.changed for entry in self.entries)
        differ = f"{changed:,} of {len(self.entries):,} amounts differ" if len(self.sources) > 1 else ""
        return brief(self, [differ], " and ".join(source.label for source in self.sources))

    def total(self, quantity: str) -> Entry | None:
        """A quantity of the whole by its name; None where it was not compared."""
        totals = {entry.quantity.name: entry for entry in self.of_part("total")}
        return totals.get(quantity) or totals.get(find_quantity(quantity).name)

    def of_part(self, part: EntryPart) -> Iterator[Entry]:
        """The entries about the whole, about kinds, or about modules."""
        return (entry for entry in self.entries if entry.part == part)

    def changed(self) -> Comparison:
        """What differs between the first source and the last, and all totals."""
        kept = (entry for entry in self.entries if entry.part == "total" or entry.changed)
        return replace(self, entries=tuple(kept), changes=True)

    def __bool__(self) -> bool:
        """Whether there is something to show: of changes, whether anything did change."""
        return any(not self.changes or entry.changed for entry in self.entries)


# -- the largest size that fits ----------------------------------------------------------------------------------------


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
class Fit(Rendered):
    """The largest size that fits, the peaks at it and at the next one, and what would let more in."""

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
    """Of a device: about the least of its memory that PyTorch's allocator needs for the largest size; within the limit."""
    next_reserved_bytes: int | None = None
    """The same of the next one, above the limit."""
    limit_bytes: int
    device: str = ""
    """The device whose allocator and kernels the memory is that of; empty: tensors alone, to the byte."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What was counted: backward, optimizer, and other options that were given."""
    parts: Mapping[MemoryPart, int] = field(default_factory=dict)
    """What the peak at the largest size is made of."""
    counted: tuple[Counted, ...] = ()
    """The sizes that were really counted, rising."""
    advice: tuple[Advice, ...] = ()
    """The options under which more fits, the most first."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        used = f"{format_bytes(self.peak_bytes)} of {format_bytes(self.limit_bytes)}"
        return brief(self, [f"{self.vary} {self.largest:,}", used], self.source)


class StepCost(NamedTuple):
    """What one training step needs: memory, work, and on a device time."""

    peak_bytes: int
    reserved_bytes: int | None
    """Of a device: about the least of its memory that PyTorch's allocator needs."""
    flops: int
    latency_ns: int | None = None
    """As predicted of the device."""
    band_ns: tuple[int, int] | None = None
    """The 80 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Recomputation(Rendered):
    """How a given batch, or other size, fits: the modules to recompute in the backward pass, and what that costs."""

    source: str
    vary: str
    """What was given: batch, tokens, ..."""
    size: int
    """How large it is."""
    inputs: str = ""
    """What the model was run on: its inputs, how many tokens those are, and of training the loss."""
    checkpoint: tuple[str, ...] = ()
    """Patterns for `opcost.count(checkpoint=...)` that match the modules to recompute, and those that were given."""
    modules: tuple[str, ...] = ()
    """Paths of the modules to recompute; none where it fits without."""
    before: StepCost
    """Without recomputing them."""
    after: StepCost
    """With it, as counted; within the limit."""
    limit_bytes: int
    device: str = ""
    """The device whose allocator and kernels the memory is that of; empty: tensors alone, to the byte."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What was counted: backward, optimizer, and other options that were given."""
    parts: Mapping[MemoryPart, int] = field(default_factory=dict)
    """What the peak consists of, with them recomputed."""
    notes: tuple[str, ...] = ()

    @property
    def peak_bytes(self) -> int:
        return self.after.peak_bytes

    @property
    def reserved_bytes(self) -> int | None:
        return self.after.reserved_bytes

    @property
    def recomputed_share(self) -> float:
        """FLOPs that are added, as a share of those before."""
        return self.after.flops / max(1, self.before.flops) - 1

    def __repr__(self) -> str:
        used = f"{format_bytes(self.peak_bytes)} of {format_bytes(self.limit_bytes)}"
        return brief(
            self, [f"{self.vary} {self.size:,}", used, f"{len(self.modules):,} modules recomputed"], self.source
        )


# -- costs at many sizes ------------------------------------------------------------------------------------------------


@brief_repr
class Point(NamedTuple):
    """One size of each variable, and what the model costs there."""

    sizes: tuple[int, ...]
    amounts: Mapping[str, int]  # quantities of the whole model by name; none where it does not run at these sizes
    counted: bool = True
    """Whether it was counted, or follows from polynomials through other points that were, checked at further ones."""
    latency_ns: int | None = None  # as predicted of the device
    band_ns: tuple[int, int] | None = None  # the 80 % interval: 80 % of the measured models are within it
    fits: bool | None = None
    """Whether the memory of the device is enough; None without a device, or where its size is unknown."""
    item: str = ""
    """What a pass processes: token, image, or sample where the batch varies; empty without a latency, or if that is not known."""
    items: int | None = None
    """How many of them."""

    @property
    def items_per_second(self) -> float | None:
        """The throughput of one pass after another; None where it is not known, or the memory is not enough."""
        if not self.latency_ns or self.items is None or self.fits is False:
            return None
        return self.items * 1e9 / self.latency_ns


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sweep(Rendered):
    """Cost, memory and latency as functions of one or two sizes. Print it, save it, or read its points."""

    source: str
    variables: tuple[str, ...]
    device: str = ""
    """The device of the latency, of whose allocator and kernels the memory is; empty: no latency, tensors alone."""
    options: Mapping[str, str] = field(default_factory=dict)
    points: tuple[Point, ...]
    """The first variable varies slowest."""
    notes: tuple[str, ...] = ()

    def plot(self, quantity: str | None = None) -> Picture:
        """A chart of one quantity by size: `sweep.plot("macs")`; without a name of the latency, or else of the peak memory."""
        return Picture(self.render("chart", quantity=quantity))

    def __repr__(self) -> str:
        counted = sum(point.counted for point in self.points)
        points = f"{len(self.points):,} points, {counted:,} counted"
        return brief(self, [f"by {' and '.join(self.variables)}", points], self.source)


# -- layouts of many GPUs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutCost:
    """One layout of many GPUs, and what a step of it takes."""

    mesh: str
    """Ranks on each axis: fsdp=16,tp=4."""
    batch: int
    """Samples of one pass on one rank: the microbatch."""
    passes: int
    """Passes before each update, which accumulate gradients."""
    checkpoint: str
    """What is recomputed in the backward pass: none, selective or full."""
    reshard: bool
    """Gathered parameters are freed after forward, and gathered again for backward."""
    fits: bool
    peak_bytes: int
    """Of the tensors of the first rank."""
    reserved_bytes: int | None = None
    """What PyTorch's allocator reserves for them; None where it was not simulated."""
    latency_ns: int | None = None
    """The time of a step; None where it does not fit."""
    band_ns: tuple[int, int] | None = None
    """The 80 % interval, of layouts that were counted."""
    exposed_ns: Mapping[str, int] = field(default_factory=dict)
    """By how much collectives make the step longer, by axis of the mesh: operators wait for them, or are slower beside them."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    """The time by what it waits for: compute, memory, launch, host, network."""
    items_per_second: float | None = None
    """Of all GPUs together: tokens, images or samples."""
    mfu: float | None = None
    """Three times the products of the forward pass, as a share of the peak."""
    counted: bool = False
    """Whether it was counted itself, with the allocator of the device, or follows from others that were."""

    @property
    def limited_by(self) -> str:
        """What most of the time waits for; of the network, for which axis."""
        if not self.bounds:
            return ""
        most = max(self.bounds, key=self.bounds.__getitem__)
        axes = self.exposed_ns
        return f"{most} ({max(axes, key=axes.__getitem__)})" if most == "network" and axes else most

    @property
    def exposed_share(self) -> float | None:
        """The share of the step by which collectives make it longer."""
        return None if not self.latency_ns else sum(self.exposed_ns.values()) / self.latency_ns

    def __str__(self) -> str:
        words = [self.mesh, f"{self.passes} × {self.batch}"]
        words += [f"{self.checkpoint} checkpointing"] if self.checkpoint != "none" else []
        return ", ".join([*words, *([] if self.reshard else ["no reshard"])])

    __repr__ = brief_record


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LayoutPlan(Rendered):
    """The layouts of a number of GPUs, the fastest first, then those that do not fit. Print it, save it, or read its layouts."""

    source: str
    device: str
    cluster: str
    gpus: int
    samples: int
    """Of a step on all GPUs: the global batch."""
    item: str = ""
    """What is trained on: token, image, or sample."""
    limit_bytes: int
    """The memory of one GPU that tensors can have."""
    layouts: tuple[LayoutCost, ...]
    smaller: tuple[int, LayoutCost | None] | None = None
    """The next cheaper cluster, if there is one: its GPUs, and its best layout, or None where nothing fits."""
    options: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> LayoutCost | None:
        """The fastest layout that fits."""
        return next((layout for layout in self.layouts if layout.fits), None)

    def __repr__(self) -> str:
        fit = sum(layout.fits for layout in self.layouts)
        return brief(
            self, [f"{self.gpus:,} {self.device}", f"{fit:,} of {len(self.layouts):,} layouts fit"], self.source
        )


# -- budgets ------------------------------------------------------------------------------------------------------------

LimitStatus: TypeAlias = Literal["ok", "EXCEEDED", "UNKNOWN", "new", ""]
"""Of a limit: kept, not kept, unknown because operators have no cost model, about a change of a new model. Empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCheck:
    """One quantity of one model: what it is, what it was, and what it may be."""

    model: str
    quantity: Quantity
    amount: int
    partial: bool  # operators have no cost model, so the amount is a lower bound
    before: int | None  # in the baseline, where there is one and the model is in it
    limit: Limit | None  # none where the line is only about a change
    word: LimitStatus

    @property
    def difference(self) -> int | None:
        return None if self.before is None else self.amount - self.before

    def __str__(self) -> str:
        text_of = format_time if self.quantity.unit == "time" else "{:,}".format
        was = "" if self.before is None else f", it was {text_of(self.before)}"
        allowed = f"{self.limit.text} is allowed" if self.limit else "no limit"
        return f"{self.model}: {self.quantity.title} {text_of(self.amount)}, and {allowed}{was}"

    def __repr__(self) -> str:
        return brief(self, [str(self), self.word])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    """One model: its origin, its lines, and operators without a cost model, unless they are allowed."""

    name: str
    source: str
    inputs: str
    lines: tuple[LimitCheck, ...]
    missed: tuple[Uncounted, ...] = ()

    @property
    def kept(self) -> bool:
        return not self.missed and all(line.word in ("ok", "new", "") for line in self.lines)

    __repr__ = brief_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Rendered):
    """Whether models keep to their budgets; it is true if all do. Print it, save it, or read its lines."""

    models: tuple[ModelCheck, ...]
    baseline: str = ""
    """The file that amounts are compared with."""

    @property
    def lines(self) -> tuple[LimitCheck, ...]:
        return tuple(line for model in self.models for line in model.lines)

    @property
    def offending(self) -> tuple[str, ...]:
        """What is wrong, in sentences."""
        sentences = [str(line) for line in self.lines if line.word == "EXCEEDED"]
        for model in self.models:
            sentences += [
                f"{model.name}: {missed.raw} has no cost model ({missed.reason}), so what was counted is a lower bound"
                for missed in model.missed
            ]
        return tuple(sentences)

    def __repr__(self) -> str:
        names = " and ".join(model.name for model in self.models)
        return brief(self, ["all limits are kept" if self else "exceeded", *self.offending[:1]], names)

    def __bool__(self) -> bool:
        return all(model.kept for model in self.models)
