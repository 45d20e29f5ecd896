"""The events of PyTorch's profiler as plain data, nested by time; and the outline of a run, so that the others run bare."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opcost.core.graph import Phase

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

    start_ns: int
    duration_ns: int
    name: str
    device: str
    stream: str
    correlation: int  # shared with the call that launched it
    operator: int  # the correlation of the operator that launched it, as the profiler linked it; 0 without one
    launched_ns: int | None = None
    """When the host began to launch it, as far as the launch was seen; None for what a CUDA graph replays."""


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
                queue = f"gpu:{event.device_index()}", str(place)
                device.append(DeviceEvent(start, duration, name, *queue, correlation, event.linked_correlation_id()))
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
    device.sort(key=lambda event: event.start_ns)
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
    kernels: list[DeviceEvent] = field(default_factory=list)

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

    def _attribute(self, device: Sequence[DeviceEvent]) -> list[DeviceEvent]:
        """Give every piece of device work to the operator around its launch; what has no launch here is handed back.

        The profiler's own link from kernel to operator serves only where the launch itself was not seen. A launch outside
        any operator (a CUDA graph, a kernel called from Python) keeps its work itself.
        """
        left = []
        for event in device:
            launch = self._launches.get(event.correlation)
            owner = self._owner.get(event.correlation, launch) if launch else self._operators.get(event.operator)
            if owner is not None:
                if launch is not None and GRAPH_LAUNCH not in launch.event.name:
                    event = event._replace(launched_ns=launch.event.start_ns)  # noqa: PLW2901 - the same, and when
                owner.kernels.append(event)
            elif event.correlation not in self._aside:
                left.append(event)
        return left


def is_operator(name: str) -> bool:
    """Whether this is an operator of a library (`aten::add`), and not a part of the autograd engine or a plain scope."""
    return "::" in name and not name.startswith(_ENGINE) and " " not in name


# -- what every run does alike: operators in order, their shapes, and the modules around them
#
# Noting shapes and module calls slows a model of small operators more than the profiler itself does. So they are learnt in runs
# of their own, and laid over the recorded ones, in which nothing but the profiler runs. That is right only if the operators are
# the same, in the same order and one inside the other alike; it is checked, and a model that behaves otherwise is recorded with
# everything at once.


@dataclass(slots=True)
class ModuleSpan:
    """A module call: its annotation, and the first and the last operator inside it."""

    name: str
    first: int
    last: int = -1


class ThreadOutline(NamedTuple):
    """What one run does on one thread."""

    operators: list[tuple[int, str]]  # how many others each one runs in, and its name
    arguments: list[tuple[tuple[Any, ...], tuple[str, ...]]]  # shapes and types
    spans: list[ModuleSpan]  # module calls in order of entry; those in which no operator ran are left out


Outline = Mapping[int, ThreadOutline]  # one run, by the number of the thread


def outline_of(host: Sequence[HostEvent]) -> Outline | None:
    """What all steps of this recording have in common; None if they differ."""
    found = [{thread: _thread(events) for thread, events in threads.items()} for threads in _by_step(host)]
    return found[0] if found and all(outline == found[0] for outline in found) else None


def laid_over(host: Sequence[HostEvent], outline: Outline) -> list[HostEvent] | None:
    """The events with the shapes and module annotations of the outline; None if some step does something else."""
    changed: dict[int, list[HostEvent]] = {}
    for threads in _by_step(host):
        if threads.keys() != outline.keys():
            return None
        for number, events in threads.items():
            if _thread(events).operators != outline[number].operators:
                return None
            changed |= _described(events, outline[number])
    return [new for event in host for new in changed.get(id(event), (event,))]


def _by_step(host: Sequence[HostEvent]) -> list[dict[int, list[HostEvent]]]:
    """The events of each step by thread, the step's own annotation left out."""
    windows = [event for event in host if event.name.startswith(STEP)]
    starts = [event.start_ns for event in windows]
    steps: list[dict[int, list[HostEvent]]] = [{} for _ in windows]
    for event in host:
        at = bisect_right(starts, event.start_ns) - 1
        if at >= 0 and event.start_ns < windows[at].end_ns and event is not windows[at]:
            steps[at].setdefault(event.thread, []).append(event)
    return [{n: found for n, found in threads.items() if any(map(_counts, found))} for threads in steps]


def _counts(event: HostEvent) -> bool:
    """Whether every recording shows this: neither calls of the device's runtime nor annotations of modules do."""
    return not event.runtime and not event.name.startswith(MODULE)


def _thread(events: Iterable[HostEvent]) -> ThreadOutline:
    outline = ThreadOutline([], [], [])
    operators = outline.operators
    open_: list[tuple[int, ModuleSpan | None]] = []  # when it ends, and the span where it is a module
    for event in events:
        if event.runtime:
            continue
        while open_ and open_[-1][0] <= event.start_ns:
            open_.pop()
        span = None
        if event.name.startswith(MODULE):
            span = ModuleSpan(event.name, len(operators))
            outline.spans.append(span)
        else:
            around = [module for _, module in open_ if module is not None]
            for module in around:
                module.last = len(operators)
            operators.append((len(open_) - len(around), event.name))
            outline.arguments.append((event.shapes, event.dtypes))
        open_.append((event.end_ns, span))
    return outline._replace(spans=[span for span in outline.spans if span.last >= span.first])


def _described(events: Sequence[HostEvent], described: ThreadOutline) -> dict[int, list[HostEvent]]:
    """In place of each operator, by its identity: the annotations that begin with it, and itself with its shapes."""
    own = [event for event in events if _counts(event)]
    begin: dict[int, list[ModuleSpan]] = {}
    for span in described.spans:
        begin.setdefault(span.first, []).append(span)
    changed = {}
    for index, (event, (shapes, dtypes)) in enumerate(zip(own, described.arguments, strict=True)):
        new = []
        for span in begin.get(index, ()):
            end = max(inner.end_ns for inner in own[span.first : span.last + 1])
            new.append(event._replace(name=span.name, end_ns=end, sequence=-1, correlation=0, shapes=(), dtypes=()))
        changed[id(event)] = [*new, event._replace(shapes=shapes, dtypes=dtypes)]
    return changed
