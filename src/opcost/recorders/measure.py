"""The speed of any function: latency, throughput, percentiles and memory, right also where devices run behind."""

import ctypes
import os
import platform
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from opcost.core.progress import working
from opcost.core.rendering import brief
from opcost.core.units import format_bytes, format_time
from opcost.errors import InputError
from opcost.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Durations of single calls, each waited for to its end, and the memory that they needed at most."""

    durations_ns: tuple[int, ...]
    items: int = 1
    """What one call works through, such as the images of a batch."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """Per device: how far above the level before the calls its memory rose; missing where it is unknown.

    Of the host it is what a call allocates by the accounts of Python, NumPy and PyTorch. Where PyTorch allocates nothing and the
    resident memory of the process rises by more than twice that, another library is at work, and the rise is reported: it has in
    it whatever other threads took meanwhile, and seems too small where the library kept memory from calls before.
    """

    def percentile_ns(self, percent: float) -> int:
        """The duration that this many percent of the calls do not exceed."""
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

    After `warmup` calls come `repeat` timed ones, or as many as fit into `seconds`. `items` is what one call works
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
    python, torch = allocated_by(call) if warmup > 1 else (0, 0)
    wait_for(None)
    before = _levels(fresh=True)
    if warmup:
        call()
    durations = timed_runs(lambda: function(*args, **kwargs), wait_for, repeat=repeat, seconds=seconds)
    after = _levels(fresh=False)
    memory = {device: max(0, after[device] - level) for device, level in before.items() if device in after}
    # The accounts are about the call, and the rise of resident memory about the whole process. The latter is taken only
    # where most of it is in no account, so that another library must have allocated it.
    rise = memory.pop("host", 0)
    needed = max(python, torch) if torch or rise <= 2 * max(python, torch) else rise
    if needed:  # a process that does not grow may use again what it had, which is not nothing
        memory = {"host": needed, **memory}
    return Measurement(durations_ns=durations, items=items, memory_bytes=memory)


def _levels(*, fresh: bool) -> dict[str, int]:
    """Bytes in use per device: now and with the high-water mark put there (`fresh`), or the mark itself."""
    levels: dict[str, int] = {}
    if sys.platform == "linux":  # other systems cannot put the mark back
        with suppress(OSError):
            if fresh:
                # Hand what the heap keeps for later back to the system, so that using it again is seen
                trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
                if trim is not None:
                    trim(0)
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            wanted = "VmRSS:" if fresh else "VmHWM:"
            for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
                if line.startswith(wanted):
                    levels["host"] = int(line.split()[1]) * 1024
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            if fresh:
                torch.cuda.reset_peak_memory_stats(index)
            level = torch.cuda.memory_allocated if fresh else torch.cuda.max_memory_allocated
            levels[f"gpu:{index}"] = level(index)
    return levels


# -- repeated runs against the clock

FEWEST = 3  # runs that are made even where the given seconds are over sooner
WITHIN_NOISE = "within noise"


def timed_runs(
    run: Callable[[], Any],
    wait: Callable[[Any], None],
    *,
    repeat: int,
    seconds: float | None,
    prepare: Callable[[], Any] = lambda: None,
) -> tuple[int, ...]:
    """Durations in nanoseconds of single runs, each waited for before and after; `prepare` is not part of them."""
    durations: list[int] = []
    begun = time.perf_counter()

    def share() -> tuple[float, float]:
        return (len(durations), repeat) if seconds is None else (time.perf_counter() - begun, seconds)

    with working(lambda: f"timing run {len(durations) + 1:,}", share=share):
        while share()[0] < share()[1] or (seconds is not None and len(durations) < FEWEST):
            prepare()
            wait(None)
            start = time.perf_counter_ns()
            wait(run())
            durations.append(time.perf_counter_ns() - start)
    return tuple(durations)


def warmed_up(run: Callable[[], Any], times: int) -> None:
    """Run this many times before anything is timed."""
    done = 0
    with working(lambda: f"warming up, run {done + 1:,}", share=lambda: (done, times)):
        for done in range(times):  # noqa: B007 - the progress line reads it
            run()


def percentile(durations: Sequence[int], percent: float) -> int:
    """The percentile, interpolated between the two nearest values."""
    ordered = sorted(durations)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return round(ordered[below] + (ordered[above] - ordered[below]) * (place - below))


def overhead(timed: Sequence[int], recorded: Sequence[int]) -> str:
    """What recording added to the median run; within noise where runs differ among themselves by as much."""
    before, after = percentile(timed, 50), percentile(recorded, 50)
    noise = max(percentile(runs, 90) - percentile(runs, 10) for runs in (timed, recorded))
    return WITHIN_NOISE if after - before <= noise else f"{after / max(before, 1) - 1:+.2%}"


# -- waiting for devices: a timer that does not wait measures the queue, not the work


def wait_for(result: Any) -> None:
    """Wait for everything that the frameworks in use have started, and for `result` where only it can be waited for."""
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu", "mps") if torch is not None else ():
        backend = getattr(torch, name, None)
        # Whether something may be running there: to find out must not start the device.
        started = getattr(backend, "is_initialized", None) or getattr(backend, "is_available", None)
        if backend is not None and started is not None and started():
            backend.synchronize()
    if (mxnet := sys.modules.get("mxnet")) is not None:
        mxnet.nd.waitall()
    if (megengine := sys.modules.get("megengine")) is not None:
        megengine._full_sync()  # noqa: SLF001 - MegEngine has no public function for it
    if "jax" in sys.modules:
        sys.modules["jax"].block_until_ready(result)


# -- memory of a call, as the allocators account for it: Python and NumPy (tracemalloc), and PyTorch
#
# The system sees only what a process takes from it: nothing for memory kept from an earlier call, too much where
# freed memory is in pieces, threads have heaps of their own, a library is loaded or takes scratch space, or another thread works.


def allocated_by(call: Callable[[], Any]) -> tuple[int, int]:
    """The most bytes that one call had allocated at a time, by the account of Python and NumPy, and of PyTorch.

    PyTorch's older profiler is silent and quick to start, and its only functions are private. A trace or profiler of the user's
    that is running already is left alone.
    """
    traces, torch = not tracemalloc.is_tracing(), sys.modules.get("torch")
    autograd: Any = torch.autograd if torch is not None and not torch.autograd._profiler_enabled() else None  # noqa: SLF001
    if autograd is not None:
        from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

        off = False
        config = ProfilerConfig(ProfilerState.CPU, off, True, off, off, off, _ExperimentalConfig())  # noqa: FBT003
        autograd._enable_profiler_legacy(config)  # noqa: SLF001
    if traces:
        tracemalloc.start()
    by_python = by_torch = 0
    try:
        call()
    finally:
        if traces:
            by_python = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        if autograd is not None:
            events = [event for thread in autograd._disable_profiler_legacy() for event in thread]  # noqa: SLF001
            moves = sorted((e for e in events if e.kind() == "memory_alloc"), key=lambda event: event.start_us())
            by_torch = max(accumulate((int(event.cpu_memory_usage()) for event in moves), initial=0))
    return by_python, by_torch


# -- the machine that a measurement ran on


def host_conditions() -> dict[str, str]:
    """What every measurement depends on, whatever the framework."""

    def line(path: str) -> str:
        return Path(path).read_text(encoding="utf-8").strip()

    def cpuinfo(field: str) -> list[str]:
        lines = line("/proc/cpuinfo").splitlines()
        return [each.partition(":")[2].strip() for each in lines if each.startswith(field)]

    return readable_conditions(
        {
            "opcost": lambda: __version__,
            "python": platform.python_version,
            "system": platform.platform,
            "cpu": lambda: next(iter(cpuinfo("model name")), platform.machine()),
            "cpus": os.cpu_count,
            "cpu_clock_mhz": lambda: ", ".join(dict.fromkeys(cpuinfo("cpu MHz"))),
            "cpu_governor": lambda: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        }
    )


def readable_conditions(conditions: Mapping[str, Callable[[], Any]]) -> dict[str, str]:
    """The conditions by name; one that cannot be read is left out, whatever the reason."""
    found = {}
    for name, read in conditions.items():
        try:
            value = read()
        except Exception:  # noqa: BLE001, S112 - clocks need a file that few systems have, and some switches refuse to be read
            continue
        if value is not None and str(value):
            found[name] = str(value)
    return found
