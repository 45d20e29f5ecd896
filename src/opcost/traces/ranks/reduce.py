"""Many traces of one run, a file for each rank: each reduced on its own, in parallel, and asked together.

A rank is reduced to a small table of columns, which `cache` keeps and gives again as long as the trace's content is the same.
The same function reduces a rank in a process of this machine and on a worker of a Dask cluster (`workers`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial as partial_of
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from opcost.core.graph import Note
from opcost.core.profile import Profile, RankWait
from opcost.errors import MissingFramework, SourceError
from opcost.traces.ranks.cache import Kept, folder_of, tidy
from opcost.traces.ranks.columns import is_partial, profile_of, reduce_file
from opcost.traces.ranks.numbering import number_ranks
from opcost.traces.ranks.workers import in_processes, on_cluster
from opcost.traces.registry import check_reader

if TYPE_CHECKING:
    import polars as pl

Progress = Callable[[int, int], None]
"""Called with how many bytes of the files are done, and of how many."""

Tried: TypeAlias = "tuple[str, pl.DataFrame | SourceError]"
"""A file and its table, or why it cannot be read."""

SUFFIXES = (".json", ".json.gz", ".csv", ".gz", ".sqlite", ".xplane.pb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The reduced tables of all ranks in one frame: a column `rank`, and for each row what it is about (`what`)."""

    frame: pl.DataFrame
    notes: tuple[Note, ...] = ()
    apart: frozenset[int] = frozenset()
    """Ranks whose collectives are not held against those of the others: a part of them is missing, or they are another run's."""

    def profile(self) -> Profile:
        """All ranks as one profile whose rows stand for many executions each, with who waited for whom."""
        found = profile_of(self.frame.iter_rows(named=True), self.notes)
        waited = [entry._asdict() for entry in self.waits()]
        return replace(found, extra={**found.extra, "ranks": waited}) if waited else found

    def waits(self) -> list[RankWait]:
        """Of each rank its time in collectives, how long it waited, and how long others for it; nothing of a single rank."""
        import polars as pl

        waits = self.collectives().filter((pl.col("wait_ns") == 0) & (pl.col("others_ns") > 0))
        last = dict(waits.group_by("rank").len().iter_rows())
        told = self.summary().to_dicts()
        if len(told) < 2 or not any(rank["collective_ns"] for rank in told):
            return []
        names = ("rank", "collective_ns", "wait_ns", "held_up_ns")
        return [RankWait(**{name: rank[name] for name in names}, last=last.get(rank["rank"], 0)) for rank in told]

    def parquet(self) -> bytes:
        """Everything as one Parquet file."""
        content = BytesIO()
        self.frame.write_parquet(content)
        return content.getvalue()

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
    scheduler: str | None = None,
    progress: Progress | None = None,
    partial: bool = False,
    reader: str | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Profile:
    """The profile of many ranks: files, or directories of them; everything else as `reduce_ranks` takes it."""
    found = reduce_ranks(paths, scheduler=scheduler, progress=progress, partial=partial, reader=reader, cache=cache)
    return found.profile()


def reduce_ranks(
    paths: Sequence[str | os.PathLike[str]],
    *,
    scheduler: str | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
    partial: bool = False,
    reader: str | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Ranks:
    """Reduce every file, in a process pool or on a cluster, and put the tables together.

    `scheduler` is None, "local" or the address of Dask's. A file that cannot be read is left out, and a note names it; with
    `partial`, what stands before the damage is kept. What is done is kept in the folder `cache`: None is the usual one, "none" is
    nowhere. So a run that was stopped goes on where it was.
    """
    pl = _polars()
    check_reader(reader)
    files = list(trace_files(paths))
    if not files:
        raise SourceError(
            f"there is no trace in {', '.join(map(str, paths))}", hint=f"looked for {', '.join(SUFFIXES)}"
        )
    asked = {os.path.abspath(file): str(file) for file in files}  # noqa: PTH100 - a link keeps its name
    folder = folder_of(cache)
    reduce = partial_of(_tried, partial=partial, reader=reader, folder=None if folder is None else str(folder))
    sizes = {path: Path(path).stat().st_size for path in asked}
    # The largest first, so that at the end no worker has a long one to do while the others have nothing.
    todo = sorted(asked, key=lambda path: -sizes[path])
    results = on_cluster(reduce, todo, scheduler) if scheduler else in_processes(reduce, todo, workers)
    tried: dict[str, Any] = {}
    done = 0
    for path, found in results:
        tried[asked[path]] = found
        done += sizes[path]
        if progress is not None:
            progress(done, sum(sizes.values()))
    if folder is not None:
        tidy(folder)
    faults = [fault for path in asked.values() if isinstance(fault := tried[path], SourceError)]
    tables = {path: table for path in asked.values() if not isinstance(table := tried[path], SourceError)}
    if not tables:
        raise faults[0]
    numbers = number_ranks(tables)
    frames = [tables[path].with_columns(rank=pl.lit(rank, pl.Int64)) for path, rank in numbers.of.items()]
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


def reduce_rank(
    path: str, *, partial: bool = False, reader: str | None = None, folder: str | None = None
) -> pl.DataFrame:
    """The table of one file, from the folder of caches if it is there. This is what processes and workers run."""
    pl = _polars()
    kept = None if folder is None else Kept(folder, Path(path), reader)
    found = None if kept is None else kept.read(pl)
    if found is None:
        found = pl.DataFrame(reduce_file(path, partial=partial, reader=reader))
        if kept is not None and not is_partial(found):  # a part is not for those who want the whole file
            kept.write(found)
    return found.with_columns(source=pl.lit(Path(path).name))  # the same content may have had another name


def _tried(path: str, *, partial: bool, reader: str | None, folder: str | None) -> Tried:
    """The same, where one bad file must not cost the others."""
    try:
        return path, reduce_rank(path, partial=partial, reader=reader, folder=folder)
    except SourceError as exc:
        return path, exc


def _natural(file: Path) -> list[tuple[int, str]]:
    """A key by which rank 10 comes after rank 9."""
    return [(int(digits or 0), text) for text, digits in re.findall(r"(\D*)(\d{0,18})", file.name)]


def _polars() -> Any:
    try:
        import polars as pl
    except ModuleNotFoundError as exc:
        raise MissingFramework("reading many ranks needs Polars", hint="pip install 'opcost[scale]'") from exc
    return pl
