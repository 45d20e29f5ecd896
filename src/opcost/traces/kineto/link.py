"""Which operator called which, which module it ran in, which kernels it launched: decided by time and correlation.

Each thread is swept on its own: its calls are nested by time, get modules and phases, and hold its runtime calls. Over all
threads, what the backward pass ran then gets the modules of the forward pass, executions that were dispatched twice under
one name become one, and every kernel gets its owner.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from opcost.core.timeline import PIECES
from opcost.traces.kineto.categories import OPERATOR, OVERHEAD
from opcost.traces.kineto.columns import CALLS, LEAVES, MODULE_PREFIX, MODULES, Columns, Signature
from opcost.traces.kineto.lane import BYTES, INTS, LONGS, NONE, Lane
from opcost.traces.kineto.launches import OUTSIDE, Launches, Sorts, open_at
from opcost.traces.kineto.modules import NEVER, ModuleTree
from opcost.traces.kineto.training import Training, training_of

if TYPE_CHECKING:
    from opcost.traces.kineto.event import Number


@dataclass(slots=True)
class Rows:
    """Every operator, annotation and runtime call, in columns; `parent` and `module` may be NONE.

    The rows of a thread lie together: first operators and annotations by start, then runtime calls by start.
    """

    start: array[int] = field(default_factory=LONGS)
    duration: array[int] = field(default_factory=LONGS)
    self_time: array[int] = field(default_factory=LONGS)
    signature: array[int] = field(default_factory=INTS)
    external: array[int] = field(default_factory=LONGS)
    parent: array[int] = field(default_factory=INTS)
    module: array[int] = field(default_factory=INTS)
    phase: array[int] = field(default_factory=BYTES)


@dataclass(slots=True)
class Linked:
    """A trace whose parts are tied together."""

    columns: Columns
    rows: Rows = field(default_factory=Rows)
    threads: list[tuple[str, int]] = field(default_factory=list)
    """Name and first row of each thread."""
    modules: list[str] = field(default_factory=list)
    joined: dict[int, int] = field(default_factory=dict)
    """Rows that are the same execution as another row, and which."""
    first: int = NEVER
    last: int = -NEVER
    """The beginning of the first row and the end of the last."""
    owner: array[int] = field(default_factory=INTS)
    """Of each piece of device work, the row that launched it, or NONE, GRAPH or OUTSIDE."""
    launches: dict[int, int] = field(default_factory=dict)
    """By correlation, the row of the call that launched something; empty where `skew` says that its times tell nothing."""
    skew: int = 0
    """Nanoseconds that the clocks of host and device differ by at the least, where that shows."""
    captured: list[list[tuple[int, int, bool]]] = field(default_factory=list)
    """Of each graph that was captured its launches, as `Launches` has them."""
    device: array[int] = field(default_factory=LONGS)
    """Of each row, the time of the device work that it launched; and with the operators inside."""
    device_total: array[int] = field(default_factory=LONGS)
    agreed: int = 0
    disagreed: int = 0
    """Kernels whose `External id` names the operator that launched them, and those where it names another."""

    def __len__(self) -> int:
        return len(self.rows.start)

    @property
    def signatures(self) -> list[Signature]:
        return self.columns.signatures

    def launched(self, correlation: int) -> int | None:
        """When the call that launched this began."""
        row = self.launches.get(correlation)
        return None if row is None else self.rows.start[row]

    def steps(self) -> Iterable[int | None]:
        """Of each row, the step of the profiler's schedule that was under way when it began."""
        marked = sorted(self.columns.steps)
        starts = [start for start, _, _ in marked]
        for time in self.rows.start:
            place = bisect_right(starts, time) - 1
            yield marked[place][2] if place >= 0 and time < marked[place][1] else None


