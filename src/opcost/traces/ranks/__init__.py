"""Many traces of one run, a file for each rank: each reduced to a small table, in parallel, and queried together.

`columns` has the tables. They are cached, by the content of the file. The same function reduces a rank in a process of this
machine and on a worker of a Dask cluster.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial as partial_of
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from opcost.core.files import opened, write_bytes
from opcost.core.graph import Note
from opcost.core.profile import Profile, RankWait
from opcost.core.workers import results
from opcost.errors import MissingFramework, SourceError, WriteError
from opcost.traces.ranks.columns import CACHE_VERSION, NUMBERS, TEXTS, is_partial, profile_of, reduce_file
from opcost.traces.registry import check_reader
from opcost.version import __version__

if TYPE_CHECKING:
    import polars as pl

Progress = Callable[[int, int], None]  # called with how many bytes of the files are done, and of how many

Tried: TypeAlias = "tuple[str, pl.DataFrame | SourceError]"  # A file and its table, or why it cannot be read

SUFFIXES = (".json", ".json.gz", ".csv", ".gz", ".sqlite", ".xplane.pb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The reduced tables of all ranks in one frame: a column `rank`, and for each row what it is about (`what`)."""

    frame: pl.DataFrame
    notes: tuple[Note, ...] = ()
    apart: frozenset[int] = frozenset()
    """Ranks whose collectives are not compared with those of the others: a part of them is missing, or they are another run's."""

    def profile(self) -> Profile:
        """All ranks as one profile of grouped executions, with the waits in collectives."""
        found = profile_of(self.frame.iter_rows(named=True), self.notes)
        waited = [entry._asdict() for entry in self.waits()]
        return replace(found, extra={**found.extra, "ranks": waited}) if waited else found

    def waits(self) -> list[RankWait]:
        """Of each rank its time in collectives, how long it waited, and how long others for it; none where none are compared."""
        import polars as pl

        compared = self.collectives()
        waits = compared.filter((pl.col("wait_ns") == 0) & (pl.col("others_ns") > 0))
        last = dict(waits.group_by("rank").len().iter_rows())
        ranks = self.summary().select("rank", "collective_ns", "wait_ns", "waited_for_ns").to_dicts()
        if compared.is_empty() or not any(rank["collective_ns"] for rank in ranks):
            return []
        return [RankWait(**rank, last=last.get(rank["rank"], 0)) for rank in ranks]

    def parquet(self) -> bytes:
        """Everything as one Parquet file."""
        content = BytesIO()
        self.frame.write_parquet(content)
        return content.getvalue()

    def summary(self) -> pl.DataFrame:
        """The times of each rank.

        Wall time, time of its operators and kernels, busy and idle device time, time in collectives and of it the wait
        for others, and how long the others waited for this one. The wait of a rank in `apart` is not known.
        """
        import polars as pl

        def total(what: str, column: str) -> pl.Expr:
            return pl.col(column).filter(pl.col("what") == what).sum()

        ranks = self.frame.group_by("rank").agg(
            wall_ns=total("run", "host_ns"),
            host_self_ns=total("operator", "host_self_ns"),
            device_ns=total("operator", "device_ns") + total("unattributed", "device_ns"),
            span_ns=total("device", "host_ns"),
            busy_ns=total("device", "device_ns"),
            collective_ns=total("collective", "device_ns"),
        )
        waits = self.collectives()
        waited = waits.group_by("rank").agg(wait_ns=pl.col("wait_ns").sum())
        last = waits.filter(pl.col("wait_ns") == 0).group_by("rank").agg(waited_for_ns=pl.col("others_ns").sum())
        found = ranks.with_columns(idle_ns=pl.col("span_ns") - pl.col("busy_ns"))
        found = found.join(waited, on="rank", how="left").join(last, on="rank", how="left")
        found = found.with_columns(pl.col("wait_ns", "waited_for_ns").fill_null(0))
        known = pl.when(pl.col("rank").is_in(list(self.apart))).then(None).otherwise(pl.col("wait_ns"))
        return found.with_columns(wait_ns=known).sort("rank")

    def collectives(self) -> pl.DataFrame:
        """Each collective that every rank of its group took part in: how long each rank was in it and of that only waited.

        Ranks in `apart` are left out, and groups of which a rank has no file. The rank that comes last waits for no other and is
        in it for the shortest time; what the others are in it longer they wait. This needs no common clock. Collectives are
        matched by name, process group and order, which messages between two ranks do not share.
        """
        import polars as pl

        keys = ["name", "group", "place"]
        frame = self.frame.filter(~pl.col("rank").is_in(list(self.apart)))
        members = frame["rank"].n_unique()
        found = frame.filter(pl.col("what") == "collective").select(
            "rank", pl.col("type").alias("name"), pl.col("stream").alias("group"), "place", "device_ns",
            size=pl.col("count").fill_null(members),
        )  # fmt: skip
        least, ranks = pl.col("device_ns").min().over(keys), pl.col("rank").n_unique().over(keys)
        found = found.with_columns(
            wait_ns=pl.col("device_ns") - least,
            others_ns=pl.col("device_ns").sum().over(keys) - least * ranks,
            ranks=ranks,
        )
        whole = found.filter((pl.col("ranks") == pl.min_horizontal("size", pl.lit(members))) & (pl.col("ranks") > 1))
        return whole.drop("ranks", "size").sort("name", "group", "place", "rank")

    def stragglers(self) -> pl.DataFrame:
        """The ranks that others waited for, the worst first."""
        import polars as pl

        return self.summary().filter(pl.col("waited_for_ns") > 0).sort("waited_for_ns", descending=True)


