"""Which modules to recompute in the backward pass so that a training step fits into memory, at the least cost.

A checkpointed module frees what it saved when its forward pass ends, and makes it again just before its backward pass. The module
that runs last goes backward first, so the modules without their saved tensors are at any moment those before some place of the
forward pass. Memory there is that of the plain run less what these save. So one walk over the places finds the cheapest choice,
with the cheapest way to each amount that is saved so far.

All follows from one plain run. What a choice really needs is counted afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from opcost.analysis.memory import storage_bytes
from opcost.core.graph import Graph
from opcost.core.lifetimes import NEVER, births, deaths
from opcost.core.names import is_inside

MOST_WAYS = 400  # ways to different amounts saved that are followed from a place to the next
NARROWINGS = 20  # how often the range of the least peak is halved


class Recomputable(NamedTuple):
    """A module that could be recomputed."""

    path: str
    first: int  # its operators in the forward pass: from here
    end: int  # up to here
    saved_bytes: int  # freed between its forward and its backward pass
    peak_bytes: int  # while it is recomputed and goes backward, if nothing before it is recomputed
    cost: float  # of what runs again


_Way: TypeAlias = "tuple[int, float, tuple[Recomputable, Any] | None]"
"""Bytes saved, their cost, and the last module with those before it."""


@dataclass(frozen=True, slots=True)
class PlainStep:
    """A training step without recomputation: its memory, and what each module would save."""

    candidates: tuple[Recomputable, ...]
    places: Sequence[int]
    """The operators of the forward pass at which modules begin or end."""
    peaks: Sequence[int]
    """The peak from each place to the next, in the forward and the backward pass."""

    @classmethod
    def of(
        cls, graph: Graph, curve: Sequence[int], costs: Sequence[float], offered: Callable[[str], bool]
    ) -> PlainStep:
        """From a run, memory during each of its operators, and the cost of each; `offered` are the paths that may be chosen."""
        return _Run(graph, curve, costs).step(offered)

    def without(self, paths: Collection[str]) -> PlainStep:
        """The same without some modules."""
        return replace(self, candidates=tuple(each for each in self.candidates if each.path not in paths))

    def cheapest(self, limit: int) -> tuple[Recomputable, ...] | None:
        """The modules that keep the peak within the limit at the least cost; None if none do."""
        return self._chosen(limit, MOST_WAYS)

    def least_peak(self) -> int:
        """About the least peak that is possible."""
        low, high = 0, max(self.peaks)
        for _ in range(NARROWINGS):
            middle = (low + high) // 2
            low, high = (middle, high) if self._chosen(middle, 1) is None else (low, middle)
        return high

    def peak(self, chosen: Sequence[Recomputable]) -> int:
        """The peak with these modules recomputed."""
        begins = {each.first: each for each in chosen}
        found = saved = end = 0
        for place, peak in zip(self.places, self.peaks, strict=False):
            if place in begins:
                found = max(found, begins[place].peak_bytes - saved)
                saved, end = saved + begins[place].saved_bytes, begins[place].end
            elif place >= end:
                found = max(found, peak - saved)
        return found

    def _chosen(self, limit: int, most: int) -> tuple[Recomputable, ...] | None:
        begins: dict[int, list[Recomputable]] = {}
        for each in self.candidates:
            begins.setdefault(each.first, []).append(each)
        enough = max(0, *self.peaks, *(each.peak_bytes for each in self.candidates)) - limit  # more is of no use
        ways: dict[int, list[_Way]] = {place: [] for place in self.places}
        ways[self.places[0]].append((0, 0.0, None))
        for place, following, peak in zip(self.places, self.places[1:], self.peaks, strict=False):
            for way in _best(ways.pop(place), most):
                saved, cost, chain = way
                if peak - saved <= limit:
                    ways[following].append(way)
                for each in begins.get(place, ()):
                    if each.peak_bytes - saved <= limit:
                        more = max(saved, min(saved + each.saved_bytes, enough))
                        ways[each.end].append((more, cost + each.cost, (each, chain)))
        if not (arrived := ways[self.places[-1]]):
            return None
        chosen: list[Recomputable] = []
        _, _, chain = min(arrived, key=lambda way: way[1])
        while chain is not None:
            chosen.append(chain[0])
            chain = chain[1]
        return tuple(reversed(chosen))


def _best(ways: list[_Way], most: int) -> list[_Way]:
    """Those than which none saves as much at less cost; of many, some over the whole range.

    Of equal ways the one that ends earlier: what is saved early is saved for longer.
    """
    ways.sort(key=lambda way: (-way[0], way[1], way[2][0].first if way[2] else NEVER))
    if most == 1:
        return ways[:1]
    found: list[_Way] = []
    for way in ways:
        if not found or way[1] < found[-1][1]:
            found.append(way)
    if len(found) <= most:
        return found
    width = (found[0][0] - found[-1][0]) / most
    spread = {int((way[0] - found[-1][0]) / width): way for way in found}  # of each part of the range the cheapest
    return [found[0], *(way for way in spread.values() if way is not found[0])]


# -- reading a run --------------------------------------------------------------------------------------------------------


class _Run:
    """What a plain run says about its modules."""

    def __init__(self, graph: Graph, curve: Sequence[int], costs: Sequence[float]) -> None:
        self.graph, self.curve, self.costs = graph, curve, costs
        ops, values = graph.ops, graph.values
        self.sizes: Mapping[int, int] = storage_bytes(graph)
        permanent = {value.storage for value in values if value.role != "activation"}
        self.born, self.gone = births(graph, permanent), deaths(graph)
        phases = [op.phase for op in ops]
        self.forward = next((step for step, phase in enumerate(phases) if phase != "forward"), len(ops))
        self.backward = next((step for step, phase in enumerate(phases) if phase == "update"), len(ops))
        self.inputs = {values[i].storage for i in graph.inputs}
        freed = set(graph.lifetimes.storages if graph.lifetimes else ())
        kept = {values[i].storage for i in graph.outputs}
        kept |= (
            graph.lifetimes.gathered if graph.lifetimes else set()
        )  # no activations: a checkpoint frees none of them
        self.read: dict[int, int] = {}  # the last operator of the forward pass that reads a storage
        self.written: dict[int, int] = {}  # the last that writes in place to it
        for step, op in enumerate(ops[: self.forward]):
            for i in op.inputs:
                self.read[values[i].storage] = step
            if op.raw.endswith("_"):
                for i in op.outputs:
                    if self.born[values[i].storage] < step:
                        self.written[values[i].storage] = step
        self.readers: dict[int, set[str]] = {}  # modules whose backward pass reads a storage
        for op in ops[self.forward : self.backward]:
            for i in op.inputs:
                self.readers.setdefault(values[i].storage, set()).add(op.module)
        self.made: list[list[int]] = [[] for _ in range(self.forward)]  # by each operator
        for storage, step in enumerate(self.born):
            if NEVER < step < self.forward and self.sizes.get(storage):
                self.made[step].append(storage)
        self.saved = {
            storage
            for made in self.made
            for storage in made
            if storage in freed and self.forward < self.gone[storage] <= self.backward and storage not in kept
        }
        # Until when the backward pass of what follows an operator runs: until what is saved there is gone
        self.done = [self.forward] * (self.forward + 1)
        for step in range(self.forward - 1, -1, -1):
            gone = (self.gone[storage] for storage in self.made[step] if storage in self.saved)
            self.done[step] = max(self.done[step + 1], *gone, self.forward)

    def step(self, offered: Callable[[str], bool]) -> PlainStep:
        calls: dict[str, list[tuple[int, int]]] = {}
        for call in self.graph.calls:
            if call.first < call.end <= self.forward and call.path and offered(call.path):
                calls.setdefault(call.path, []).append((call.first, call.end))
        candidates = tuple(filter(None, (self._candidate(path, spans) for path, spans in calls.items())))
        places = sorted({0, self.forward, *(place for each in candidates for place in (each.first, each.end))})
        peaks = [self._peak(first, end) for first, end in pairwise(places)]
        peaks[0] = max(peaks[0], *self.curve[self.done[0] :], 0)  # after the backward pass nothing is saved, either
        return PlainStep(candidates, places, peaks)

    def _peak(self, first: int, end: int) -> int:
        return max(0, *self.curve[first:end], self._backward(first, end))

    def _backward(self, first: int, end: int) -> int:
        return max(self.curve[self.done[end] : self.done[first]], default=0)

    def _candidate(self, path: str, spans: Sequence[tuple[int, int]]) -> Recomputable | None:
        """A module by its calls; None if it saves nothing, or would not compute the same again."""
        saved = peak = 0
        cost, before = 0.0, spans[0][0]
        for first, end in spans:
            if (kept := self._kept(first, end)) is None:
                return None
            inside = [storage for step in range(first, end) for storage in self.made[step]]
            freed = (storage for storage in inside if storage in self.saved and self.read.get(storage, 0) < end)
            own = sum(self.sizes[storage] for storage in freed) - kept
            begun = self.curve[first] - sum(self.sizes[storage] for storage in self.made[first])
            again = self.curve[min(self.done[end], self.backward - 1)] - own + max(self.curve[first:end]) - begun
            between = self._peak(before, first) if before < first else 0
            peak = max(peak, max(between, again, self._backward(first, end)) - saved)
            needed = (each for each in inside if any(is_inside(reader, path) for reader in self.readers.get(each, ())))
            last = max((self.born[storage] for storage in needed), default=first - 1)  # the rest does not run again
            cost += sum(1 + each for each in self.costs[first : last + 1])  # what costs nothing takes time, too
            saved, before = saved + own, end
        return Recomputable(path, spans[0][0], before, saved, peak, cost) if saved > 0 else None

    def _kept(self, first: int, end: int) -> int | None:
        """Bytes that a checkpoint keeps for its arguments and the plain run frees; None if they are changed in place."""
        kept = 0
        for storage in {self.graph.values[i].storage for op in self.graph.ops[first:end] for i in op.inputs}:
            if NEVER < self.born[storage] < first or storage in self.inputs:
                if self.written.get(storage, NEVER) >= first:
                    return None
                if storage not in self.saved and self.gone[storage] <= self.forward:
                    kept += self.sizes[storage]
        return kept
