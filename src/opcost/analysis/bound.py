"""What bounds an operator on a device: its own rates held against the peaks, and the lengths of its kernels.

The least time is the longer of two: FLOPs at the peak of the units that do such products, and bytes at the peak of the memory.
What uses at least `NEAR` of either peak is bound by it; there NVIDIA's profiler of kernels draws the line too. What uses less, in
kernels shorter than the host takes from one launch to the next, is bound by launches. Of longer ones, a kernel that takes longer
than latencies explain and uses at least `FAR` of a peak is bound by that too, only badly; the others by latency.
"""

from __future__ import annotations

from collections.abc import Iterable

from opcost.analysis.join import product_share, runs_tf32
from opcost.analysis.part import LABELS, Part
from opcost.core.answer import SECOND_NS, Busy
from opcost.core.devices import Device
from opcost.core.kernel_names import is_collective, is_copy, is_transfer
from opcost.core.kinds import CONTRACTIONS

NEAR = 0.6
"""Of a peak: what is called bound by it, and what an operator far below is taken to reach if it were better written."""


FAR = 0.3
LONG_NS = 50_000
"""A kernel of this length has long filled the device: neither its launch nor its first and last wave explain its time."""


class Judge:
    """Tells what bounds parts of a profile, on a device whose peaks may be known."""

    def __init__(self, device: Device | None, uses: Iterable[Busy], *, tf32: bool) -> None:
        self._device = device
        self._tf32 = tf32
        self._launch_every = {(use.rank, use.device): use.launch_every_ns for use in uses}

    def judged(self, part: Part) -> Part:
        """The part with the least time that it can take, and what bounds it."""
        if not part.kernels:
            return part
        work, ideal = self._least(part)
        return part._replace(ideal_ns=ideal, bound=self._bound(part, work, ideal))

    def _least(self, part: Part) -> tuple[bool, float | None]:
        """Whether products are the longer part, and the longer part: at the peaks, in nanoseconds."""
        device = self._device
        if device is None or part.memory is None or part.computation is None or part.row is None:
            return False, None
        moved = part.memory * SECOND_NS / device.bandwidth if device.bandwidth else None
        if part.row.kind not in CONTRACTIONS:
            return False, moved
        peak = device.peak_flops(LABELS["dtype"](part), tf32=self._tf32 or runs_tf32(part.kernels))
        if not peak:
            return False, None
        computed = part.computation * product_share([part]) * SECOND_NS / peak
        return computed >= (moved or 0.0), max(computed, moved or 0.0)

    def _bound(self, part: Part, products: bool, ideal: float | None) -> str:  # noqa: FBT001 - of the line above
        kernels = part.kernels
        if all(is_collective(kernel.name) for kernel in kernels):
            return "communication"
        if all(is_transfer(kernel.name) for kernel in kernels):
            return "transfer"
        spent = part.device_ns or 0
        if ideal is not None and ideal >= NEAR * spent:
            return "compute" if products else "memory"
        every = None if part.row is None else self._launch_every.get((part.row.rank, kernels[0].device))
        if every is not None and spent < every * part.launches:
            return "launch"
        if ideal is None:
            return ""
        if ideal >= FAR * spent and spent >= LONG_NS * part.launches:
            return "compute" if products else "memory"
        return "latency"


def computes(part: Part) -> bool:
    """Whether it is neither communication nor a copy."""
    return not all(is_collective(kernel.name) or is_copy(kernel.name) for kernel in part.kernels)
