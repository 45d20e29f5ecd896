"""The events of PyTorch's profiler as plain data, nested by time; and the outline of a run, so that the others run bare."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opcost.core.graph import Phase
from opcost.core.profile import Kernel

PREFIX = "opcost::"  # how the recorder's own annotations begin; they mark steps and modules and are no operators

_RUNTIME = re.compile(r"(?:cuda|cu|hip)[A-Z]\w*$")
_RUNTIME_ACTIVITIES = frozenset({"cuda_runtime", "cuda_driver", "xpu_runtime", "mtia_runtime", "privateuse1_runtime"})

_NO_WORK = frozenset(
    "cpu_instant_event overhead python_function gpu_user_annotation cuda_sync cuda_event hardware_counters".split()
)
"""Kinds of events that are neither operators nor work of the device."""
_OVERHEAD = frozenset(
    {
        "Activity Buffer Request", "Buffer Flush", "Instrumentation", "Resource", "Command Buffer Full", "Lazy Function Loading",
    }
)  # fmt: skip
"""The profiler's own work, by name, for versions that do not have the kind."""


class HostEvent(NamedTuple):
    """An operator, an annotation, or a call of the device's driver, on a thread of the host."""

    start_ns: int
    end_ns: int
    name: str
    thread: int  # the system's number of the thread
    torch_thread: int  # PyTorch's own number, by which a backward pass names the thread of its forward pass
    forward_thread: int
    sequence: int  # number of the autograd node that is made or run; -1 without one
    backward: bool
    correlation: int
    runtime: bool
    shapes: tuple[Any, ...]
    dtypes: tuple[str, ...]


class DeviceEvent(NamedTuple):
    """A kernel, a copy or a fill, on a stream of the device."""

    kernel: Kernel
    correlation: int  # shared with the call that launched it
    operator: int  # the correlation of the operator that launched it, as the profiler linked it; 0 without one


def read_events(results: Any) -> tuple[list[HostEvent], list[DeviceEvent]]:
    """The events of `prof.profiler.kineto_results`, by start."""
    host: list[HostEvent] = []
    device: list[DeviceEvent] = []
    for event in results.events():
        if _optional(event, "is_hidden_event"):
            continue
        name, activity = event.name(), str(_optional(event, "activity_type", ""))
        start, duration = event.start_ns(), max(0, event.duration_ns())
        place, correlation = event.device_resource_id(), event.correlation_id()
        if "CPU" not in str(event.device_type()):
            if activity not in _NO_WORK and not _optional(event, "is_user_annotation") and not name.startswith(PREFIX):
                kernel = Kernel(name, f"gpu:{event.device_index()}", str(place), start, duration)
                device.append(DeviceEvent(kernel, correlation, event.linked_correlation_id()))
        elif activity not in _NO_WORK and name not in _OVERHEAD:
            runtime = activity in _RUNTIME_ACTIVITIES if activity else bool(_RUNTIME.match(name))
            shapes = () if runtime else _optional(event, "structured_input_shapes", None) or event.shapes()
            host.append(
                HostEvent(
                    start, start + duration, name, place, event.start_thread_id(), event.fwd_thread_id(),
                    event.sequence_nr(), event.scope() == 1, correlation, runtime, tuple(shapes),
                    tuple(() if runtime else event.dtypes()),
                )
            )  # fmt: skip
    # An operator that begins in the same nanosecond as one inside it is the longer of the two.
    host.sort(key=lambda event: (event.start_ns, -event.end_ns))
    device.sort(key=lambda event: event.kernel.start_ns)
    return host, device


def _optional(event: Any, method: str, otherwise: Any = False) -> Any:  # noqa: FBT002 - for versions without the method
    read = getattr(event, method, None)
    return otherwise if read is None else read()


# -- which operator ran inside which, in which module, step and phase, and which kernels each one launched

STEP = f"{PREFIX}step "
MODULE = f"{PREFIX}module "
BACKWARD = f"{PREFIX}backward"
ASIDE = f"{PREFIX}aside"  # what the recorder itself runs between steps
GRAPH_LAUNCH = "GraphLaunch"  # in the runtime's names of the call that starts a CUDA graph
_ENGINE = ("autograd::", "torch::autograd::")
_ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
"""Hands a parameter its gradient; it has no number of its own and runs right after the node that made the gradient."""


