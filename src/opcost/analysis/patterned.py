"""Pricing of a run that is stored as patterns: each pattern once for every size of the memory that it reads.

What else a report asks of operators and values (peak memory, memory that is read, sums) is found step by step as well, so that
no operator is made only to be added up. The rules are those of `price` and `memory`; a test holds both ways to the same report.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from opcost.analysis.memory import NEVER, follow
from opcost.core.cost import Cost
from opcost.core.graph import Graph, Op, TensorSpec
from opcost.core.memory import Memory
from opcost.core.report import Row
from opcost.core.steps import Expanded, Pattern, PatternedOps, PatternedValues

Priced = tuple[Cost | None, str]
"""The cost of an operator, and the name of its rule."""
PriceOp = Callable[[Op, tuple[TensorSpec, ...], tuple[TensorSpec, ...], "int | None"], Priced]
"""Prices an operator with these inputs and outputs, and bytes read."""


class PatternedRows(Expanded[Row]):
    """The priced operators of a run."""

    __slots__ = ("_ops", "_priced")

    def __init__(self, ops: PatternedOps, priced: Sequence[tuple[Row, ...]]) -> None:
        self._ops = ops
        self._priced = priced
        """Of every step the rows, whose operators have the numbers of the first step that was alike."""

    def __len__(self) -> int:
        return len(self._ops)

    def _item(self, index: int) -> Row:
        step, place = self._ops.place(index)
        return self._priced[step][place]._replace(op=self._ops[index])

    def __iter__(self) -> Iterator[Row]:
        rows = (row for step in self._priced for row in step)
        for op, row in zip(self._ops, rows, strict=True):
            yield row._replace(op=op)


class Walk(NamedTuple):
    """What one walk over the steps of a run finds."""

    rows: PatternedRows
    sums: list[tuple[str, tuple[Row, ...], int]]
    """What each module ran, and how often, in the order of the first time."""
    read: set[int]
    """The memory of leaves that some operator reads."""
    memory: Memory


class _Plan:
    """What a pattern does to memory, wherever it runs."""

    __slots__ = ("born", "new", "read")

    def __init__(self, pattern: Pattern) -> None:
        self.new = [[at for at in op.outputs if at in pattern.new] for op in pattern.ops]
        """The new memory of each operator, by the value that made it."""
        self.born = [(at, offset) for offset, new in enumerate(self.new) for at in new]
        """The same, each with the operator that makes it."""
        self.read = {at for op in pattern.ops for at in op.inputs}


def walk(graph: Graph, price: PriceOp) -> Walk:
    """Price every step and follow the memory."""
    ops, values = graph.ops, graph.values
    assert isinstance(ops, PatternedOps)
    assert isinstance(values, PatternedValues)
    steps, specs, storages = ops.steps, values.specs, values.storages
    sizes = _storage_bytes(values)
    held = {storages[vid] for vid in values.roles}
    begin = min(steps.firsts, default=0)
    kept_results = {storage for storage in held if storage >= begin}
    plans: dict[int, _Plan] = {}
    known: dict[tuple[object, ...], tuple[Row, ...]] = {}
    priced: list[tuple[Row, ...]] = []
    born = array("i", [NEVER]) * len(specs)
    read = bytearray(len(specs))
    index = at_argument = 0
    for pattern, first, module in zip(steps.patterns, steps.firsts, steps.modules, strict=True):
        arguments = steps.arguments[at_argument : at_argument + pattern.arity]
        at_argument += pattern.arity
        plan = plans.get(id(pattern))
        if plan is None:
            plan = plans[id(pattern)] = _Plan(pattern)
        for at, offset in plan.born:
            born[first + at] = index + offset
        for at in plan.read:
            read[storages[first + at if at >= 0 else arguments[~at]]] = 1
        key: tuple[object, ...] = (
            id(pattern),
            *[id(specs[vid]) for vid in arguments],
            *[sizes[storages[vid]] for vid in arguments],
            None if len(set(arguments)) == len(arguments) else tuple(map(arguments.index, arguments)),
        )
        if kept_results:  # memory that a parameter took over was there from the beginning
            for at, _ in plan.born:
                if first + at in kept_results:
                    key = (key, at)
                    born[first + at] = NEVER
        rows = known.get(key)
        if rows is None:
            rows = known[key] = tuple(
                [
                    _row(op.run(index + offset, arguments, first, module), values, sizes, fresh, price)
                    for offset, (op, new) in enumerate(zip(pattern.ops, plan.new, strict=True))
                    for fresh in ([specs[first + at] for at in new if first + at not in held],)
                ]
            )
        priced.append(rows)
        index += len(pattern.ops)
    return Walk(
        PatternedRows(ops, priced),
        _sums(steps.modules, priced),
        {storage for storage in held if read[storage]},
        follow(graph, sizes, held, born),
    )


def _row(op: Op, values: PatternedValues, sizes: Sequence[int], fresh: Sequence[TensorSpec], price: PriceOp) -> Row:
    """The row of an operator that makes new memory of these specs."""
    specs = values.specs
    ins, outs = tuple([specs[vid] for vid in op.inputs]), tuple([specs[vid] for vid in op.outputs])
    reads = None
    if all(spec.known for spec in ins):
        reads = sum(min(specs[vid].nbytes, sizes[values.storages[vid]]) for vid in set(op.inputs))
    made = [_size(spec) for spec in fresh] if op.kind != "view" else []
    return Row(
        op, ins, outs, *price(op, ins, outs, reads), sum(size for size, _ in made), sum(size for _, size in made)
    )


def _sums(modules: Sequence[str], priced: Sequence[tuple[Row, ...]]) -> list[tuple[str, tuple[Row, ...], int]]:
    counts = Counter(zip(modules, map(id, priced), strict=True))
    rows = {id(found): found for found in priced}
    return [(module, rows[number], count) for (module, number), count in counts.items()]


def _storage_bytes(values: PatternedValues) -> array[int]:
    """Bytes of each storage: those of the value that made it, else of the first that stands in it."""
    sizes = array("q", bytes(8 * len(values)))
    seen = bytearray(len(values))
    known: dict[int, int] = {}
    for vid, (spec, storage) in enumerate(zip(values.specs, values.storages, strict=True)):
        if vid == storage or not seen[storage]:
            nbytes = known.get(id(spec))
            if nbytes is None:
                nbytes = known[id(spec)] = _size(spec)[1]
            sizes[storage] = nbytes
            seen[storage] = 1
    return sizes


def _size(spec: TensorSpec) -> tuple[int, int]:
    """Elements and bytes; none where data decides."""
    return (spec.numel, spec.nbytes) if spec.known else (0, 0)