def link(columns: Columns) -> Linked:
    """Tie the parts of a trace together."""
    linked = Linked(columns)
    _separate_processes(columns)
    threads = _with_overhead(columns)
    calls = [lanes[CALLS] for lanes in threads.values() if CALLS in lanes]
    sweep = _Sweep(
        linked=linked,
        tree=ModuleTree(linked.modules),
        training=training_of(columns.signatures, calls),
        launches=Launches(calls=linked.launches, captured=linked.captured),
        sorts=Sorts(columns.signatures, columns.owners),
        names=_name_numbers(columns.signatures),
        module_names=[signature.name[len(MODULE_PREFIX) :] for signature in columns.signatures],
    )
    if sweep.sorts.begins:
        sweep.ran = frozenset(columns.device.correlation)
    for thread, lanes in threads.items():
        linked.threads.append((thread, len(linked)))
        sweep.thread(lanes)
    if sweep.training is not None:
        sweep.training.resolve(linked.rows.module)
    _join(linked, sweep.repeated)
    _own_kernels(linked, sweep.launches)
    linked.skew = _skew(linked)
    if linked.skew:
        linked.launches.clear()
    return linked


@dataclass(slots=True, kw_only=True)
class _Sweep:
    """Walks one thread after another through time."""

    linked: Linked
    tree: ModuleTree
    training: Training | None
    launches: Launches
    sorts: Sorts
    names: list[int]
    """Of each signature, the number of its name."""
    module_names: list[str]
    ran: frozenset[int] = frozenset()
    """The correlations of device work, if graphs were captured."""
    repeated: list[int] = field(default_factory=list)
    """Rows inside one of the same name."""

    def thread(self, lanes: dict[int, Lane]) -> None:
        """Add the rows of one thread: what holds others, then the runtime calls inside; its lanes are used up."""
        calls, leaves = lanes.get(CALLS, Lane()), lanes.get(LEAVES, Lane())
        changes = self.tree.changes(lanes.get(MODULES, Lane()), self.module_names)
        lanes.clear()
        calls.sort()
        leaves.sort()
        rows, first = self.linked.rows, len(self.linked)
        nested = _nest(calls, self.names)
        self.repeated += [first + row for row in nested.repeated]
        around = open_at(iter(leaves.start), calls, nested.ends, nested.parents)
        self.launches.sweep(leaves, around, calls, nested.parents, first, self.sorts)
        if self.sorts.begins:
            self.launches.capture(
                leaves, _operators(around, calls, nested.parents, self.sorts), first, self.sorts, self.ran
            )
        _take_off(leaves, around, nested)
        self._reach(calls.start, nested.ends)
        self._reach(leaves.start, [start + spent for start, spent in zip(leaves.start, leaves.duration, strict=True)])
        modules = changes.at(calls.start)
        rows.phase.extend(self._phases(calls, nested.parents, around, modules, first))
        modules += changes.at(leaves.start)
        for name in ("start", "duration", "signature", "external"):
            column = getattr(rows, name)
            column.extend(getattr(calls, name))
            column.extend(getattr(leaves, name))
        rows.self_time.extend(array("q", nested.self_time[:-1]))
        rows.self_time.extend(leaves.duration)
        parents = nested.parents + around
        if first:
            parents = [NONE if parent == NONE else first + parent for parent in parents]
        rows.parent.extend(array("i", parents))
        rows.module.extend(array("i", modules))

    def _phases(self, calls: Lane, parents: list[int], around: list[int], modules: list[int], first: int) -> array[int]:
        """The phases of calls, and of runtime calls that lie in these."""
        if self.training is None:
            return array("b", bytes(len(parents) + len(around)))
        phases, nodes = self.training.sweep(calls, parents, modules, first)
        self.training.wait([nodes[row] for row in around], range(len(around)), first + len(parents))
        return array("b", [*phases[:-1], *(phases[row] for row in around)])

    def _reach(self, starts: array[int], ends: list[int]) -> None:
        """Widen the time that the trace covers; starts are in order."""
        if ends:
            self.linked.first = min(self.linked.first, starts[0])
            latest = max(ends)
            self.linked.last = max(self.linked.last, latest)


class _Nested(NamedTuple):
    """How the calls of a thread lie in each other; rows are counted from the thread's first."""

    parents: list[int]
    ends: list[int]
    self_time: list[int]
    """The last one is for rows without a parent."""
    repeated: list[int]


