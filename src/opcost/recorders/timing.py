"""Repeated runs against the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from opcost.core.progress import working

FEWEST = 3
"""Runs that are made even where the given seconds are over sooner."""
WITHIN_NOISE = "within noise"


def timed_runs(
    run: Callable[[], Any],
    wait: Callable[[Any], None],
    *,
    repeat: int,
    seconds: float | None,
    prepare: Callable[[], Any],
) -> tuple[int, ...]:
    """Durations in nanoseconds of single runs, each waited for before and after; `prepare` is not part of them."""
    durations: list[int] = []
    begun = time.perf_counter()
    end = None if seconds is None else begun + seconds

    def share() -> tuple[float, float]:
        return (len(durations), repeat) if seconds is None else (time.perf_counter() - begun, seconds)

    with working(lambda: f"timing run {len(durations) + 1:,}", share=share):
        while len(durations) < repeat if end is None else len(durations) < FEWEST or time.perf_counter() < end:
            prepare()
            wait(None)
            start = time.perf_counter_ns()
            wait(run())
            durations.append(time.perf_counter_ns() - start)
    return tuple(durations)


def warmed_up(run: Callable[[], Any], times: int) -> None:
    """Run so many times before anything is timed."""
    done = 0
    with working(lambda: f"warming up, run {done + 1:,}", share=lambda: (done, times)):
        for done in range(times):  # noqa: B007 - the line that is shown reads it
            run()


def percentile(durations: Sequence[int], percent: float) -> int:
    """The value below which so many percent lie, on the straight line between the two nearest."""
    ordered = sorted(durations)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return round(ordered[below] + (ordered[above] - ordered[below]) * (place - below))


def overhead(timed: Sequence[int], recorded: Sequence[int]) -> str:
    """What recording added to the median run; nothing can be said where runs differ among themselves by as much."""
    before, after = percentile(timed, 50), percentile(recorded, 50)
    noise = max(percentile(runs, 90) - percentile(runs, 10) for runs in (timed, recorded))
    return WITHIN_NOISE if after - before <= noise else f"{after / max(before, 1) - 1:+.2%}"
