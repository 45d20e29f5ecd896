"""Which operator called which, which module it ran in, which kernels it launched: decided by time and correlation.

Each thread is swept on its own: its calls are nested by time, get modules and phases, and contain its runtime calls. Over all
threads, what the backward pass ran then gets the modules of the forward pass, executions that were dispatched twice under
one name become one, and every kernel gets its owner.

A kernel belongs to the innermost operator that was running on the thread of its launch when it was launched; the launch is
found by its correlation. The field `External id` is only a check: in old traces it is the correlation under another name, and
would give wrong owners.
"""

import re
from array import array
from collections import Counter

from opcost.core.timeline import PIECES
from opcost.traces.kineto.columns import CALLS, LEAVES, MODULE_PREFIX, MODULES, NONE, Columns, Lane, Numbers
from opcost.traces.kineto.decoding import ANNOTATION, OPERATOR, OVERHEAD, Number
from opcost.traces.kineto.modules import NEVER, ModuleTree, open_at, steps_of, training_of
from opcost.traces.kineto.trace import CapturedLaunch, Trace, Unowned

SLACK_NS = 100_000  # clocks of host and device are compared now and then, and may be off by less between
FARTHEST_NS = 1_000_000_000


def link(columns: Columns, base_ns: int = 0, rank: int = 0) -> Trace:
    """Link the parts of a trace; the lanes of `columns` are used up."""
    trace = Trace(columns, base_ns, rank, steps_of(columns))
    _separate_processes(columns)
    threads = _with_overhead(columns)
    linker = _Linker(trace, [lanes[CALLS] for lanes in threads.values() if CALLS in lanes])
    for thread, lanes in threads.items():
        trace.threads.append((thread, len(trace)))
        linker.add_thread(lanes)
    if linker.training is not None:
        linker.training.resolve(trace.rows.module)
    _join(trace, linker.repeated)
    # Give every piece of device work its owner, and rows the time of what they and those inside launched
    work, rows, joined = trace.columns.device, trace.rows, trace.joined
    rows.device = array("q", bytes(8 * len(trace)))
    rows.device_total = array("q", bytes(8 * len(trace)))
    owners = {key: joined.get(row, row) for key, row in linker.owner.items()} if joined else linker.owner
    trace.owner = array("i", [owners.get(correlation, Unowned.OUTSIDE) for correlation in work.correlation])
    for place, owner in trace.owned():
        duration, external = work.duration[place], work.external[place]
        rows.device[owner] += duration
        if external >= 0:
            agrees = external == rows.external[owner]
            trace.agreed += agrees
            trace.disagreed += not agrees
        while owner != NONE:
            rows.device_total[owner] += duration
            owner = rows.parent[owner]  # noqa: PLW2901 - up to the outermost
    trace.skew = _skew(trace)
    if trace.skew:
        trace.launches.clear()
    return trace


