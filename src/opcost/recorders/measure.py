"""The speed of any function: latency, throughput, percentiles and memory, right also where devices run behind."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opcost.core.rendering import brief
from opcost.core.units import format_bytes, format_time
from opcost.errors import InputError
from opcost.recorders.allocated import Allocated, allocated_by
from opcost.recorders.synchronise import wait_for
from opcost.recorders.timing import percentile, timed_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Durations of single calls, each waited for to its end, and the memory that they needed at most."""

    durations_ns: tuple[int, ...]
    items: int = 1
    """What one call works through, such as the images of a batch."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """Per device: how far above the level before the calls its memory rose; missing where nobody can tell.

    Of the host it is what a call allocates by the accounts of Python, NumPy and PyTorch. Where PyTorch allocates nothing and the
    resident memory of the process rises by more than twice that, another library is at work, and the rise is reported: it has in
    it whatever other threads took meanwhile, and seems too small where the library kept memory from calls before.
    """

    def percentile_ns(self, percent: float) -> int:
        """The duration that so many percent of the calls do not exceed."""
        return percentile(self.durations_ns, percent)

    @property
    def latency_ns(self) -> int:
        """The median duration."""
        return self.percentile_ns(50)

    @property
    def throughput_per_s(self) -> float:
        """Items per second, one call after the other."""
        return self.items * len(self.durations_ns) * 1e9 / max(sum(self.durations_ns), 1)

    def __repr__(self) -> str:
        memory = [f"{format_bytes(size)} on {device}" for device, size in self.memory_bytes.items()]
        calls = f"{len(self.durations_ns):,} calls"
        return brief(self, [format_time(self.latency_ns), f"{self.throughput_per_s:,.1f} per second", calls, *memory])

    def __str__(self) -> str:
        p10, p50, p90, p99 = (format_time(self.percentile_ns(p)) for p in (10, 50, 90, 99))
        lines = [
            f"latency     {p50} (p10 {p10}, p90 {p90}, p99 {p99}, {len(self.durations_ns)} calls)",
            f"throughput  {self.throughput_per_s:,.1f} per second",
        ]
        lines += [f"memory      {format_bytes(size)} on {device}" for device, size in self.memory_bytes.items()]
        return "\n".join(lines)


def measure(
    function: Callable[..., Any],
    *args: Any,
    warmup: int = 3,
    repeat: int = 20,
    seconds: float | None = None,
    items: int = 1,
    **kwargs: Any,
) -> Measurement:
    """How long `function(*args, **kwargs)` takes, waited for to its end on whatever device it runs.

    After `warmup` calls come `repeat` timed ones, or as many as fit into `seconds`. `items` says what one call works
    through (the batch size), for the throughput. What the function raises reaches the caller as it is. Memory is that of the
    timed calls and of the last one before them, which finds none kept from calls before and so is not timed; in the one before
    that (with a `warmup` of two and more) allocations are written down. The high-water marks of memory, of the process and of
    PyTorch's devices, are put back to the present level for that.
    """
    if not callable(function):
        raise InputError(
            f"an object of type {type(function).__name__} cannot be called",
            hint="pass the function or model and its arguments: opcost.measure(model, x)",
        )
    if seconds is not None and not seconds > 0:
        raise InputError(f"seconds is {seconds}; it must be above zero")
    if repeat < 1 or warmup < 0 or items < 1:
        raise InputError(f"repeat={repeat}, warmup={warmup}, items={items}: at least one call of one item is needed")

    def call() -> None:
        wait_for(function(*args, **kwargs))
        wait_for(None)

    for _ in range(warmup - 2):
        call()
    allocated = allocated_by(call) if warmup > 1 else Allocated()
    wait_for(None)
    before = _levels(fresh=True)
    if warmup:
        call()
    durations = timed_runs(
        lambda: function(*args, **kwargs), wait_for, repeat=repeat, seconds=seconds, prepare=lambda: None
    )
    after = _levels(fresh=False)
    memory = {device: max(0, after[device] - level) for device, level in before.items() if device in after}
    memory["host"] = allocated.with_resident(memory.get("host", 0))
    if not memory["host"]:  # a process that does not grow may use again what it had, which is not nothing
        del memory["host"]
    return Measurement(durations_ns=durations, items=items, memory_bytes=memory)


def _levels(*, fresh: bool) -> dict[str, int]:
    """Bytes in use per device: now and with the high-water mark put there (`fresh`), or the mark itself."""
    levels: dict[str, int] = {}
    if (host := _host_level(fresh=fresh)) is not None:
        levels["host"] = host
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            if fresh:
                torch.cuda.reset_peak_memory_stats(index)
                levels[f"gpu:{index}"] = torch.cuda.memory_allocated(index)
            else:
                levels[f"gpu:{index}"] = torch.cuda.max_memory_allocated(index)
    return levels


def _host_level(*, fresh: bool) -> int | None:
    """Resident memory of this process as Linux counts it; other systems cannot put the mark back."""
    if sys.platform != "linux":
        return None
    try:
        if fresh:
            _give_back_unused()
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    wanted = "VmRSS:" if fresh else "VmHWM:"
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(wanted)), None)


def _give_back_unused() -> None:
    """Hand what the heap keeps for later back to the system, so that using it again is seen."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
