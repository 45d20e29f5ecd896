"""What of a compiled forward pass is kept for the backward pass, and what is computed again there.

PyTorch's compiler keeps the fewest bytes from which everything else can be computed again by simple operators: a minimum cut
between what products, attention and sums make and what the backward pass reads (`min_cut_rematerialization_partition`). A result
that no library reads would be written for the backward pass alone, and counts twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import TypeAlias

from opcost.core.graph import TensorSpec
from opcost.core.report import Row

AGAIN = frozenset({"elementwise", "copy", "create", "norm", "softmax", "loss", "view"})
"""Kinds of operators that are computed again; of those that also make sums, the sums are kept."""
SIMPLE = frozenset({"elementwise", "copy", "create", "view"})


def with_recomputation(forward: Sequence[Row], backward: Sequence[Row], fresh: int) -> tuple[list[Row], int]:
    """The backward pass with what it computes again of the forward pass, in values from `fresh` on, and the next free one."""
    made = {value: row for row in forward for value in row.op.outputs}
    given = {value for row in forward for value in row.op.inputs if value not in made}
    wanted = {value for row in backward for value in row.op.inputs if value in made or value in given}
    needed = {value for value in wanted if value in made}
    if not needed:
        return [*backward], fresh
    kept = _kept(forward, made, wanted)
    again: dict[int, Row] = {}
    todo = [value for value in needed if value not in kept]
    while todo:
        row = made[todo.pop()]
        if row.op.id not in again:
            again[row.op.id] = row
            todo += [value for value in row.op.inputs if value in made and value not in kept]
    new: dict[int, int] = {}
    for row in again.values():
        for value in row.op.outputs:
            if value not in kept:
                new[value] = fresh
                fresh += 1
    found = []
    for _, row in sorted(again.items()):
        inputs, outputs = _renamed(row.op.inputs, new), tuple(new.get(value, value) for value in row.op.outputs)
        if row.op.kind not in SIMPLE:  # its sums are kept
            first = row.op.outputs[:1]
            outputs, kind = _renamed(first, new), "elementwise"
            row = row._replace(op=row.op._replace(kind=kind), outs=row.outs[:1])  # noqa: PLW2901 - as it runs again
        found.append(row._replace(op=row.op._replace(inputs=inputs, outputs=outputs, phase="backward")))
    found += [row._replace(op=row.op._replace(inputs=_renamed(row.op.inputs, new))) for row in backward]
    return found, fresh


def _renamed(values: Iterable[int], new: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(new.get(value, value) for value in values)


def _runs_again(row: Row, value: int) -> bool:
    return row.op.kind in SIMPLE or (row.op.kind in AGAIN and value == row.op.outputs[0])


# -- the minimum cut

_Node: TypeAlias = "tuple[int, int]"
"""A value before it may be kept, and after."""
SOURCE, SINK = (-1, 0), (-1, 1)


def _kept(forward: Sequence[Row], made: Mapping[int, Row], wanted: Iterable[int]) -> frozenset[int]:
    """The values that are kept."""
    library: set[int] = set()  # what is written in any case
    for row in reversed(forward):
        if row.op.kind not in AGAIN or (row.op.kind == "view" and not library.isdisjoint(row.op.outputs)):
            library.update(row.op.inputs)
    flow: dict[_Node, dict[_Node, float]] = {SOURCE: {}, SINK: {}}

    def connect(a: _Node, b: _Node, capacity: float) -> None:
        there = flow.setdefault(a, {})
        there[b] = there.get(b, 0.0) + capacity
        flow.setdefault(b, {}).setdefault(a, 0.0)

    def add(value: int, spec: TensorSpec) -> None:
        row = made.get(value)
        view = row is not None and row.op.kind == "view" and bool(row.op.inputs)
        nbytes = max(1, spec.nbytes) if spec.known else 1
        connect((value, 0), (value, 1), inf if view else nbytes * (1 if row is None or value in library else 2))
        if row is None or not row.op.inputs or not _runs_again(row, value):
            connect(SOURCE, (value, 0), inf)
        else:
            for each in row.op.inputs:
                connect((each, 1), (value, 0), inf)

    known: set[int] = set()
    for row in forward:
        both = (*zip(row.op.inputs, row.ins, strict=False), *zip(row.op.outputs, row.outs, strict=False))
        for value, spec in both:
            if value not in known:
                known.add(value)
                add(value, spec)
    for value in wanted:
        if value in known:
            connect((value, 1), SINK, inf)
    reached = _saturated(flow)
    return frozenset(value for value in known if (value, 0) in reached and (value, 1) not in reached)


def _saturated(flow: dict[_Node, dict[_Node, float]]) -> set[_Node]:
    """Send all that can flow from the source to the sink; the nodes that are reached from the source then."""
    while True:
        before: dict[_Node, _Node] = {SOURCE: SOURCE}
        waiting = deque([SOURCE])
        while waiting and SINK not in before:
            node = waiting.popleft()
            for after, capacity in flow[node].items():
                if capacity > 0 and after not in before:
                    before[after] = node
                    waiting.append(after)
        if SINK not in before:
            return {*before}
        path = [SINK]
        while path[-1] != SOURCE:
            path.append(before[path[-1]])
        steps = [(b, a) for a, b in pairwise(path)]
        least = min(flow[a][b] for a, b in steps)
        for a, b in steps:
            flow[a][b] -= least
            flow[b][a] += least
