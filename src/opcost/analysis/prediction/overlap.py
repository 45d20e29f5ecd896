"""One rank of many in time: its operators run one after another, its collectives beside them, one after another on each axis.

What an operator reads of a collective, it waits for. When a collective begins:

- A gather of parameters (FSDP) depends on nothing that the step computes. FSDP2 begins it when the parameters gathered before it
  have been copied out, so one block ahead; copying its own shards in runs beside the computation too.
- Any other one begins where the program calls it. Before a reduce-scatter the one before it must be done, since FSDP2 then frees
  what that read.
- An update begins when all of them are done.

Where the host is not known it is ahead of the device. What runs at the same time slows nothing else down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from opcost.core.graph import Op
from opcost.core.report import Row


@dataclass(slots=True)
class Sent:
    """One collective: how long it takes, when it runs, and how long the operators wait for it."""

    row: Row
    axis: str
    start_ns: float
    taken_ns: float
    exposed_ns: float = 0.0

    @property
    def end_ns(self) -> float:
        return self.start_ns + self.taken_ns


@dataclass(slots=True)
class Timeline:
    """When everything is done, the collectives in the order of the program, and the operators that run beside the others."""

    end_ns: float = 0.0
    sent: list[Sent] = field(default_factory=list)
    host_ns: float = 0.0
    """The time in which the device waits for the host."""
    beside: frozenset[int] = frozenset()

    def exposed_ns(self) -> dict[str, int]:
        """The time in which operators wait for collectives, by axis."""
        return self._by_axis(lambda sent: sent.exposed_ns)

    def taken_ns(self) -> dict[str, int]:
        """The time in which collectives run, by axis."""
        return self._by_axis(lambda sent: sent.taken_ns)

    def _by_axis(self, of: Callable[[Sent], float]) -> dict[str, int]:
        found: Counter[str] = Counter()
        for sent in self.sent:
            found[sent.axis] += round(of(sent))
        return dict(found)


def is_sent(op: Op) -> bool:
    """Whether an operator is a collective that sends something; waiting for one is none."""
    return op.kind == "collective" and op.attrs.get("fn") != "wait"


def timeline(
    rows: Sequence[Row], inputs: Sequence[int], taken: Mapping[int, float], sent_ns: Callable[[Row], float],
    launched: Mapping[int, float] | None = None,
) -> Timeline:  # fmt: skip
    """The operators of a report with the time that each has `taken` by its identity, and collectives by `sent_ns`.

    Nothing begins before the host has `launched` it, where that is given.
    """
    launched = launched or {}
    beside = _copies_beside(rows, inputs)
    found = Timeline(beside=frozenset(each for copies in beside.values() for each in copies))
    now = 0.0
    free: dict[str, float] = {}  # when an axis has sent what it was given
    copied_out: dict[str, float] = {}  # when what an axis gathered last was copied out
    scattered: dict[str, Sent] = {}
    coming: dict[int, Sent] = {}  # values that a collective makes, and views of them

    def wait(*awaited: Sent) -> None:
        nonlocal now
        for sent in sorted(awaited, key=lambda sent: sent.end_ns):
            if sent.end_ns > now:
                sent.exposed_ns += sent.end_ns - now
                now = sent.end_ns

    updating = False
    for row in rows:
        op = row.op
        if op.id in found.beside:
            continue
        if launched.get(op.id, 0.0) > now and op.kind != "view":
            found.host_ns += launched[op.id] - now
            now = launched[op.id]
        reads = {id(coming[value]): coming[value] for value in op.inputs if value in coming}.values()
        if is_sent(op):
            axis = str(op.attrs.get("axis", ""))
            begins = max((free.get(axis, 0.0), *(sent.end_ns for sent in reads)))
            if op.id in beside:
                begins = max(begins, copied_out.get(axis, 0.0)) + sum(taken.get(copy, 0.0) for copy in beside[op.id])
            else:
                if op.attrs["fn"] == "reduce_scatter" and axis in scattered:
                    wait(scattered[axis])
                begins = max(begins, now)
            sent = Sent(row, axis, begins, sent_ns(row))
            free[axis] = sent.end_ns
            if op.attrs["fn"] == "reduce_scatter":
                scattered[axis] = sent
            found.sent.append(sent)
            coming.update((value, sent) for value in op.outputs)
        elif op.kind == "view":
            for sent in reads:
                coming.update((value, sent) for value in op.outputs)
        else:
            if op.phase == "update" and not updating:
                wait(*found.sent)
            updating = op.phase == "update"
            wait(*reads)
            now += taken.get(op.id, 0.0)
            copied_out.update((sent.axis, now) for sent in reads if sent.row.op.id in beside)
    wait(*found.sent)
    found.end_ns = now
    return found


def _copies_beside(rows: Sequence[Row], inputs: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """The gathers that depend on nothing but parameters, and the operators that copy these in, by their identities."""
    computed = set(inputs)
    makers: dict[int, int] = {}  # of values that depend on parameters alone, the places of the operators that make them
    found: dict[int, tuple[int, ...]] = {}
    claimed: set[int] = set()
    for place, row in enumerate(rows):
        op = row.op
        ready = computed.isdisjoint(op.inputs)
        if is_sent(op):
            if ready and op.attrs["fn"] == "all_gather":
                copies, todo = [], [*op.inputs]
                while todo:
                    maker = makers.get(todo.pop())
                    if maker is not None and maker not in claimed:
                        claimed.add(maker)
                        todo += rows[maker].op.inputs
                        copies.append(rows[maker].op.id)
                found[op.id] = tuple(copies)
            computed.update(op.outputs)
        elif ready:
            makers.update((value, place) for value in op.outputs)
        else:
            computed.update(op.outputs)
    return found
