"""A calibration: operators of the sizes that models have, timed one by one on a device until the time is up.

`cases` and `memory_families` draw the cases, `plan` orders them without an end, and `run` times them. Between them it times the
same few again, which take as long each time if nothing else runs.
"""

import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch

from opcost.core.graph import Op, TensorSpec
from opcost.devices.calibration import Measured
from opcost.errors import InputError
from opcost.frontends.options import CountOptions
from opcost.frontends.torch import FRONTEND
from opcost.recorders.calibration.cases import Case, CaseTensor, Draw, Family
from opcost.recorders.calibration.memory_families import SHARES
from opcost.recorders.measure import host_conditions
from opcost.recorders.torch.record import gpu_state

DTYPES = {"cuda": (torch.bfloat16, torch.float32), "cpu": (torch.float32,)}  # what models run in on such a device
CALLS = 8
"""Calls in a row that are timed as one: between two of them is the gap that is between the operators of a model."""
HOST_CALLS = 3  # the same on a processor, where a call takes longer and there is no gap between two
CACHE = 128 * 2**20
"""No cache of a device is this large: tensors that must come from memory are taken in turn from this many bytes."""

# -- which cases, in which order


class Largest(NamedTuple):
    """Larger cases take long and are at the peak of the device anyhow."""

    nbytes: int
    flops: int
    flops32: int  # of products in float32, which are slower


GPU = Largest(2**31, 10**12, 2 * 10**11)
PROCESSOR = Largest(2**24, 4 * 10**8, 4 * 10**8)


def plan(dtypes: tuple[torch.dtype, ...], largest: Largest, shares: Mapping[Family, int] = SHARES) -> Iterator[Case]:
    """All cases in the order in which they are timed, without an end and the same on every machine.

    Each family gives its next cases in turn, so that a plan cut short is still a whole one.
    """
    rng = random.Random(0)  # noqa: S311 - the plan must be the same everywhere
    seen: set[str] = set()
    while True:
        for family, share in shares.items():
            for dtype in dtypes:
                most = largest.flops32 if dtype is torch.float32 else largest.flops
                for _ in range(share):
                    case = family(Draw(rng, dtype))
                    size = sum(tensor.nbytes for tensor in case.tensors)
                    if size <= largest.nbytes and case.flops <= most and case.name not in seen:
                        seen.add(case.name)
                        yield case


def describe(case: Case) -> tuple[Op, tuple[TensorSpec, ...], tuple[TensorSpec, ...]] | None:
    """The last operator of a case that does something, as a count has it, with what it reads and makes; None without one."""
    given = tuple(torch.empty(tensor.shape, dtype=tensor.dtype, device="meta") for tensor in case.tensors)

    def run(*tensors: torch.Tensor) -> Any:
        return case.run(*(tensors if case.prepare is None else case.prepare(*tensors)))

    graph = FRONTEND.load(run, CountOptions(inputs=given))
    op = next((op for op in reversed(graph.ops) if op.kind != "view"), None)
    if op is None:
        return None
    return op, tuple(graph.values[i].spec for i in op.inputs), tuple(graph.values[i].spec for i in op.outputs)


# -- how long one call takes


Timed = tuple[int, int, int]
"""Of one call, as `Measured` has it: the time on the device, the host's time to start it eagerly, and the workspace."""


