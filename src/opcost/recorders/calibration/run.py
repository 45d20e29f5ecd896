"""A calibration: operators of models, timed one by one on a device until the time is up.

`plan` has the cases in their order, `replay` makes one ready, and `run` times them. Between them it times the same few again,
which take as long each time if nothing else runs.
"""

import platform
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch

from opcost.core.graph import TensorSpec
from opcost.devices.calibration import Measured
from opcost.errors import InputError
from opcost.recorders.calibration.plan import Case, plan
from opcost.recorders.calibration.replay import calls_of
from opcost.recorders.measure import host_conditions
from opcost.recorders.torch.record import gpu_state

CALLS = 8
"""Calls in a row that are timed as one: between two of them is the gap that is between the operators of a model."""
ROUNDS = 7  # of such calls, of which the median counts
ENOUGH_NS = 1_000_000
"""Calls in a row need not take longer, for a gap is nothing beside this, and all rounds not ROUNDS times as long: a product that
PyTorch does naively takes half a second, a hundred of them a minute."""
STUCK = 20  # seconds after which a call counts as one that never ends
HOST_CALLS = 3  # the same on a processor, where a call takes longer and there is no gap between two
DTYPES = {"cuda": ("bfloat16", "float32", "float8_e4m3fn", "int8"), "cpu": ("float32",)}
"""What models run in on such a device."""


class Largest(NamedTuple):
    """Larger cases take long and are at the peak of the device anyhow."""

    nbytes: int
    flops: int
    flops32: int  # of products in float32, which are slower


GPU = Largest(2**31, 10**12, 2 * 10**11)
PROCESSOR = Largest(2**26, 4 * 10**9, 4 * 10**9)


def fitting(cases: Iterable[Case], dtypes: Collection[str], largest: Largest) -> Iterator[Case]:
    """The cases that a device can be timed on."""
    for case in cases:
        most = largest.flops32 if case.dtype == "float32" else largest.flops
        if case.dtype in dtypes and case.nbytes <= largest.nbytes and case.flops <= most:
            yield case


# -- how long one call takes


Timed = tuple[int, int, int]
"""Of one call, as `Measured` has it: the time on the device, the host's time to start it eagerly, and the workspace."""


