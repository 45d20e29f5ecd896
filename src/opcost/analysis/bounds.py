"""How devices were used: busy and idle time, kernels side by side, how short the kernels are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from opcost.analysis.aggregate import delays_of, percentile, union
from opcost.analysis.join import product_share, runs_tf32
from opcost.analysis.part import LABELS, Part
from opcost.core.devices import Device
from opcost.core.kinds import CONTRACTIONS
from opcost.core.names import is_collective, is_copy, is_transfer
from opcost.core.profile import SECOND_NS, Busy, Kernel, Profile, extra_entries
from opcost.core.timeline import long_gaps


def kernels_by_device(profile: Profile) -> dict[tuple[int, str], list[Kernel]]:
    """The kernels of each rank and device; work without an operator has no rank of its own but that of a single rank."""
    found: dict[tuple[int, str], list[Kernel]] = {}
    for row in profile.rows:
        for kernel in row.kernels:
            found.setdefault((row.rank, kernel.device), []).append(kernel)
    ranks = {row.rank for row in profile.rows} or {0}
    rank = next(iter(ranks)) if len(ranks) == 1 else 0
    for kernel in profile.unattributed:
        found.setdefault((rank if kernel.rank is None else kernel.rank, kernel.device), []).append(kernel)
    return found


def devices(profile: Profile) -> tuple[Busy, ...]:
    """One entry per rank and device that ran kernels, in the order of first use.

    A profile whose rows stand for many executions has no start of each kernel; its reader reports how devices were used in
    `extra["devices"]`, a list of the fields of `Busy`, and without that nothing is claimed.
    """
    if "devices" in profile.extra:
        return tuple(extra_entries(profile.extra, "devices", Busy))
    found = kernels_by_device(profile)
    starts = [kernel.start_ns for kernels in found.values() for kernel in kernels]
    if any(row.count > 1 for row in profile.rows) or (len(starts) > 1 and not any(starts)):
        return ()
    owned: Counter[tuple[int, str]] = Counter()
    operators: Counter[tuple[int, str]] = Counter()
    for row in profile.rows:
        own = Counter((row.rank, kernel.device) for kernel in row.kernels)
        owned.update(own)
        operators.update(own.keys())
    return tuple(
        _busy(*key, kernels)._replace(operators=operators[key], owned=owned[key]) for key, kernels in found.items()
    )


def in_steps(profile: Profile) -> tuple[Busy, ...]:
    """The same in the marked steps but for the first, as readers that know them say in `extra["steps"]`; else of the whole."""
    return tuple(extra_entries(profile.extra, "steps", Busy)) or devices(profile)


def _busy(rank: int, device: str, kernels: Sequence[Kernel]) -> Busy:
    delays = delays_of(kernels)
    spans = sorted((kernel.start_ns, kernel.start_ns + kernel.duration_ns) for kernel in kernels)
    begin, end = spans[0][0], max(end for _, end in spans)
    gaps = long_gaps(spans, begin, end, len(spans), len(spans))
    since, until = gaps[0] if gaps else (begin, begin)
    return Busy(
        device=device, rank=rank, span_ns=end - begin, busy_ns=union(spans), gaps=len(gaps),
        gap_ns=sum(until - since for since, until in gaps),
        longest_gap_ns=until - since, longest_gap_at_ns=since - begin,
        work_ns=sum(kernel.duration_ns for kernel in kernels),
        kernels=len(kernels),
        median_ns=median(kernel.duration_ns for kernel in kernels),
        launches=len(delays),
        delay_ns=percentile(delays, 50) if delays else None,
        delay_p90_ns=percentile(delays, 90) if delays else None,
    )  # fmt: skip


# -- what bounds an operator -------------------------------------------------------------------------------------------------
#
# The ideal time is the longer of two: FLOPs at the peak of the units that do such products, and bytes at the peak of the memory.
# An operator that uses at least `NEAR` of either peak is bound by it, as in Nsight Compute. One that uses less, in kernels
# shorter than the host takes from one launch to the next, is launch-bound. Of longer ones, a kernel that takes longer than
# latencies explain and uses at least `FAR` of a peak is bound by that peak too; the others are latency-bound.

NEAR = 0.6  # share of a peak that counts as bound by it, and that a well-written operator is assumed to reach
FAR = 0.3
LONG_NS = 50_000
"""A kernel of this length has filled the device: neither its launch nor its first and last wave explain its time."""


class Judge:
    """Decides what bounds parts of a profile, on a device whose peaks may be known."""

    def __init__(self, device: Device | None, uses: Iterable[Busy], *, tf32: bool) -> None:
        self._device = device
        self._tf32 = tf32
        self._launch_every = {(use.rank, use.device): use.launch_every_ns for use in uses}

    def judged(self, part: Part) -> Part:
        """The part with its ideal time and what bounds it."""
        kernels, spent = part.kernels, part.device_ns or 0
        if not kernels:
            return part
        peak, ideal = self._least(part)
        every = None if part.row is None else self._launch_every.get((part.row.rank, kernels[0].device))
        if all(is_collective(kernel.name) for kernel in kernels):
            bound = "communication"
        elif all(is_transfer(kernel.name) for kernel in kernels):
            bound = "transfer"
        elif ideal is not None and ideal >= NEAR * spent:
            bound = peak
        elif every is not None and spent < every * part.launches:
            bound = "launch"
        elif ideal is None:
            bound = ""
        else:
            bound = peak if ideal >= FAR * spent and spent >= LONG_NS * part.launches else "latency"
        return part._replace(ideal_ns=ideal, bound=bound)

    def _least(self, part: Part) -> tuple[str, float | None]:
        """Whether compute or memory takes longer at the device's peaks, and how many nanoseconds."""
        device = self._device
        if device is None or part.memory is None or part.computation is None or part.row is None:
            return "memory", None
        moved = part.memory * SECOND_NS / device.bandwidth if device.bandwidth else None
        if part.row.kind not in CONTRACTIONS:
            return "memory", moved
        peak = device.peak_flops(LABELS["dtype"](part), tf32=self._tf32 or runs_tf32(part.kernels))
        if not peak:
            return "memory", None
        computed = part.computation * product_share([part]) * SECOND_NS / peak
        return "compute" if computed >= (moved or 0.0) else "memory", max(computed, moved or 0.0)


def computes(part: Part) -> bool:
    """Whether it is neither communication nor a copy."""
    return not all(is_collective(kernel.name) or is_copy(kernel.name) for kernel in part.kernels)
