"""Which operator called which, which module it ran in, which kernels it launched: decided by time and correlation.

A kernel belongs to the innermost operator that was running on the thread of its launch when it was launched. The field
`External id` is only a check: in old traces it is the correlation under another name, and would give wrong owners.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import merge

from opcost.core.graph import Phase
from opcost.traces.kineto_columns import ANNOTATION, NONE, OPERATOR, PYTHON, RUNTIME, Columns, Lane

PHASES: tuple[Phase, ...] = ("forward", "backward", "update")
FORWARD, BACKWARD, UPDATE = range(3)

GRAPH = -2
"""Owner of a kernel that a captured graph launched."""
OUTSIDE = -3
"""Owner of a kernel whose launch is not in the trace."""

ENGINE = "autograd::engine::evaluate_function"
OPTIMIZER = "Optimizer."


class Linked:
    """The rows of a trace (operators, annotations, runtime calls) in columns, by thread and start; -1 stands for none."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.signatures = list(columns.signatures)
        self.threads: list[str] = []
        self.modules: list[str] = []
        """Paths: the classes and numbers around an operator, from the outermost."""
        self.start = array("q")
        self.duration = array("q")
        self.self_time = array("q")
        self.signature = array("i")
        self.parent = array("i")
        self.module = array("i")
        self.phase = array("b")
        self.step = array("i")
        self.thread = array("i")
        self.external = array("q")
        self.owner = array("i")
        """Of each piece of device work, the row that launched it, or NONE, GRAPH or OUTSIDE."""
        self.device = array("q")
        self.device_total = array("q")
        self.agreed = self.disagreed = 0
        """Kernels whose `External id` names the operator that launched them, and those where it names another."""
        self._launches: dict[int, int] = {}
        self._module_numbers: dict[tuple[int, str], int] = {}
        self._forward: dict[int, tuple[int, int]] = {}
        """By sequence number, start and module of the last forward operator that bears it: the one that made the node."""
        self._backward: list[int] = []
        """Sequence numbers of what the backward engine ran; rows under it refer here until all threads are known."""
        self._steps = sorted(columns.steps)
        for (pid, tid), lanes in columns.threads.items():
            self._sweep(lanes, f"{pid}/{tid}")
        self._resolve_backward()
        self._own_kernels()

    def __len__(self) -> int:
        return len(self.start)

    def _sweep(self, lanes: dict[int, Lane], thread: str) -> None:
        """Walk one thread through time with the stack of what is open."""
        names = self.signatures
        add_start, add_duration, add_self = self.start.append, self.duration.append, self.self_time.append
        add_signature, add_parent, add_module = self.signature.append, self.parent.append, self.module.append
        add_phase, add_step, add_external = self.phase.append, self.step.append, self.external.append
        self_time, launches = self.self_time, self._launches
        phases = _phases_of(lanes, names)
        modules: list[tuple[int, int]] = []
        rows: list[tuple[int, int, int, int, int]] = []
        first = row = len(self.start)
        steps = iter(self._steps)
        step = next(steps, None)
        for start, negative, sort, signature, link, external in _in_order(lanes):
            while modules and modules[-1][0] <= start:
                modules.pop()
            if sort == PYTHON:
                inner = self._module(modules[-1][1] if modules else NONE, names[signature].name)
                modules.append((start - negative, inner))
                continue
            end = start - negative
            while rows and rows[-1][0] <= start:
                rows.pop()
            if sort != RUNTIME:  # what reaches beyond is no child; a launch is one call long and may, by its other clock
                while rows and rows[-1][0] < end:
                    rows.pop()
            parent, owner, phase, engine = rows[-1][1:] if rows else (NONE, NONE, FORWARD, NONE)
            if parent >= 0 and end <= rows[-1][0]:
                self_time[parent] += negative
            if sort == RUNTIME:
                if link >= 0:
                    launched = GRAPH if "GraphLaunch" in names[signature].name else owner
                    if launches.setdefault(link, launched) == NONE:
                        launches[link] = launched
            elif phase == FORWARD:
                phase = phases.get(signature, FORWARD)
                if sort == OPERATOR and (link < NONE or phase == BACKWARD):
                    phase = BACKWARD
                    engine = len(self._backward)
                    self._backward.append(-2 - link if link < NONE else NONE)
            if engine >= 0:
                module = -2 - engine
            else:
                module = modules[-1][1] if modules else NONE
                if link >= 0 and sort == OPERATOR and module >= 0:
                    known = self._forward.get(link)
                    if known is None or known[0] <= start:
                        self._forward[link] = start, module
            while step is not None and step[1] <= start:
                step = next(steps, None)
            add_start(start)
            add_duration(-negative)
            add_self(-negative)
            add_signature(signature)
            add_parent(parent)
            add_module(module)
            add_phase(phase)
            add_step(step[2] if step is not None and step[0] <= start else NONE)
            add_external(external)
            if sort != RUNTIME:
                rows.append((end, row, row if sort == OPERATOR else owner, phase, engine))
            row += 1
        self.thread.extend(array("i", [len(self.threads)]) * (row - first))
        self.threads.append(thread)

    def _module(self, around: int, name: str) -> int:
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

    def _own_kernels(self) -> None:
        work = self.columns.device
        self.device = array("q", bytes(8 * len(self)))
        self.device_total = array("q", bytes(8 * len(self)))
        self.owner = array("i", [self._launches.get(correlation, OUTSIDE) for correlation in work.correlation])
        parent, device, total = self.parent, self.device, self.device_total
        for owner, duration, external in zip(self.owner, work.duration, work.external, strict=True):
            if owner < 0:
                continue
            device[owner] += duration
            if external >= 0:
                if external == self.external[owner]:
                    self.agreed += 1
                else:
                    self.disagreed += 1
            while owner >= 0:
                total[owner] += duration
                owner = parent[owner]  # noqa: PLW2901 - up to the outermost
        self._launches = {}


def _in_order(lanes: dict[int, Lane]) -> Iterator[tuple[int, int, int, int, int, int]]:
    """All intervals of a thread by start, the longer first where two start together."""
    return merge(*(_intervals(lane) for lane in lanes.values()))


def _intervals(lane: Lane) -> Iterator[tuple[int, int, int, int, int, int]]:
    """(start, -duration, sort, signature, link, external id) of one lane, in order; of Python functions only modules."""
    links = lane.link if lane.link else array("q", [NONE]) * len(lane.start)
    externals = lane.external if lane.external else array("q", [NONE]) * len(lane.start)
    found = (
        (start, -duration, lane.sort, signature, link, external)
        for start, duration, signature, link, external in zip(
            lane.start, lane.duration, lane.signature, links, externals, strict=True
        )
        if signature >= 0
    )
    return found if lane.ordered else iter(sorted(found))


def _phases_of(lanes: dict[int, Lane], names: list) -> dict[int, int]:  # type: ignore[type-arg]
    """The signatures that begin a backward pass or an update."""
    found = {}
    for number, signature in enumerate(names):
        if signature.sort == ANNOTATION and signature.name.startswith(OPTIMIZER):
            found[number] = UPDATE
        elif signature.sort == OPERATOR and signature.name.startswith(ENGINE):
            found[number] = BACKWARD
    return found
