"""The graphs of one rank of any layout with few blocks, from few recordings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, TypeVar

from opcost.analysis.layouts.sizes import Groups, LayoutSizes, NotDetermined, SizedGraphs, telling_ranks
from opcost.analysis.layouts.variants import RECORDED_PASSES, counted, variant
from opcost.core.alignment import NotRepeating
from opcost.core.graph import Graph
from opcost.core.repeating import counterparts, repeated
from opcost.distributed.layouts import Layout

Key = TypeVar("Key")
FIRST_RANKS = 2
"""How many ranks share parameters, and how many copies there are, in what is recorded."""


class Blocks(NamedTuple):
    """The repeated blocks of a model."""

    lists: Sequence[str]
    """Paths of all lists of blocks."""
    repeated: str = ""
    """The path of those of which few are recorded; empty: none."""
    few: Sequence[int] = ()
    """How many of them are recorded, in this order."""
    total: int = 0
    """How many there are."""


@dataclass(frozen=True, slots=True)
class FewBlockGraphs:
    """Two graphs, of which the second has one block more, and how many further ones there are; or twice the whole."""

    fewer: Graph
    more: Graph
    further: int
    counterparts: Sequence[tuple[int, int]]
    """Operators of both, see `core.repeating`."""

    def grown(self, fewer: int, more: int) -> int:
        """A number of all blocks from those of both graphs, which grows by the same with each further block."""
        return more + self.further * (more - fewer)

    def all_grown(self, fewer: Mapping[Key, int], more: Mapping[Key, int]) -> dict[Key, int]:
        """Numbers of all blocks by their names."""
        return {name: self.grown(fewer.get(name, 0), number) for name, number in more.items()}

    def highest(self, fewer: Sequence[int], more: Sequence[int]) -> int:
        """The highest number of any operator with all blocks, from those with few: another operator may have it."""
        return max(self.grown(fewer[first], more[last]) for first, last in self.counterparts)


class _Structure(NamedTuple):
    """What differs between layouts by more than the sizes of tensors and operators that are left out."""

    sharded: bool = False
    copies: bool = False
    accumulates: bool = False
    ranks: int = 0
    """How many share parameters, where others than these do something else."""


Record = Callable[["int | None", Layout], Graph]
"""Records a layout with a number of blocks, or with all."""


class _Lines(NamedTuple):
    """Graphs with few blocks, one more in the second, which follow for several microbatches."""

    graphs: tuple[SizedGraphs, SizedGraphs]
    numbers: tuple[int | None, int | None]


class _Variant(NamedTuple):
    """The graphs of those lines without what some layouts do not have."""

    fewer: Graph
    more: Graph
    counterparts: Sequence[tuple[int, int]]


@dataclass(slots=True)
class RankGraphs:
    """Layouts with the same tensor, context and expert parallelism, and the same checkpoint."""

    record: Record
    blocks: Blocks
    like: Layout
    """One of them."""
    batches: Sequence[int]
    """The microbatches of all of them."""
    _recorded: dict[tuple[int | None, Layout], Graph] = field(init=False, default_factory=dict)
    _lines: dict[_Structure, dict[int, _Lines]] = field(init=False, default_factory=dict)
    _variants: dict[tuple[object, ...], _Variant] = field(init=False, default_factory=dict)

    def of(self, layout: Layout) -> FewBlockGraphs:
        """The graphs of a layout, but for the number of its passes."""
        kind = _kind(layout)
        if kind not in self._lines:
            self._lines[kind] = self._by_batch(kind, self._few(kind), sorted(self.batches))
        lines = self._lines[kind][layout.batch]
        found = self._variant(kind, lines, layout)
        sizes = LayoutSizes(layout.mesh.fsdp, layout.batch)
        try:
            fewer, more = (
                graphs.with_sizes(graph, sizes) for graphs, graph in zip(lines.graphs, found[:2], strict=True)
            )
        except NotDetermined:
            fewer, more = (_changed(kind, self._record(kind, number, sizes), layout) for number in lines.numbers)
        number = lines.numbers[1]
        return FewBlockGraphs(fewer, more, 0 if number is None else self.blocks.total - number, found.counterparts)

    def _variant(self, kind: _Structure, lines: _Lines, layout: Layout) -> _Variant:
        key = (kind, id(lines), layout.mesh.replicate > 1, layout.reshard, layout.passes > 1)
        if key not in self._variants:
            fewer, more = (_changed(kind, graphs.graph, layout) for graphs in lines.graphs)
            self._variants[key] = _Variant(fewer, more, counterparts(fewer, more, self.blocks.repeated))
        return self._variants[key]

    def _few(self, kind: _Structure) -> tuple[int | None, int | None]:
        """The numbers of blocks that determine all others, or twice None, which is all of them."""
        first = self._first(kind, min(self.batches))
        for numbers in pairwise(self.blocks.few):
            fewer, more = (self._record(kind, number, first) for number in numbers)
            with suppress(NotRepeating):
                repeated(fewer, more, self.blocks.repeated, 1)
                return numbers
        return None, None

    def _by_batch(
        self, kind: _Structure, numbers: tuple[int | None, int | None], batches: list[int]
    ) -> dict[int, _Lines]:
        """By each microbatch; the smallest one may do something else than others."""
        fewer, more = (self._sized(kind, number, batches[:2]) for number in numbers)
        lines = _Lines((fewer, more), numbers)
        if batches[1:] and not all(graphs.has_batches for graphs in lines.graphs):
            return {batches[0]: lines, **self._by_batch(kind, numbers, batches[1:])}
        return dict.fromkeys(batches, lines)

    def _sized(self, kind: _Structure, number: int | None, batches: list[int]) -> SizedGraphs:
        every = [self._first(kind, batch) for batch in batches]
        if kind.sharded and not kind.ranks:
            ranks = telling_ranks(self._record(kind, number, every[0]), FIRST_RANKS, self._groups())
            every.append(LayoutSizes(ranks, batches[0]))
        return SizedGraphs({sizes: self._record(kind, number, sizes) for sizes in every}, self._groups())

    def _groups(self) -> Groups:
        mesh = self.like.mesh
        return Groups(self.blocks.lists, sorted({1, mesh.cp, mesh.ep, mesh.cp * mesh.ep}))

    @staticmethod
    def _first(kind: _Structure, batch: int) -> LayoutSizes:
        return LayoutSizes(kind.ranks or (FIRST_RANKS if kind.sharded else 0), batch)

    def _record(self, kind: _Structure, number: int | None, sizes: LayoutSizes) -> Graph:
        """The graph of a recording: of what is sharded one that gathers again and accumulates."""
        copies = FIRST_RANKS if kind.copies else 1
        passes = RECORDED_PASSES if kind.sharded or kind.accumulates else 1
        mesh = replace(self.like.mesh, replicate=copies, fsdp=sizes.ranks)
        layout = replace(self.like, mesh=mesh, batch=sizes.batch, passes=passes, reshard=True)
        if (number, layout) not in self._recorded:
            self._recorded[number, layout] = self.record(number, layout)
        return self._recorded[number, layout]


def _changed(kind: _Structure, graph: Graph, layout: Layout) -> Graph:
    """The graph without what a layout does not have, and with what it has beside."""
    if not kind.sharded:
        return graph
    return variant(graph, copies=layout.mesh.replicate > 1, reshard=layout.reshard, accumulates=layout.passes > 1)


def with_passes(graph: Graph, layout: Layout) -> Graph:
    """The graph of a layout with its passes and copies."""
    recorded = RECORDED_PASSES if _kind(layout).sharded else min(layout.passes, RECORDED_PASSES)
    found = counted(graph, layout.mesh, passes=layout.passes, recorded_passes=recorded)
    passes = {"accumulate": str(layout.passes)} if layout.passes > 1 else {}
    meta = {name: value for name, value in graph.meta.items() if name != "accumulate"}
    return replace(found, meta={**meta, **passes, "mesh": str(layout.mesh)})


def _kind(layout: Layout) -> _Structure:
    mesh = layout.mesh
    if mesh.fsdp:  # alone, experts that are divided among ranks are not sharded beside
        return _Structure(sharded=True, ranks=1 if mesh.fsdp == 1 and mesh.ep > 1 else 0)
    return _Structure(copies=mesh.replicate > 1, accumulates=layout.passes > 1)
