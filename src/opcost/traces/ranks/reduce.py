"""Many traces of one run, a file for each rank: each reduced on its own, in parallel, and asked together.

A rank is reduced to a small table of columns, kept as Parquet beside its trace and used again as long as the trace's
content is the same. The same function reduces a rank in a process of this machine and on a worker of a Dask cluster.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial as partial_of
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from opcost.core.graph import Note
from opcost.core.profile import Profile
from opcost.core.reading import opened
from opcost.core.told import Waited
from opcost.core.writing import write_bytes
from opcost.errors import MissingFramework, SourceError, WriteError
from opcost.traces.ranks.columns import CACHE_VERSION, is_partial, profile_of, reduce_file
from opcost.traces.ranks.numbering import number_ranks
from opcost.traces.registry import check_reader
from opcost.version import __version__

if TYPE_CHECKING:
    import polars as pl

Progress = Callable[[int, int], None]
"""Called with how many files are done, and how many there are."""

Table: TypeAlias = dict[str, list[Any]]
Reduced: TypeAlias = tuple[str, Table]
"""A file and its columns."""
Tried: TypeAlias = tuple[str, Table | SourceError]
"""The same, or why the file cannot be read."""
Reduce: TypeAlias = Callable[[str], Tried]

SUFFIXES = (".json", ".json.gz", ".csv", ".gz")
CACHE_SUFFIX = ".opcost.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The reduced tables of all ranks in one frame: a column `rank`, and for each row what it is about (`what`)."""

    frame: pl.DataFrame
    notes: tuple[Note, ...] = ()
    apart: frozenset[int] = frozenset()
    """Ranks whose collectives are not held against those of the others: a part of them is missing, or they are another run's."""

    def profile(self) -> Profile:
        """All ranks as one profile whose rows stand for many executions each, with who waited for whom."""
        found = profile_of(self.frame.to_dicts(), self.notes)
        waited = [entry._asdict() for entry in self.waits()]
        return replace(found, extra={**found.extra, "ranks": waited}) if waited else found

    def waits(self) -> list[Waited]:
        """Of each rank its time in collectives, how long it waited, and how long others for it; nothing of a single rank."""
        import polars as pl

        waits = self.collectives().filter((pl.col("wait_ns") == 0) & (pl.col("others_ns") > 0))
        last = dict(waits.group_by("rank").len().iter_rows())
        told = self.summary().to_dicts()
        if len(told) < 2 or not any(rank["collective_ns"] for rank in told):
            return []
        names = ("rank", "collective_ns", "wait_ns", "held_up_ns")
        return [Waited(**{name: rank[name] for name in names}, last=last.get(rank["rank"], 0)) for rank in told]

    def summary(self) -> pl.DataFrame:
        """The times of each rank.

        Wall time, time of its operators and kernels, busy and idle device time, time in collectives and of it the wait
        for others, and how long the others waited for this one. The wait of a rank that stands apart is not known.
        """
        import polars as pl

        def total(what: str, column: str) -> pl.Expr:
            return pl.col(column).filter(pl.col("what") == what).sum()

        ranks = (
            self.frame.group_by("rank")
            .agg(
                wall_ns=total("run", "host_ns"),
                host_self_ns=total("operator", "host_self_ns"),
                device_ns=total("operator", "device_ns") + total("unattributed", "device_ns"),
                span_ns=total("device", "host_ns"),
                busy_ns=total("device", "device_ns"),
                collective_ns=total("collective", "device_ns"),
            )
            .with_columns(idle_ns=pl.col("span_ns") - pl.col("busy_ns"))
        )
        waits = self.collectives()
        waited = waits.group_by("rank").agg(wait_ns=pl.col("wait_ns").sum())
        last = waits.filter(pl.col("wait_ns") == 0).group_by("rank").agg(held_up_ns=pl.col("others_ns").sum())
        return (
            ranks.join(waited, on="rank", how="left")
            .join(last, on="rank", how="left")
            .with_columns(pl.col("wait_ns", "held_up_ns").fill_null(0))
            .with_columns(
                wait_ns=pl.when(pl.col("rank").is_in(list(self.apart))).then(None).otherwise(pl.col("wait_ns"))
            )
            .sort("rank")
        )

    def collectives(self) -> pl.DataFrame:
        """Each collective that every rank took part in: how long each rank was in it and of that only waited.

        Ranks that stand apart are left out, and cost the others nothing.

        The rank that comes last waits for nobody and is in it for the shortest time; what the others are in it longer
        they wait. This needs no common clock. Collectives are matched by name, process group and place in their order.
        """
        import polars as pl

        keys = ["type", "stream", "place"]
        frame = self.frame.filter(~pl.col("rank").is_in(list(self.apart)))
        everybody = frame["rank"].n_unique()
        return (
            frame.filter(pl.col("what") == "collective")
            .select("rank", *keys, "device_ns")
            .with_columns(
                least=pl.col("device_ns").min().over(keys),
                total=pl.col("device_ns").sum().over(keys),
                ranks=pl.col("rank").n_unique().over(keys),
            )
            .filter((pl.col("ranks") == everybody) & (pl.col("ranks") > 1))
            .with_columns(
                wait_ns=pl.col("device_ns") - pl.col("least"),
                others_ns=pl.col("total") - pl.col("least") * pl.col("ranks"),
            )
            .select(
                "rank",
                pl.col("type").alias("name"),
                pl.col("stream").alias("group"),
                "place",
                "device_ns",
                "wait_ns",
                "others_ns",
            )
            .sort("name", "group", "place", "rank")
        )

    def stragglers(self) -> pl.DataFrame:
        """The ranks that others waited for, the worst first."""
        import polars as pl

        return self.summary().filter(pl.col("held_up_ns") > 0).sort("held_up_ns", descending=True)


