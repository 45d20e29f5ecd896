"""The steps of a run: as the profiler's schedule marked them, else from update to update, else as annotations repeat."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from opcost.traces.kineto.categories import ANNOTATION
from opcost.traces.kineto.columns import CALLS, Columns

UPDATE_PREFIX = "Optimizer.step#"
LOADS = "enumerate(DataLoader)"
"""What the framework itself annotates in every step, beside updates."""
_DIGITS = re.compile(r"\d+")
LEAST_SHARE = 0.5
"""Annotations that repeat are steps where they cover so much of the time from the first to the last of them."""


class Step(NamedTuple):
    """From when to when, and its number."""

    start: int
    end: int
    number: int


def steps_of(columns: Columns) -> list[Step]:
    """The steps in order: where the profiler's schedule marked none, those that updates or annotations of the author tell."""
    if columns.steps:
        return [*_of_one_process(columns.steps)]
    named = _annotations(columns)
    updates = [spans for name, spans in named.items() if name.startswith(UPDATE_PREFIX)]
    if updates:
        return _between(max(updates, key=len))
    repeated = [
        spans
        for name, spans in named.items()
        if len(spans) > 1 and not name.startswith(("Optimizer.", LOADS)) and _follow(spans)
    ]
    if repeated:
        best = max(repeated, key=_covered)
        if _covered(best) >= LEAST_SHARE * (best[-1][1] - best[0][0]):
            return [Step(start, end, number) for number, (start, end) in enumerate(best)]
    return []


def _of_one_process(marked: list[tuple[int, int, int]]) -> Iterator[Step]:
    """The marked steps in order; several processes in one file each mark the same."""
    ends: dict[int, int] = {}
    for start, end, number in sorted(marked):
        if start >= ends.get(number, start):
            yield Step(start, end, number)
            ends[number] = end


def _annotations(columns: Columns) -> dict[str, list[tuple[int, int]]]:
    """Start and end of annotations by thread, and by their names but for numbers, in order."""
    found: dict[tuple[object, str], list[tuple[int, int]]] = {}
    for thread, start, end, name in _spans(columns):
        found.setdefault((thread, _DIGITS.sub("", name)), []).append((start, end))
    merged: dict[str, list[tuple[int, int]]] = {}
    for (_, name), spans in found.items():
        spans.sort()
        if len(spans) > len(merged.get(name, ())):
            merged[name] = spans
    return merged


def _spans(columns: Columns) -> Iterator[tuple[object, int, int, str]]:
    names = {
        number: signature.name
        for number, signature in enumerate(columns.signatures)
        if signature.sort == ANNOTATION and signature.name
    }
    if not names:
        return
    for thread, lanes in columns.threads.items():
        lane = lanes.get(CALLS)
        if lane is None:
            continue
        for start, duration, signature in zip(lane.start, lane.duration, lane.signature, strict=True):
            if signature in names:
                yield thread, start, start + duration, names[signature]


def _between(updates: list[tuple[int, int]]) -> list[Step]:
    """A step ends with its update; the first began before the trace, or at a time that nobody marked."""
    ends = [end for _, end in updates]
    return [Step(start, end, number) for number, (start, end) in enumerate(pairwise(ends), 1)]


def _follow(spans: list[tuple[int, int]]) -> bool:
    """Whether none lies in another."""
    return all(end <= start for (_, end), (start, _) in pairwise(spans))


def _covered(spans: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans)