def _calls_of(case: Case, device: torch.device) -> list[Callable[[], Any]]:
    """The case ready to run, with tensors of its own for each call where they must not come from a cache."""

    def make(tensor: CaseTensor) -> torch.Tensor:
        if tensor.below or tensor.dtype is torch.bool:
            return torch.randint(0, tensor.below or 2, tensor.shape, device=device).to(tensor.dtype)
        return torch.randn(tensor.shape, device=device, dtype=tensor.dtype)

    warm = {i: make(tensor) for i, tensor in enumerate(case.tensors) if not tensor.cold}
    cold_bytes = sum(tensor.nbytes for tensor in case.tensors if tensor.cold)
    copies = min(CALLS, -(-CACHE // cold_bytes)) if cold_bytes else 1
    sets = []
    for _ in range(copies):
        given = tuple(make(tensor) if tensor.cold else warm[i] for i, tensor in enumerate(case.tensors))
        sets.append(given if case.prepare is None else case.prepare(*given))
    return [partial(case.run, *sets[i % copies]) for i in range(CALLS)]


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
        calls = _calls_of(case, device)
        for call in calls[:3]:
            call()
        stream.synchronize()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        result = calls[0]()
        stream.synchronize()
        kept = torch.cuda.memory_allocated(device)
        del result
        workspace = int(torch.cuda.max_memory_allocated(device) - max(kept, before))
        # A queue that is full makes the host wait, which is not its own time: the quickest round counts.
        host = _quickest(calls, time.perf_counter_ns, stream.synchronize)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in calls:
                call()
        graph.replay()
        stream.synchronize()
        taken: list[float] = []
        for _ in range(7):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            taken.append(begin.elapsed_time(end) * 1e6 / CALLS)
        return round(statistics.median(taken)), host, workspace


def _timed_on_host(case: Case, device: torch.device) -> Timed:
    """Calls one after another on the processor, whose own time is all there is.

    On a single thread it is the time that the thread was given, which is not longer where other programs run beside it.
    """
    now = time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns
    calls = _calls_of(case, device)[:HOST_CALLS]
    calls[0]()
    return _quickest(calls, now, lambda: None), 0, 0


# -- the calibration

REPEATED_EVERY = 40  # seconds between two times of the same operators


def repeated(device: torch.device) -> tuple[Case, ...]:
    """The operators that are timed again and again: one bound by compute, one by memory, one by both in turn."""
    size = 2048 if device.type == "cuda" else 256
    square = CaseTensor((size, size), torch.float32)
    return (
        Case("mm", (square, square), torch.mm),
        Case("relu", (square,), torch.relu),
        Case("softmax", (square,), partial(torch.softmax, dim=-1)),
    )


Keep = Callable[[int, Measured], None]  # takes what was measured, and how many cases of the plan are done with it


Again = Callable[[str, int], None]  # takes the name and the time of an operator that is timed again


def run(
    device: torch.device, seconds: float, done: int, keep: Keep, again: Again = lambda _name, _taken: None,
    shares: Mapping[Family, int] = SHARES,
) -> None:  # fmt: skip
    """Time cases from the first that is not done, and pass each to `keep`, for about this many seconds."""
    on_cuda = device.type == "cuda"
    clock: Callable[[Case], Timed] = partial(_timed_on_host, device=device)
    if on_cuda:
        clock = partial(timed_on_cuda, device=device, stream=torch.cuda.Stream(device))
    cases = plan(DTYPES[device.type], GPU if on_cuda else PROCESSOR, shares)
    end = time.monotonic() + seconds
    due = 0.0

    def repeat() -> None:
        for case in repeated(device):
            again(case.name, clock(case)[0])

    cudnn = torch.backends.cudnn
    fastest = {"benchmark": True, "deterministic": False, "allow_tf32": cudnn.allow_tf32}
    with cudnn.flags(enabled=cudnn.enabled, **fastest), torch.no_grad():
        for number, case in enumerate(islice(cases, done, None), done + 1):
            if time.monotonic() >= due:
                repeat()
                due = time.monotonic() + REPEATED_EVERY
            found = describe(case)
            if found is not None:
                op, ins, outs = found
                keep(number, Measured(op.kind, op.raw, op.attrs, ins, outs, *clock(case)))
            if time.monotonic() >= end:
                break
        repeat()


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
    found |= {"torch": torch.__version__, "cudnn_benchmark": "on"}
    found["tf32_convolutions"] = "on" if torch.backends.cudnn.allow_tf32 else "off"
    found["tf32_products"] = "off" if torch.get_float32_matmul_precision() == "highest" else "on"
    if device.type == "cpu":
        return {"product": own.get("cpu") or platform.machine(), "threads": str(torch.get_num_threads()), **found}
    found |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
    return {"product": torch.cuda.get_device_name(device), **found, **gpu_state(device)}
