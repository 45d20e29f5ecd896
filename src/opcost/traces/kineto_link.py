"""Which operator called which, which module it ran in, which kernels it launched: decided by time and correlation.

A kernel belongs to the innermost operator that was running on the thread of its launch when it was launched. The field
`External id` is only a check: in old traces it is the correlation under another name, and would give wrong owners.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from opcost.core.graph import Phase
from opcost.traces.kineto_columns import (
    ANNOTATION,
    CALLS,
    LEAVES,
    MODULE_PREFIX,
    MODULES,
    NONE,
    OPERATOR,
    OVERHEAD,
    Columns,
    Lane,
    Signature,
)  # fmt: skip

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
        self.agreed = self.disagreed = 0
        """Kernels whose `External id` names the operator that launched them, and those where it names another."""
        self._children = array("i")
        self._repeated: list[int] = []
        """Rows inside one of the same name."""
        self._launches: dict[int, int] = {}
        self._module_numbers: dict[tuple[int, str], int] = {}
        self._forward: dict[int, tuple[int, int]] = {}
        """By sequence number, start and module of the last forward operator that bears it: the one that made the node."""
        self._backward: list[int] = []
        """Sequence numbers of what the backward engine ran; rows under it refer here until all threads are known."""
        numbers: dict[str, int] = {}
        self._names = [numbers.setdefault(signature.name, len(numbers)) for signature in columns.signatures]
        self._beginnings = _beginnings(columns.signatures)
        for thread, lanes in _with_overhead(columns).items():
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

    def _sweep(self, lanes: dict[int, Lane], thread: str) -> None:  # noqa: PLR0915 - one loop, kept in one place for speed
        """Walk one thread through time with the stacks of the operators and modules that are open."""
        calls, leaves = lanes.get(CALLS, Lane()), lanes.get(LEAVES, Lane())
        calls.sort()
        leaves.sort()
        first = len(self.parent)
        self.threads.append((thread, first))
        first_leaf = first + len(calls.start)
        self.rows.extend(calls)
        self.rows.extend(leaves)
        total = len(calls.start) + len(leaves.start)
        self.self_time.extend(calls.duration)
        self.self_time.extend(leaves.duration)
        self._children.extend(array("i", bytes(4 * total)))
        for column in (self.parent, self.module):
            column.extend(array("i", [NONE]) * total)
        self.phase.extend(array("b", bytes(total)))

        parents, modules, phases, self_time = self.parent, self.module, self.phase, self.self_time
        children, forward, names = self._children, self._forward, self._names
        is_operator = [signature.sort == OPERATOR for signature in self.signatures]
        beginnings = self._beginnings
        inside = _ModuleStack(self, lanes.get(MODULES, Lane()))
        # What is open, with a bottom that never ends: end, and (row, innermost operator, phase, engine, name).
        ends: list[int] = [NEVER]
        open_rows: list[tuple[int, int, int, int, int]] = [(NONE, NONE, FORWARD, NONE, NONE)]
        leaf, leaf_count = 0, len(leaves.start)
        leaf_start = leaves.start[0] if leaf_count else NEVER
        next_module = inside.next_start
        module = NONE
        module_end = NEVER
        row = first
        for start, duration, signature, link in zip(
            calls.start, calls.duration, calls.signature, calls.link, strict=True
        ):
            while leaf_start < start:
                self._leaf(leaves, leaf, first_leaf + leaf, ends, open_rows, inside)
                leaf += 1
                leaf_start = leaves.start[leaf] if leaf < leaf_count else NEVER
                next_module = NONE  # the stack of modules has moved: look again
            if next_module <= start or module_end <= start:
                module, module_end, next_module = inside.at(start)
            end = start + duration
            while ends[-1] <= start or ends[-1] < end:
                ends.pop()
                open_rows.pop()
            parent, owner, phase, engine, around = open_rows[-1]
            name = names[signature]
            if parent >= 0:
                parents[row] = parent
                self_time[parent] -= duration
                children[parent] += 1
                if name == around:
                    self._repeated.append(row)
            if phase == FORWARD and (link < NONE or signature in beginnings):
                phase = BACKWARD if link < NONE else beginnings[signature]
                if phase == BACKWARD:
                    engine = len(self._backward)
                    self._backward.append(-2 - link if link < NONE else NONE)
            if engine >= 0:
                modules[row] = -2 - engine
            else:
                modules[row] = module
                if link >= 0 and module >= 0:
                    known = forward.get(link)
                    if known is None or known[0] <= start:
                        forward[link] = start, module
            if phase:
                phases[row] = phase
            ends.append(end)
            open_rows.append((row, row if is_operator[signature] else owner, phase, engine, name))
            row += 1
        for rest in range(leaf, leaf_count):
            self._leaf(leaves, rest, first_leaf + rest, ends, open_rows, inside)

    def _leaf(
        self,
        leaves: Lane,
        leaf: int,
        row: int,
        ends: list[int],
        open_rows: list[tuple[int, int, int, int, int]],
        inside: _ModuleStack,
    ) -> None:
        """A runtime call: it belongs to what is open when it begins, and ties its correlation to that operator."""
        start, duration = leaves.start[leaf], leaves.duration[leaf]
        while ends[-1] <= start:
            ends.pop()
            open_rows.pop()
        parent, owner, phase, engine, _ = open_rows[-1]
        if parent >= 0:
            self.parent[row] = parent
            if start + duration <= ends[-1]:  # by another clock, a call may seem to reach beyond its operator
                self.self_time[parent] -= duration
                self._children[parent] += 1
        self.phase[row] = phase
        self.module[row] = -2 - engine if engine >= 0 else inside.at(start)[0]
        correlation = leaves.link[leaf]
        if correlation >= 0:
            launcher = GRAPH if "GraphLaunch" in self.signatures[leaves.signature[leaf]].name else owner
            if self._launches.setdefault(correlation, launcher) == NONE:
                self._launches[correlation] = launcher

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
        joined = self.joined
        for row in self._repeated:
            parent = joined.get(self.parent[row], self.parent[row])
            if self._children[parent] == 1 and self.signatures[self.rows.signature[row]].sort == OPERATOR:
                joined[row] = parent
                self.self_time[parent] += self.self_time[row]
                self._children[parent] = self._children[row]
        if joined:
            self._launches = {key: joined.get(row, row) for key, row in self._launches.items()}
            self.parent = array("i", [joined.get(parent, parent) for parent in self.parent])
        self._children = array("i")

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


class _ModuleStack:
    """The modules that are open at a time; asked with times that only grow."""

    def __init__(self, linked: Linked, lane: Lane) -> None:
        lane.sort()
        self._linked = linked
        self._lane = lane
        self._next = 0
        self._open: list[tuple[int, int]] = []
        self.next_start = lane.start[0] if lane.start else NEVER

    def at(self, time: int) -> tuple[int, int, int]:
        """The innermost module, when it ends, and when the next one begins."""
        lane, stack = self._lane, self._open
        while self.next_start <= time:
            start, place = self.next_start, self._next
            while stack and stack[-1][0] <= start:
                stack.pop()
            name = self._linked.signatures[lane.signature[place]].name[len(MODULE_PREFIX) :]
            number = self._linked.module_number(stack[-1][1] if stack else NONE, name)
            stack.append((start + lane.duration[place], number))
            self._next += 1
            self.next_start = lane.start[self._next] if self._next < len(lane.start) else NEVER
        while stack and stack[-1][0] <= time:
            stack.pop()
        end, module = stack[-1] if stack else (NEVER, NONE)
        return module, end, self.next_start


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
