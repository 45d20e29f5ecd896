"""Peak memory by liveness: every storage lives from the operator that makes it to the last one that reads it."""

from __future__ import annotations

from opcost.core.graph import Graph


def storage_bytes(graph: Graph) -> dict[int, int]:
    """Bytes of each storage: those of the value that made it, else of the first that stands in it."""
    sizes: dict[int, int] = {}
    known: dict[int, int] = {}
    for value in graph.values:
        if value.id == value.storage or value.storage not in sizes:
            spec = value.spec
            nbytes = known.get(id(spec))
            if nbytes is None:
                nbytes = known[id(spec)] = spec.nbytes if spec.known else 0
            sizes[value.storage] = nbytes
    return sizes


def peak_bytes(graph: Graph, sizes: dict[int, int] | None = None) -> int:
    """The highest sum of live bytes over the execution order.

    Parameters, buffers, constants and inputs live throughout, outputs until the end; an activation is freed after its last
    reader. Memory that an operator uses inside itself is not seen.
    """
    sizes = storage_bytes(graph) if sizes is None else sizes
    values = graph.values
    held = {value.storage for value in values if value.role != "activation"}
    live = sum(sizes[storage] for storage in held)
    kept = held | {values[i].storage for i in graph.outputs}
    last: dict[int, int] = {}
    ran = [op for op in graph.ops if op.repeat]
    for step, op in enumerate(ran):
        for i in op.inputs:
            last[values[i].storage] = step
        for i in op.outputs:
            last[values[i].storage] = step
    dying: dict[int, list[int]] = {}
    for storage, step in last.items():
        if storage not in kept:
            dying.setdefault(step, []).append(storage)
    peak = live
    alive = set(held)
    for step, op in enumerate(ran):
        for i in op.outputs:
            storage = values[i].storage
            if storage not in alive:
                alive.add(storage)
                live += sizes[storage]
        peak = max(peak, live)
        for storage in dying.get(step, ()):
            live -= sizes[storage]
    return peak
