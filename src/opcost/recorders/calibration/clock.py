"""How long one call of a case takes on a device, beside what it takes of the host and of memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from opcost.recorders.calibration.cases import Case, Tensor

CALLS = 8
"""Calls in a row that are timed as one: between two of them lies the gap that lies between the operators of a model."""
HOST_CALLS = 3
"""The same on a processor, where a call takes longer and no gap lies between two."""
CACHE = 128 * 2**20
"""No cache of a device holds this much: tensors that must come from memory are taken in turn from so many."""


class Timed(NamedTuple):
    """What was measured of one call."""

    device_ns: int
    """From its start to the start of the next one like it, without waiting for the host."""
    host_ns: int
    """What the host needs to start it, eagerly."""
    workspace: int = 0
    """Bytes taken while it runs, beyond what it hands back."""


Calls = list[Callable[[], Any]]


def calls_of(case: Case, device: torch.device) -> Calls:
    """The case ready to run, with tensors of its own for each call where they must not come from a cache."""
    warm = {i: _make(tensor, device) for i, tensor in enumerate(case.tensors) if not tensor.cold}
    cold_bytes = sum(tensor.nbytes for tensor in case.tensors if tensor.cold)
    copies = min(CALLS, -(-CACHE // cold_bytes)) if cold_bytes else 1
    sets = []
    for _ in range(copies):
        given = tuple(_make(tensor, device) if tensor.cold else warm[i] for i, tensor in enumerate(case.tensors))
        sets.append(given if case.prepare is None else case.prepare(*given))
    return [partial(case.run, *sets[i % copies]) for i in range(CALLS)]


def _make(tensor: Tensor, device: torch.device) -> torch.Tensor:
    if tensor.below or tensor.dtype is torch.bool:
        return torch.randint(0, tensor.below or 2, tensor.shape, device=device).to(tensor.dtype)
    return torch.randn(tensor.shape, device=device, dtype=tensor.dtype)


class CudaClock:
    """Calls captured into one graph, which the device replays without its host."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)

    def time(self, case: Case) -> Timed:
        with torch.cuda.stream(self.stream):
            calls = calls_of(case, self.device)
            for call in calls[:3]:
                call()
            self.stream.synchronize()
            workspace = self._workspace(calls[0])
            host = self._host(calls)
            return Timed(self._replayed(calls), host, workspace)

    def _workspace(self, call: Callable[[], Any]) -> int:
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        result = call()
        self.stream.synchronize()
        kept = torch.cuda.memory_allocated(self.device)
        del result
        return int(torch.cuda.max_memory_allocated(self.device) - max(kept, before))

    def _host(self, calls: Calls) -> int:
        """The quickest of a few rounds: a queue that is full makes the host wait, which is not its own time."""
        rounds = []
        for _ in range(3):
            began = time.perf_counter_ns()
            for call in calls:
                call()
            rounds.append((time.perf_counter_ns() - began) // CALLS)
            self.stream.synchronize()
        return min(rounds)

    def _replayed(self, calls: Calls) -> int:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for call in calls:
                call()
        graph.replay()
        self.stream.synchronize()
        taken: list[float] = []
        for _ in range(7):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(self.stream)
            graph.replay()
            end.record(self.stream)
            end.synchronize()
            taken.append(begin.elapsed_time(end) * 1e6 / CALLS)
        return round(statistics.median(taken))


class HostClock:
    """Calls one after another on the processor, whose own time is all there is.

    On a single thread it is the time that the thread was given, which is not longer where other programs run beside it.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._now = time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns

    def time(self, case: Case) -> Timed:
        calls = calls_of(case, self.device)[:HOST_CALLS]
        calls[0]()
        rounds = []
        for _ in range(3):
            began = self._now()
            for call in calls:
                call()
            rounds.append((self._now() - began) // len(calls))
        return Timed(min(rounds), 0)