def read_ranks(
    paths: Sequence[str | os.PathLike[str]],
    *,
    cluster: str | None = None,
    progress: Progress | None = None,
    partial: bool = False,
    reader: str | None = None,
) -> Profile:
    """The profile of many ranks: files, or directories of them. `cluster` is None, "local" or the address of a scheduler."""
    return reduce_ranks(paths, cluster=cluster, progress=progress, partial=partial, reader=reader).profile()


def reduce_ranks(
    paths: Sequence[str | os.PathLike[str]],
    *,
    cluster: str | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
    partial: bool = False,
    reader: str | None = None,
) -> Ranks:
    """Reduce every file, in a process pool or on a cluster, and put the tables together.

    A file that cannot be read is left out, and a note names it; with `partial`, what stands before the damage is kept.
    """
    pl = _polars()
    check_reader(reader)
    files = list(trace_files(paths))
    if not files:
        raise SourceError(
            f"there is no trace in {', '.join(map(str, paths))}", hint=f"looked for {', '.join(SUFFIXES)}"
        )
    todo = [str(file) for file in files]
    reduce = partial_of(_tried, partial=partial, reader=reader)
    results = _on_cluster(reduce, todo, cluster) if cluster else _in_processes(reduce, todo, workers)
    tried: dict[str, Table | SourceError] = {}
    for path, found in results:
        tried[path] = found
        if progress is not None:
            progress(len(tried), len(todo))
    faults = [fault for path in todo if isinstance(fault := tried[path], SourceError)]
    tables = {path: table for path in todo if not isinstance(table := tried[path], SourceError)}
    if not tables:
        raise faults[0]
    numbers = number_ranks(tables)
    frames = [pl.DataFrame(tables[path]).with_columns(rank=pl.lit(rank, pl.Int64)) for path, rank in numbers.of.items()]
    cut = {rank for path, rank in numbers.of.items() if is_partial(tables[path])}
    return Ranks(
        frame=pl.concat(frames, how="vertical_relaxed"),
        notes=(*(Note("unread", f"left out: {fault.message}") for fault in faults), *numbers.notes),
        apart=numbers.apart | cut,
    )