class _Linker:
    """Walks one thread after another through time."""

    def __init__(self, trace: Trace, calls: list[Lane]) -> None:
        columns = trace.columns
        names = [signature.name for signature in columns.signatures]
        numbers = Numbers[str]()

        def numbers_of(pattern: str) -> set[int]:
            return {number for number, name in enumerate(names) if re.search(pattern, name)}

        self.trace = trace
        self.tree = ModuleTree(trace.modules)
        self.training = training_of(columns.signatures, calls)
        self.owner: dict[int, int] = {}
        """By correlation, the row that launched something: of calls inside each other the outer one's, or why there is none."""
        self.repeated: list[int] = []  # rows inside one of the same name
        self.names = [numbers[name] for name in names]
        """Of each signature, the number of its name."""
        self.module_names = [name[len(MODULE_PREFIX) :] for name in names]
        self.is_owner = [signature.sort in columns.owners for signature in columns.signatures]
        self.graphs = numbers_of("GraphLaunch")
        self.own_graphs = ANNOTATION in columns.owners
        """A graph replays what many operators launched once; what an author marked owns it whole."""
        self.begins, self.ends = numbers_of("BeginCapture"), numbers_of("EndCapture")
        self.copies = numbers_of(r"Mem(?:cpy|set)\w*Async")
        self.kernels = self.copies | numbers_of(r"Launch\w*Kernel")
        self.ran = frozenset(columns.device.correlation) if self.begins else frozenset()
        """The correlations of device work, if graphs were captured."""

    def add_thread(self, lanes: dict[int, Lane]) -> None:
        """Add the rows of one thread: what holds others, then the runtime calls inside; its lanes are used up."""
        calls, leaves = lanes.get(CALLS, Lane()), lanes.get(LEAVES, Lane())
        module_calls = lanes.get(MODULES, Lane())
        lanes.clear()
        calls.sort()
        leaves.sort()
        trace, rows, first = self.trace, self.trace.rows, len(self.trace)
        parents, call_ends, self_time, repeated = _nest(calls, self.names)
        self.repeated += [first + row for row in repeated]
        around = open_at(leaves.start, calls.start, parents, call_ends)
        self._link_launches(leaves, around, calls, parents, first)
        leaf_ends = [start + spent for start, spent in zip(leaves.start, leaves.duration, strict=True)]
        # By another clock a runtime call may seem to end after what contains it, and is not taken off its time.
        for end, duration, row in zip(leaf_ends, leaves.duration, around, strict=True):
            if row != NONE and end <= call_ends[row]:
                self_time[row] -= duration
        for starts, ends in ((calls.start, call_ends), (leaves.start, leaf_ends)):
            if ends:  # starts are in order
                trace.first = min(trace.first, starts[0])
                latest = max(ends)
                trace.last = max(trace.last, latest)
        modules = self.tree.at((calls.start, leaves.start), module_calls, self.module_names)
        if self.training is None:
            rows.phase.extend(array("b", bytes(len(parents) + len(around))))
        else:
            phases, nodes = self.training.sweep(calls, parents, modules, first)
            self.training.note([nodes[row] for row in around], first + len(parents))
            rows.phase.extend(array("b", [*phases[:-1], *(phases[row] for row in around)]))
        for name in ("start", "duration", "signature", "external"):
            column = getattr(rows, name)
            column.extend(getattr(calls, name))
            column.extend(getattr(leaves, name))
        rows.self_time.extend(array("q", self_time[:-1]))
        rows.self_time.extend(leaves.duration)
        rows.parent.extend(array("i", [NONE if parent == NONE else first + parent for parent in parents + around]))
        rows.module.extend(array("i", modules))

    def _link_launches(self, leaves: Lane, around: list[int], calls: Lane, parents: list[int], first: int) -> None:
        """Link the runtime calls of a thread, each in the row of `around`, to the innermost operator that contains it."""
        is_owner, signature_of, owner_of, launches = self.is_owner, calls.signature, self.owner, self.trace.launches
        captured: list[CapturedLaunch] | None = None
        columns = zip(leaves.signature, leaves.link, leaves.external, around, strict=True)
        for number, (signature, correlation, kernel, row) in enumerate(columns, first + len(parents)):
            while row != NONE and not is_owner[signature_of[row]]:
                row = parents[row]  # noqa: PLW2901 - up to the next operator
            operator = NONE if row == NONE else first + row
            if correlation >= 0:
                is_graph = signature in self.graphs and (row == NONE or not self.own_graphs)
                owner = Unowned.GRAPH if is_graph else Unowned.NO_OPERATOR if row == NONE else operator
                if owner_of.setdefault(correlation, owner) == Unowned.NO_OPERATOR:
                    owner_of[correlation] = owner
                launches.setdefault(correlation, number)  # calls are sorted, so the outer one is met first
            if signature in self.begins:
                self.trace.captured.append(captured := [])
            elif signature in self.ends:
                captured = None
            elif captured is not None and correlation not in self.ran and (kernel >= 0 or signature in self.kernels):
                # It ran nothing, and so went into the graph.
                captured.append((operator, kernel, signature in self.copies))


