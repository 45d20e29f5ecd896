"""Of many ranks those that spend their time alike, the one that is shown for them, and the one that all others wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from opcost.core.names import runs_of
from opcost.core.profile import Busy, RankWait
from opcost.errors import some

ALIKE_SHARE = 0.05  # devices are alike whose shares differ by no more
SAME_STEP = 0.02  # and whose steps differ by no more
LATE_SHARE = 0.005  # of the time of all ranks; what they wait less for each other makes none of them late
MANY_RUNS = 6  # runs of ranks that are alike; --aggregate-by rank lists all ranks


def shares_of_time(use: Busy) -> dict[str, float]:
    """The parts of a device's time that a verdict names, as shares."""
    causes = {f"idle: {name}": time for name, time in use.idle_causes.items()}
    parts = {"busy": use.busy_ns, **use.alone_ns, **causes}
    return {name: time / use.rated_ns for name, time in parts.items()} if use.rated_ns else {}


def late_rank(uses: Iterable[Busy], waited: Sequence[RankWait]) -> RankWait | None:
    """The rank that others wait for most, if they wait for each other at all."""
    waiting = sum(each.waited_for_ns for each in waited)
    if not waiting or waiting < LATE_SHARE * sum(use.rated_ns for use in uses):
        return None
    return max(waited, key=lambda each: each.waited_for_ns)


def wait_of_others(late: RankWait, waited: Sequence[RankWait]) -> tuple[int, float]:
    """How many ranks waited for the late one, and how long each of them on average."""
    others = max(1, len(waited) - 1)
    return others, late.waited_for_ns / others


def slow_device(uses: Iterable[Busy]) -> Busy | None:
    """The device whose steps take longest, if they take longer than usual."""
    stepped = sorted((use for use in uses if use.step_ns), key=lambda use: (use.step_ns, use.rank))
    if not stepped or (stepped[-1].step_ns or 0) <= (1 + SAME_STEP) * (stepped[len(stepped) // 2].step_ns or 0):
        return None
    return stepped[-1]


def alike_devices(uses: Sequence[Busy], waited: Sequence[RankWait]) -> list[list[Busy]]:
    """The devices of ranks that spend their time alike, the most first; before them the late one, which is like no other."""
    worst, slowest = late_rank(uses, waited), None if waited else slow_device(uses)
    late = None if worst is None else worst.rank
    first = late if slowest is None else slowest.rank
    parts = [shares_of_time(use) for use in uses]
    names = {name for each in parts for name in each}
    usual = {name: median(each.get(name, 0.0) for each in parts) for name in names}

    def apart(mine: Mapping[str, float], theirs: Mapping[str, float]) -> float:
        return max((abs(mine.get(name, 0.0) - theirs.get(name, 0.0)) for name in names), default=0.0)

    def is_alike(place: int, other: int) -> bool:
        use, seed = uses[place], uses[other]
        step, usual_step = use.step_ns or 0.0, seed.step_ns or 0.0
        near = apart(parts[place], parts[other]) <= ALIKE_SHARE and abs(step - usual_step) <= SAME_STEP * usual_step
        return near and use.rank != seed.rank and late not in (use.rank, seed.rank) and use.gaps == seed.gaps

    # Groups begin with what is most usual, so that devices on both sides of it are in one.
    found: list[list[int]] = []
    for place in sorted(range(len(parts)), key=lambda place: apart(parts[place], usual)):
        home = next((each for each in found if is_alike(place, each[0])), None)
        if home is None:
            found.append(home := [])
        home.append(place)
    groups = [[uses[place] for place in sorted(each)] for each in sorted(found, key=min)]
    return sorted(groups, key=lambda each: (all(use.rank != first for use in each), -len(each)))


def middle(alike: Sequence[Busy]) -> Busy:
    """Of those that are alike, the one of the median time."""
    return sorted(alike, key=lambda use: use.busy_ns)[len(alike) // 2]


def alike_ranks(uses: Sequence[Busy], waited: Sequence[RankWait]) -> dict[int, str]:
    """The ranks that are shown for all that are alike, with the numbers of these; nothing where a rank has several devices."""
    if len({use.rank for use in uses}) < len(uses):
        return {}
    return {middle(each).rank: ranks_text(use.rank for use in each) for each in alike_devices(uses, waited)}


def ranks_text(ranks: Iterable[int]) -> str:
    """`0-16, 18, 19`."""
    runs = (f"{a}-{b}" if b > a + 1 else ", ".join(map(str, range(a, b + 1))) for a, b in runs_of(sorted({*ranks})))
    return ", ".join(some([*runs], MANY_RUNS))
