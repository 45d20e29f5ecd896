"""Which rank each of many files is: as its trace says, else as the file is called, else by the order of names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opcost.core.graph import Note

if TYPE_CHECKING:
    import polars as pl

_RANK = re.compile(r"rank[_.\-]?(\d{1,9})", re.IGNORECASE)


class Numbers(NamedTuple):
    """The rank of each file that is kept."""

    of: dict[str, int]
    notes: tuple[Note, ...] = ()
    apart: frozenset[int] = frozenset()
    """Ranks that are not of one run with the others."""


def number_ranks(tables: Mapping[str, pl.DataFrame]) -> Numbers:
    """Number the files, given the table of each; what a trace says of itself is never changed for another file's sake."""
    told = {path: table["rank"][0] for path, table in tables.items()}
    if all(rank is None for rank in told.values()):
        return _by_names(list(tables))
    found: dict[str, int] = {}
    owners: dict[int, str] = {}
    homeless: dict[str, str] = {}
    notes: list[Note] = []
    named = {path: _named(path) for path, rank in told.items() if rank is None}
    for path, rank in [*((path, rank) for path, rank in told.items() if rank is not None), *named.items()]:
        if rank is None:
            homeless[path] = "tells no rank"
        elif rank not in owners:
            found[path] = rank
            owners[rank] = path
        elif tables[path].drop("source").equals(tables[owners[rank]].drop("source")):
            notes.append(Note("copy", f"left out: {path} has the same content as {owners[rank]}, rank {rank}"))
        else:
            homeless[path] = f"is rank {rank} like {owners[rank]}"
    first = max(owners) + 1
    for number, (path, why) in enumerate(homeless.items(), first):
        found[path] = number
        notes.append(Note("ranks", f"{path} {why}: it is shown as rank {number} and not compared with the others"))
    order = {path: found[path] for path in tables if path in found}
    return Numbers(order, tuple(notes), frozenset(range(first, first + len(homeless))))


def _by_names(paths: list[str]) -> Numbers:
    """Where no trace says anything."""
    named = {path: rank for path in paths if (rank := _named(path)) is not None}
    if len(named) == len(paths) == len(set(named.values())):
        return Numbers(named)
    text = "neither the traces nor their names tell distinct ranks; they are numbered in the order of names"
    notes = (Note("ranks", text),) if len(paths) > 1 else ()
    return Numbers({path: number for number, path in enumerate(paths)}, notes)


def _named(path: str) -> int | None:
    found = _RANK.findall(Path(path).name)
    return int(found[-1]) if found else None
