"""Costs of a run that is stored as steps: each pattern once for every size of the memory that it reads.

What else a report needs of operators and values (peak memory, memory that is read, sums) is found step by step as well, so that
no operator is made only to be added up. The rules are those of `costing` and `memory`; a test compares the two reports.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain, compress, count, repeat
from typing import NamedTuple

from opcost.analysis.memory import NEVER, follow
from opcost.core.graph import Cost, Graph, Memory, Op, TensorSpec, packed
from opcost.core.report import Row, Stats, stats_of
from opcost.core.steps import Expanded, Pattern, PatternedOps, PatternedValues, Steps

CostAndRule = tuple[Cost | None, str]  # The cost of an operator, and the name of its rule
CostOf = Callable[[Op, tuple[TensorSpec, ...], tuple[TensorSpec, ...], "int | None"], CostAndRule]
"""Finds the cost of an operator with these inputs and outputs, and bytes read."""
Rows = tuple[Row, ...]


class PatternedRows(Expanded[Row]):
    """The operators of a run with their costs."""

    __slots__ = ("_numbers", "_ops", "_rows")

    def __init__(self, ops: PatternedOps, rows: Sequence[Rows], numbers: Sequence[int]) -> None:
        self._ops = ops
        self._rows = rows
        """Of steps that are alike, whose operators have the numbers and modules of the first."""
        self._numbers = numbers
        """Of every step the position of its rows."""

    def __len__(self) -> int:
        return len(self._ops)

    def _item(self, index: int) -> Row:
        step, place = self._ops.place(index)
        return self._rows[self._numbers[step]][place]._replace(op=self._ops[index])

    def __iter__(self) -> Iterator[Row]:
        rows = (row for number in self._numbers for row in self._rows[number])
        for op, row in zip(self._ops, rows, strict=True):
            yield row._replace(op=op)


class WalkResult(NamedTuple):
    """What one walk over the steps of a run finds."""

    rows: PatternedRows
    own: dict[str, Stats]  # What the operators of each module cost
    missed: list[tuple[Row, str, int]]
    """The operators without a cost, by the module that runs them and how often, in the order of the first time."""
    read: set[int]  # The memory of parameters, buffers, inputs and constants that some operator reads
    memory: Callable[[], Memory]  # Adds up the memory


def walk(graph: Graph, cost_of: CostOf) -> WalkResult:
    """Find the cost of every step and follow the memory."""
    ops, values = graph.ops, graph.values
    assert isinstance(ops, PatternedOps)
    assert isinstance(values, PatternedValues)
    steps, specs, storages = ops.steps, values.specs, values.storages
    sizes, differing = _storage_bytes(values)
    kept = {storages[vid] for vid in values.roles}
    begin = min(steps.firsts, default=0)
    taken_over = {storage for storage in kept if storage >= begin}
    """Memory that a parameter took over from the operator that made it, so that it was there from the beginning."""
    rows: list[Rows] = []
    numbers = array("i")
    known: dict[object, int] = {}
    uses = {pattern: _memory_use(pattern) for pattern in {pattern for pattern, _ in steps.kinds}}
    use_of_kind = [uses[pattern] for pattern, _ in steps.kinds]
    row_of_kind = [-1] * len(steps.kinds)  # where all values are as the pattern says
    born = array("i", [NEVER]) * len(specs)
    gone = array("i", [0]) * len(specs)
    read = bytearray(len(specs))
    given = steps.arguments
    differing_arguments = chain(compress(count(), map(differing.__getitem__, given)), repeat(len(given)))
    taken_values = chain(sorted(taken_over), repeat(len(specs)))
    next_differing, next_taken = next(differing_arguments), next(taken_values)
    index = at_argument = 0
    for kind, first in zip(steps.numbers, steps.firsts, strict=True):
        arity, length, values_made, made, used = use_of_kind[kind]
        for at, offset in made:
            born[first + at] = index + offset
        for end, at, reads in used:  # in the order of their ends, so that the last one counts
            storage = storages[first + at if at >= 0 else given[at_argument + ~at]]
            gone[storage] = index + end
            if reads:
                read[storage] = 1
        begin, at_argument = at_argument, at_argument + arity
        same_pair = arity == 2 and given[begin] == given[begin + 1]
        repeated = same_pair or (arity > 2 and len(set(given[begin:at_argument])) < arity)
        found = row_of_kind[kind]
        if found < 0 or repeated or next_differing < at_argument or next_taken < first + values_made:
            pattern, module = steps.kinds[kind]
            arguments = given[begin:at_argument]
            key: list[object] = [pattern]
            if next_differing < at_argument:
                key += [(id(specs[vid]), sizes[storages[vid]]) for vid in arguments]
            if repeated:  # An operator that reads the same twice reads it once.
                key += ["repeated", *map(arguments.index, arguments)]
            if taken := [at for at in pattern.new if first + at in taken_over]:
                key += ["taken", *taken]
            while next_differing < at_argument:
                next_differing = next(differing_arguments)
            while next_taken < first + values_made:
                next_taken = next(taken_values)
            found = known.setdefault(tuple(key), len(rows))
            if len(key) == 1:
                row_of_kind[kind] = found
            if found == len(rows):
                ran = [op.run(index + offset, arguments, first, module) for offset, op in enumerate(pattern.ops)]
                new = {first + at for at in pattern.new} - kept
                rows.append(tuple([_row(op, values, sizes, new, cost_of) for op in ran]))
        numbers.append(found)
        index += length
    for storage in taken_over:
        born[storage] = NEVER
    for vid in graph.outputs:
        gone[storages[vid]] = index
    return WalkResult(
        PatternedRows(ops, rows, numbers),
        *_summed(steps, rows, numbers),
        {storage for storage in kept if read[storage]},
        partial(follow, graph, sizes, kept, born, gone),
    )


def _memory_use(pattern: Pattern) -> tuple[int, int, int, list[tuple[int, int]], list[tuple[int, int, bool]]]:
    """How many arguments, operators and values a pattern has, and what it does to memory wherever it runs.

    That is each value in memory of its own with the operator that makes it; then, of every value, after how many operators it is
    not used any more, and whether an operator reads it.
    """
    new = set(pattern.new)
    made: list[tuple[int, int]] = []
    read: set[int] = set()
    last: dict[int, int] = {}
    for offset, op in enumerate(pattern.ops):
        made += [(at, offset) for at in op.outputs if at in new]
        last.update(dict.fromkeys((*op.inputs, *op.outputs), offset + 1))
        read.update(op.inputs)
    used = sorted((end, at, at in read) for at, end in last.items())
    return pattern.arity, pattern.length, len(pattern.specs), made, used


def _row(op: Op, values: PatternedValues, sizes: Sequence[int], new: Collection[int], cost_of: CostOf) -> Row:
    """The row of an operator, given the values in new memory."""
    specs = values.specs
    ins, outs = tuple([specs[vid] for vid in op.inputs]), tuple([specs[vid] for vid in op.outputs])
    reads = None
    if all(spec.known for spec in ins):
        reads = sum(min(specs[vid].nbytes, sizes[values.storages[vid]]) for vid in set(op.inputs))
    made = [_size(specs[vid]) for vid in op.outputs if vid in new] if op.kind != "view" else []
    return Row(
        op, ins, outs, *cost_of(op, ins, outs, reads), sum(size for size, _ in made), sum(size for _, size in made)
    )


def _summed(
    steps: Steps, rows: Sequence[Rows], numbers: Sequence[int]
) -> tuple[dict[str, Stats], list[tuple[Row, str, int]]]:
    """The sums of each module, and the operators without a cost."""
    sums = [stats_of(step) for step in rows]
    parts: dict[str, list[Stats]] = {}
    missed: list[tuple[Row, str, int]] = []
    for (kind, number), times in Counter(zip(steps.numbers, numbers, strict=True)).items():
        module, stats = steps.kinds[kind][1], sums[number]
        parts.setdefault(module, []).append(Stats._make([quantity * times for quantity in stats]))
        if stats.uncounted:
            missed += [(row, module, times) for row in rows[number] if row.cost is None]
    return {module: Stats._make(map(sum, zip(*found, strict=True))) for module, found in parts.items()}, missed


def _storage_bytes(values: PatternedValues) -> tuple[Sequence[int], bytearray]:
    """Bytes of each storage, and which values differ in bytes from what their pattern and signature say, or may do so.

    A storage has the bytes of the value that made it, else of the first that is in it. A value that is expanded has more bytes
    than its storage.
    """
    distinct = dict(zip(map(id, values.specs), values.specs, strict=True))
    known = {key: _size(spec)[1] for key, spec in distinct.items()}
    sizes = packed([0], max(known.values(), default=0)) * len(values)
    seen = bytearray(len(values))
    differing = bytearray(len(values))
    late: set[int] = set()
    for vid, (spec, storage) in enumerate(zip(values.specs, values.storages, strict=True)):
        nbytes = known[id(spec)]
        if vid == storage or not seen[storage]:
            if seen[storage]:
                late.add(storage)
            sizes[storage] = nbytes
            seen[storage] = 1
        elif nbytes > sizes[storage]:
            differing[vid] = 1
    for vid in values.packed if not late else range(len(values)):
        if vid in values.packed or values.storages[vid] in late:
            differing[vid] = 1
    return sizes, differing


def _size(spec: TensorSpec) -> tuple[int, int]:
    """Elements and bytes; none where data decides."""
    return (spec.numel, spec.nbytes) if spec.known else (0, 0)
