"""Which operator ran inside which, in which module, step and phase, and which kernels each one launched."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opcost.core.graph import Phase
from opcost.recorders.torch.events import PREFIX, DeviceEvent, HostEvent

STEP = f"{PREFIX}step "
MODULE = f"{PREFIX}module "
BACKWARD = f"{PREFIX}backward"
ASIDE = f"{PREFIX}aside"
"""What the recorder itself runs between steps."""
GRAPH_LAUNCH = "GraphLaunch"
"""In the runtime's names of the call that starts a CUDA graph."""
_ENGINE = ("autograd::", "torch::autograd::")
_ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
"""Hands a parameter its gradient; it has no number of its own and runs right after the node that made the gradient."""


class Place(NamedTuple):
    """Where in the run something happened."""

    step: int | None = None
    module: str = ""
    phase: Phase = "forward"


class Node:
    """One event of the host with what ran inside it."""

    __slots__ = ("children", "event", "kernels", "place")

    def __init__(self, event: HostEvent, place: Place) -> None:
        self.event = event
        self.place = place
        self.children: list[Node] = []
        self.kernels: list[DeviceEvent] = []

    def walk(self) -> Iterator[Node]:
        """This node and all below it, in order of execution."""
        yield self
        for child in self.children:
            yield from child.walk()


class Nesting(NamedTuple):
    """Everything that ran outside any other operator, and the device work that nobody here launched."""

    roots: list[Node]
    unattributed: list[DeviceEvent]
    step_ns: dict[int, tuple[int, int]]
    """Start and end of every step on the host."""


def nest(host: Sequence[HostEvent], device: Sequence[DeviceEvent], paths: Sequence[str]) -> Nesting:
    """Put the events of each thread into each other. `paths` are the module paths that annotations name by number.

    A backward pass may run on a thread of its own, so the thread of the steps comes first: it says when which step ran and
    in which module each autograd node was made.
    """
    threads: dict[int, list[HostEvent]] = {}
    for event in host:
        threads.setdefault(event.thread, []).append(event)
    first = next((event.thread for event in host if event.name.startswith(STEP)), None)
    builder = _Builder(paths)
    for thread in sorted(threads, key=lambda thread: (thread != first, thread)):
        builder.add_thread(threads[thread], leading=thread == first)
    unattributed = builder.attribute(device)
    builder.roots.sort(key=lambda node: node.event.start_ns)
    return Nesting(builder.roots, unattributed, builder.steps)


class _Builder:
    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths
        self.roots: list[Node] = []
        self.steps: dict[int, tuple[int, int]] = {}
        self._made_in: dict[tuple[int, int], str] = {}
        """The module in which an autograd node was made, by thread and number."""
        self._evaluated: dict[int, str] = {}
        """The module of the autograd node that each thread ran last."""
        self._launches: dict[int, Node] = {}
        self._operators: dict[int, Node] = {}
        self._owner: dict[int, Node] = {}
        """The operator around a launch, by the launch's identity."""
        self._aside: set[int] = set()
        """Correlations of what the recorder itself launched between steps."""

    def add_thread(self, events: Sequence[HostEvent], *, leading: bool) -> None:
        """Nest the events of one thread; `leading` is the thread whose annotations tell the steps."""
        open_: list[tuple[int, Node | None, Place, bool]] = []
        windows = sorted((start, end, step) for step, (start, end) in self.steps.items())
        for event in events:
            while open_ and open_[-1][0] <= event.start_ns:
                open_.pop()
            if open_:
                _, parent, place, aside = open_[-1]
            else:
                parent, aside = None, False
                place = Place() if leading else Place(_window(windows, event.start_ns))
            if event.name.startswith(PREFIX):
                place, aside = self._enter(event, place, aside=aside)
                open_.append((event.end_ns, parent, place, aside))
                continue
            if aside:
                if event.runtime:
                    self._aside.add(event.correlation)
                open_.append((event.end_ns, parent, place, aside))
                continue
            place = self._place(event, place)
            node = Node(event, place)
            if parent is None:
                self.roots.append(node)
            else:
                parent.children.append(node)
            self._remember(event, node, parent)
            open_.append((event.end_ns, node, place, aside))

    def _enter(self, event: HostEvent, place: Place, *, aside: bool) -> tuple[Place, bool]:
        if event.name.startswith(STEP):
            step = int(event.name.removeprefix(STEP))
            self.steps[step] = event.start_ns, event.end_ns
            return Place(step), aside
        if event.name.startswith(MODULE):
            return place._replace(module=self.paths[int(event.name.removeprefix(MODULE))]), aside
        if event.name == BACKWARD:
            return place._replace(phase="backward"), aside
        return place, True

    def _place(self, event: HostEvent, place: Place) -> Place:
        """The module of a backward node is the one whose forward pass made it.

        An operator that makes a node sees the node's number, as do those before it that make none: the last one counts.
        """
        if event.name == _ACCUMULATE:
            return place._replace(phase="backward", module=self._evaluated.get(event.thread, place.module))
        if event.sequence < 0:
            return place
        if event.forward_thread:
            made_in = self._made_in.get((event.forward_thread, event.sequence))
            place = place._replace(phase="backward", module=place.module if made_in is None else made_in)
            self._evaluated[event.thread] = place.module
            return place
        self._made_in[event.torch_thread, event.sequence] = place.module
        return place

    def _remember(self, event: HostEvent, node: Node, parent: Node | None) -> None:
        if event.runtime:
            self._launches[event.correlation] = node
            if parent is not None:
                # A call of the runtime may make another of the driver; the operator is around both.
                outer = self._owner.get(parent.event.correlation) if parent.event.runtime else None
                self._owner[event.correlation] = outer or parent
        else:
            self._operators[event.correlation] = node

    def attribute(self, device: Sequence[DeviceEvent]) -> list[DeviceEvent]:
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


def _window(windows: Sequence[tuple[int, int, int]], moment: int) -> int | None:
    at = bisect_right(windows, moment, key=lambda window: window[0]) - 1
    return windows[at][2] if at >= 0 and moment < windows[at][1] else None


def is_operator(name: str) -> bool:
    """Whether this is an operator of a library (`aten::add`), and not a part of the autograd engine or a plain scope."""
    return "::" in name and not name.startswith(_ENGINE) and " " not in name