def read_ranks(paths: Sequence[str | os.PathLike[str]], **options: Any) -> Profile:
    """The profile of many ranks: files, or directories of them; the options are those of `reduce_ranks`."""
    return reduce_ranks(paths, **options).profile()


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
    `partial`, what is before the damage is kept. Finished tables are cached in the folder `cache` (None: the user's cache
    folder, "none": nowhere), so a run that was stopped resumes.
    """
    try:
        import polars as pl
    except ModuleNotFoundError as exc:
        raise MissingFramework("reading many ranks needs Polars", hint="pip install 'opcost[scale]'") from exc
    check_reader(reader)
    files = list(trace_files(paths))
    if not files:
        hint = f"looked for {', '.join(SUFFIXES)}"
        raise SourceError(f"there is no trace in {', '.join(map(str, paths))}", hint=hint)
    paths_given = {os.path.abspath(file): str(file) for file in files}  # noqa: PTH100 - a link keeps its name
    folder = usual_folder() if cache is None else None if str(cache) == NOWHERE else Path(cache).absolute()
    if folder is not None and folder.exists() and not folder.is_dir():
        raise SourceError(f"{cache} is a file, and caches are kept in a folder", hint=f"name a folder, or {NOWHERE}")
    reduce = partial_of(reduce_rank, partial=partial, reader=reader, folder=folder)
    sizes = {path: Path(path).stat().st_size for path in paths_given}
    # The largest first, so that at the end no worker has a long one to do while the others have nothing.
    todo = sorted(paths_given, key=lambda path: -sizes[path])
    memory = max(map(_memory_of, todo))
    tried: dict[str, Any] = {}
    done = 0
    for path, found in results(reduce, todo, memory=memory, workers=workers, scheduler=scheduler):
        tried[paths_given[path]] = found
        done += sizes[path]
        if progress is not None:
            progress(done, sum(sizes.values()))
    if folder is not None:
        _tidy(folder)
    faults = [fault for path in paths_given.values() if isinstance(fault := tried[path], SourceError)]
    tables = {path: table for path in paths_given.values() if not isinstance(table := tried[path], SourceError)}
    if not tables:
        raise faults[0]
    rank_of, notes, apart = number_ranks(tables)
    frames = [tables[path].with_columns(rank=pl.lit(rank, pl.Int64)) for path, rank in rank_of.items()]
    cut = {rank for path, rank in rank_of.items() if is_partial(tables[path])}
    return Ranks(
        frame=pl.concat(frames, how="vertical_relaxed"),
        notes=(*(Note("unread", f"left out: {fault.message}") for fault in faults), *notes),
        apart=apart | cut,
    )


def trace_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    """The files that are named, and those in directories that are named, by name."""

    def natural(file: Path) -> list[tuple[int, str]]:
        """A key by which rank 10 comes after rank 9."""
        return [(int(digits or 0), text) for text, digits in re.findall(r"(\D*)(\d{0,18})", file.name)]

    for path in map(Path, paths):
        if path.is_dir():
            inside = (file for file in path.iterdir() if file.is_file() and file.name.lower().endswith(SUFFIXES))
            yield from sorted(inside, key=natural)
        elif path.is_file():
            yield path
        elif path.exists():
            fault = f"{path} is not a file, and several traces are read from files only"
            raise SourceError(fault, hint="save it as a file")
        else:
            raise SourceError(f"there is no file or directory {path}")


def reduce_rank(path: str, *, partial: bool, reader: str | None, folder: Path | None) -> Tried:
    """The table of one file, from the cache if it is there. This is what processes and workers run."""
    import polars as pl

    try:
        cached, found = None, None
        if folder is not None:
            digest = hashlib.sha256(f"{__version__}:{CACHE_VERSION}:{reader or ''}:".encode())
            with opened(Path(path)) as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
            cached = folder / f"{digest.hexdigest()}{SUFFIX}"
            found = _read_cached(cached)
        if found is None:
            found = pl.DataFrame(reduce_file(path, partial=partial, reader=reader))
            if cached is not None and not is_partial(found):  # a part is not for a user who needs the whole file
                with suppress(WriteError, OSError):  # where nothing can be written, the next time costs the same again
                    cached.parent.mkdir(parents=True, exist_ok=True)
                    content = BytesIO()
                    found.write_parquet(content)
                    write_bytes(cached, content.getvalue())
        return path, found.with_columns(source=pl.lit(Path(path).name))  # the same content may have had another name
    except SourceError as exc:  # one bad file must not cost the others
        return path, exc


# -- which rank each file is: as its trace has it, else by the name of the file, else by the order of names

_RANK = re.compile(r"rank[_.\-]?(\d{1,9})", re.IGNORECASE)


def number_ranks(tables: Mapping[str, pl.DataFrame]) -> tuple[dict[str, int], Sequence[Note], frozenset[int]]:
    """The rank of each file that is kept, given the table of each, notes, and ranks that are not of one run with the others.

    The rank in a trace is never changed for another file's sake.
    """
    written = {path: table["rank"][0] for path, table in tables.items()}
    if all(rank is None for rank in written.values()):
        named = {path: rank for path in tables if (rank := _named(path)) is not None}
        if len(named) == len(tables) == len(set(named.values())):
            return named, (), frozenset()
        text = "neither the traces nor their names have distinct ranks; they are numbered in the order of names"
        numbered = {path: number for number, path in enumerate(tables)}
        return numbered, (Note("ranks", text),) if len(tables) > 1 else (), frozenset()
    found: dict[str, int] = {}
    owners: dict[int, str] = {}
    unnumbered: dict[str, str] = {}
    notes: list[Note] = []
    ranks = [(path, rank) for path, rank in written.items() if rank is not None]
    ranks += [(path, _named(path)) for path, rank in written.items() if rank is None]
    for path, rank in ranks:
        if rank is None:
            unnumbered[path] = "has no rank"
        elif rank not in owners:
            found[path] = rank
            owners[rank] = path
        elif tables[path].drop("source").equals(tables[owners[rank]].drop("source")):
            notes.append(Note("copy", f"left out: {path} has the same content as {owners[rank]}, rank {rank}"))
        else:
            unnumbered[path] = f"is rank {rank} like {owners[rank]}"
    first = max(owners) + 1
    for number, (path, why) in enumerate(unnumbered.items(), first):
        found[path] = number
        notes.append(Note("ranks", f"{path} {why}: it is listed as rank {number} and not compared with the others"))
    order = {path: found[path] for path in tables if path in found}
    return order, notes, frozenset(range(first, first + len(unnumbered)))


def _named(path: str) -> int | None:
    found = _RANK.findall(Path(path).name)
    return int(found[-1]) if found else None


# -- the cache: a table is named by the content of its file, the reader, and the version of both; nothing is written beside a
# user's file unless that folder is named

NOWHERE = "none"
SUFFIX = ".opcost.parquet"
LARGEST = 2 << 30  # bytes of all that is kept in the usual folder; above, what was not used for longest is deleted


def usual_folder() -> Path:
    """The folder of the user's caches on this system."""
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        home = Path.home() / "Library" / "Caches"
    else:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "opcost" / "ranks"