def _nest(calls: Lane, names: list[int]) -> _Nested:
    """Of each operator and annotation the one that it began in, when it ends, and what is left of its time."""
    parents: list[int] = []
    ends: list[int] = []
    self_time = [*calls.duration, 0]
    repeated: list[int] = []
    add_parent, add_end = parents.append, ends.append
    # What is open around the innermost one, which itself is in the variables; the bottom never ends.
    stack: list[tuple[int, int, int]] = []
    push, pop = stack.append, stack.pop
    top, parent, around = NEVER, NONE, NONE
    row = 0
    for start, duration, signature in zip(calls.start, calls.duration, calls.signature, strict=True):
        end = start + duration
        while top < end or top <= start:
            top, parent, around = pop()
        name = names[signature]
        if name == around:
            repeated.append(row)
        add_parent(parent)
        add_end(end)
        self_time[parent] -= duration
        push((top, parent, around))
        top, parent, around = end, row, name
        row += 1  # noqa: SIM113 - `enumerate` would make a pair for every row
    return _Nested(parents, ends, self_time, repeated)


def _operators(around: list[int], calls: Lane, parents: list[int], sorts: Sorts) -> list[int]:
    """Of each runtime call the innermost operator that holds it, given the innermost call."""
    found = []
    for row in around:
        while row != NONE and not sorts.is_owner[calls.signature[row]]:
            row = parents[row]  # noqa: PLW2901 - up to the next operator
        found.append(row)
    return found


def _take_off(leaves: Lane, around: list[int], nested: _Nested) -> None:
    """Take the time of runtime calls off what holds them; by another clock one may seem to last longer, and is left."""
    ends, self_time = nested.ends, nested.self_time
    for start, duration, row in zip(leaves.start, leaves.duration, around, strict=True):
        if row != NONE and start + duration <= ends[row]:
            self_time[row] -= duration


def _join(linked: Linked, repeated: list[int]) -> None:
    """Make one of an operator and the only one inside it where both have one name: it was dispatched twice, run once."""
    rows, joined = linked.rows, linked.joined
    inside = _inside(rows, {*repeated, *(rows.parent[row] for row in repeated)})
    lasting = {row: sum(_ends_inside(rows, each, row) for each in found) for row, found in inside.items()}
    for row in repeated:
        parent = joined.get(rows.parent[row], rows.parent[row])
        if lasting[parent] == 1 and linked.signatures[rows.signature[row]].sort == OPERATOR:
            joined[row] = parent
            rows.self_time[parent] += rows.self_time[row]
            lasting[parent] = lasting[row]
    for row, parent in joined.items():
        for each in inside[row]:
            rows.parent[each] = parent


def _inside(rows: Rows, wanted: set[int]) -> dict[int, list[int]]:
    """The rows directly in each of these."""
    found: dict[int, list[int]] = {row: [] for row in wanted}
    for row, parent in enumerate(rows.parent) if wanted else ():
        if parent in wanted:
            found[parent].append(row)
    return found


def _ends_inside(rows: Rows, row: int, around: int) -> bool:
    return rows.start[row] + rows.duration[row] <= rows.start[around] + rows.duration[around]


def _own_kernels(linked: Linked, launches: Launches) -> None:
    """Give every piece of device work its owner, and rows the time of what they and those inside launched."""
    work, joined = linked.columns.device, linked.joined
    linked.device = array("q", bytes(8 * len(linked)))
    linked.device_total = array("q", bytes(8 * len(linked)))
    owners = {key: joined.get(row, row) for key, row in launches.owner.items()} if joined else launches.owner
    linked.owner = array("i", [owners.get(correlation, OUTSIDE) for correlation in work.correlation])
    parent, externals = linked.rows.parent, linked.rows.external
    for owner, duration, external in zip(linked.owner, work.duration, work.external, strict=True):
        if owner < 0:
            continue
        linked.device[owner] += duration
        if external >= 0:
            if external == externals[owner]:
                linked.agreed += 1
            else:
                linked.disagreed += 1
        while owner != NONE:
            linked.device_total[owner] += duration
            owner = parent[owner]  # noqa: PLW2901 - up to the outermost


SLACK_NS = 100_000
"""Clocks of host and device are compared now and then, and may be off by less between."""
FARTHEST_NS = 1_000_000_000


def _skew(linked: Linked) -> int:
    """How far the clocks of host and device are apart at the least, where work began before its launch or always very late."""
    work, rows = linked.columns.device, linked.rows
    early, soonest, number = [], NEVER, 0
    for start, correlation in zip(work.start, work.correlation, strict=True):
        call = linked.launches.get(correlation)
        if call is None:
            continue
        number += 1
        delay = start - rows.start[call]
        if delay < -SLACK_NS:
            early.append(-delay)
        elif (waited := delay - rows.duration[call]) < soonest:
            soonest = waited
    if 20 * len(early) > number:  # single ones may be of another launch
        return max(early)
    return soonest if number >= PIECES and soonest > FARTHEST_NS else 0


