"""Graph + rules -> Report: the cost of each distinct operator, rolled up the module tree in linear time.

A long run is stored as steps, and there each pattern is counted once for every size of the memory that it reads. What else a
report needs (peak memory, memory that is read, sums) is found step by step as well, so that no operator is made only to be added
up. A test compares the two reports.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, compress, count, repeat

from opcost.analysis.memory import DeviceMemory, follow, memory, storage_bytes
from opcost.core.graph import INEXACT, Cost, Graph, Memory, Note, Op, Phase, TensorSpec, UnknownExtent, Value, packed
from opcost.core.interrupts import garbage_collector_paused, is_delivered
from opcost.core.kinds import check_operator
from opcost.core.lifetimes import NEVER
from opcost.core.order import StageCost, most_in_flight
from opcost.core.report import (
    DATA,
    NO_MEMORY,
    NO_RULE,
    Coverage,
    ModuleCost,
    Parameter,
    Report,
    Row,
    Stats,
    Uncounted,
    stats_of,
)
from opcost.core.steps import Expanded, Pattern, PatternedOps, PatternedValues, Steps
from opcost.errors import RuleError, shortened
from opcost.rules.registry import DEFAULT, Convention, OpView, Rules


@garbage_collector_paused()
def cost_graph(graph: Graph, rules: Rules, convention: Convention = DEFAULT, on: DeviceMemory | None = None) -> Report:
    """The cost of every operator of a graph, rolled up; memory as a device allocates it, where one is named."""
    rows: Sequence[Row]
    phases: dict[Phase, Cost]
    reasons: dict[int, str] = {}
    if isinstance(graph.ops, PatternedOps):  # a run that is stored as patterns, all of it forward
        rows, sums, missed, read, account = _walk(graph, rules, convention, reasons)
        own = {module.path: sums.get(module.path) or Stats() for module in graph.modules}
        phases = {"forward": sum(own.values(), Stats()).cost}
    else:
        sizes = storage_bytes(graph)
        written = {value.storage for value in graph.values if value.role != "activation"}
        rows = tuple(map(_row_maker(graph.values, sizes, written, rules, convention, reasons), graph.ops))
        if graph.choices:
            rows = decided(graph, rows)
            graph = replace(graph, ops=tuple(row.op for row in rows))
        own_rows: dict[str, list[Row]] = {module.path: [] for module in graph.modules}
        by_phase: dict[Phase, list[Row]] = {}
        for row in rows:
            own_rows[row.op.module].append(row)
            by_phase.setdefault(row.op.phase, []).append(row)
        own = {path: stats_of(found) for path, found in own_rows.items()}
        phases = {phase: stats_of(found).cost for phase, found in by_phase.items()}
        missed = [(row, row.op.module, 1) for row in rows if row.cost is None]
        read = {graph.values[i].storage for op in graph.ops for i in op.inputs}
        account = partial(memory, graph, sizes, on, rows)
    peak, notes = _accounted(account, on)
    del account  # it has large arrays
    coverage = _coverage(len(rows), missed, reasons)
    parameters = _parameters(graph, read)
    modules = _roll_up(graph, own, parameters)
    ranks = tuple(cost_graph(other, rules, convention, on) for other in graph.pipeline)
    return Report(
        meta={"source": graph.source, "framework": graph.framework, **graph.meta, "causal": convention.causal},
        rows=rows, modules=modules, parameters=parameters, totals=modules[0].total,
        phases=phases or {"forward": Cost()}, memory=peak,
        coverage=replace(coverage, exact=all(note.code not in INEXACT for note in graph.notes)),
        inputs=graph.given or tuple((graph.values[i].name, graph.values[i].spec) for i in graph.inputs),
        outputs=tuple(graph.values[i].spec for i in graph.outputs),
        input_values=graph.inputs, output_values=graph.outputs, calls=graph.calls, notes=(*graph.notes, *notes),
        stages=tuple(map(_stage, range(len(ranks)), ranks)), order=graph.order, pipeline=ranks,
        parts=graph.order.parts if graph.order else (),
    )  # fmt: skip


def _stage(rank: int, report: Report) -> StageCost:
    """What a rank of a pipeline has and does, in short."""
    sent = [line for line in report.collectives if line.collective == "send"]
    events = () if report.order is None else report.order.events
    return StageCost(
        rank=rank, stages=report.meta.get("stages", ""), blocks=report.meta.get("blocks", ""), params=report.totals.params,
        macs=report.totals.macs, flops=report.totals.flops, in_flight=most_in_flight(events),
        saved_bytes=0 if report.memory is None else report.memory.parts.get("saved", 0), peak_bytes=report.peak_bytes,
        messages=sum(line.calls for line in sent), sent_bytes=sum(line.wire_bytes for line in sent),
    )  # fmt: skip


def _accounted(account: Callable[[], Memory], on: DeviceMemory | None) -> tuple[Memory | None, tuple[Note, ...]]:
    """The memory, and notes about it; an account that fails leaves the counts as they are."""
    try:
        found = account()
    except Exception as exc:
        if is_delivered(exc):
            raise
        text = f"memory is not reported, because its account failed with {type(exc).__name__}: {shortened(str(exc))}"
        return None, (Note(NO_MEMORY, text),)
    if on is None or found.device:
        return found, ()
    text = "so long a run is not followed tensor by tensor: memory is that of tensors alone, and not as the device holds it"
    return found, (Note("memory", text),)


def _row_maker(
    values: Sequence[Value], storage_sizes: Mapping[int, int] | Sequence[int], written: set[int], rules: Rules,
    convention: Convention, reasons: dict[int, str],
) -> Callable[[Op], Row]:  # fmt: skip
    """A function that makes the row of an operator, in the order of execution.

    It adds to `written` the storages that have been written, and to `reasons`, by operator, why there is no cost.
    """
    known: dict[object, tuple[Cost | None, str, str]] = {}
    sizes: dict[int, tuple[int, int] | None] = {}  # elements and bytes of specs by identity: specs are shared, and slow
    behind: dict[int, str] = {}  # by value: the operator without a cost that leaves its size open

    def size_of(spec: TensorSpec) -> tuple[int, int] | None:
        """None where data decides."""
        if id(spec) not in sizes:
            sizes[id(spec)] = (spec.numel, spec.nbytes) if spec.known else None
        return sizes[id(spec)]

    def bytes_read(ids: tuple[int, ...]) -> int | None:
        """Of the distinct inputs, None where data decides; a broadcast view cannot read more than its storage has."""
        total = 0
        for i in ids if len(ids) < 2 else set(ids):
            value = values[i]
            size = size_of(value.spec)
            if size is None:
                return None
            total += min(size[1], storage_sizes[value.storage])
        return total

    def row_of(op: Op) -> Row:
        ids = op.inputs
        ins = tuple([values[i].spec for i in ids])
        outs = tuple([values[i].spec for i in op.outputs])
        reads = bytes_read(ids)
        # Front ends share attribute mappings and specs between equal operators: identity means equal content here.
        key = (op.kind, op.raw, id(op.attrs), id(op.native), reads, len(ins), *map(id, ins), *map(id, outs))
        found = known.get(key)
        if found is None:
            check_operator(op.kind, op.raw, op.attrs, len(ins), len(outs))
            # A rule for this very operator knows the framework's words; the rule of a kind must not meet them.
            attrs = op.all_attrs if op.raw in rules or op.kind == "unknown" else op.attrs
            found = known[key] = apply_rule(rules, OpView(op.kind, op.raw, ins, outs, attrs, convention, reads))
        cost, rule, reason = found
        source = next((behind[i] for i in ids if i in behind), "") if behind else ""
        if reason:
            of_source = f"its inputs come from {source}, which is not counted"
            reasons[op.id] = of_source if source and reason == DATA else reason
            if not source and reason != DATA:
                source = op.raw
        if source:
            behind.update((i, source) for i in op.outputs if not values[i].spec.known)
        elements = nbytes = 0
        for i in op.outputs:
            value = values[i]
            if value.storage not in written:
                written.add(value.storage)
                if op.phase == "forward" and op.kind != "view" and (size := size_of(value.spec)) is not None:
                    elements += size[0]
                    nbytes += size[1]
        return Row(op, ins, outs, cost, rule, elements, nbytes)

    return row_of


def apply_rule(rules: Rules, view: OpView) -> tuple[Cost | None, str, str]:
    """Cost, rule name, and the reason where there is no cost."""
    found = rules.for_op(view.kind, view.raw)
    if found is None:
        return None, "", str(view.get("reason") or NO_RULE)
    name, rule = found
    try:
        cost = rule(view)
    except UnknownExtent:
        return None, name, DATA
    except Exception as exc:
        if is_delivered(exc):
            raise
        shapes = f"inputs ({', '.join(map(str, view.ins))}) and outputs ({', '.join(map(str, view.outs))})"
        raise RuleError(f"the rule {name!r} failed on {view.raw} with {shapes}: {type(exc).__name__}: {exc}") from exc
    if not isinstance(cost, Cost):
        raise RuleError(
            f"the rule {name!r} returned {cost!r} for {view.raw}", hint="return op.cost(macs=..., flops=...)"
        )
    return cost, name, ""


def _parameters(graph: Graph, read: set[int]) -> tuple[Parameter, ...]:
    """Parameters and buffers by storage, with every name they go by, in definition order."""
    values = graph.values
    read.update(values[i].storage for i in graph.outputs)
    names: dict[int, list[str]] = {}
    first: dict[int, Value] = {}
    for module in graph.modules:
        for name, value_id in (*module.parameters, *module.buffers):
            value = values[value_id]
            full = f"{module.path}.{name}" if module.path else name
            names.setdefault(value.storage, []).append(full)
            kept = first.setdefault(value.storage, value)
            if value.role == "param" and (kept.role != "param" or value.id == value.storage):
                first[value.storage] = value
    stored: dict[int, list[int]] = {}
    for value in values.leaves() if isinstance(values, PatternedValues) else values:
        if value.role in ("param", "buffer"):
            stored.setdefault(value.storage, []).append(value.id)
            if value.storage not in first:  # a source without modules still has weights
                first[value.storage] = value
                names[value.storage] = [value.name]
    return tuple(
        Parameter(
            names=tuple(names[storage]), spec=value.spec, trainable=value.trainable, used=storage in read,
            buffer=value.role == "buffer", values=tuple(stored.get(storage, ())),
        )
        for storage, value in first.items()
    )  # fmt: skip


def _roll_up(graph: Graph, own: dict[str, Stats], parameters: Iterable[Parameter]) -> tuple[ModuleCost, ...]:
    """Own and total of every module, each module visited once; `own` is what their operators cost."""
    for parameter in parameters:
        owner = parameter.name.rpartition(".")[0]
        while owner and owner not in own:  # a name with a dot in it
            owner = owner.rpartition(".")[0]
        spec, stats = parameter.spec, own[owner]
        numel, nbytes = (spec.numel, spec.nbytes) if spec.known else (0, 0)
        if parameter.buffer:
            own[owner] = stats._replace(buffers=stats.buffers + numel, buffer_bytes=stats.buffer_bytes + nbytes)
        else:
            own[owner] = stats._replace(
                params=stats.params + numel,
                param_bytes=stats.param_bytes + nbytes,
                trainable_params=stats.trainable_params + (numel if parameter.trainable else 0),
                unused_params=stats.unused_params + (0 if parameter.used else numel),
            )
    total = dict(own)
    for module in reversed(graph.modules[1:]):
        parent = module.path.rpartition(".")[0]
        total[parent] = total[parent] + total[module.path]
    return tuple(
        ModuleCost(
            path=module.path, type=module.type, depth=module.path.count(".") + 1 if module.path else 0,
            calls=module.calls, own=own[module.path], total=total[module.path], extra=module.extra,
            inputs=module.inputs, outputs=module.outputs, same_as=module.same_as,
            parameters=tuple(f"{module.path}.{name}" if module.path else name for name, _ in module.parameters),
        )
        for module in graph.modules
    )  # fmt: skip


def _coverage(rows: int, missed: Iterable[tuple[Row, str, int]], reasons: dict[int, str]) -> Coverage:
    """How many rows have a cost, given those that have none, each with its module and how often it counts."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for row, module, times in missed:
        found.setdefault((row.op.raw, reasons.get(row.op.id) or NO_RULE), Counter())[module] += times
    uncounted = tuple(Uncounted(raw, by.total(), tuple(by), why) for (raw, why), by in found.items())
    return Coverage(rows - sum(each.count for each in uncounted), uncounted)


