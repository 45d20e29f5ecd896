"""Whose kernels a captured graph replays: those of the operators that launched them while the graph was captured.

During a capture launches run nothing, so they have no device work. A replay has the kernels of one capture in the same order.
Where the runtime wrote which kernel a launch is for (ROCm), all names must agree, and what the runtime left out of the graph
may be missing; where it did not (CUDA), the number of launches must, and which are copies. What does not agree has no owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from opcost.core.graph import Note
from opcost.core.names import is_copy
from opcost.core.profile import Kernel, ProfileRow
from opcost.traces.kineto.launches import GRAPH
from opcost.traces.kineto.rows import Translated


class Launch(NamedTuple):
    """A call that launched something into a graph."""

    row: int
    """The operator that it lies in, or NONE."""
    kernel: str
    """As the runtime wrote it; empty where it did not."""
    copies: bool


class Capture:
    """One graph as it was captured, in the trace that holds its operators."""

    def __init__(self, translated: Translated, launches: Sequence[Launch], source: str) -> None:
        self.launches = launches
        self.source = source
        self._translated = translated

    @cached_property
    def is_named(self) -> bool:
        return all(launch.kernel or launch.copies for launch in self.launches)

    def places(self, names: Sequence[str]) -> list[int] | None:
        """Of each kernel of a replay the launch that it is of; None if it is none of this capture."""
        if not self.is_named and len(names) != len(self.launches):
            return None
        found: list[int] = []
        place = 0
        for name in names:
            while place < len(self.launches) and not _fits(self.launches[place], name):
                if not self.is_named:
                    return None
                place += 1
            if place == len(self.launches):
                return None
            found.append(place)
            place += 1
        return found

    def rows(self, kernels: Sequence[Kernel], places: Sequence[int], step: int | None) -> list[ProfileRow]:
        """One row for each operator of the capture, with the kernels of a replay; the host runs none of them again."""
        found = []
        pairs = zip((self.launches[place].row for place in places), kernels, strict=True)
        for row, own in groupby(pairs, key=lambda pair: pair[0]):
            if row < 0:
                continue
            mine = tuple(kernel._replace(why="") for _, kernel in own)
            time = sum(kernel.duration_ns for kernel in mine)
            told = self._translated.row_of(row)
            told = told._replace(provider="graph", step=step, host_start_ns=None, host_ns=None, host_self_ns=None)
            told = told._replace(device=mine[0].device, stream=mine[0].stream)
            found.append(told._replace(kernels=mine, device_ns=time, device_total_ns=time))
        return found


def _fits(launch: Launch, name: str) -> bool:
    return launch.kernel == name if launch.kernel else launch.copies == is_copy(name)


def captures_of(translated: Translated, source: str = "") -> list[Capture]:
    """The graphs that were captured in a trace: what was launched from the beginning of a capture to its end."""
    linked = translated.linked
    names = linked.columns.launched_kernels
    found = []
    for launches in linked.captured:
        told = [
            Launch(linked.joined.get(row, row), names[kernel] if kernel >= 0 else "", copies)
            for row, kernel, copies in launches
        ]
        found.append(Capture(translated, told, source))
    return found


class Replayed(NamedTuple):
    """Operators of replays, what still belongs to nobody, and how much was found."""

    rows: Sequence[ProfileRow]
    unattributed: tuple[Kernel, ...]
    found: int = 0
    """Kernels of graphs that now have an operator."""
    notes: tuple[Note, ...] = ()


def replayed(translated: Translated, captures: Sequence[Capture]) -> Replayed:
    """The kernels of replays by the operators of their captures."""
    linked = translated.linked
    work = linked.columns.device
    places: dict[int, list[int]] = {}
    for place, owner in enumerate(linked.owner):
        if owner == GRAPH:
            places.setdefault(work.correlation[place], []).append(place)
    if not places or not captures:
        return Replayed((), translated.unattributed())
    known: dict[tuple[str, ...], list[tuple[int, list[int]]]] = {}
    rows: list[ProfileRow] = []
    taken: set[int] = set()
    last = -1
    for correlation in sorted(places, key=lambda each: min(work.start[place] for place in places[each])):
        ordered = sorted(places[correlation], key=work.start.__getitem__)
        kernels = [translated.kernel(place) for place in ordered]
        names = tuple(kernel.name for kernel in kernels)
        if names not in known:
            fits = [(number, capture.places(names)) for number, capture in enumerate(captures)]
            known[names] = [(number, found) for number, found in fits if found is not None]
        # Graphs of equal layers have equal kernels: they are replayed in the order in which they were captured.
        fitting = known[names]
        if not fitting:
            continue
        last, found = next((each for each in fitting if each[0] > last), fitting[0])
        step = translated.step_at(linked.launched(correlation))
        made = captures[last].rows(kernels, found, step)
        rows += made
        owned = {kernel.start_ns for row in made for kernel in row.kernels}
        taken.update(place for place, kernel in zip(ordered, kernels, strict=True) if kernel.start_ns in owned)
    count = sum(map(len, places.values()))
    sources = ", ".join(dict.fromkeys(capture.source for capture in captures if capture.source))
    whose = f"the capture in {sources}" if sources else "their capture"
    text = f"{len(taken):,} of {count:,} kernels of captured graphs belong to the operators of {whose}"
    left = [translated.kernel(place) for place, owner in enumerate(linked.owner) if owner < 0 and place not in taken]
    return Replayed(rows, tuple(left), len(taken), (Note("replayed", text),))