def _separate_processes(columns: Columns) -> None:
    """Number correlations anew where calls of several processes bear the same ones: each process counts its own."""
    lanes = [(pid, found[LEAVES]) for (pid, _), found in columns.threads.items() if LEAVES in found]
    if len({pid for pid, lane in lanes if max(lane.link, default=NONE) >= 0}) < 2:
        return
    calls: dict[Number, dict[int, int]] = {}
    for pid, lane in lanes:
        own = calls.setdefault(pid, {})
        for correlation, start in zip(lane.link, lane.start, strict=True):
            if correlation >= 0:
                own[correlation] = min(start, own.get(correlation, start))
    calls = {pid: own for pid, own in calls.items() if own}
    if sum(map(len, calls.values())) == len(set().union(*calls.values())):
        return
    numbers: dict[tuple[Number, int], int] = {}

    def number(process: Number, correlation: int) -> int:
        return numbers.setdefault((process, correlation), len(numbers)) if correlation >= 0 else correlation

    for pid, lane in lanes:
        lane.link = array("q", [number(pid, correlation) for correlation in lane.link])
    work = columns.device
    pairs = zip(_launching_processes(columns, calls), work.correlation, strict=True)
    work.correlation = array("q", [number(pid, correlation) for pid, correlation in pairs])


def _launching_processes(columns: Columns, calls: dict[Number, dict[int, int]]) -> list[Number]:
    """Of each piece of device work the process that launched it; None where no process did.

    What bears one correlation begins in the order of its launches. Where there are devices enough, each belongs to one process:
    the one that this finds for most of its work.
    """
    work, devices = columns.device, [device for device, _ in columns.queues]
    apart = len(set(devices)) >= len(calls)
    found: list[Number] = [None] * len(work.start)
    taken: dict[tuple[Number, int], Number] = {}
    votes: Counter[tuple[Number, Number]] = Counter()
    for place in sorted(range(len(found)), key=work.start.__getitem__):
        correlation, start = work.correlation[place], work.start[place]
        device = devices[work.queue[place]] if apart else place
        begun = [
            (own[correlation], number)
            for number, own in enumerate(calls.values())
            if own.get(correlation, NEVER) <= start
        ]
        pids = [[*calls][number] for _, number in sorted(begun)]
        free = [pid for pid in pids if (pid, correlation) not in taken or taken[pid, correlation] == device]
        if pids:
            found[place] = pid = free[0] if free else pids[-1]
            taken.setdefault((pid, correlation), device)
            votes[device, pid] += 1
    if not apart:
        return found
    owner: dict[Number, Number] = {}
    for (device, pid), _ in votes.most_common():
        if device not in owner and (pid not in owner.values() or len({*owner.values()}) == len(calls)):
            owner[device] = pid
    return [owner.get(devices[queue], pid) for queue, pid in zip(work.queue, found, strict=True)]


def _with_overhead(columns: Columns) -> dict[str, dict[int, Lane]]:
    """The lanes of each thread; what the profiler did itself is put into the thread that it held up, if there is only one."""
    found: dict[str, dict[int, Lane]] = {}
    homeless: list[Lane] = []
    for (pid, tid), lanes in columns.threads.items():
        if set(lanes) == {LEAVES} and all(
            columns.signatures[signature].sort == OVERHEAD for signature in lanes[LEAVES].signature
        ):
            homeless.append(lanes[LEAVES])
        else:
            found[f"{pid}/{tid}"] = lanes
    working = [lanes for lanes in found.values() if CALLS in lanes or LEAVES in lanes]
    for lane in homeless:
        if len(working) == 1:
            working[0].setdefault(LEAVES, Lane()).extend(lane)
        else:
            found.setdefault("overhead", {}).setdefault(LEAVES, Lane()).extend(lane)
    return found


def _name_numbers(signatures: list[Signature]) -> list[int]:
    numbers: dict[str, int] = {}
    return [numbers.setdefault(signature.name, len(numbers)) for signature in signatures]
