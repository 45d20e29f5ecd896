"""Graphs of other layouts with the same tensors, in which a few operators are left out or added.

What is recorded gathers shards again in the backward pass, and adds to gradients of an earlier pass. A layout without one of
these does the same otherwise; copies of the shards (HSDP) also sum their gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from itertools import accumulate

from opcost.core.graph import Attrs, Graph, Lifetimes, Op
from opcost.distributed.mesh import Mesh

RECORDED_PASSES = 2
"""Passes of the recorded step: in the second one gradients are there."""
NOTHING: Mapping[int, int] = {}


def variant(graph: Graph, *, copies: bool, reshard: bool, accumulates: bool) -> Graph:
    """The graph with or without copies of the shards, gathers in the backward pass, and gradients of earlier passes.

    The given one has no copies, and both others; it is of a step of `RECORDED_PASSES`.
    """
    if not reshard:
        graph = _without_gathers_in_backward(graph)
    if not accumulates:
        graph = _with_one_pass(graph)
    return _with_sums_over_copies(graph) if copies else graph


def counted(graph: Graph, mesh: Mesh, *, passes: int, recorded_passes: int) -> Graph:
    """The graph with the copies of a mesh and these passes, where it was recorded with others."""
    more = passes - recorded_passes
    attrs: dict[int, Attrs] = {}

    def changed(op: Op) -> Op:
        if op.phase != "update" and more:
            op = op._replace(repeat=op.repeat + more)
        axis = op.attrs.get("axis")
        if axis == "replicate":
            op = op._replace(attrs=attrs.setdefault(id(op.attrs), {**op.attrs, "group": mesh.replicate}))
        elif mesh.fsdp == 1 and isinstance(axis, str) and axis.startswith("fsdp_"):  # then it is the other axis alone
            op = op._replace(attrs=attrs.setdefault(id(op.attrs), {**op.attrs, "axis": axis.removeprefix("fsdp_")}))
        return op

    return replace(graph, ops=tuple(map(changed, graph.ops)))


def without(
    graph: Graph, left_out: Collection[int], instead: Mapping[int, int] = NOTHING, leaves: Collection[int] = ()
) -> Graph:
    """The graph without some operators and tensors that are there before it.

    Nothing else may read their results, but what they write in place: that is read as it was, or another value `instead`.
    """
    gone = set(leaves)
    read_instead: dict[int, int] = {}
    for number in sorted(left_out):
        op = graph.ops[number]
        own = {graph.values[vid].storage: read_instead.get(vid, vid) for vid in op.inputs}
        gone.update(op.outputs)
        storages = {vid: graph.values[vid].storage for vid in op.outputs}
        read_instead.update((vid, own[storage]) for vid, storage in storages.items() if storage in own)
        read_instead.update((vid, instead[vid]) for vid in op.outputs if vid in instead)
    values = [value for value in graph.values if value.id not in gone]
    ids = {value.id: number for number, value in enumerate(values)}
    ids |= {vid: ids[before] for vid, before in read_instead.items() if before in ids}
    times = [*accumulate((op.id not in left_out for op in graph.ops), initial=0)]
    ops = [op for op in graph.ops if op.id not in left_out]
    return replace(
        graph,
        values=tuple([value._replace(id=ids[value.id], storage=ids[value.storage]) for value in values]),
        ops=tuple([_renumbered(op, number, ids) for number, op in enumerate(ops)]),
        modules=tuple(
            replace(
                module,
                parameters=tuple((name, ids[vid]) for name, vid in module.parameters),
                buffers=tuple((name, ids[vid]) for name, vid in module.buffers),
            )
            for module in graph.modules
        ),
        calls=(),
        inputs=tuple(ids[vid] for vid in graph.inputs),
        outputs=tuple(ids[vid] for vid in graph.outputs),
        released=frozenset(ids[vid] for vid in graph.released),
        lifetimes=None if graph.lifetimes is None else _moved(graph.lifetimes, ids, times),
    )


def _renumbered(op: Op, number: int, ids: Mapping[int, int]) -> Op:
    return op._replace(
        id=number, inputs=tuple([ids[vid] for vid in op.inputs]), outputs=tuple([ids[vid] for vid in op.outputs])
    )


def _moved(life: Lifetimes, ids: Mapping[int, int], times: list[int]) -> Lifetimes:
    """The lifetimes of what is still there, with other numbers."""
    there = [(ids[s], times[t]) for s, t in zip(life.storages, life.times, strict=True) if s in ids]
    sets = {
        each.name: frozenset(ids[s] for s in found if s in ids)
        for each in fields(life)
        if isinstance(found := getattr(life, each.name), frozenset)
    }
    away = {
        ids[s]: tuple((times[freed], times[begin]) for freed, begin in intervals)
        for s, intervals in life.away.items()
        if s in ids
    }
    return replace(life, storages=tuple(s for s, _ in there), times=tuple(t for _, t in there), away=away, **sets)


def _life(graph: Graph) -> Lifetimes:
    return graph.lifetimes or Lifetimes((), ())


# -- what is left out ------------------------------------------------------------------------------------------------------


def _without_gathers_in_backward(graph: Graph) -> Graph:
    """Parameters that were gathered for the forward pass are kept: none is freed, gathered and copied out again."""
    storages = [value.storage for value in graph.values]
    touched_by: dict[int, list[Op]] = {}
    read: set[int] = set()
    for op in graph.ops:
        read.update(op.inputs)
        for storage in {storages[vid] for vid in (*op.inputs, *op.outputs)}:
            touched_by.setdefault(storage, []).append(op)
    # All that uses memory which is allocated for them
    left_out: set[int] = set()
    todo = [op for op in graph.ops if op.phase != "forward" and _of_fsdp(op, "all_gather")]
    while todo:
        op = todo.pop()
        left_out.add(op.id)
        for storage in {storages[vid] for vid in (*op.inputs, *op.outputs)}:
            if graph.values[storage].role == "activation" and touched_by[storage][0].phase != "forward":
                todo += [other for other in touched_by[storage] if other.id not in left_out]
    # And the views of parameters to which they copy
    copied_to = {storages[vid] for number in left_out for vid in graph.ops[number].outputs}
    left_out.update(
        op.id
        for op in graph.ops
        if op.kind == "view" and op.phase != "forward" and read.isdisjoint(op.outputs)
        and any(storages[vid] in copied_to for vid in op.outputs)
    )  # fmt: skip
    life = _life(graph)
    graph = replace(graph, lifetimes=replace(life, away=dict.fromkeys(life.away, ())))
    return without(graph, left_out)


def _with_one_pass(graph: Graph) -> Graph:
    """No gradients are there before, so that the new ones stay in place of those that they are added to."""
    life, values = _life(graph), graph.values
    adds = [op for op in graph.ops if op.phase != "update" and op.repeat < RECORDED_PASSES]
    new = {op.outputs[0]: op.inputs[1] for op in adds}
    kept = frozenset(values[vid].storage for vid in new.values())
    there = [(s, t) for s, t in zip(life.storages, life.times, strict=True) if s not in kept]
    life = replace(
        life, storages=tuple(s for s, _ in there), times=tuple(t for _, t in there),
        gradients=(life.gradients - life.carried) | kept, carried=frozenset(),
    )  # fmt: skip
    before = {value.id for value in values if value.storage in _life(graph).carried and value.role != "activation"}
    return without(replace(graph, lifetimes=life), {op.id for op in adds}, new, before)


# -- what is added ---------------------------------------------------------------------------------------------------------


def _with_sums_over_copies(graph: Graph) -> Graph:
    """What is left of the gradients after they were scattered is summed over the copies, and kept until all of it is."""
    ops, values = graph.ops, [*graph.values]
    scatters = [op for op in ops if _of_fsdp(op, "reduce_scatter")]
    scattered = {values[vid].storage for op in scatters for vid in op.outputs}
    attrs: Attrs = {"fn": "all_reduce", "group": 0, "axis": "replicate"}
    times = [*accumulate((1 + _of_fsdp(op, "reduce_scatter") for op in ops), initial=0)]
    summed: dict[int, int] = {}
    done: list[Op] = []
    for op in ops:
        inputs = tuple([summed.get(vid, vid) for vid in op.inputs])
        done.append(op._replace(id=len(done), inputs=inputs))
        if _of_fsdp(op, "reduce_scatter"):
            (vid,) = op.outputs
            summed[vid] = len(values)
            values.append(values[vid]._replace(id=len(values)))
            sent = op._replace(raw="c10d::allreduce_", inputs=(vid,), outputs=(summed[vid],), attrs=attrs)
            done.append(sent._replace(id=len(done)))
    # Copies in another type are part of what was scattered
    parts = set(scattered)
    last = 0
    for op in ops:
        if op.phase != "update" and not parts.isdisjoint(
            touched := {values[vid].storage for vid in (*op.inputs, *op.outputs)}
        ):
            last = op.id
            if op.kind == "copy":
                parts |= touched
    life = _life(graph)
    kept = tuple(
        times[last] + 1 if s in scattered else times[t] for s, t in zip(life.storages, life.times, strict=True)
    )
    away = {
        storage: tuple((times[freed], times[begin]) for freed, begin in intervals)
        for storage, intervals in life.away.items()
    }
    return replace(
        graph, values=tuple(values), ops=tuple(done), calls=(), lifetimes=replace(life, times=kept, away=away)
    )


def _of_fsdp(op: Op, fn: str) -> bool:
    """Whether it is a collective of FSDP, which hands its own memory to it."""
    return op.kind == "collective" and op.attrs.get("fn") == fn and op.raw.endswith("_base_")