def _read_cached(path: Path) -> pl.DataFrame | None:
    """The table, if it is there and whole; one that is broken or has other columns or types is made anew."""
    import polars as pl

    try:
        found = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError):
        return None
    kinds = found.schema
    if (
        list(kinds) != [*TEXTS, *NUMBERS]
        or any(kinds[name] != (pl.String if found.height else pl.Null) for name in TEXTS)
        or not all(kinds[name].is_integer() or kinds[name] == pl.Null for name in NUMBERS)
    ):
        return None
    with suppress(OSError):
        os.utime(path)
    return found


def _tidy(folder: Path) -> None:
    """Of the usual folder, delete what was not used for longest where there is too much."""
    if folder != usual_folder():
        return
    with suppress(OSError):
        kept = [(path, path.stat()) for path in folder.glob(f"*{SUFFIX}")]
        room = LARGEST
        for path, status in sorted(kept, key=lambda each: -each[1].st_mtime):
            room -= status.st_size
            if room < 0:
                path.unlink(missing_ok=True)


_PROCESS = 150 << 20  # bytes that a process takes before it reads
_SHARE, _PACKED_SHARE = 0.3, 4.0
"""Bytes of memory for each byte of a plain and of a gzipped file, a little more than the most that was measured."""


def _memory_of(path: str) -> int:
    """About how much memory it takes to reduce a file."""
    size = Path(path).stat().st_size
    return _PROCESS + int(size * (_PACKED_SHARE if path.lower().endswith(".gz") else _SHARE))
