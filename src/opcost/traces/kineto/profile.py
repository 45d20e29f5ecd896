"""What was read of a trace as a profile: every execution a row, or, of many, one row for all that are alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opcost.core.graph import Note
from opcost.core.profile import Profile
from opcost.traces.kineto.device_use import copies_of, device_uses, extra_of
from opcost.traces.kineto.lanes import timeline_of
from opcost.traces.kineto.launches import GRAPH
from opcost.traces.kineto.load import wall_of
from opcost.traces.kineto.memory_use import memory_of
from opcost.traces.kineto.messages import collectives_of, exchanges
from opcost.traces.kineto.replays import Capture, captures_of, replayed
from opcost.traces.kineto.rows import Translated
from opcost.traces.kineto.table import table_of

MANY = 20_000
"""Above so many executions and kernels a row of a profile stands for all executions that are alike, unless each is asked for: to
make rows of them and to ask those takes ten times as long as to read them. Of a large file it always does."""


def profile_of(
    translated: Translated,
    meta: Mapping[str, str],
    rank: int | None,
    notes: tuple[Note, ...],
    *,
    large: bool = False,
    timeline: bool = False,
    executions: bool = False,
    captures: Sequence[Capture] = (),
) -> Profile:
    """The profile; `notes` come before those about who owns kernels. Where executions are not told apart, a timeline may be.

    Of replayed graphs, operators are found in these captures and in those of the trace itself, where executions are told apart.
    """
    linked = translated.linked
    apart = executions or bool(captures) or (bool(linked.captured) and GRAPH in linked.owner)
    if large or (not apart and len(linked) + len(linked.owner) > MANY):
        found = table_of(translated, meta, rank, notes).profile()
        return replace(found, extra={**found.extra, "timeline": timeline_of(translated)}) if timeline else found
    rows = translated.rows()
    replays = replayed(translated, (*captures_of(translated), *captures))
    rows += tuple(row._replace(id=number) for number, row in enumerate(replays.rows, len(rows)))
    return Profile(
        meta=meta,
        rows=rows,
        unattributed=replays.unattributed,
        wall_ns=wall_of(linked),
        notes=notes + translated.notes(replays.found) + replays.notes,
        extra=extra_of_work(translated),
    )


def extra_of_work(translated: Translated) -> dict[str, list[dict[str, Any]]]:
    """What a profile says of its devices beside its rows."""
    return extra_of(
        device_uses(translated),
        copies_of(translated),
        exchanges(collectives_of(translated), translated.rank),
        memory_of(translated),
    )
