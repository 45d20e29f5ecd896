"""One rank of many in time: its operators run one after another, its collectives beside them, one after another on each axis.

What an operator reads of a collective, it waits for. When a collective begins:

- A gather of parameters (FSDP) depends on nothing that the step computes. FSDP2 begins it when the parameters gathered before it
  have been copied out, so one block ahead; copying its own shards in runs beside the computation too.
- Any other one begins where the program calls it. Before a reduce-scatter the one before it must be done, since FSDP2 then frees
  what that read.
- What an axis sends in parts, products go on beside: they read a part of a gather as it comes, and a part of their result is
  scattered when it is made (async tensor parallelism). The next collective in parts waits for such a gather.
- An update begins when all of them are done. What converts the sums of gradients before it runs where they were summed.

Operators beside a collective run at a part of their speed, `BESIDE`. Where the host is not known it is ahead of the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from opcost.core.collectives import CostedOp
from opcost.core.graph import Op

Costed = TypeVar("Costed", bound=CostedOp)
BESIDE = 0.5
"""The share of their speed that operators keep while a collective runs. It holds multiprocessors and moves memory, and a product
that wants all multiprocessors at once then takes two rounds. Of MosaicML's tables (`power.py`) those with small batches, where
collectives run for up to half of the step, are predicted with 0.4 to 0.6."""


@dataclass(slots=True)
class Sent:
    """One collective: how long it takes, when it runs, and how long the operators wait for it."""

    row: CostedOp
    axis: str
    start_ns: float
    taken_ns: float
    exposed_ns: float = 0.0
    slowing_ns: float = 0.0
    """By how much it slows operators beside it."""
    needed_ns: float | None = None
    """When something first needs what it makes, done or not."""

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
    beside: set[int] = field(default_factory=set)
    ran: list[tuple[int, float, float]] = field(default_factory=list)
    """The operators by their identities, from when to when they ran."""
    bubble_ns: float = 0.0
    """The time in which a rank of a pipeline has nothing to do, if messages took none."""
    copied: list[tuple[str, int, float, float]] = field(default_factory=list)
    """What copies parameters in before they are gathered: the axis, and as of those that ran."""
    waits: list[tuple[str, float, float]] = field(default_factory=list)
    """The axes on which operators waited, from when to when."""

    def exposed_ns(self) -> dict[str, int]:
        """The time in which operators wait for collectives, by axis."""
        return self._by_axis(lambda sent: sent.exposed_ns)

    def slowing_ns(self) -> dict[str, int]:
        """By how much collectives slow the operators beside them, by axis."""
        return self._by_axis(lambda sent: sent.slowing_ns)

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
    rows: Sequence[CostedOp], inputs: Sequence[int], taken: Mapping[int, float], sent_ns: Callable[[CostedOp], float],
    launched: Mapping[int, float] | None = None, speed: float = 1.0, in_parts: str = "",
) -> Timeline:  # fmt: skip
    """The operators of a report with the time that each has `taken` by its identity, and collectives by `sent_ns`.

    Nothing begins before the host has `launched` it, where that is given. Beside collectives operators keep a part of their
    `speed`. The axis `in_parts` gathers and scatters piece by piece, beside the products that read or make the pieces.
    """
    rank = _Rank(_copies_beside(rows, inputs), taken, sent_ns, launched or {}, speed, in_parts)
    updating = False
    for row in rows:
        if row.op.phase == "update" and not updating:
            rank.wait(rank.found.sent)
        updating = row.op.phase == "update"
        rank.take(row)
    rank.wait(rank.found.sent)
    rank.found.end_ns = rank.now
    return rank.found


def overlapped(rows: Sequence[CostedOp], inputs: Sequence[int]) -> Iterable[tuple[CostedOp, int]]:
    """Every collective, with the FLOPs of the operators that may run beside it.

    These are the ones between the moment at which it can begin and the first operator that needs what it makes. What stages of a
    pipeline send each other waits for other ranks, so nothing is said of that.
    """
    flops = {row.op.id: float(row.cost.flops * row.op.repeat) for row in rows if row.cost is not None}
    for sent in timeline(rows, inputs, flops, lambda _: 0.0).sent:
        if sent.axis != "pp":
            yield sent.row, max(0, round((sent.needed_ns or 0.0) - sent.start_ns))


def passes(
    rows: Sequence[Costed], inputs: Sequence[int], parts: Sequence[tuple[int, int]]
) -> Iterator[tuple[Sequence[Costed], tuple[int, ...]]]:
    """The rows of each part of a step, with the inputs and what else they read that other parts make."""
    made = {value for row in rows for value in row.op.outputs}
    for first, end in parts:
        own = rows[first:end]
        read = {value for row in own for value in row.op.inputs} & made
        yield own, (*inputs, *read.difference(value for row in own for value in row.op.outputs))


class _Rank:
    """One rank while its operators and collectives are put into time."""

    def __init__(
        self, copies: Mapping[int, tuple[int, ...]], taken: Mapping[int, float], sent_ns: Callable[[CostedOp], float],
        launched: Mapping[int, float], speed: float, in_parts: str,
    ) -> None:  # fmt: skip
        self.found = Timeline(beside={each for found in copies.values() for each in found})
        self.now = 0.0
        self._copies, self._taken, self._sent_ns = copies, taken, sent_ns
        self._launched, self._speed, self._in_parts = launched, speed, in_parts
        self._product_ns = 0.0  # of the last one
        self._before_next: list[Sent] = []  # what must have come before the next collective in parts
        self._running: list[Sent] = []
        self._free: dict[str, float] = {}  # when an axis has sent what it was given
        self._copied_out: dict[str, float] = {}  # when what an axis gathered last was copied out
        self._scattered: dict[str, Sent] = {}
        self._coming: dict[int, Sent] = {}  # values that a collective makes, and views of them

    def take(self, row: CostedOp) -> None:
        """Go on with the next operator of the program."""
        op = row.op
        if op.id in self.found.beside:
            return
        if self._launched.get(op.id, 0.0) > self.now and op.kind != "view":
            self.found.host_ns += self._launched[op.id] - self.now
            self.now = self._launched[op.id]
        reads = [*{id(sent): sent for value in op.inputs if (sent := self._coming.get(value))}.values()]
        if is_sent(op):
            self._send(row, reads)
        elif op.kind == "view":
            self._comes(op, reads)
        elif op.phase == "backward" and reads and all(_sums_of_fsdp(sent) for sent in reads):
            self.found.beside.add(op.id)
            for sent in reads:
                sent.taken_ns += self._taken.get(op.id, 0.0)
                self._free[sent.axis] = max(self._free[sent.axis], sent.end_ns)
            self._comes(op, reads)
        else:
            self.wait(reads)
            begun = self.now
            self._run(self._taken.get(op.id, 0.0))
            if op.kind == "matmul":
                self._product_ns = self.now - begun
            self.found.ran.append((op.id, begun, self.now))
            self._copied_out.update((sent.axis, self.now) for sent in reads if sent.row.op.id in self._copies)

    def wait(self, awaited: Iterable[Sent]) -> None:
        """Do nothing until these are done."""
        for sent in sorted(awaited, key=lambda sent: sent.end_ns):
            if sent.needed_ns is None:
                sent.needed_ns = self.now
            if sent.end_ns > self.now:
                sent.exposed_ns += sent.end_ns - self.now
                self.found.waits.append((sent.axis, self.now, sent.end_ns))
                self.now = sent.end_ns

    def _send(self, row: CostedOp, reads: Sequence[Sent]) -> None:
        op, axis = row.op, str(row.op.attrs.get("axis", ""))
        taken = self._sent_ns(row)
        parts = bool(axis) and axis == self._in_parts and op.attrs["fn"] in ("all_gather", "reduce_scatter")
        if parts:
            self.wait(self._before_next)
        begins = max((self._free.get(axis, 0.0), *(sent.end_ns for sent in reads)))
        if op.id in self._copies:
            begins = max(begins, self._copied_out.get(axis, 0.0))
            for copy in reversed(self._copies[op.id]):
                before, begins = begins, begins + self._taken.get(copy, 0.0)
                self.found.copied.append((axis, copy, before, begins))
        else:
            if op.attrs["fn"] == "reduce_scatter" and axis in self._scattered:
                self.wait([self._scattered[axis]])
            before = min(taken, self._product_ns) if parts and op.attrs["fn"] == "reduce_scatter" else 0.0
            begins = max(begins, self.now - before)
        sent = Sent(row, axis, begins, taken)
        self._free[axis] = sent.end_ns
        if op.attrs["fn"] == "reduce_scatter":
            self._scattered[axis] = sent
        # It may begin before operators that come before it in the program, and slows these.
        sent.slowing_ns = (1 - self._speed) * max(0.0, min(self.now, sent.end_ns) - sent.start_ns)
        if sent.slowing_ns and self.found.ran and self.found.ran[-1][2] == self.now:
            self.found.ran[-1] = (*self.found.ran[-1][:2], self.now + sent.slowing_ns)
        self.now += sent.slowing_ns
        if sent.end_ns > self.now:
            self._running.append(sent)
        self.found.sent.append(sent)
        if parts and op.attrs["fn"] == "all_gather":
            self._before_next = [sent]
        else:
            self._comes(op, [sent])

    def _comes(self, op: Op, reads: Iterable[Sent]) -> None:
        for sent in reads:
            self._coming.update((value, sent) for value in op.outputs)

    def _run(self, ns: float) -> None:
        """An operator that takes so long where no collective runs."""
        while self._running and ns:
            begins = min(sent.start_ns for sent in self._running)
            if begins > self.now:
                alone = min(ns, begins - self.now)
                self.now, ns = self.now + alone, ns - alone
                continue
            first = min(self._running, key=lambda sent: sent.end_ns)
            beside = min(ns / self._speed, max(0.0, first.end_ns - self.now))
            first.slowing_ns += (1 - self._speed) * beside
            self.now, ns = self.now + beside, ns - self._speed * beside
            self._running = [sent for sent in self._running if sent.end_ns > self.now]
        self.now += ns


def _sums_of_fsdp(sent: Sent) -> bool:
    """Whether it sums gradients for FSDP, which goes on with them in the stream that summed them."""
    return sent.row.op.attrs["fn"] == "reduce_scatter" and sent.row.op.raw.endswith("_base_")


def _copies_beside(rows: Sequence[CostedOp], inputs: Sequence[int]) -> dict[int, tuple[int, ...]]:
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