def _quickest(calls: list[Callable[[], Any]], now: Callable[[], int], between: Callable[[], Any]) -> int:
    """Nanoseconds per call in the quickest of three rounds."""
    rounds = []
    for _ in range(3):
        began = now()
        for call in calls:
            call()
        rounds.append((now() - began) // len(calls))
        between()
    return min(rounds)


def timed_on_cuda(case: Case, device: torch.device, stream: torch.cuda.Stream) -> Timed:
    """Calls captured into one graph, which the device replays without its host."""
    with torch.cuda.stream(stream):
        calls = calls_of(case, device, CALLS)
        calls[0]()
        _end(stream)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        began = time.perf_counter_ns()
        result = calls[0]()
        stream.synchronize()
        took = max(1, time.perf_counter_ns() - began)
        kept = torch.cuda.memory_allocated(device)
        del result
        workspace = int(torch.cuda.max_memory_allocated(device) - max(kept, before))
        calls = calls[: max(1, ENOUGH_NS // took)]
        # A queue that is full makes the host wait, which is not its own time: the quickest round counts.
        host = _quickest(calls, time.perf_counter_ns, stream.synchronize)
        graph = capture(calls, device, stream)
        graph.replay()
        stream.synchronize()
        taken: list[float] = []
        for _ in range(max(1, min(ROUNDS, ROUNDS * ENOUGH_NS // (took * len(calls))))):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            taken.append(begin.elapsed_time(end) * 1e6 / len(calls))
        return round(statistics.median(taken)), host, workspace


def _end(stream: torch.cuda.Stream) -> None:
    """Wait for what was started, but not for ever."""
    end = time.monotonic() + STUCK
    while not stream.query():
        if time.monotonic() > end:
            raise TimeoutError(f"it did not end within {STUCK} s")
        time.sleep(1e-5)


def capture(calls: list[Callable[[], Any]], device: torch.device, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """The calls as one graph; where one cannot be captured, random numbers can still be made afterwards."""
    graph = torch.cuda.CUDAGraph()
    generator = torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    spare = generator.clone_state()
    try:
        with torch.cuda.graph(graph, stream=stream):
            for call in calls:
                call()
    except RuntimeError:
        generator.graphsafe_set_state(spare)  # its own state is still that of the capture
        raise
    return graph


def _timed_on_host(case: Case, device: torch.device) -> Timed:
    """Calls one after another on the processor, whose own time is all there is.

    On a single thread it is the time that the thread was given, which is not longer where other programs run beside it.
    """
    now = time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns
    calls = calls_of(case, device, HOST_CALLS)
    calls[0]()
    return _quickest(calls, now, lambda: None), 0, 0


# -- the calibration

REPEATED_EVERY = 40  # seconds between two times of the same operators


def repeated(device: torch.device) -> tuple[Case, ...]:
    """The operators that are timed again and again: one bound by compute, one by memory, one by both in turn."""
    size = 2048 if device.type == "cuda" else 256
    square, specs = {"shape": [size, size], "dtype": "float32"}, (TensorSpec((size, size), "float32"),)
    calls = {"mm": [square, square], "relu": [square], "_softmax": [square, -1, False]}
    return tuple(
        Case(f"aten.{name}.default", args, {}, "", f"aten::{name}", {}, specs, specs, 0) for name, args in calls.items()
    )


Keep = Callable[[int, str, Measured | None], None]
"""Takes how many cases of the plan are done with this one, its name, and what was measured; None if it cannot run here."""
Again = Callable[[str, int], None]  # takes the name and the time of an operator that is timed again


def run(
    device: torch.device, seconds: float, done: int, keep: Keep, again: Again = lambda _name, _taken: None,
    cases: Iterable[Case] | None = None,
) -> None:  # fmt: skip
    """Time cases from the first that is not done, and pass each to `keep`, for about this many seconds.

    Convolutions run by the algorithms that PyTorch chooses as it is set: trying all with `cudnn.benchmark`, most of which are
    compiled first, takes 0.4 to 1.2 seconds for a backward convolution on an H200 instead of 0.04.
    An operator that this version of PyTorch or this device does not have is passed without times.
    """
    on_cuda = device.type == "cuda"
    clock: Callable[[Case], Timed] = partial(_timed_on_host, device=device)
    if on_cuda:
        clock = partial(timed_on_cuda, device=device, stream=torch.cuda.Stream(device))
    chosen = fitting(plan() if cases is None else cases, DTYPES[device.type], GPU if on_cuda else PROCESSOR)
    end = time.monotonic() + seconds
    due = 0.0

    def repeat() -> None:
        for case in repeated(device):
            again(case.raw.removeprefix("aten::"), clock(case)[0])

    with torch.no_grad():
        for number, case in enumerate(islice(chosen, done, None), done + 1):
            if time.monotonic() >= due:
                repeat()
                due = time.monotonic() + REPEATED_EVERY
            try:
                timed = clock(case)
            except (RuntimeError, AttributeError, TypeError, TimeoutError) as failure:
                keep(number, case.raw, None)
                if on_cuda:
                    check_device(device, case.raw, failure)
            else:
                keep(number, case.raw, Measured(case.kind, case.raw, case.attrs, case.ins, case.outs, *timed))
            if time.monotonic() >= end:
                break
        repeat()


def check_device(device: torch.device, name: str, failure: Exception) -> None:
    """Raise if an operator that failed has left the device unusable."""
    try:
        if isinstance(failure, TimeoutError):  # to wait for the device would take as long
            raise failure
        torch.cuda.empty_cache()
        torch.cuda.synchronize(device)
    except (RuntimeError, TimeoutError) as exc:
        raise InputError(
            f"{device} can no longer be used since {name} failed on it: {failure}",
            hint="what was timed before is in the file: repeat the command to continue after this operator",
        ) from exc


def device_of(name: str | None) -> torch.device:
    """The device to calibrate: the one that is named, else the GPU where there is one."""
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and not torch.cuda.is_available():
        hint = "calibrate where the device is; opcost doctor lists what there is"
        raise InputError("there is no CUDA device here", hint=hint)
    if device.type not in DTYPES:
        raise InputError(f"{device.type!r} cannot be calibrated", hint="cuda and cpu can")
    return device


def machine(device: torch.device) -> dict[str, str]:
    """What the times depend on: the product, the host, versions, clocks, switches."""
    own = host_conditions()
    found: dict[str, str] = {name: own[name] for name in ("cpu", "python", "opcost") if name in own}
    found |= {"torch": torch.__version__, "cudnn_benchmark": "on" if torch.backends.cudnn.benchmark else "off"}
    found["tf32_convolutions"] = "on" if torch.backends.cudnn.allow_tf32 else "off"
    found["tf32_products"] = "off" if torch.get_float32_matmul_precision() == "highest" else "on"
    if device.type == "cpu":
        return {"product": own.get("cpu") or platform.machine(), "threads": str(torch.get_num_threads()), **found}
    found |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
    return {"product": torch.cuda.get_device_name(device), **found, **gpu_state(device)}
