"""Who reduces the files: processes of this machine, or the workers of a Dask cluster; each reads one file at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from opcost.errors import MissingFramework, SourceError

T = TypeVar("T")

LOCAL = "local"
_PROCESS = 150 << 20
"""Bytes that a process takes before it reads."""
_SHARE, _PACKED_SHARE = 0.3, 4.0
"""Bytes of memory for each byte of a plain and of a gzipped file, a little more than the most that was measured."""


def memory_of(path: str) -> int:
    """About how much memory it takes to reduce a file."""
    size = Path(path).stat().st_size
    return _PROCESS + int(size * (_PACKED_SHARE if path.lower().endswith(".gz") else _SHARE))


def processes_for(paths: Sequence[str], wished: int | None = None) -> int:
    """How many processes: no more than files, processors, and what the memory that is free can hold."""
    if wished is not None:
        return min(len(paths), wished)
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not every system tells
        free = 0
    most = max(1, free // max(map(memory_of, paths))) if free > 0 else len(paths)
    return min(len(paths), os.cpu_count() or 1, most)


def in_processes(reduce: Callable[[str], T], paths: Sequence[str], workers: int | None) -> Iterator[T]:
    """What comes of each, in the order in which they are done."""
    count = processes_for(paths, workers)
    if count == 1:
        yield from map(reduce, paths)
        return
    # Polars runs threads, which a forked process would inherit in the middle of what they do.
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(reduce, path) for path in paths]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()  # where the caller ends early, what was not begun is not


def on_cluster(reduce: Callable[[str], T], paths: Sequence[str], scheduler: str) -> Iterator[T]:
    """The same on a Dask cluster; its workers must see the files under the same paths."""
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError as exc:
        raise MissingFramework("--scheduler needs Dask", hint="pip install 'opcost[scale]'") from exc
    if scheduler == LOCAL:
        with (
            LocalCluster(n_workers=processes_for(paths), threads_per_worker=1, dashboard_address=None) as local,
            Client(local) as client,
        ):
            yield from _gathered(client, reduce, paths)
        return
    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, ValueError, TimeoutError) as exc:
        raise SourceError(
            f"there is no Dask scheduler at {scheduler!r}: {exc}", hint=f"tcp://HOST:PORT, or {LOCAL}"
        ) from exc
    with client:
        yield from _gathered(client, reduce, paths)


def _gathered(client: Any, reduce: Callable[[str], T], paths: Sequence[str]) -> Iterator[T]:
    from distributed import as_completed as finished

    for future, found in finished(client.map(reduce, paths, pure=False), with_results=True):
        yield found
        future.release()  # what has come need not stay in a worker's memory
