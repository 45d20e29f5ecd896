"""Graphs that differ in sizes alone: with parameters shared among other numbers of ranks, and with other batches.

A rank then runs the same operators on tensors of other sizes. A size that changes with the batch grows by the same with each
sample. One that changes with the ranks is made of shards: a rank has ceil(rows / ranks) rows of a parameter, a gather or a
reduction those of a group of parameters, once or for every rank. So a graph, one with other ranks and one with another batch
determine all others; where a size is not explained so, `NotDetermined` is raised, and that layout has to be recorded itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from math import ceil, prod
from typing import Any, NamedTuple

from opcost.core.graph import Attrs, Graph, Lifetimes, TensorSpec


class NotDetermined(Exception):
    """The recorded graphs do not determine this one."""


class LayoutSizes(NamedTuple):
    """What the sizes of tensors follow from."""

    ranks: int
    """How many share parameters (fsdp)."""
    batch: int


class ShardSize(NamedTuple):
    """ceil(rows / ranks) rows of some parameters, with the elements of each row; times the ranks, if it is of all of them."""

    shards: tuple[tuple[int, int], ...]
    of_all: bool
    beside: int = 1
    """Ranks of other axes, among which they are divided too."""

    def at(self, ranks: int) -> int:
        """The size for a number of ranks."""
        ranks *= self.beside
        return (ranks if self.of_all else 1) * sum(ceil(rows / ranks) * each for rows, each in self.shards)


def ranks_beside(beside: int) -> ShardSize:
    """The number of ranks itself."""
    return ShardSize(((1, 1),), of_all=True, beside=beside)


class Groups(NamedTuple):
    """How parameters are sharded together."""

    blocks: Sequence[str]
    """Paths of the lists of blocks, each of which shards its parameters by itself."""
    beside: Sequence[int] = (1,)
    """Ranks of other axes, among which some parameters are divided too."""


class SizedGraphs:
    """Graphs of one rank: the first, and of others one with other ranks and one with another batch, if they do the same."""

    def __init__(self, recorded: Mapping[LayoutSizes, Graph], groups: Groups) -> None:
        (self._first, base), *others = recorded.items()
        self._other_ranks = self._other_batch = None
        points = [base, base, base]
        for sizes, graph in others:
            if _same(base, graph) and sizes.batch == self._first.batch:
                self._other_ranks, points[1] = sizes, graph
            elif _same(base, graph) and sizes.ranks == self._first.ranks:
                self._other_batch, points[2] = sizes, graph
        self._explained: dict[tuple[int, int], list[ShardSize]] = {}
        if (other := self._other_ranks) is not None:
            every = _shard_sizes(base, self._first.ranks, groups)
            if any(
                rows % (self._first.ranks * size.beside) == rows % (other.ranks * size.beside) == 0
                for size in every
                for rows, _ in size.shards
            ):
                self._other_ranks = None  # what is gathered of such rows is as large for either
            for size in every:
                self._explained.setdefault((size.at(self._first.ranks), size.at(other.ranks)), []).append(size)
        # What has another size in one of them: one object for each that follows in its own way
        self._specs: dict[int, tuple[TensorSpec, ...]] = {}
        self._attrs: dict[int, tuple[Attrs, ...]] = {}
        made: dict[tuple[int, ...], Any] = {}

        def varying(several: tuple[Any, ...], known: dict[int, Any], copy: Callable[[Any], Any]) -> Any:
            key = tuple(map(id, several))
            if key not in made:
                same = all(one == several[0] for one in several)
                made[key] = several[0] if same else copy(several[0])
                if not same:
                    known[id(made[key])] = several
            return made[key]

        values = zip(*(graph.values for graph in points), strict=True)
        ops = zip(*(graph.ops for graph in points), strict=True)
        self.graph = replace(
            base,
            values=tuple(
                [
                    several[0]._replace(spec=varying(tuple(v.spec for v in several), self._specs, replace))
                    for several in values
                ]
            ),
            ops=tuple(
                [
                    several[0]._replace(attrs=varying(tuple(op.attrs for op in several), self._attrs, dict))
                    for several in ops
                ]
            ),
            calls=(),
            modules=tuple(replace(module, inputs=(), outputs=(), calls=0) for module in base.modules),
            notes=(),
        )
        """The first graph, without calls and notes. What is made of it of other operators can be given other sizes too."""

    @property
    def has_batches(self) -> bool:
        """Whether graphs with other batches follow."""
        return self._other_batch is not None

    def with_sizes(self, graph: Graph, sizes: LayoutSizes) -> Graph:
        """A graph that was made of `graph`, with these sizes."""
        first = self._first
        if sizes.ranks != first.ranks and self._other_ranks is None:
            raise NotDetermined
        if sizes.batch != first.batch and self._other_batch is None:
            raise NotDetermined
        specs = {number: self._spec(same, sizes) for number, same in self._specs.items()}
        attrs = {number: self._values(same, sizes) for number, same in self._attrs.items()}
        return replace(
            graph,
            values=tuple([v if (s := specs.get(id(v.spec))) is None else v._replace(spec=s) for v in graph.values]),
            ops=tuple([op if (a := attrs.get(id(op.attrs))) is None else op._replace(attrs=a) for op in graph.ops]),
        )

    def _spec(self, same: Sequence[TensorSpec], sizes: LayoutSizes) -> TensorSpec:
        if len({(spec.dtype, spec.shape and len(spec.shape)) for spec in same}) > 1 or not same[0].known:
            raise NotDetermined
        extents = zip(*(spec.dims for spec in same), strict=True)
        return TensorSpec(tuple(self._number(each, sizes) for each in extents), same[0].dtype)

    def _values(self, same: Sequence[Attrs], sizes: LayoutSizes) -> Attrs:
        return {name: self._attr([attrs[name] for attrs in same], sizes) for name in same[0]}

    def _attr(self, same: Sequence[Any], sizes: LayoutSizes) -> Any:
        base = same[0]
        if all(value == base for value in same):
            return base
        if all(isinstance(value, tuple) and len(value) == len(base) for value in same):
            return tuple(self._attr(values, sizes) for values in zip(*same, strict=True))
        if all(type(value) is int for value in same):
            return self._number(same, sizes)
        raise NotDetermined

    def _number(self, same: Sequence[int], sizes: LayoutSizes) -> int:
        base, of_ranks, of_batch = same
        if base == of_ranks == of_batch:
            return base
        if base == of_ranks and self._other_batch is not None:
            further = sizes.batch - self._first.batch
            grown, rest = divmod((of_batch - base) * further, self._other_batch.batch - self._first.batch)
            if rest:
                raise NotDetermined
            return base + grown
        if base != of_batch:
            raise NotDetermined
        found = {size.at(sizes.ranks) for size in self._explained.get((base, of_ranks), ())}
        if len(found) != 1:
            raise NotDetermined
        return found.pop()


def _same(one: Graph, other: Graph) -> bool:
    """Whether both run the same operators on the same tensors, which live as long."""
    ops = all(
        a[:5] == b[:5] and a.attrs.keys() == b.attrs.keys() and a[6:9] == b[6:9]
        for a, b in zip(one.ops, other.ops, strict=False)
    )
    values = all(
        (a.role, a.storage, a.name) == (b.role, b.storage, b.name)
        for a, b in zip(one.values, other.values, strict=False)
    )
    ends = (one.inputs, one.outputs, one.released) == (other.inputs, other.outputs, other.released)
    sizes = (len(one.ops), len(one.values)) == (len(other.ops), len(other.values))
    return ops and values and ends and sizes and _life(one) == _life(other)


def _life(graph: Graph) -> dict[str, Any]:
    """When memory is freed, as values that can be compared."""
    life = graph.lifetimes or Lifetimes((), ())
    away = {storage: [*map(tuple, intervals)] for storage, intervals in life.away.items()}
    return {each.name: getattr(life, each.name) for each in fields(life)} | {
        "storages": [*life.storages], "times": [*life.times], "away": away,
    }  # fmt: skip


# -- what is made of shards --------------------------------------------------------------------------------------------------

PRIMES = (61, 13, 31, 43, 17, 67, 127, 251)


def telling_ranks(graph: Graph, ranks: int, groups: Groups) -> int:
    """The other number of ranks to record, at which different parameters have different shards, and all are padded."""
    sizes = _shard_sizes(graph, ranks, groups)

    def unclear(prime: int) -> int:
        whole = sum(rows % prime == 0 for size in sizes for rows, _ in size.shards if rows > 1)
        return whole * len(sizes) + len(sizes) - len({(size.at(ranks), size.at(prime)) for size in sizes})

    return min(PRIMES, key=unclear)


def _shard_sizes(graph: Graph, ranks: int, groups: Groups) -> set[ShardSize]:
    """Every size that shards of parameters may have: the rows, and the elements, of one and of a group; and the ranks."""
    whole: dict[tuple[int, ...], set[int]] = {}  # rows of gathered parameters, by the rest of their shapes
    gathered = graph.lifetimes.gathered if graph.lifetimes else frozenset()
    for value in graph.values:
        if value.storage in gathered and value.spec.known and value.spec.shape:
            rows, *rest = value.spec.dims
            whole.setdefault(tuple(rest), set()).add(rows)
    found = set(map(ranks_beside, groups.beside))
    for beside in groups.beside:
        together: dict[str, list[tuple[tuple[int, int], bool]]] = {}
        shards: list[tuple[tuple[int, int], ...]] = []
        for module in graph.modules:
            for _, vid in module.parameters:
                value = graph.values[vid]
                if value.storage != vid or not value.spec.known or not value.spec.shape:
                    continue
                rows, *rest = value.spec.dims
                for every in whole.get(tuple(rest), ()):
                    if ceil(every / (ranks * beside)) == rows:
                        shard = every, prod(rest)
                        shards += [((every, 1),), (shard,)]
                        together.setdefault(_group(module.path, groups.blocks), []).append((shard, value.trainable))
        shards += [tuple(sorted(shard for shard, _ in group)) for group in together.values()]
        shards += [tuple(sorted(shard for shard, trained in group if trained)) for group in together.values()]
        found.update(ShardSize(each, of_all, beside) for each in shards for of_all in (False, True))
    return found


def _group(path: str, blocks: Sequence[str]) -> str:
    """The block that a module is in; empty for all that is in none."""
    for each in blocks:
        if path.startswith(f"{each}."):
            return f"{each}.{path.removeprefix(f'{each}.').partition('.')[0]}"
    return ""
