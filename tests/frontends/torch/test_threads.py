"""Several threads at once: those that count take turns, those that run models notice nothing, those of a forward are counted."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers_models import B, D, Remembers, attention, recurrent, x
from helpers_state import differences, fingerprint
from torch import Tensor, nn

import opcost
from opcost.errors import ForwardError
from opcost.frontends.torch.ledger.recorder_state import here


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
    inside, requested = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            inside.set()
            requested.wait(10)
            return torch.compile(F.relu)(x)

    def compiling() -> Any:
        inside.wait(10)
        try:
            return torch.compile(F.relu)
        finally:
            requested.set()

    report, function = together(lambda: opcost.count(Waits(), x()), compiling)
    assert report.totals.ops == 1
    assert function is not F.relu


# -- threads that forward starts ---------------------------------------------------------------------------------------

LAYER = B * D * D


class Starts(nn.Module):
    """Calls its layer in other threads."""

    def __init__(self, way: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(list(self.way(self.layer, x)))


def by_executor(layer: nn.Module, x: Tensor) -> Any:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(layer, [x, x]))


def by_thread(layer: nn.Module, x: Tensor) -> Any:
    made: list[Any] = [None, None]

    def fill(at: int) -> None:
        made[at] = layer(x)

    threads = [threading.Thread(target=fill, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def by_subclass(layer: nn.Module, x: Tensor) -> Any:
    class Worker(threading.Thread):
        def run(self) -> None:
            self.made = layer(x)

    worker = Worker()
    worker.start()
    worker.join()
    return worker.made, layer(x)


def by_thread_pool(layer: nn.Module, x: Tensor) -> Any:
    with ThreadPool(2) as pool:
        return pool.map(layer, [x, x])


def by_event_loop(layer: nn.Module, x: Tensor) -> Any:
    async def both() -> Any:
        return await asyncio.gather(asyncio.to_thread(layer, x), asyncio.to_thread(layer, x))

    return asyncio.run(both())


def by_queue(layer: nn.Module, x: Tensor) -> Any:
    given: queue.Queue[Any] = queue.Queue()
    made: queue.Queue[Any] = queue.Queue()

    def work() -> None:
        while (item := given.get()) is not None:
            made.put(layer(item))

    thread = threading.Thread(target=work)
    thread.start()
    for item in (x, x, None):
        given.put(item)
    thread.join()
    return made.get(), made.get()


def by_nest(layer: nn.Module, x: Tensor) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(by_executor, layer, x).result()


def by_functions(layer: nn.Module, x: Tensor) -> Any:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda weight: x @ weight, [layer.weight, layer.weight]))


def by_known_numbers(layer: nn.Module, x: Tensor) -> Any:
    with ThreadPoolExecutor(1) as pool:
        times = pool.submit(lambda: int(torch.tensor([1, 1]).numpy().sum())).result()
    return [layer(x) for _ in range(times)]


def by_unknown_numbers(layer: nn.Module, x: Tensor) -> Any:
    made: list[Tensor] = []

    def fill() -> None:
        made.extend(layer(x) for _ in range(2 if x.sum().item() > -1e6 else 1))

    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
    return made


WAYS = [
    by_executor, by_thread, by_subclass, by_thread_pool, by_event_loop, by_queue, by_nest, by_functions, by_known_numbers,
    by_unknown_numbers,
]  # fmt: skip


@pytest.fixture
def nothing_stays() -> Iterator[None]:
    call = nn.Module.__call__
    yield
    assert nn.Module.__call__ is call
    assert (here.path, here.enter, here.counted_by) == ("", None, None)


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("real", [None, True])
@pytest.mark.parametrize("way", WAYS)
def test_threads_that_forward_starts_are_counted(way: Callable[..., Any], real: bool | None) -> None:
    model = Starts(way)
    report = opcost.count(model, x(), real=real)
    assert report.totals.macs == 2 * LAYER
    assert report.coverage.complete
    assert [note.code for note in report.notes] == ["real-values"] * (way is by_unknown_numbers and real is None)
    if way is not by_functions:
        assert report.module("layer").calls == 2
        assert report.module("layer").own.macs == 2 * LAYER
    with torch.no_grad():
        assert torch.equal(model(x()), torch.cat([model.layer(x())] * 2) if way is not by_functions else model(x()))


@pytest.mark.usefixtures("nothing_stays")
def test_the_backward_pass_of_threads_is_counted() -> None:
    report = opcost.count(Starts(by_executor), x(), backward=True)
    assert report.phases["forward"].macs == 2 * LAYER
    assert report.phases["backward"].macs == 2 * LAYER  # the gradient of the weight, of each call


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("real", [None, True])
def test_threads_are_counted_in_the_order_in_which_they_are_started(real: bool | None) -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(D, D) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            with ThreadPoolExecutor(2) as pool:
                first, second = pool.submit(self.a, x), pool.submit(self.b, x)
                return self.c(x) + first.result() + second.result()

    report = opcost.count(Parts(), x(), real=real)
    assert [row.op.module for row in report.rows if row.op.kind == "matmul"] == ["a", "b", "c"]


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("real", [None, True])
def test_the_operators_of_a_module_call_stay_together(real: bool | None) -> None:
    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(*[nn.Linear(D, D) for _ in range(20)]) for _ in range(4))

        def forward(self, x: Tensor) -> list[Tensor]:
            with ThreadPoolExecutor(4) as pool:
                return list(pool.map(lambda block: block(x), self.blocks))

    report = opcost.count(Blocks(), x(), real=real)
    assert report.totals.macs == 4 * 20 * LAYER
    for call in report.calls:
        if call.path:
            assert {row.op.module.startswith(call.path) for row in report.rows[call.first : call.end]} == {True}


@pytest.mark.usefixtures("nothing_stays")
def test_threads_that_wait_for_each_other_inside_modules_end() -> None:
    meeting = threading.Barrier(2, timeout=10)

    class Meets(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            meeting.wait()
            return super().forward(x)

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Meets(D, D)

        def forward(self, x: Tensor) -> Any:
            return by_executor(self.layer, x)

    assert opcost.count(Pair(), x()).totals.macs == 2 * LAYER


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("real", [None, True])
def test_a_pool_that_was_there_before_is_counted_and_works_afterwards(real: bool | None) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(abs, [1, 2]))  # its threads are there
        model = Starts(lambda layer, x: pool.map(layer, [x, x]))
        assert opcost.count(model, x(), real=real).totals.macs == 2 * LAYER
        with torch.no_grad():
            assert torch.equal(*model(x()).chunk(2))


class Worker:
    """A thread that takes work from a queue, for as long as the test lasts."""

    def __init__(self) -> None:
        self.given: queue.Queue[Any] = queue.Queue()
        self.made: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._work, name="loader", daemon=True).start()

    def _work(self) -> None:
        while (item := self.given.get()) is not None:
            try:
                self.made.put(item())
            except Exception as exc:  # noqa: BLE001 - handed over
                self.made.put(exc)

    def do(self, work: Callable[[], Any]) -> Any:
        self.given.put(work)
        return self.made.get(timeout=60)


@pytest.mark.usefixtures("nothing_stays")
def test_a_thread_that_forward_did_not_start_is_refused_by_name() -> None:
    worker = Worker()
    with pytest.raises(ForwardError, match="module 'layer' ran in the thread 'loader'") as caught:
        opcost.count(Starts(lambda layer, x: [worker.do(lambda: layer(x))]), x())
    assert "start the thread in forward" in caught.value.hint
    worker.given.put(None)


@pytest.mark.usefixtures("nothing_stays")
def test_a_thread_that_a_real_run_does_not_see_makes_the_report_incomplete() -> None:
    worker = Worker()
    report = opcost.count(Starts(lambda layer, x: [worker.do(lambda: layer(x))]), x(), real=True)
    assert not report.coverage.complete
    assert "'loader'" in next(note.text for note in report.notes if note.code == "unseen")
    worker.given.put(None)


@pytest.mark.usefixtures("nothing_stays")
def test_a_thread_that_still_runs_when_forward_ends_makes_the_report_incomplete() -> None:
    inside, over = threading.Event(), threading.Event()

    class Slow(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            inside.set()
            over.wait(10)
            return x

    def leaves(layer: nn.Module, x: Tensor) -> Any:
        threading.Thread(target=layer, args=(None,), name="late").start()
        inside.wait(10)
        return [x]

    model = Starts(leaves)
    model.layer = Slow(D, D)
    report = opcost.count(model, x())
    over.set()
    for thread in threading.enumerate():
        if thread.name == "late":
            thread.join()
    assert not report.coverage.complete
    assert [note.code for note in report.notes] == ["unseen"]


@pytest.mark.usefixtures("nothing_stays")
def test_an_error_of_the_model_in_a_thread_is_the_models() -> None:
    def fails(layer: nn.Module, x: Tensor) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return [pool.submit(layer, x[:, 1:]).result()]

    with pytest.raises(ForwardError, match=r"at test_threads\.py:\d+ in module 'layer'"):
        opcost.count(Starts(fails), x())
