"""When the memory of each tensor begins and ends, by the operators of a graph."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from opcost.core.graph import Graph, Lifetimes
from opcost.core.order import PieceOrder

NEVER = -1  # when what no operator makes is born


def births(graph: Graph, permanent: Collection[int]) -> array[int]:
    """The operator that makes each storage, of those that are not permanent."""
    values = graph.values
    born = array("i", [NEVER]) * len(values)
    for step, op in enumerate(graph.ops):
        if op.repeat:
            for i in op.outputs:
                storage = values[i].storage
                if born[storage] == NEVER and storage not in permanent:
                    born[storage] = step
    for storage in graph.lifetimes.state if graph.lifetimes else ():
        born[storage] = NEVER
    return born


def deaths(graph: Graph) -> array[int]:
    """The operator before which each storage is gone."""
    values, lifetimes = graph.values, graph.lifetimes
    end = len(graph.ops)
    gone = array("i", [end]) * len(values)
    if lifetimes is not None:
        for storage, step in zip(lifetimes.storages, lifetimes.times, strict=True):
            gone[storage] = step
        return gone
    for step, op in enumerate(graph.ops):
        if op.repeat:
            for i in (*op.inputs, *op.outputs):
                gone[values[i].storage] = step + 1
    for i in graph.outputs:
        gone[values[i].storage] = end
    return gone


class Course(NamedTuple):
    """A graph as it runs, and its tensors: those that share memory are one, and what is allocated anew is another each time."""

    graph: Graph
    rows: Sequence[int]
    """Of each operator as it runs the number in the graph as it is listed."""
    sizes: Mapping[int, int]
    born: array[int]
    gone: array[int]


def course(graph: Graph, sizes: Mapping[int, int]) -> Course:
    """When the tensors of a graph are made and freed, from the sizes of its storages."""
    if graph.order is not None:
        return _in_order(graph, graph.order, sizes)
    permanent = {value.storage for value in graph.values if value.role != "activation"}
    born, gone, life = births(graph, permanent), deaths(graph), graph.lifetimes
    if life is not None and life.away:
        sizes = in_pieces(life, sizes, born, gone)
        again = range(len(graph.values), len(born))  # what was allocated again was gathered
        graph = replace(graph, lifetimes=replace(life, gathered=life.gathered.union(again)))
    return Course(graph, range(len(graph.ops)), sizes, born, gone)


def _in_order(graph: Graph, order: PieceOrder, sizes: Mapping[int, int]) -> Course:
    """Of a graph whose pieces run several times. Each tensor that is made is a storage of its own, behind those of the graph."""
    rows = array("q", chain.from_iterable(range(*order.parts[part]) for part in order.runs))
    count, life = len(graph.values), graph.lifetimes or Lifetimes((), ())
    sizes = dict(sizes)
    born = array("q", [NEVER]) * count + array("q", order.births)
    gone = array("q", [len(rows)]) * count + array("q", order.deaths)
    for storage, step in order.released.items():
        gone[storage] = step
    gradients, gathered = set(life.gradients), set(life.gathered)
    for at, storage in enumerate(order.storages, count):
        if storage in life.state:  # it is there before, as from the second step on
            born[at] = NEVER
        sizes[at] = 0 if storage in life.state else sizes[storage]
        if storage in life.gradients:
            gradients.add(at)
        elif storage in life.gathered:
            gathered.add(at)
    sizes.update(dict.fromkeys({*order.storages} - life.state, 0))
    life = replace(life, gradients=frozenset(gradients), gathered=frozenset(gathered))
    return Course(replace(graph, ops=tuple(map(graph.ops.__getitem__, rows)), lifetimes=life), rows, sizes, born, gone)


def in_pieces(lifetimes: Lifetimes, sizes: Mapping[int, int], born: array[int], gone: array[int]) -> Mapping[int, int]:
    """Make several storages of each one that was freed and allocated again: new ones, after the last value's.

    Births and deaths are changed in place; the sizes of all storages are returned.
    """
    sizes = dict(sizes)
    for storage, intervals in lifetimes.away.items():
        ends = [*(freed for freed, _ in intervals), gone[storage]]
        gone[storage] = ends[0]
        for (_, begin), end in zip(intervals, ends[1:], strict=True):
            if begin < end:
                sizes[len(born)] = sizes[storage]
                born.append(begin)
                gone.append(end)
    return sizes
