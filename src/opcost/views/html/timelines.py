"""Host, streams and collectives over time as the page has them."""

from __future__ import annotations

from collections.abc import Iterable

from opcost.core.profile import Kernel, Profile
from opcost.core.timeline import Span, drawn, lane_title, lanes_checked, lanes_told, nested, sort_of
from opcost.views.html.columns import Told


def timeline_of(profile: Profile) -> Told | None:
    """Host and streams on lanes; None where nobody knows when anything began."""
    if "timeline" in profile.extra:
        return lanes_checked(profile.extra["timeline"])
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
        lanes[f"{whose}{lane_title(device, stream, (span.name for span in spans))}"] = spans
    starts = [span.start_ns for spans in lanes.values() for span in spans]
    if len(starts) < 2 or not any(starts):
        return None
    return lanes_told(drawn(lanes), sorts)
