"""What every run does alike: operators in order, their shapes, and the modules around them.

Noting shapes and module calls slows a model of small operators more than the profiler itself does. So they are learnt in runs
of their own, and laid over the recorded ones, in which nothing but the profiler runs. That is right only if the operators are
the same, in the same order and one inside the other alike; it is checked, and a model that behaves otherwise is recorded with
everything at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from opcost.recorders.torch.events import HostEvent
from opcost.recorders.torch.nesting import MODULE, STEP


class Span(NamedTuple):
    """A module call: the first and the last operator inside it, and its annotation."""

    first: int
    last: int
    name: str


class Thread(NamedTuple):
    """What one run does on one thread."""

    operators: list[tuple[int, str]]
    """How many others each one runs in, and its name."""
    arguments: list[tuple[tuple[Any, ...], tuple[str, ...]]]
    """Shapes and types."""
    spans: list[Span]
    """Module calls in order of entry; those in which no operator ran are left out."""


Outline = Mapping[int, Thread]
"""One run, by the number of the thread."""


def outline_of(host: Sequence[HostEvent]) -> Outline | None:
    """What all steps of this recording have in common; None if they differ."""
    found = [{thread: _thread(events) for thread, events in threads.items()} for threads in _by_step(host).values()]
    return found[0] if found and all(outline == found[0] for outline in found) else None


def laid_over(host: Sequence[HostEvent], outline: Outline) -> list[HostEvent] | None:
    """The events with the shapes and module annotations of the outline; None if some step does something else."""
    changed: dict[int, list[HostEvent]] = {}
    for threads in _by_step(host).values():
        if threads.keys() != outline.keys():
            return None
        for number, events in threads.items():
            described = outline[number]
            if _thread(events).operators != described.operators:
                return None
            changed |= _described(events, described)
    return [new for event in host for new in changed.get(id(event), (event,))]


def _by_step(host: Sequence[HostEvent]) -> dict[int, dict[int, list[HostEvent]]]:
    """The events of each step and thread, the step's own annotation left out."""
    windows = [event for event in host if event.name.startswith(STEP)]
    starts = [event.start_ns for event in windows]
    steps: dict[int, dict[int, list[HostEvent]]] = {number: {} for number in range(len(windows))}
    for event in host:
        at = bisect_right(starts, event.start_ns) - 1
        if at >= 0 and event.start_ns < windows[at].end_ns and event is not windows[at]:
            steps[at].setdefault(event.thread, []).append(event)
    return {at: {n: e for n, e in threads.items() if any(_counts(x) for x in e)} for at, threads in steps.items()}


def _counts(event: HostEvent) -> bool:
    """Whether every recording shows this: neither calls of the device's runtime nor annotations of modules do."""
    return not event.runtime and not event.name.startswith(MODULE)


def _thread(events: Iterable[HostEvent]) -> Thread:
    operators: list[tuple[int, str]] = []
    arguments = []
    spans: list[tuple[int, int, str]] = []
    lasts: dict[int, int] = {}
    open_: list[tuple[int, int | None]] = []
    depth = 0
    for event in events:
        if event.runtime:
            continue
        while open_ and open_[-1][0] <= event.start_ns:
            _, span = open_.pop()
            if span is None:
                depth -= 1
            else:
                lasts[span] = len(operators) - 1
        if event.name.startswith(MODULE):
            open_.append((event.end_ns, len(spans)))
            spans.append((len(operators), 0, event.name))
        else:
            open_.append((event.end_ns, None))
            operators.append((depth, event.name))
            arguments.append((event.shapes, event.dtypes))
            depth += 1
    end = len(operators) - 1
    kept = [Span(first, lasts.get(number, end), name) for number, (first, _, name) in enumerate(spans)]
    return Thread(operators, arguments, [span for span in kept if span.last >= span.first])


def _described(events: Sequence[HostEvent], described: Thread) -> dict[int, list[HostEvent]]:
    """In place of each operator, by its identity: the annotations that begin with it, and itself with its shapes."""
    own = [event for event in events if _counts(event)]
    changed = {}
    waiting: Iterator[Span] = iter(described.spans)
    span = next(waiting, None)
    for index, (event, (shapes, dtypes)) in enumerate(zip(own, described.arguments, strict=True)):
        new = []
        while span is not None and span.first == index:
            end = max(inner.end_ns for inner in own[span.first : span.last + 1])
            new.append(event._replace(name=span.name, end_ns=end, sequence=-1, correlation=0, shapes=(), dtypes=()))
            span = next(waiting, None)
        changed[id(event)] = [*new, event._replace(shapes=shapes, dtypes=dtypes)]
    return changed
