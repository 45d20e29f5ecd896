"""Work in processes of this machine or of a Dask cluster; results come in the order in which they are done."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from multiprocessing import get_context
from typing import Any, TypeVar

from opcost.errors import MissingFramework, OpcostError, SourceError

LOCAL = "local"
"""The scheduler of a Dask cluster on this machine."""

Job = TypeVar("Job")
Result = TypeVar("Result")


def results(
    work: Callable[[Job], Result], jobs: Sequence[Job], *, memory: int, workers: int | None = None,
    scheduler: str | None = None,
) -> Iterator[Result]:  # fmt: skip
    """What `work` gives for each job, in this process if one is enough; one takes about `memory` bytes.

    `work`, jobs and results are pickled. Where the caller ends early, or is interrupted, processes end too.
    """
    if scheduler is not None:
        return _on_cluster(work, jobs, memory, scheduler)
    count = process_count(len(jobs), memory, workers)
    return map(work, jobs) if count == 1 else _in_processes(work, jobs, count)


def process_count(jobs: int, memory: int, requested: int | None = None) -> int:
    """How many processes: no more than jobs, processors, and what fits into the free memory."""
    if requested is not None:
        return max(1, min(jobs, requested))
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not every system has it
        free = 0
    most = max(1, free // max(1, memory)) if free > 0 else jobs
    return max(1, min(jobs, os.cpu_count() or 1, most))


def _in_processes(work: Callable[[Job], Result], jobs: Sequence[Job], count: int) -> Iterator[Result]:
    # Libraries run threads, which a forked process would inherit in the middle of what they do.
    with ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_parent) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        done = 0
        try:
            for future in as_completed(futures):
                yield future.result()
                done += 1
        except BrokenProcessPool as exc:
            hint = "it may have run out of memory: use fewer workers"
            raise OpcostError("a process that did a part of the work ended", hint=hint) from exc
        finally:
            if done < len(jobs):  # the rest is not begun, and what was begun is stopped
                processes = [*(getattr(pool, "_processes", None) or {}).values()]
                pool.shutdown(wait=False, cancel_futures=True)
                for process in processes:
                    process.terminate()
                for process in processes:
                    process.join()


def _leave_interrupts_to_parent() -> None:
    """Ctrl-C in a terminal goes to all processes; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _on_cluster(work: Callable[[Job], Result], jobs: Sequence[Job], memory: int, scheduler: str) -> Iterator[Result]:
    """The same on a Dask cluster; its workers must see files under the same paths."""
    try:
        from distributed import Client, LocalCluster
        from distributed import as_completed as finished
    except ModuleNotFoundError as exc:
        raise MissingFramework("--scheduler needs Dask", hint="pip install 'opcost[scale]'") from exc
    with ExitStack() as stack:
        address: Any = scheduler
        if scheduler == LOCAL:
            count = process_count(len(jobs), memory)
            address = stack.enter_context(LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None))
        try:
            client = stack.enter_context(Client(address, timeout="10s"))
        except (OSError, ValueError, TimeoutError) as exc:
            hint = f"tcp://HOST:PORT, or {LOCAL}"
            raise SourceError(f"there is no Dask scheduler at {scheduler!r}: {exc}", hint=hint) from exc
        for future, found in finished(client.map(work, jobs, pure=False), with_results=True):
            yield found
            future.release()  # so that it does not stay in a worker's memory
