"""Work in processes: how many, in which order, and what is left where the work ends early."""

from __future__ import annotations

import math
import multiprocessing
import os
import time

import pytest

from opcost.core import workers
from opcost.core.workers import process_count, results
from opcost.errors import OpcostError

SMALL = 1 << 20


def children() -> set[int | None]:
    return {process.pid for process in multiprocessing.active_children()}


def are_gone(started: set[int | None]) -> bool:
    """Whether these processes have ended; the thread of the pool may be about to write down that one did."""
    return any(children().isdisjoint(started) or time.sleep(0.1) for _ in range(100))


def test_there_are_no_more_processes_than_the_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.os, "cpu_count", lambda: 64)
    for room, count in ((SMALL // 2, 1), (2 * SMALL, 2), (10 * SMALL, 3)):
        sizes = {"SC_AVPHYS_PAGES": room, "SC_PAGE_SIZE": 1}
        monkeypatch.setattr(workers.os, "sysconf", sizes.__getitem__, raising=False)
        assert process_count(3, SMALL) == count
    assert (process_count(3, SMALL, 2), process_count(3, SMALL, 8)) == (2, 3)
    monkeypatch.setattr(workers.os, "cpu_count", lambda: 2)
    assert process_count(3, SMALL) == 2


def test_one_process_is_this_one() -> None:
    assert [*results(lambda number: (number, os.getpid()), [1, 2], memory=SMALL, workers=1)] == [
        (1, os.getpid()), (2, os.getpid()),
    ]  # fmt: skip


@pytest.mark.slow
def test_several_processes_do_all_the_work() -> None:
    assert sorted(results(math.factorial, range(7), memory=SMALL, workers=2)) == [1, 1, 2, 6, 24, 120, 720]


@pytest.mark.slow
def test_a_caller_that_ends_early_leaves_no_process() -> None:
    found = results(time.sleep, [0.01, 600.0, 600.0, 600.0], memory=SMALL, workers=2)
    assert next(found) is None
    assert len(started := children()) >= 2
    found.close()  # type: ignore[attr-defined]
    assert are_gone(started)


@pytest.mark.slow
def test_an_interrupted_caller_leaves_no_process() -> None:
    found = results(time.sleep, [0.01, 600.0, 600.0], memory=SMALL, workers=2)
    next(found)
    assert len(started := children()) >= 2
    with pytest.raises(KeyboardInterrupt):
        found.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    assert are_gone(started)


@pytest.mark.slow
def test_a_process_that_ends_is_an_error() -> None:
    with pytest.raises(OpcostError, match="a process that did a part of the work ended") as caught:
        list(results(os._exit, [3, 3], memory=SMALL, workers=2))
    assert "fewer workers" in caught.value.hint
