"""Graph + rules -> Report: the cost of each distinct operator, rolled up the module tree in linear time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from opcost.analysis.memory import DeviceMemory, memory, storage_bytes
from opcost.analysis.patterned import CostAndRule, walk
from opcost.core.graph import (
    ASSUMED,
    UNSEEN,
    ZERO,
    Cost,
    Graph,
    Memory,
    Note,
    Op,
    Phase,
    TensorSpec,
    UnknownExtent,
    Value,
)
from opcost.core.interrupts import garbage_collector_paused, is_delivered
from opcost.core.kinds import check_operator
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
    cost_of,
    stats_of,
)
from opcost.core.steps import PatternedOps, PatternedValues
from opcost.errors import RuleError, shortened
from opcost.rules.registry import DEFAULT, Convention, OpView, Rules

Specs: TypeAlias = tuple[TensorSpec, ...]
FindCost: TypeAlias = Callable[[Op, Specs, Specs, "int | None"], tuple[Cost | None, str, str]]


@garbage_collector_paused()
def cost_graph(graph: Graph, rules: Rules, convention: Convention = DEFAULT, on: DeviceMemory | None = None) -> Report:
    """The cost of every operator of a graph, rolled up; memory as a device allocates it, where one is named."""
    rows: Sequence[Row]
    phases: dict[Phase, Cost]

    def found_cost(op: Op, ins: Specs, outs: Specs, reads: int | None) -> tuple[Cost | None, str, str]:
        check_operator(op.kind, op.raw, op.attrs, len(ins), len(outs))
        # A rule for this very operator knows the framework's words; the rule of a kind must not meet them.
        attrs = op.all_attrs if op.raw in rules or op.kind == "unknown" else op.attrs
        return apply_rule(rules, OpView(op.kind, op.raw, ins, outs, attrs, convention, reads))

    if isinstance(graph.ops, PatternedOps):  # a run that is stored as patterns, all of it forward
        reasons: dict[int, str] = {}

        def cost_op(op: Op, ins: Specs, outs: Specs, reads: int | None) -> CostAndRule:
            cost, rule, reasons[op.id] = found_cost(op, ins, outs, reads)
            return cost, rule

        rows, sums, missed, read, account = walk(graph, cost_op)
        own = {module.path: sums.get(module.path) or Stats() for module in graph.modules}
        phases = {"forward": cost_of(sum(own.values(), Stats()))}
    else:
        sizes = storage_bytes(graph)
        rows, reasons = _cost_rows(graph, found_cost, sizes)
        if graph.choices:
            rows = decided(graph, rows)
            graph = replace(graph, ops=tuple(row.op for row in rows))
        own_rows: dict[str, list[Row]] = {module.path: [] for module in graph.modules}
        by_phase: dict[Phase, list[Row]] = {}
        for row in rows:
            own_rows[row.op.module].append(row)
            by_phase.setdefault(row.op.phase, []).append(row)
        own = {path: stats_of(found) for path, found in own_rows.items()}
        phases = {phase: cost_of(stats_of(found)) for phase, found in by_phase.items()}
        missed = [(row, row.op.module, 1) for row in rows if row.cost is None]
        read = {graph.values[i].storage for op in graph.ops for i in op.inputs}
        account = partial(memory, graph, sizes, on, rows)
    peak, notes = _accounted(account, on)
    del account  # it has large arrays
    coverage = _coverage(len(rows), missed, reasons)
    parameters = _parameters(graph, read)
    modules = _roll_up(graph, own, parameters)
    return Report(
        meta={"source": graph.source, "framework": graph.framework, **graph.meta, "causal": convention.causal},
        rows=rows, modules=modules, parameters=parameters, totals=modules[0].total,
        phases=phases or {"forward": ZERO}, memory=peak,
        coverage=replace(coverage, exact=all(note.code not in (ASSUMED, UNSEEN) for note in graph.notes)),
        inputs=tuple((graph.values[i].name, graph.values[i].spec) for i in graph.inputs),
        outputs=tuple(graph.values[i].spec for i in graph.outputs),
        input_values=graph.inputs, output_values=graph.outputs, calls=graph.calls, notes=(*graph.notes, *notes),
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


def _cost_rows(
    graph: Graph, found_cost: FindCost, storage_sizes: dict[int, int]
) -> tuple[tuple[Row, ...], dict[int, str]]:
    """The rows, and by operator the reason where there is no cost."""
    values = graph.values
    written: set[int] = {value.storage for value in values if value.role != "activation"}
    known: dict[object, tuple[Cost | None, str, str]] = {}
    sizes: dict[int, tuple[int, int] | None] = {}  # elements and bytes of specs by identity: specs are shared, and slow
    reasons: dict[int, str] = {}
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

    rows = []
    for op in graph.ops:
        ids = op.inputs
        ins = tuple([values[i].spec for i in ids])
        outs = tuple([values[i].spec for i in op.outputs])
        reads = bytes_read(ids)
        # Front ends share attribute mappings and specs between equal operators: identity means equal content here.
        key = (op.kind, op.raw, id(op.attrs), id(op.native), reads, len(ins), *map(id, ins), *map(id, outs))
        found = known.get(key)
        if found is None:
            found = known[key] = found_cost(op, ins, outs, reads)
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
        rows.append(Row(op, ins, outs, cost, rule, elements, nbytes))
    return tuple(rows), reasons


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
    counts: dict[tuple[str, str], int] = {}
    modules: dict[tuple[str, str], dict[str, None]] = {}
    for row, module, count in missed:
        key = (row.op.raw, reasons.get(row.op.id) or NO_RULE)
        counts[key] = counts.get(key, 0) + count
        modules.setdefault(key, {})[module] = None
    uncounted = tuple(Uncounted(raw, count, tuple(modules[raw, why]), why) for (raw, why), count in counts.items())
    return Coverage(rows - sum(counts.values()), uncounted)


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