class RunPlace(NamedTuple):
    """Where in the run something happened."""

    step: int | None = None
    module: str = ""
    phase: Phase = "forward"


@dataclass(slots=True, eq=False)
class EventNode:
    """One event of the host with what ran inside it."""

    event: HostEvent
    place: RunPlace
    children: list[EventNode] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)

    def walk(self) -> Iterator[EventNode]:
        """This node and all below it, in order of execution."""
        yield self
        for child in self.children:
            yield from child.walk()


class Nesting:
    """The events of each thread put into each other. `paths` are the module paths that annotations name by number.

    A backward pass may run on a thread of its own, so the thread of the steps comes first: it has when which step ran and
    in which module each autograd node was made.
    """

    def __init__(self, host: Sequence[HostEvent], device: Sequence[DeviceEvent], paths: Sequence[str]) -> None:
        self._paths = paths
        self.roots: list[EventNode] = []  # everything that ran outside any other operator
        self.step_ns: dict[int, tuple[int, int]] = {}  # start and end of every step on the host
        self._made_in: dict[tuple[int, int], str] = {}
        """The module in which an autograd node was made, by thread and number."""
        self._evaluated: dict[int, str] = {}  # the module of the autograd node that each thread ran last
        self._launches: dict[int, EventNode] = {}
        self._operators: dict[int, EventNode] = {}
        self._owner: dict[int, EventNode] = {}  # the operator around a launch, by the launch's identity
        self._aside: set[int] = set()  # correlations of what the recorder itself launched between steps
        threads: dict[int, list[HostEvent]] = {}
        for event in host:
            threads.setdefault(event.thread, []).append(event)
        first = next((event.thread for event in host if event.name.startswith(STEP)), None)
        for thread in sorted(threads, key=lambda thread: (thread != first, thread)):
            self._add_thread(threads[thread], leading=thread == first)
        self.unattributed = self._attribute(device)  # the device work without a launch
        self.roots.sort(key=lambda node: node.event.start_ns)

    def _add_thread(self, events: Sequence[HostEvent], *, leading: bool) -> None:
        """Nest the events of one thread; `leading` is the thread whose annotations mark the steps."""
        open_: list[tuple[int, EventNode | None, RunPlace, bool]] = []
        windows = sorted((start, end, step) for step, (start, end) in self.step_ns.items())
        for event in events:
            while open_ and open_[-1][0] <= event.start_ns:
                open_.pop()
            node, place, aside = None, RunPlace(), False
            if open_:
                _, node, place, aside = open_[-1]
            elif not leading:
                at = bisect_right(windows, event.start_ns, key=lambda window: window[0]) - 1
                place = RunPlace(windows[at][2] if at >= 0 and event.start_ns < windows[at][1] else None)
            if event.name.startswith(STEP):
                place = RunPlace(int(event.name.removeprefix(STEP)))
                self.step_ns[place.step or 0] = event.start_ns, event.end_ns
            elif event.name.startswith(MODULE):
                place = place._replace(module=self._paths[int(event.name.removeprefix(MODULE))])
            elif event.name == BACKWARD:
                place = place._replace(phase="backward")
            elif event.name.startswith(PREFIX):
                aside = True
            elif not aside:
                place = self._place(event, place)
                parent, node = node, EventNode(event, place)
                (self.roots if parent is None else parent.children).append(node)
                (self._launches if event.runtime else self._operators)[event.correlation] = node
                if event.runtime and parent is not None:
                    # A call of the runtime may make another of the driver; the operator is around both.
                    outer = self._owner.get(parent.event.correlation) if parent.event.runtime else None
                    self._owner[event.correlation] = outer or parent
            elif event.runtime:
                self._aside.add(event.correlation)
            open_.append((event.end_ns, node, place, aside))

    def _place(self, event: HostEvent, place: RunPlace) -> RunPlace:
        """The module of a backward node is the one whose forward pass made it.

        An operator that makes a node sees the node's number, as do those before it that make none: the last one counts.
        """
        if event.name == _ACCUMULATE:
            return place._replace(phase="backward", module=self._evaluated.get(event.thread, place.module))
        if event.sequence < 0:
            return place
        if not event.forward_thread:
            self._made_in[event.torch_thread, event.sequence] = place.module
            return place
        made_in = self._made_in.get((event.forward_thread, event.sequence), place.module)
        self._evaluated[event.thread] = made_in
        return place._replace(phase="backward", module=made_in)

    def _attribute(self, device: Sequence[DeviceEvent]) -> list[Kernel]:
        """Give every piece of device work to the operator around its launch; what has no launch here is handed back.

        The profiler's own link from kernel to operator serves only where the launch itself was not seen. A launch outside
        any operator (a CUDA graph, a kernel called from Python) keeps its work itself. What a CUDA graph replays has no launch
        of its own.
        """
        left = []
        for kernel, correlation, operator in device:
            launch = self._launches.get(correlation)
            owner = self._owner.get(correlation, launch) if launch else self._operators.get(operator)
            if owner is not None:
                if launch is not None and GRAPH_LAUNCH not in launch.event.name:
                    kernel = kernel._replace(launched_ns=launch.event.start_ns)  # noqa: PLW2901 - the same, and when
                owner.kernels.append(kernel)
            elif correlation not in self._aside:
                left.append(kernel)
        return left