def _nest(calls: Lane, names: list[int]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Of each operator and annotation of a thread the one that it began in, when it ends, and what is left of its time.

    Rows are counted from the thread's first; the last time is for rows without a parent. And rows that repeat the name around.
    """
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
    return parents, ends, self_time, repeated


def _join(trace: Trace, repeated: list[int]) -> None:
    """Make one of an operator and the only one inside it where both have one name: it was dispatched twice, run once."""
    rows, joined = trace.rows, trace.joined
    inside: dict[int, list[int]] = {row: [] for row in {*repeated, *(rows.parent[row] for row in repeated)}}
    for row, parent in enumerate(rows.parent) if inside else ():
        if parent in inside:
            inside[parent].append(row)

    def end(row: int) -> int:
        return rows.start[row] + rows.duration[row]

    lasting = {row: sum(end(each) <= end(row) for each in found) for row, found in inside.items()}
    for row in repeated:
        parent = joined.get(rows.parent[row], rows.parent[row])
        if lasting[parent] == 1 and trace.signatures[rows.signature[row]].sort == OPERATOR:
            joined[row] = parent
            rows.self_time[parent] += rows.self_time[row]
            lasting[parent] = lasting[row]
    for row, parent in joined.items():
        for each in inside[row]:
            rows.parent[each] = parent


def _skew(trace: Trace) -> int:
    """How far the clocks of host and device are apart at the least, where work began before its launch or always very late."""
    work, rows = trace.columns.device, trace.rows
    early, soonest, number = [], NEVER, 0
    for start, correlation in zip(work.start, work.correlation, strict=True):
        call = trace.launches.get(correlation)
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


# -- several processes in one file


def _separate_processes(columns: Columns) -> None:
    """Number correlations anew where calls of several processes have the same ones: each process counts its own."""
    lanes = [(pid, found[LEAVES]) for (pid, _), found in columns.threads.items() if LEAVES in found]
    if len({pid for pid, lane in lanes if max(lane.link, default=NONE) >= 0}) < 2:
        return
    calls: dict[Number, dict[int, int]] = {}
    for pid, lane in lanes:
        for correlation, start in zip(lane.link, lane.start, strict=True):
            if correlation >= 0:
                own = calls.setdefault(pid, {})
                own[correlation] = min(start, own.get(correlation, start))
    if sum(map(len, calls.values())) == len(set().union(*calls.values())):
        return
    numbers = Numbers[tuple[Number, int]]()

    def number(process: Number, correlation: int) -> int:
        return numbers[process, correlation] if correlation >= 0 else correlation

    for pid, lane in lanes:
        lane.link = array("q", [number(pid, correlation) for correlation in lane.link])
    work = columns.device
    pairs = zip(_launching_processes(columns, calls), work.correlation, strict=True)
    work.correlation = array("q", [number(pid, correlation) for pid, correlation in pairs])


def _launching_processes(columns: Columns, calls: dict[Number, dict[int, int]]) -> list[Number]:
    """Of each piece of device work the process that launched it; None where no process did.

    What has one correlation begins in the order of its launches. Where there are devices enough, each belongs to one process:
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
    """The lanes of each thread; what the profiler did itself is put into the thread that it delayed, if there is only one."""
    found: dict[str, dict[int, Lane]] = {}
    overhead: list[Lane] = []
    for (pid, tid), lanes in columns.threads.items():
        if set(lanes) == {LEAVES} and all(
            columns.signatures[signature].sort == OVERHEAD for signature in lanes[LEAVES].signature
        ):
            overhead.append(lanes[LEAVES])
        else:
            found[f"{pid}/{tid}"] = lanes
    working = [lanes for lanes in found.values() if CALLS in lanes or LEAVES in lanes]
    for lane in overhead:
        into = working[0] if len(working) == 1 else found.setdefault("overhead", {})
        into.setdefault(LEAVES, Lane()).extend(lane)
    return found