def trace_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    """The files that are named, and those in directories that are named, by name."""
    for path in map(Path, paths):
        if path.is_dir():
            inside = (file for file in path.iterdir() if file.is_file() and file.name.lower().endswith(SUFFIXES))
            yield from sorted(inside, key=_natural)
        elif path.is_file():
            yield path
        elif path.exists():
            raise SourceError(
                f"{path} is not a file, and several traces are read from files only", hint="save it as a file"
            )
        else:
            raise SourceError(f"there is no file or directory {path}")


def reduce_rank(path: str, *, partial: bool = False, reader: str | None = None) -> Reduced:
    """The table of one file, from its cache if that fits the content. This is what processes and workers run."""
    pl = _polars()
    file = Path(path)
    cache = file.with_name(file.name + CACHE_SUFFIX)
    key = f"{_content_key(file)}:{reader or ''}"
    if cache.is_file():
        try:
            if pl.read_parquet_metadata(cache).get("opcost") == key:
                return path, pl.read_parquet(cache).to_dict(as_series=False)
        except (pl.exceptions.PolarsError, OSError):
            pass  # a broken cache is made anew
    table = reduce_file(path, partial=partial, reader=reader)
    if is_partial(table):
        return path, table  # not for those who want the whole file
    try:
        content = BytesIO()
        pl.DataFrame(table).write_parquet(content, metadata={"opcost": key})
        write_bytes(cache, content.getvalue())
    except WriteError:
        pass  # a directory that cannot be written to: the next time costs the same again
    return path, table


def _tried(path: str, *, partial: bool, reader: str | None) -> Tried:
    """The same, where one bad file must not cost the others."""
    try:
        return reduce_rank(path, partial=partial, reader=reader)
    except SourceError as exc:
        return path, exc


def _in_processes(reduce: Reduce, paths: list[str], workers: int | None) -> Iterator[Tried]:
    workers = min(len(paths), workers or os.cpu_count() or 1)
    if workers == 1:
        yield from map(reduce, paths)
        return
    # Polars runs threads, which a forked process would inherit in the middle of what they do.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(reduce, path) for path in paths]):
            yield future.result()


def _on_cluster(reduce: Reduce, paths: list[str], cluster: str) -> Iterator[Tried]:
    """The same on a Dask cluster; its workers must see the files under the same paths."""
    try:
        from distributed import Client, LocalCluster
        from distributed import as_completed as finished
    except ModuleNotFoundError as exc:
        raise MissingFramework("--cluster needs Dask", hint="pip install 'opcost[scale]'") from exc
    if cluster == "local":
        with (
            LocalCluster(
                n_workers=min(len(paths), os.cpu_count() or 1), threads_per_worker=1, dashboard_address=None
            ) as local,
            Client(local) as client,
        ):
            yield from _gathered(client, finished, reduce, paths)
        return
    try:
        client = Client(cluster, timeout="10s")
    except (OSError, ValueError, TimeoutError) as exc:
        raise SourceError(
            f"there is no Dask scheduler at {cluster!r}: {exc}", hint="tcp://HOST:PORT, or local"
        ) from exc
    with client:
        yield from _gathered(client, finished, reduce, [str(Path(path).resolve()) for path in paths], names=paths)


def _gathered(
    client: Any, finished: Any, reduce: Reduce, paths: list[str], names: list[str] | None = None
) -> Iterator[Tried]:
    asked = dict(zip(paths, names or paths, strict=True))
    futures = client.map(reduce, paths, pure=False)
    for _, (path, table) in finished(futures, with_results=True):
        yield asked[path], table


def _natural(file: Path) -> list[tuple[int, str]]:
    """A key by which rank 10 comes after rank 9."""
    return [(int(digits or 0), text) for text, digits in re.findall(r"(\D*)(\d{0,18})", file.name)]


def _content_key(file: Path) -> str:
    digest = hashlib.sha256()  # processors have instructions for it
    with opened(file) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return f"{__version__}:{CACHE_VERSION}:{digest.hexdigest()}"


def _polars() -> Any:
    try:
        import polars as pl
    except ModuleNotFoundError as exc:
        raise MissingFramework("reading many ranks needs Polars", hint="pip install 'opcost[scale]'") from exc
    return pl
