"""`opcost.measure`: every call waited for to its end."""

from __future__ import annotations

import sys
import threading
import time
import tracemalloc
from types import SimpleNamespace

import pytest

import opcost
from opcost.errors import InputError
from opcost.recorders import measure
from opcost.recorders.measure import Measurement, overhead, percentile


def test_percentiles_lie_on_the_line_between_the_nearest_values() -> None:
    durations = (40, 10, 20, 30)
    assert percentile(durations, 0) == 10
    assert percentile(durations, 100) == 40
    assert percentile(durations, 50) == (20 + 30) // 2
    assert percentile(durations, 10) == 10 + (20 - 10) * 3 // 10
    assert percentile((7,), 90) == 7


def test_an_overhead_is_reported_only_where_it_is_more_than_the_runs_differ_by() -> None:
    timed = (100, 101, 102, 103, 104)
    assert overhead(timed, (150, 151, 153, 154, 155)) == "+50.00%"
    assert overhead(timed, (103, 104, 105, 106, 107)) == "within noise"  # 3 more, and nine tenths lie within 3.2
    assert overhead((100, 140, 200), (150, 180, 260)) == "within noise"
    assert overhead(timed, (60, 61, 62, 63, 64)) == "within noise"  # recording makes nothing faster
    assert overhead((0,), (7,)) == "+600.00%"


def test_throughput_counts_items() -> None:
    measured = Measurement(durations_ns=(10**6, 3 * 10**6), items=8)
    assert measured.latency_ns == 2 * 10**6
    assert measured.throughput_per_s == 8 * 2 / 0.004
    assert "4,000.0 per second" in str(measured)


def test_warm_up_calls_are_not_measured_and_arguments_arrive() -> None:
    seen: list[tuple[int, int]] = []

    def function(a: int, b: int = 0) -> None:
        seen.append((a, b))

    measured = opcost.measure(function, 1, b=2, warmup=2, repeat=5)
    assert seen == [(1, 2)] * (2 + 5)
    assert len(measured.durations_ns) == 5


def test_an_asynchronous_device_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework that only queues work, as MXNet does: unsynchronised, a call would seem to take no time."""
    queue: list[threading.Thread] = []

    def start() -> None:
        queue.append(threading.Thread(target=time.sleep, args=(0.02,)))
        queue[-1].start()

    def waitall() -> None:
        while queue:
            queue.pop().join()

    monkeypatch.setitem(sys.modules, "mxnet", SimpleNamespace(nd=SimpleNamespace(waitall=waitall)))
    measured = opcost.measure(start, warmup=1, repeat=3)
    assert min(measured.durations_ns) >= 19 * 10**6


@pytest.mark.parametrize("warmup", [0, 2])
def test_memory_of_the_host_is_the_rise_above_the_level_before(warmup: int) -> None:
    """Also in a process whose heap has room for all of it, because something large was there and is gone."""
    size = 64 * 2**20
    gone = [bytearray(2**16) for _ in range(2 * size // 2**16)]
    last = gone.pop()  # keeps the heap from shrinking on its own
    gone.clear()
    measured = opcost.measure(lambda: bytearray(size).count(1), warmup=warmup, repeat=1)
    assert len(last) == 2**16
    if "host" in measured.memory_bytes:  # where the system reports it
        assert size // 2 < measured.memory_bytes["host"] < 4 * size


@pytest.mark.parametrize("size", [100_000, 1_000_000, 8_000_000])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_memory_that_an_allocator_kept_from_calls_before_is_counted_too(library: str, size: int) -> None:
    module = pytest.importorskip(library)

    def function() -> None:
        module.ones(size, dtype=module.uint8).any()

    for _ in range(3):
        measured = opcost.measure(function, repeat=2).memory_bytes["host"]
        assert size <= measured < 1.1 * size + 500_000


@pytest.mark.parametrize(
    ("library", "rise", "is_the_rise"),
    [("torch", 163, False), ("torch", 1000, False), ("numpy", 123, False), ("numpy", 1000, True), ("other", 163, True)],
)
def test_memory_is_that_of_the_call_and_not_what_the_process_grew_by(
    library: str, rise: int, is_the_rise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that allocates 84 MB, in a process that grows by more: scratch space, heaps of threads, loaded libraries."""
    size = 84 * 10**6
    module = None if library == "other" else pytest.importorskip(library)
    levels = iter((0, rise * 10**6))
    monkeypatch.setattr(measure, "_levels", lambda *, fresh: {"host": next(levels)})
    measured = opcost.measure(lambda: None if module is None else module.ones(size, dtype=module.uint8), repeat=1)
    if is_the_rise:
        assert measured.memory_bytes["host"] == rise * 10**6
    else:
        assert size <= measured.memory_bytes["host"] < 1.01 * size


def test_the_user_s_own_trace_of_allocations_is_left_alone() -> None:
    tracemalloc.start()
    try:
        opcost.measure(lambda: bytearray(1000), warmup=2, repeat=1)
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
    with pytest.raises(ZeroDivisionError):
        opcost.measure(lambda: 1 / 0, warmup=2)
    assert not tracemalloc.is_tracing()


def test_a_process_that_does_not_grow_has_no_memory_rather_than_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_levels", lambda *, fresh: {"host": 7})
    assert "host" not in opcost.measure(lambda: None, warmup=0, repeat=1).memory_bytes


def test_seconds_decide_how_many_calls_there_are() -> None:
    measured = opcost.measure(lambda: time.sleep(0.001), warmup=0, seconds=0.05)
    assert 3 <= len(measured.durations_ns) <= 50


def test_no_call_is_refused() -> None:
    for options in ({"repeat": 0}, {"warmup": -1}, {"items": 0}, {"seconds": 0.0}, {"seconds": float("nan")}):
        with pytest.raises(InputError):
            opcost.measure(lambda: None, **options)  # type: ignore[arg-type]


def test_what_cannot_be_called_is_named() -> None:
    with pytest.raises(InputError, match="type int"):
        opcost.measure(3)  # type: ignore[arg-type]


def test_what_the_function_raises_reaches_the_caller() -> None:
    def broken() -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        opcost.measure(broken)
