"""Which operator called which, which module it ran in, which kernels it launched: decided by time and correlation.

A kernel belongs to the innermost operator that was running on the thread of its launch when it was launched. The field
`External id` is only a check: in old traces it is the correlation under another name, and would give wrong owners.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

from opcost.core.graph import Phase
from opcost.traces.kineto.categories import ANNOTATION, OPERATOR, OVERHEAD
from opcost.traces.kineto.columns import CALLS, LEAVES, MODULE_PREFIX, MODULES, NONE, Columns, Lane, Signature

PHASES: tuple[Phase, ...] = ("forward", "backward", "update")
FORWARD, BACKWARD, UPDATE = range(3)

GRAPH = -2
"""Owner of a kernel that a captured graph launched."""
OUTSIDE = -3
"""Owner of a kernel whose launch is not in the trace."""

ENGINE = "autograd::engine::evaluate_function"
OPTIMIZER = "Optimizer."
NEVER = 2**64


class Linked:
    """The rows of a trace (operators, annotations, runtime calls) in columns; -1 stands for none.

    The rows of a thread lie together: first operators and annotations by start, then runtime calls by start.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.signatures = columns.signatures
        self.threads: list[tuple[str, int]] = []
        """Name and first row of each thread."""
        self.modules: list[str] = []
        """Paths: the classes and numbers around an operator, from the outermost."""
        self.rows = Lane()
        """Start, duration, signature, sequence number or correlation, and External id of every row."""
        self.self_time = array("q")
        self.parent = array("i")
        self.module = array("i")
        self.phase = array("b")
        self.owner = array("i")
        """Of each piece of device work, the row that launched it, or NONE, GRAPH or OUTSIDE."""
        self.device = array("q")
        self.device_total = array("q")
        self.joined: dict[int, int] = {}
        """Rows that are the same execution as another row, and which."""
        self.first, self.last = NEVER, -NEVER
        """The beginning of the first row and the end of the last."""
        self.agreed = self.disagreed = 0
        """Kernels whose `External id` names the operator that launched them, and those where it names another."""
        self._repeated: list[int] = []
        """Rows inside one of the same name."""
        self._launches: dict[int, int] = {}
        self.launched: dict[int, int] = {}
        """By correlation, when the call that launched something began; of calls inside each other, the outer one."""
        self._module_numbers: dict[tuple[int, str], int] = {}
        self._forward: dict[int, tuple[int, int]] = {}
        """By sequence number, start and module of the last forward operator that bears it: the one that made the node."""
        self._backward: list[int] = []
        """Sequence numbers of what the backward engine ran; rows under it refer here until all threads are known."""
        numbers: dict[str, int] = {}
        self._names = [numbers.setdefault(signature.name, len(numbers)) for signature in columns.signatures]
        self._beginnings = _beginnings(columns.signatures)
        threads = _with_overhead(columns)
        self._trains = bool(self._beginnings) or any(
            min(lanes[CALLS].link, default=NONE) < NONE for lanes in threads.values() if CALLS in lanes
        )
        """Whether there is a backward pass or an update at all."""
        for thread, lanes in threads.items():
            self._sweep(lanes, thread)
        self._resolve_backward()
        self._join_repeated()
        self._own_kernels()
        self._steps = sorted(columns.steps)
        self._step_starts = [start for start, _, _ in self._steps]

    def __len__(self) -> int:
        return len(self.parent)

    def step(self, start: int) -> int | None:
        """The step that was under way at this time."""
        place = bisect_right(self._step_starts, start) - 1
        if place < 0:
            return None
        _, end, number = self._steps[place]
        return number if start < end else None

    def _sweep(self, lanes: dict[int, Lane], thread: str) -> None:
        """Walk one thread through time: what holds others, then the runtime calls inside, then what trains."""
        calls, leaves = lanes.get(CALLS, Lane()), lanes.get(LEAVES, Lane())
        calls.sort()
        leaves.sort()
        first = len(self.parent)
        self.threads.append((thread, first))
        changes = self._changes(lanes.get(MODULES, Lane()))
        # Rows are counted from the thread's first here; the last self time is for rows without a parent, which is -1.
        self_time = [*calls.duration, 0]
        parents, ends, modules = self._open(calls, self_time, changes)
        phases = self._train(calls, parents, modules) if self._trains else array("b", bytes(len(parents)))
        self._call(leaves, calls, parents, ends, self_time)
        self._reach(calls.start, ends)
        self._reach(leaves.start, [a + b for a, b in zip(leaves.start, leaves.duration, strict=True)])
        del ends
        count = len(modules)
        modules += _at(leaves.start, changes)
        if self._trains:
            for row in range(count, len(parents)):
                around = parents[row]
                phases.append(phases[around] if around >= 0 else FORWARD)
                if around >= 0 and modules[around] < NONE:
                    modules[row] = modules[around]
        else:
            phases.extend(array("b", bytes(len(leaves.start))))
        self.rows.extend(calls)
        self.rows.extend(leaves)
        lanes.clear()
        self_time.pop()
        self.self_time.extend(array("q", self_time))
        del self_time
        self.self_time.extend(leaves.duration)
        if first:
            parents = [NONE if parent < 0 else first + parent for parent in parents]
        self.parent.extend(array("i", parents))
        self.module.extend(array("i", modules))
        self.phase.extend(phases)

    def _reach(self, starts: array[int], ends: list[int]) -> None:
        """Widen the time that the trace covers; starts are in order."""
        if ends:
            self.first = min(self.first, starts[0])
            latest = max(ends)
            self.last = max(self.last, latest)

    def _open(self, calls: Lane, self_time: list[int], changes: _Changes) -> tuple[list[int], list[int], list[int]]:
        """Of each operator and annotation: the one that it began in, when it ends, and its module."""
        first = len(self.parent)
        names, repeated = self._names, self._repeated
        parents: list[int] = []
        ends: list[int] = []
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
                repeated.append(first + row)
            add_parent(parent)
            add_end(end)
            self_time[parent] -= duration
            push((top, parent, around))
            top, parent, around = end, row, name
            row += 1  # noqa: SIM113 - `enumerate` would make a pair for every row
        return parents, ends, _at(calls.start, changes)

    def _train(self, calls: Lane, parents: list[int], modules: list[int]) -> array[int]:
        """Of each operator and annotation its phase; what the backward engine ran refers to its forward operator."""
        beginnings, forward, backward = self._beginnings, self._forward, self._backward
        phases = array("b", bytes(len(parents)))
        engines = [NONE] * (len(parents) + 1)  # the last is for rows without a parent
        for row, (parent, start, signature, link) in enumerate(
            zip(parents, calls.start, calls.signature, calls.link, strict=True)
        ):
            phase = phases[parent] if parent >= 0 else FORWARD
            engine = engines[parent]
            if phase == FORWARD and (link < NONE or signature in beginnings):
                phase = BACKWARD if link < NONE else beginnings[signature]
                if phase == BACKWARD:
                    engine = len(backward)
                    backward.append(-2 - link if link < NONE else NONE)
            if engine >= 0:
                modules[row] = -2 - engine
                engines[row] = engine
            elif link >= 0 and modules[row] >= 0:
                known = forward.get(link)
                if known is None or known[0] <= start:
                    forward[link] = start, modules[row]
            if phase:
                phases[row] = phase
        return phases

    def _call(self, leaves: Lane, calls: Lane, parents: list[int], ends: list[int], self_time: list[int]) -> None:
        """Runtime calls: each belongs to what is open when it begins, and ties its correlation to the operator there."""
        first = len(self.parent)
        signatures, launches, launched = self.signatures, self._launches, self.launched
        graphs = {number for number, signature in enumerate(signatures) if "GraphLaunch" in signature.name}
        is_operator = [signature.sort == OPERATOR for signature in signatures]
        signature_of = calls.signature
        starts = iter(calls.start)
        call, next_start = NONE, next(starts, NEVER)
        for start, duration, signature, correlation in zip(
            leaves.start, leaves.duration, leaves.signature, leaves.link, strict=True
        ):
            while next_start <= start:
                call += 1
                next_start = next(starts, NEVER)
            parent = call
            while parent >= 0 and ends[parent] <= start:
                parent = parents[parent]
            parents.append(parent)
            if parent >= 0 and start + duration <= ends[parent]:  # another clock may make it seem longer
                self_time[parent] -= duration
            if correlation >= 0:
                while parent >= 0 and not is_operator[signature_of[parent]]:
                    parent = parents[parent]
                launcher = GRAPH if signature in graphs else NONE if parent < 0 else first + parent
                if launches.setdefault(correlation, launcher) == NONE:
                    launches[correlation] = launcher
                if launched.setdefault(correlation, start) > start:
                    launched[correlation] = start

    def _changes(self, lane: Lane) -> _Changes:
        """The changes of the innermost module on one thread."""
        lane.sort()
        times: list[int] = []
        modules: list[int] = []
        stack: list[tuple[int, int]] = [(NEVER, NONE)]

        def close(until: int) -> None:
            while stack[-1][0] <= until:
                end, _ = stack.pop()
                times.append(max(end, times[-1]))
                modules.append(stack[-1][1])

        names = [signature.name[len(MODULE_PREFIX) :] for signature in self.signatures]
        for start, duration, signature in zip(lane.start, lane.duration, lane.signature, strict=True):
            close(start)
            number = self.module_number(stack[-1][1], names[signature])
            stack.append((start + duration, number))
            times.append(start)
            modules.append(number)
        close(NEVER - 1)
        return _Changes(times, modules)

    def module_number(self, around: int, name: str) -> int:
        """The number of a module by the one around it and its own name."""
        number = self._module_numbers.get((around, name))
        if number is None:
            number = self._module_numbers[around, name] = len(self.modules)
            self.modules.append(f"{self.modules[around]}.{name}" if around >= 0 else name)
        return number

    def _resolve_backward(self) -> None:
        """Give what the backward engine ran the module of the forward operator with the same sequence number."""
        if not self._backward:
            return
        found = array("i", [self._forward.get(sequence, (0, NONE))[1] for sequence in self._backward])
        for row, module in enumerate(self.module):
            if module < NONE:
                self.module[row] = found[-2 - module]

    def _join_repeated(self) -> None:
        """Make one of an operator and the only one inside it where both have one name: it was dispatched twice, run once."""
        if not self._repeated:
            return
        joined, children = self.joined, self._children()
        for row in self._repeated:
            parent = joined.get(self.parent[row], self.parent[row])
            if children[parent] == 1 and self.signatures[self.rows.signature[row]].sort == OPERATOR:
                joined[row] = parent
                self.self_time[parent] += self.self_time[row]
                children[parent] = children[row]
        if joined:
            self._launches = {key: joined.get(row, row) for key, row in self._launches.items()}
            self.parent = array("i", [joined.get(parent, parent) for parent in self.parent])

    def _children(self) -> dict[int, int]:
        """How many rows lie directly in a repeated one, and in the one around it."""
        start, duration = self.rows.start, self.rows.duration
        counts = dict.fromkeys(self._repeated, 0)
        counts.update(dict.fromkeys([self.parent[row] for row in self._repeated], 0))
        for row, parent in enumerate(self.parent):
            if parent in counts and start[row] + duration[row] <= start[parent] + duration[parent]:
                counts[parent] += 1
        return counts

    def _own_kernels(self) -> None:
        work = self.columns.device
        self.device = array("q", bytes(8 * len(self)))
        self.device_total = array("q", bytes(8 * len(self)))
        self.owner = array("i", [self._launches.get(correlation, OUTSIDE) for correlation in work.correlation])
        parent, device, total, externals = self.parent, self.device, self.device_total, self.rows.external
        for owner, duration, external in zip(self.owner, work.duration, work.external, strict=True):
            if owner < 0:
                continue
            device[owner] += duration
            if external >= 0:
                if external == externals[owner]:
                    self.agreed += 1
                else:
                    self.disagreed += 1
            while owner >= 0:
                total[owner] += duration
                owner = parent[owner]  # noqa: PLW2901 - up to the outermost
        self._launches = {}


class _Changes(NamedTuple):
    """When another module becomes the innermost one, and which."""

    times: list[int]
    modules: list[int]


def _at(times: array[int], changes: _Changes) -> list[int]:
    """The innermost module at each of these times, which only grow."""
    if not changes.times:
        return [NONE] * len(times)
    found: list[int] = []
    add = found.append
    upcoming = zip([*changes.times, NEVER], [*changes.modules, NONE], strict=True)
    module = NONE
    next_change, next_module = next(upcoming)
    for time in times:
        while next_change <= time:
            module = next_module
            next_change, next_module = next(upcoming)
        add(module)
    return found


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


def _beginnings(signatures: list[Signature]) -> dict[int, int]:
    """The signatures that begin a backward pass or an update."""
    found = {}
    for number, signature in enumerate(signatures):
        if signature.sort == ANNOTATION and signature.name.startswith(OPTIMIZER):
            found[number] = UPDATE
        elif signature.sort == OPERATOR and signature.name.startswith(ENGINE):
            found[number] = BACKWARD
    return found
