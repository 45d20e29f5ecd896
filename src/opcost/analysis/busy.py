"""How devices were used: busy and idle time, kernels side by side, how short the kernels are."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from opcost.analysis.aggregate import delays_of, percentile, union
from opcost.core.answer import Busy
from opcost.core.profile import Kernel, Profile
from opcost.core.spans import long_gaps
from opcost.core.told import told


def devices(profile: Profile) -> tuple[Busy, ...]:
    """One entry per rank and device that ran kernels, in the order of first use.

    A profile whose rows stand for many executions has no start of each kernel; its reader says how devices were used in
    `extra["devices"]`, a list of the fields of `Busy`, and without that nothing is claimed.
    """
    if "devices" in profile.extra:
        return tuple(told(profile.extra, "devices", Busy))
    found: dict[tuple[int, str], list[Kernel]] = {}
    launching: dict[tuple[int, str], set[int]] = {}
    for place, row in enumerate(profile.rows):
        for kernel in row.kernels:
            found.setdefault((row.rank, kernel.device), []).append(kernel)
            launching.setdefault((row.rank, kernel.device), set()).add(place)
    owned = {key: len(kernels) for key, kernels in found.items()}
    ranks = {row.rank for row in profile.rows} or {0}
    # Work without an operator has no rank of its own; a trace of one rank leaves no doubt.
    rank = next(iter(ranks)) if len(ranks) == 1 else 0
    for kernel in profile.unattributed:
        found.setdefault((rank if kernel.rank is None else kernel.rank, kernel.device), []).append(kernel)
    starts = [kernel.start_ns for kernels in found.values() for kernel in kernels]
    if any(row.count > 1 for row in profile.rows) or (len(starts) > 1 and not any(starts)):
        return ()
    return tuple(
        _busy(*key, kernels)._replace(operators=len(launching.get(key, ())), owned=owned.get(key, 0))
        for key, kernels in found.items()
    )


def in_steps(profile: Profile) -> tuple[Busy, ...]:
    """The same in the marked steps but for the first, as readers that know them say in `extra["steps"]`; else of the whole."""
    return tuple(told(profile.extra, "steps", Busy)) or devices(profile)


def _busy(rank: int, device: str, kernels: Sequence[Kernel]) -> Busy:
    delays = delays_of(kernels)
    spans = sorted((kernel.start_ns, kernel.start_ns + kernel.duration_ns) for kernel in kernels)
    begin, end = spans[0][0], max(end for _, end in spans)
    gaps = long_gaps(spans, begin, end, len(spans), len(spans))
    since, until = gaps[0] if gaps else (begin, begin)
    return Busy(
        device=device,
        rank=rank,
        span_ns=end - begin,
        busy_ns=union(spans),
        gaps=len(gaps),
        gap_ns=sum(until - since for since, until in gaps),
        longest_gap_ns=until - since,
        longest_gap_at_ns=since - begin,
        work_ns=sum(kernel.duration_ns for kernel in kernels),
        kernels=len(kernels),
        median_ns=median(kernel.duration_ns for kernel in kernels),
        launches=len(delays),
        delay_ns=percentile(delays, 50) if delays else None,
        delay_p90_ns=percentile(delays, 90) if delays else None,
    )