# -- choice: Branches of which data takes one: the most expensive counts, and the others are shown as run no times.


def decided(graph: Graph, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """The rows, of which those of all but the most expensive branches have no repetition. Inner choices come first."""
    found = list(rows)
    for branches in graph.choices:
        sums = [stats_of(found[begin:end]) for begin, end in branches]
        costs = [(each.macs, each.flops, each.bytes_read + each.bytes_written) for each in sums]
        taken = costs.index(max(costs))
        for place, (begin, end) in enumerate(branches):
            if place != taken:
                found[begin:end] = [row._replace(op=row.op._replace(repeat=0)) for row in found[begin:end]]
    return tuple(found)


# -- a run that is stored as steps -----------------------------------------------------------------------------------------


class PatternedRows(Expanded[Row]):
    """The operators of a run with their costs."""

    __slots__ = ("_numbers", "_ops", "_rows")

    def __init__(self, ops: PatternedOps, rows: Sequence[tuple[Row, ...]], numbers: Sequence[int]) -> None:
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

    def distinct(self) -> Iterable[Row]:
        """One row of all steps that are alike, with their number as its repetitions; values are those of the first."""
        for number, times in Counter(self._numbers).items():
            for row in self._rows[number]:
                yield row._replace(op=row.op._replace(repeat=row.op.repeat * times))


def _walk(
    graph: Graph, rules: Rules, convention: Convention, reasons: dict[int, str]
) -> tuple[PatternedRows, dict[str, Stats], list[tuple[Row, str, int]], set[int], Callable[[], Memory]]:
    """The rows of a run; what the operators of each module cost; and those without a cost, with their modules and how often.

    Then the memory of parameters, buffers, inputs and constants that some operator reads, and what adds up the memory.
    """
    ops, values = graph.ops, graph.values
    assert isinstance(ops, PatternedOps)
    assert isinstance(values, PatternedValues)
    steps, specs, storages = ops.steps, values.specs, values.storages
    sizes, differing = _storage_bytes(values)
    kept = {storages[vid] for vid in values.roles}
    begin = min(steps.firsts, default=0)
    taken_over = {storage for storage in kept if storage >= begin}
    """Memory that a parameter took over from the operator that made it, so that it was there from the beginning."""
    row_of = _row_maker(values, sizes, written := set(kept), rules, convention, reasons)
    rows: list[tuple[Row, ...]] = []
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
                written.update(storages[vid] for vid in arguments)
                ran = (op.run(index + offset, arguments, first, module) for offset, op in enumerate(pattern.ops))
                rows.append(tuple(map(row_of, ran)))
        numbers.append(found)
        index += length
    for storage in taken_over:
        born[storage] = NEVER
    for vid in graph.outputs:
        gone[storages[vid]] = index
    return (
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


def _summed(
    steps: Steps, rows: Sequence[tuple[Row, ...]], numbers: Sequence[int]
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
    known = {key: spec.nbytes if spec.known else 0 for key, spec in distinct.items()}
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
