"""Pricing of a run that is stored as patterns: each pattern once for every size of the memory that it reads.

What else a report asks of operators and values (peak memory, memory that is read, sums) is found step by step as well, so that
no operator is made only to be added up. The rules are those of `price` and `memory`; a test holds both ways to the same report.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from opcost.analysis.memory import NEVER, follow
from opcost.core.graph import Cost, Graph, Op, TensorSpec
from opcost.core.memory import Memory
from opcost.core.report import Row, Stats, stats_of
from opcost.core.steps import Expanded, Joined, Pattern, PatternedOps, PatternedValues, Single

Priced = tuple[Cost | None, str]
"""The cost of an operator, and the name of its rule."""
PriceOp = Callable[[Op, tuple[TensorSpec, ...], tuple[TensorSpec, ...], "int | None"], Priced]
"""Prices an operator with these inputs and outputs, and bytes read."""


Rows = tuple[Row, ...]
Chunks = Sequence[tuple[str, Rows]]
"""The rows of a step, call by call, with what follows the path of the step's module in the path of the call's."""


class PatternedRows(Expanded[Row]):
    """The priced operators of a run."""

    __slots__ = ("_ops", "_priced")

    def __init__(self, ops: PatternedOps, priced: Sequence[Chunks]) -> None:
        self._ops = ops
        self._priced = priced
        """Of every step the rows, whose operators have the numbers and modules of the first call that was alike."""

    def __len__(self) -> int:
        return len(self._ops)

    def _item(self, index: int) -> Row:
        step, place = self._ops.place(index)
        for _, rows in self._priced[step]:
            if place < len(rows):
                return rows[place]._replace(op=self._ops[index])
            place -= len(rows)
        raise IndexError(index)

    def __iter__(self) -> Iterator[Row]:
        rows = (row for step in self._priced for _, chunk in step for row in chunk)
        for op, row in zip(self._ops, rows, strict=True):
            yield row._replace(op=op)


class Walk(NamedTuple):
    """What one walk over the steps of a run finds."""

    rows: PatternedRows
    own: dict[str, Stats]
    """What the operators of each module cost."""
    missed: list[tuple[Row, str, int]]
    """The operators without a price, by the module that runs them and how often, in the order of the first time."""
    read: set[int]
    """The memory of leaves that some operator reads."""
    memory: Callable[[], Memory]
    """Adds up the memory."""


class _Plan:
    """What a pattern does to memory, wherever it runs."""

    __slots__ = ("new", "own", "touched", "touches")

    def __init__(self, own: Collection[int], new: list[list[int]], touches: list[tuple[int, int, bool]]) -> None:
        self.new = new
        """The new memory of each operator, by the value that made it."""
        self.touches = touches
        """Every value with an operator that reads or makes it, and whether it reads it, in the order of the operators."""
        last: dict[int, int] = {}
        read: dict[int, bool] = {}
        for at, offset, reads in touches:
            last[at] = offset
            read[at] = reads or read.get(at, False)
        made = {at: offset for offset, places in enumerate(new) for at in places}
        self.own = [(at, made[at], last.pop(at)) for at in own]
        """Every value in memory of its own, the operator that makes it, and the last one that reads or makes it."""
        self.touched = [(at, offset, read[at]) for at, offset in last.items()]
        """The same of others, which lie in some memory before or among those, and whether an operator reads them."""


def _plan_of(pattern: Single) -> _Plan:
    new = [[at for at in op.outputs if at in pattern.new] for op in pattern.ops]
    return _Plan(
        pattern.new,
        new,
        [
            (at, offset, reads)
            for offset, op in enumerate(pattern.ops)
            for places, reads in ((op.inputs, True), (op.outputs, False))
            for at in places
        ],
    )


def _plan_of_joined(pattern: Joined, plans: Sequence[_Plan]) -> _Plan:
    new: list[list[int]] = []
    touches: list[tuple[int, int, bool]] = []
    for part, plan in zip(pattern.parts, plans, strict=True):
        first, places = part.first, part.places
        for at, offset, reads in plan.touches:
            touches.append((first + at if at >= 0 else places[~at], len(new) + offset, reads))
        new += [[first + at for at in made] for made in plan.new]
    return _Plan(pattern.new, new, touches)


class _Pricing:
    """Prices calls and steps, those that are alike once."""

    def __init__(
        self, values: PatternedValues, sizes: Sequence[int], held: set[int], begin: int, price: PriceOp
    ) -> None:
        self._values = values
        self._sizes = sizes
        self._held = held
        self.taken_over = {storage for storage in held if storage >= begin}
        """Memory that a parameter took over from the operator that made it, so that it was there from the beginning."""
        self._price = price
        self._plans: dict[int, _Plan] = {}
        self._calls: dict[tuple[object, ...], Rows] = {}
        self._steps: dict[tuple[object, ...], Chunks] = {}

    def plan(self, pattern: Pattern) -> _Plan:
        found = self._plans.get(id(pattern))
        if found is None:
            if isinstance(pattern, Joined):
                found = _plan_of_joined(pattern, [self.plan(part.pattern) for part in pattern.parts])
            else:
                found = _plan_of(pattern)  # type: ignore[arg-type]
            self._plans[id(pattern)] = found
        return found

    def step(self, pattern: Pattern, arguments: Sequence[int], first: int, module: str, index: int) -> Chunks:
        """The rows of a step whose first operator has this index."""
        key = self._key(pattern, arguments, first)
        found = self._steps.get(key)
        if found is None:
            if isinstance(pattern, Joined):
                chunks = []
                for part in pattern.parts:
                    values, made = part.arguments(arguments, first), first + part.first
                    rows = self._call(part.pattern, values, made, module + part.below, index)
                    chunks.append((part.below, rows))
                    index += len(rows)
                found = chunks
            else:
                found = (("", self._call(pattern, arguments, first, module, index)),)
            self._steps[key] = found
        return found

    def _key(self, pattern: Pattern, arguments: Sequence[int], first: int) -> tuple[object, ...]:
        specs, storages, sizes = self._values.specs, self._values.storages, self._sizes
        key: tuple[object, ...] = (
            id(pattern),
            *[id(specs[vid]) for vid in arguments],
            *[sizes[storages[vid]] for vid in arguments],
        )
        # An operator that reads the same twice reads it once. Calls that are joined know which of their arguments are the same.
        if not isinstance(pattern, Joined) and len(set(arguments)) < len(arguments):
            key += tuple(map(arguments.index, arguments))
        if self.taken_over:
            key += ("taken", *[at for at in pattern.new if first + at in self.taken_over])
        return key

    def _call(self, pattern: Pattern, arguments: Sequence[int], first: int, module: str, index: int) -> Rows:
        key = self._key(pattern, arguments, first)
        rows = self._calls.get(key)
        if rows is None:
            specs = self._values.specs
            rows = self._calls[key] = tuple(
                [
                    _row(
                        op.run(index + offset, arguments, first, module), self._values, self._sizes, fresh, self._price
                    )
                    for offset, (op, new) in enumerate(zip(pattern.ops, self.plan(pattern).new, strict=True))
                    for fresh in ([specs[first + at] for at in new if first + at not in self._held],)
                ]
            )
        return rows


def walk(graph: Graph, price: PriceOp) -> Walk:
    """Price every step and follow the memory."""
    ops, values = graph.ops, graph.values
    assert isinstance(ops, PatternedOps)
    assert isinstance(values, PatternedValues)
    steps, specs, storages = ops.steps, values.specs, values.storages
    sizes = _storage_bytes(values)
    held = {storages[vid] for vid in values.roles}
    pricing = _Pricing(values, sizes, held, min(steps.firsts, default=0), price)
    priced: list[Chunks] = []
    born = array("i", [NEVER]) * len(specs)
    gone = array("i", [0]) * len(specs)
    read = bytearray(len(specs))
    index = at_argument = 0
    for pattern, first, module in zip(steps.patterns, steps.firsts, steps.modules, strict=True):
        arguments = steps.arguments[at_argument : at_argument + pattern.arity]
        at_argument += pattern.arity
        plan = pricing.plan(pattern)
        for at, made, last in plan.own:
            born[first + at] = index + made
            gone[first + at] = index + last + 1
        for at, last, reads in plan.touched:
            storage = storages[first + at if at >= 0 else arguments[~at]]
            gone[storage] = max(gone[storage], index + last + 1)
            if reads:
                read[storage] = 1
        priced.append(pricing.step(pattern, arguments, first, module, index))
        index += pattern.length
    for storage in pricing.taken_over:
        born[storage] = NEVER
    for vid in graph.outputs:
        gone[storages[vid]] = index
    return Walk(
        PatternedRows(ops, priced),
        *_summed(steps.modules, priced),
        {storage for storage in held if read[storage]},
        partial(follow, graph, sizes, held, born, gone),
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


def _summed(modules: Sequence[str], priced: Sequence[Chunks]) -> tuple[dict[str, Stats], list[tuple[Row, str, int]]]:
    """The sums of each module, and the operators that have no price."""
    ran = Counter(zip(modules, map(id, priced), strict=True))
    distinct = {id(chunks): chunks for chunks in priced}
    sums = {number: _by_module(chunks) for number, chunks in distinct.items()}
    parts: dict[str, list[Stats]] = {}
    missed: list[tuple[Row, str, int]] = []
    for (module, number), count in ran.items():
        by_module = sums[number]
        for below, stats in by_module.items():
            scaled = stats if count == 1 else Stats._make([quantity * count for quantity in stats])
            parts.setdefault(module + below, []).append(scaled)
        if any(stats.uncounted for stats in by_module.values()):
            missed += [
                (row, module + below, count) for below, rows in distinct[number] for row in rows if row.cost is None
            ]
    return {module: Stats._make(map(sum, zip(*found, strict=True))) for module, found in parts.items()}, missed


def _by_module(chunks: Chunks) -> dict[str, Stats]:
    """The sums of one step by what follows the path of its module."""
    rows: dict[str, list[Row]] = {}
    for below, chunk in chunks:
        rows.setdefault(below, []).extend(chunk)
    return {below: stats_of(found) for below, found in rows.items()}


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
