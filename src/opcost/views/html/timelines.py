"""Host, streams and collectives over time as the page has them: events on lanes, names once, each name with its sort."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opcost.core.harmless import printable
from opcost.core.kernel_names import is_collective, is_copy
from opcost.core.profile import Kernel, Profile
from opcost.core.timeline import Drawn, Span, drawn, nested
from opcost.views.html.columns import Told, words_of


def timeline_of(profile: Profile) -> Told | None:
    """Host and streams on lanes; None where nobody knows when anything began."""
    if any(row.count > 1 for row in profile.rows):
        return None
    several = len({row.rank for row in profile.rows}) > 1
    host: dict[int, list[Span]] = {}
    sorts: dict[str, str] = {}
    streams: dict[tuple[str, str, str], list[Span]] = {}

    def add(kernels: Iterable[Kernel], rank: int | None, sort: str) -> None:
        whose = f"rank {rank} " if several and rank is not None else ""
        for kernel in kernels:
            sorts.setdefault(kernel.name, sort_of(kernel.name, sort))
            span = Span(kernel.start_ns, kernel.duration_ns, kernel.name)
            streams.setdefault((whose, kernel.device, kernel.stream), []).append(span)

    for row in profile.rows:
        name, sort = row.name or row.type, row.kind or row.type
        sorts.setdefault(name, sort)
        if row.host_start_ns is not None and row.host_ns is not None:
            host.setdefault(row.rank, []).append(Span(row.host_start_ns, row.host_ns, name))
        add(row.kernels, row.rank, sort)
    for kernel in profile.unattributed:
        add((kernel,), kernel.rank, "")
    lanes = {
        f"{f'rank {rank} ' if several else ''}host{f' {level + 1}' if level else ''}": spans
        for rank, found in host.items()
        for level, spans in enumerate(nested(found))
    }
    for (whose, device, stream), spans in sorted(streams.items()):
        lanes[f"{whose}{device} {_lane(span.name for span in spans)} {stream}"] = spans
    starts = [span.start_ns for spans in lanes.values() for span in spans]
    if len(starts) < 2 or not any(starts):
        return None
    return timeline_told(drawn(lanes), sorts)


def sort_of(kernel: str, sort: str) -> str:
    """Collectives and copies are told by their names, other kernels by the operators that launched them."""
    return "collective" if is_collective(kernel) else "copy" if is_copy(kernel) else sort


def _lane(names: Iterable[str]) -> str:
    return "collectives" if all(map(is_collective, names)) else "stream"


def timeline_told(lanes: Mapping[str, list[Drawn]], sorts: Mapping[str, str]) -> Told:
    """Lanes as the page has them: starts as steps from one to the next, names once."""
    words: dict[str, int] = {}
    first = min(events[0].start_ns for events in lanes.values() if events)
    told = []
    for title, events in lanes.items():
        before = first
        steps = []
        for event in events:
            steps.append(event.start_ns - before)
            before = event.start_ns
        many = any(event.count > 1 for event in events)
        told.append(
            {
                "title": printable(title),
                "step": steps,
                "length": [event.duration_ns for event in events],
                "name": [words.setdefault(event.name, len(words)) for event in events],
            }
            | (
                {"count": [event.count for event in events], "busy": [event.busy_ns for event in events]}
                if many
                else {}
            )
        )
    return {
        "words": list(map(printable, words)),
        "sort": words_of(sorts.get(word, "") for word in words),
        "lanes": told,
    }
