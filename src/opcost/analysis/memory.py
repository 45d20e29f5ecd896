"""Memory over the execution: what is live while each operator runs, the peak, and what it is made of."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice
from typing import NamedTuple

from opcost.core.devices import LIBRARY_BYTES, PROCESS_BYTES
from opcost.core.graph import PARTS, Graph, Lifetimes, Lives, Memory, MemoryPart, PeakHolder, packed
from opcost.core.lifetimes import NEVER, course
from opcost.core.report import Row
from opcost.devices.allocator import allocated_blocks

LONG_RUN = 100_000  # operators of a run above which its parts are known at the peak alone


def storage_bytes(graph: Graph) -> dict[int, int]:
    """Bytes of each storage: those of the value that made it, else of the first that is stored in it."""
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


class DeviceMemory(NamedTuple):
    """How a device holds memory."""

    name: str
    workspace: Callable[[Row], int]
    """The bytes that an operator takes for itself while it runs."""
    expandable: bool = False
    """Whether segments of its allocator grow."""


class Written(NamedTuple):
    """A value that a kernel of a compiler writes, and the operators after which it and its last reader run."""

    value: int
    nbytes: int
    at: int
    last: int


class CompiledMemory(NamedTuple):
    """What a compiler changes: results of these operators have memory only where kernels write them, until their last reader."""

    ops: frozenset[int]
    written: Sequence[Written]


def memory(
    graph: Graph, sizes: Mapping[int, int], on: DeviceMemory | None = None, rows: Sequence[Row] = (),
    compiled: CompiledMemory | None = None,
) -> Memory:  # fmt: skip
    """The memory of a graph over its operators, of which a device also needs the costs.

    Weights and inputs live throughout, an optimizer's state too, as from the second step on. What a run made lives until the
    run let it go; without a run, until its last reader has run, and outputs to the end.
    """
    permanent = {value.storage for value in graph.values if value.role != "activation"}
    graph, listed, sizes, born, gone = course(graph, sizes)
    if compiled is not None:
        sizes = _by_kernels(graph, compiled, sizes, born, gone)
    if on is None:
        return _by_row(follow(graph, sizes, permanent, born, gone), listed)
    # What is allocated, libraries first, and which storages these are: what lasts, inputs, what operators make
    lasts = {storage for storage, size in sizes.items() if size and born[storage] == NEVER}
    given = lasts & {graph.values[i].storage for i in graph.inputs}
    lasting, inputs = sorted(lasts - given - graph.released), sorted(given - graph.released)
    made = sorted(
        (max(step, 0), storage)
        for storage, step in enumerate(born)
        if (step != NEVER or storage in graph.released) and sizes[storage]
    )
    workspaces = [on.workspace(row) if row.op.repeat else 0 for row in rows]
    lives = Lives(
        lasting=[LIBRARY_BYTES, *(sizes[storage] for storage in lasting)],
        inputs=[sizes[storage] for storage in inputs],
        births=[step for step, _ in made],
        deaths=[max(gone[storage], step + 1) for step, storage in made],
        sizes=[sizes[storage] for _, storage in made],
        workspaces=[workspaces[number] for number in listed],
        expandable=on.expandable,
    )
    streams = _streams(graph)
    if streams:
        lives = replace(lives, streams=[streams.get(storage, 0) for _, storage in made])
    storages = [*lasting, *inputs, *(storage for _, storage in made)]
    handed = allocated_blocks(lives)
    blocks = dict.fromkeys(range(len(born)), 0)
    blocks.update(zip(storages, (*handed.lasting[1:], *handed.inputs, *handed.sizes), strict=True))
    found = follow(graph, blocks, permanent, born, gone, handed.workspaces)
    found = replace(found, device=on.name, reserved_bytes=handed.reserved, fixed_bytes=PROCESS_BYTES, lives=lives)
    return _by_row(found, listed)


def _by_row(found: Memory, listed: Sequence[int]) -> Memory:
    """The memory by the rows of a report: of one that runs several times, the most that is in use while it does."""
    if isinstance(listed, range):
        return found
    most: dict[int, int] = {}
    for step, row in enumerate(listed):
        if row not in most or found.curve[step] > found.curve[most[row]]:
            most[row] = step
    steps = [most[row] for row in range(len(most))]
    layers = {part: [curve[step] for step in steps] for part, curve in found.layers.items()}
    curve = packed((found.curve[step] for step in steps), found.peak_bytes)
    return replace(found, at=listed[found.at], curve=curve, layers=layers)


_OF_FSDP = {"all_gather": (1, ("inputs", "outputs")), "reduce_scatter": (2, ("outputs",))}
"""The streams in which FSDP gathers parameters and sums gradients, and which memory of these collectives it takes there."""


def _streams(graph: Graph) -> dict[int, int]:
    """The stream in which memory is allocated, where that is not the one of the operators.

    FSDP hands memory to its collectives (`_allgather_base_`); those of tensor parallelism make their results.
    """
    found: dict[int, int] = {}
    for op in graph.ops:
        if op.kind == "collective" and op.raw.endswith("_base_"):
            stream, sides = _OF_FSDP.get(str(op.attrs.get("fn", "")), (0, ()))
            found.update((graph.values[value].storage, stream) for side in sides for value in getattr(op, side))
    made = () if graph.order is None else enumerate(graph.order.storages, len(graph.values))
    return found | {at: found[storage] for at, storage in made if storage in found}


def _by_kernels(
    graph: Graph, compiled: CompiledMemory, sizes: Mapping[int, int], born: array[int], gone: array[int]
) -> Mapping[int, int]:
    """Give the results of compiled operators the memory that kernels write; births and deaths are changed in place.

    Gradients, gathered weights, what an optimizer remembers and what the model hands back stay as they are.
    """
    lifetimes, values = graph.lifetimes or Lifetimes((), ()), graph.values
    kept = {values[i].storage for i in graph.outputs}.union(lifetimes.gradients, lifetimes.state, lifetimes.gathered)
    sizes = dict(sizes)
    own = [step in compiled.ops and storage not in kept for storage, step in enumerate(born[: len(values)])]
    for storage, is_own in enumerate(own):
        if is_own:
            sizes[storage] = 0
    for value, nbytes, at, last in compiled.written:
        if not 0 <= value < len(values):  # computed again, or a part of a sum
            sizes[len(born)] = nbytes
            born.append(at)
            gone.append(last + 1)
        elif own[storage := values[value].storage]:
            born[storage] = min(at, born[storage]) if sizes[storage] else at
            sizes[storage] = max(sizes[storage], nbytes)
            gone[storage] = last + 1
    return sizes


def follow(
    graph: Graph,
    sizes: Mapping[int, int] | Sequence[int],
    permanent: Collection[int],
    born: Sequence[int],
    gone: Sequence[int],
    workspaces: Sequence[int] = (),
) -> Memory:
    """The same from the storages that are there before, the operator that makes each other one, and when it is gone.

    `workspaces` is what each operator takes for itself.
    """
    ops, lifetimes = graph.ops, graph.lifetimes or Lifetimes((), ())
    state = lifetimes.state
    base = sum(sizes[storage] for storage in state.union(permanent) - lifetimes.carried)
    curve = _curve(graph, sizes, permanent, born, gone, workspaces)
    at = max(range(len(curve)), key=curve.__getitem__, default=0)
    # What is there at the peak, by what it is, and by whose results it is
    lasting = _part_of_lasting(graph)
    parts = dict.fromkeys(PARTS, 0) | {"workspace": workspaces[at] if workspaces else 0}
    there = (storage for storage in permanent if storage not in graph.released or gone[storage] > at)
    for storage in state.union(there):
        parts["optimizer" if storage in state else lasting(storage)] += sizes[storage]
    part_of = _part_of_storage(graph, born, gone)
    found: dict[str, list[int]] = {}
    for storage, step in enumerate(born):
        if NEVER < step <= at and (step == at or gone[storage] > at):
            parts[part_of(storage)] += sizes[storage]
            if size := sizes[storage]:
                found.setdefault(ops[step].module, []).append(size)
    holders = [PeakHolder(module=module, bytes=sum(own), tensors=len(own)) for module, own in found.items()]
    return Memory(
        peak_bytes=max(curve, default=base), base_bytes=base, at=at, curve=curve,
        how="lifetimes" if graph.lifetimes else "last reader",
        parts={part: size for part, size in parts.items() if size},
        holders=tuple(sorted(holders, key=lambda holder: (-holder.bytes, holder.module))),
        layers=_layers(graph, sizes, born, gone, part_of) if len(ops) <= LONG_RUN else {},
    )  # fmt: skip


def curve_of(graph: Graph) -> Sequence[int]:
    """The bytes of tensors during each operator, without what they are."""
    permanent = {value.storage for value in graph.values if value.role != "activation"}
    graph, _, sizes, born, gone = course(graph, storage_bytes(graph))
    return _curve(graph, sizes, permanent, born, gone)


def _curve(
    graph: Graph, sizes: Mapping[int, int] | Sequence[int], permanent: Collection[int], born: Sequence[int],
    gone: Sequence[int], workspaces: Sequence[int] = (),
) -> array[int] | list[int]:  # fmt: skip
    """Bytes in use during each operator."""
    steps, lifetimes = len(graph.ops), graph.lifetimes or Lifetimes((), ())
    begun = sum(sizes[storage] for storage in lifetimes.state.union(permanent, lifetimes.carried))
    most = begun + _whole(sizes) + sum(workspaces)
    changes = packed([0], most) * (steps + 1)
    for storage, step in enumerate(born):
        if step != NEVER:
            size, end = sizes[storage], gone[storage]
            changes[step] += size
            changes[end if end > step else step + 1] -= size
    for storage in graph.released:
        changes[gone[storage]] -= sizes[storage]
    curve = packed(islice(accumulate(changes, initial=begun), 1, steps + 1), most)
    del changes  # of a long run it is as large as the curve
    for step, size in enumerate(workspaces):
        curve[step] += size
    return curve


def _whole(sizes: Mapping[int, int] | Sequence[int]) -> int:
    return sum(sizes.values() if isinstance(sizes, Mapping) else sizes)


def _part_of_lasting(graph: Graph) -> Callable[[int], MemoryPart]:
    """What a storage is that is there before."""
    inputs, lifetimes = {graph.values[i].storage for i in graph.inputs}, graph.lifetimes or Lifetimes((), ())

    def part_of(storage: int) -> MemoryPart:
        if storage in lifetimes.gradients:
            return "gradients"
        if storage in lifetimes.received:
            return "received"
        return "inputs" if storage in inputs else "weights"

    return part_of


def _part_of_storage(graph: Graph, born: Sequence[int], gone: Sequence[int]) -> Callable[[int], MemoryPart]:
    """What a storage is that some operator made."""
    ops = graph.ops
    outputs = {graph.values[i].storage for i in graph.outputs}
    lifetimes = graph.lifetimes or Lifetimes((), ())
    gradients, gathered = lifetimes.gradients, lifetimes.gathered
    trains = isinstance(ops, tuple) and any(op.phase != "forward" for op in ops)  # long runs are all forward
    later = [*accumulate((op.phase != "forward" for op in ops), initial=0)] if trains else []
    """How many operators before each are not of the forward pass."""

    def part_of(storage: int) -> MemoryPart:
        if storage in gradients:
            return "gradients"
        if storage in gathered:
            return "gathered"
        if storage in outputs:
            return "outputs"
        begins, ends = born[storage], gone[storage]
        is_saved = trains and ops[begins].phase == "forward" and later[begins] < later[ends]
        return "saved" if is_saved else "temporary"

    return part_of


def _layers(
    graph: Graph, sizes: Mapping[int, int] | Sequence[int], born: Sequence[int], gone: Sequence[int],
    part_of: Callable[[int], MemoryPart],
) -> dict[MemoryPart, Sequence[int]]:  # fmt: skip
    """The curve of each part that comes and goes, and of gradients that stay."""
    steps, most = len(graph.ops), _whole(sizes)
    changes: defaultdict[MemoryPart, array[int] | list[int]] = defaultdict(lambda: packed([0], most) * (steps + 1))
    for storage, step in enumerate(born):
        if step != NEVER and sizes[storage]:
            own = changes[part_of(storage)]
            own[step] += sizes[storage]
            own[max(gone[storage], step + 1)] -= sizes[storage]
    if graph.lifetimes and graph.lifetimes.carried and steps:
        changes["gradients"][0] += sum(sizes[storage] for storage in graph.lifetimes.carried)
    lasting = _part_of_lasting(graph)
    passing = {lasting(storage) for storage in graph.released} if steps else set()
    for storage in {value.storage for value in graph.values if value.role != "activation"} if passing else ():
        if (part := lasting(storage)) in passing:
            changes[part][0] += sizes[storage]
    for storage in graph.released if passing else ():
        changes[lasting(storage)][gone[storage]] -= sizes[storage]
    parts = list(changes)  # one after another, so that only one is there twice
    return {part: packed(islice(accumulate(changes.pop(part)), steps), most) for part in parts}
