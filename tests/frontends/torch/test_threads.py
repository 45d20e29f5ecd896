"""Several threads at once: those that count take turns, those that run models notice nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from helpers_models import B, D, Remembers, attention, recurrent, x
from helpers_state import differences, fingerprint
from torch import Tensor, nn

import opcost


def together(*jobs: Callable[[], Any]) -> list[Any]:
    """Run jobs at the same time, each in a thread of its own, and return what they return; the first error is raised."""
    results: list[Any] = [None] * len(jobs)
    start = threading.Barrier(len(jobs))

    def run(index: int) -> None:
        start.wait()
        try:
            results[index] = jobs[index]()
        except BaseException as exc:  # noqa: BLE001 - raised again by the thread that waits
            results[index] = exc

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def test_threads_count_different_models_at_once() -> None:
    models = [nn.Sequential(*[nn.Linear(D, D) for _ in range(depth)]) for depth in range(1, 7)]

    def counting(model: nn.Module) -> Callable[[], list[int]]:
        return lambda: [opcost.count(model, x()).totals.macs for _ in range(5)]

    assert together(*map(counting, models)) == [[depth * B * D * D] * 5 for depth in range(1, 7)]


def test_threads_count_one_model_in_different_modes_at_once() -> None:
    model = nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D), nn.Dropout())
    before = fingerprint(model)
    alone = {mode: opcost.count(model, x(), mode=mode).totals for mode in ("train", "eval")}
    assert alone["train"] != alone["eval"]

    def counting(mode: str) -> Callable[[], Any]:
        return lambda: [opcost.count(model, x(), mode=mode).totals for _ in range(5)]

    modes = ("train", "eval", "train", "eval")
    assert together(*map(counting, modes)) == [[alone[mode]] * 5 for mode in modes]
    assert differences(before, fingerprint(model)) == []


def test_a_thread_that_runs_models_is_not_disturbed_by_one_that_counts() -> None:
    counted = attention().eval()
    models = [
        attention().eval(),
        nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.LayerNorm(D)),
        recurrent().eval(),
        counted,
    ]
    with torch.no_grad():
        expected = [model(x()) for model in models]
    compiled = torch.compile
    done = threading.Event()

    def running() -> int:
        turns = 0
        while not done.is_set() or turns < 3:
            with torch.no_grad():
                for model, result in zip(models, expected, strict=True):
                    assert torch.equal(model(x()), result)
            assert torch.backends.mha.get_fastpath_enabled()
            turns += 1
        return turns

    def counting() -> None:
        try:
            for _ in range(10):
                opcost.count(counted, x())
                opcost.count(Remembers(), x())
        finally:
            done.set()

    turns, _ = together(running, counting)
    assert turns >= 3
    assert torch.compile is compiled


def test_a_thread_that_compiles_while_another_counts_gets_a_compiled_function() -> None:
    inside, asked = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            inside.set()
            asked.wait(10)
            return torch.compile(F.relu)(x)

    def compiling() -> Any:
        inside.wait(10)
        try:
            return torch.compile(F.relu)
        finally:
            asked.set()

    report, function = together(lambda: opcost.count(Waits(), x()), compiling)
    assert report.totals.ops == 1
    assert function is not F.relu