def is_operator(name: str) -> bool:
    """Whether this is an operator of a library (`aten::add`), and not a part of the autograd engine or a plain scope."""
    return "::" in name and not name.startswith(_ENGINE) and " " not in name


# -- what every run does alike: operators in order, their shapes, and the modules around them
#
# Noting shapes and module calls slows a model of small operators more than the profiler itself does. So they are learnt in runs
# of their own, and given to the recorded ones, in which nothing but the profiler runs. That is right only if the operators are
# the same, in the same order and one inside the other alike; it is checked, and a model that behaves otherwise is recorded with
# everything at once.


class OutlinedOperator(NamedTuple):
    """What an operator is in every run; `ran` is what all recordings show of it."""

    ran: tuple[int, int, str]  # its thread, how many others it runs in, and its name
    module: str
    shapes: tuple[Any, ...]
    dtypes: tuple[str, ...]


def outline_of(nesting: Nesting) -> list[OutlinedOperator] | None:
    """What all steps of this recording have in common; None if they differ."""
    found = [
        [OutlinedOperator(ran, node.place.module, node.event.shapes, node.event.dtypes) for ran, node in step]
        for step in _steps(nesting)
    ]
    return found[0] if found and all(outline == found[0] for outline in found) else None


def describe(nesting: Nesting, outline: Sequence[OutlinedOperator]) -> bool:
    """Give the operators of every step the modules and shapes of the outline; False if some step does something else."""
    for step in _steps(nesting):
        if [ran for ran, _ in step] != [known.ran for known in outline]:
            return False
        for (_, node), known in zip(step, outline, strict=True):
            node.event = node.event._replace(shapes=known.shapes, dtypes=known.dtypes)
            node.place = node.place._replace(module=known.module)
    return True


def _steps(nesting: Nesting) -> list[list[tuple[tuple[int, int, str], EventNode]]]:
    """The operators of each step, thread by thread."""
    steps: dict[int | None, list[tuple[tuple[int, int, str], EventNode]]] = {step: [] for step in nesting.step_ns}
    for ran, node in _operators(nesting.roots, 0):
        if node.place.step in steps:
            steps[node.place.step].append((ran, node))
    return [sorted(found, key=lambda each: each[0][0]) for found in steps.values()]


def _operators(nodes: Iterable[EventNode], depth: int) -> Iterator[tuple[tuple[int, int, str], EventNode]]:
    """All in order of execution; calls of the device's runtime, which not every recording shows, are left out."""
    for node in nodes:
        if not node.event.runtime:
            yield (node.event.thread, depth, node.event.name), node
        yield from _operators(node.children, depth + (not node.event.runtime))
