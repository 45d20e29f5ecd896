"""How devices were used: busy and idle time, kernels side by side, how short the kernels are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from opcost.core.answer import Busy
from opcost.core.profile import Kernel, Profile


def devices(profile: Profile) -> tuple[Busy, ...]:
    """One entry per rank and device that ran kernels, in the order of first use.

    A profile whose rows stand for many executions has no start of each kernel; its reader says how busy devices were in
    `extra["spans"]`, as {device: [span, busy]}, and without that nothing is claimed.
    """
    found: dict[tuple[int, str], list[Kernel]] = {}
    for row in profile.rows:
        for kernel in row.kernels:
            found.setdefault((row.rank, kernel.device), []).append(kernel)
    ranks = {row.rank for row in profile.rows} or {0}
    # Work without an operator has no rank of its own; a trace of one rank leaves no doubt.
    rank = next(iter(ranks)) if len(ranks) == 1 else 0
    for kernel in profile.unattributed:
        found.setdefault((rank, kernel.device), []).append(kernel)
    spans = profile.extra.get("spans")
    if isinstance(spans, Mapping):
        return tuple(
            _told(device, rank, kernels, spans[device]) for (rank, device), kernels in found.items() if device in spans
        )
    starts = [kernel.start_ns for kernels in found.values() for kernel in kernels]
    if any(row.count > 1 for row in profile.rows) or (len(starts) > 1 and not any(starts)):
        return ()
    return tuple(_busy(device, rank, kernels) for (rank, device), kernels in found.items())


def _told(device: str, rank: int, kernels: Sequence[Kernel], span: Sequence[int]) -> Busy:
    work = sum(kernel.duration_ns for kernel in kernels)
    return Busy(device=device, rank=rank, span_ns=span[0], busy_ns=span[1], work_ns=work, kernels=0, median_ns=0.0)


def _busy(device: str, rank: int, kernels: Sequence[Kernel]) -> Busy:
    spans = [(kernel.start_ns, kernel.start_ns + kernel.duration_ns) for kernel in kernels]
    return Busy(
        device=device,
        rank=rank,
        span_ns=max(end for _, end in spans) - min(start for start, _ in spans),
        busy_ns=union(spans),
        work_ns=sum(kernel.duration_ns for kernel in kernels),
        kernels=len(kernels),
        median_ns=median(kernel.duration_ns for kernel in kernels),
    )


def union(spans: Iterable[tuple[int, int]]) -> int:
    """Length of the time that at least one span covers."""
    total = 0
    reached: int | None = None
    for start, end in sorted(spans):
        if reached is None or start >= reached:
            total += end - start
            reached = end
        elif end > reached:
            total += end - reached
            reached = end
    return total
