"""The critical path of a run: what of host, launches, kernels and collectives decides how long it takes, and what would help."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from opcost.analysis.bounds import devices
from opcost.core.names import is_collective, is_copy
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.core.sheet import Cell, Field, Sheet, Table
from opcost.core.units import format_time
from opcost.errors import OpcostError

BOUNDS, PARTS = "critical path", "operators on it"
MOST_TRIED = 12
"""Operators of which it is told what half of their time would win: each takes a walk through all links."""


def critical_path(profile: Profile) -> Sheet:
    """The longest chain of dependencies by what it is spent on, and by operator with what it would win to halve its time."""
    check_single(profile, "the critical path")
    ranks = sorted({row.rank for row in profile.rows})
    steps = max((use.steps for use in devices(profile)), default=0)
    bounds: list[tuple[Cell, ...]] = []
    parts: list[tuple[Cell, ...]] = []
    lengths = []
    outside = 0
    for rank in ranks:
        found = Dependencies(profile, rank)
        path = found.longest()
        lengths.append(path.length_ns)
        outside += sum(found.outside_ns.get(link.target, 0) for link in path.links if not link.time_ns)
        bounds += [(rank, *line) for line in _bounds(found, path, steps)]
        parts += [(rank, *line) for line in _parts(found, path, steps)]
    spent = (Field("time", "time"), Field("share", "share"), Field("per_step", "time", dull=True))
    gain = (Field("halved", "time"), Field("gain", "share"))
    rank_field = Field("rank", "number", dull=True)
    each = sum(lengths) / steps if steps else None
    remarks = ["halved: by so much the path is shorter if all of this takes half of its time, on the path or not"]
    if outside:
        what = "lie between operators of the host and count as nothing: the program itself, or waits that the trace does not show"
        remarks.append(f"{format_time(outside)} more {what}")
    return Sheet(
        name="critical path",
        meta=profile.meta,
        tables=(
            Table.of(
                title=BOUNDS,
                fields=(rank_field, Field("bound", "text"), *spent, *gain),
                lines=tuple(bounds),
                total=("", "total", sum(lengths), 1.0, each, "", "") if bounds else None,
                remarks=tuple(remarks),
            ),
            Table.of(
                title=PARTS,
                fields=(
                    rank_field,
                    Field("operator", "name"),
                    Field("bound", "text"),
                    Field("links", "number"),
                    *spent,
                    *gain,
                ),
                lines=tuple(parts),
            ),
        ),
        notes=profile.notes,
    )


def _bounds(found: Dependencies, path: Path, steps: int) -> Iterable[tuple[Cell, ...]]:
    times: dict[str, int] = {}
    members: dict[str, list[int]] = {}
    names = list(found.groups)
    for number, group in enumerate(names):
        members.setdefault(group.bound, []).append(number)
    for link in path.links:
        if link.time_ns:
            bound = names[link.group].bound
            times[bound] = times.get(bound, 0) + link.time_ns
    for bound, time in sorted(times.items(), key=lambda item: -item[1]):
        yield bound, *_spent(time, path, steps), *_won(found, path, members[bound])


def _parts(found: Dependencies, path: Path, steps: int) -> Iterable[tuple[Cell, ...]]:
    times: dict[int, list[int]] = {}
    for link in path.links:
        if link.time_ns:
            times.setdefault(link.group, []).append(link.time_ns)
    names = list(found.groups)
    ordered = sorted(times, key=lambda number: -sum(times[number]))
    for place, number in enumerate(ordered):
        own = times[number]
        gain = _won(found, path, [number]) if place < MOST_TRIED else (None, None)
        yield names[number].name, names[number].bound, len(own), *_spent(sum(own), path, steps), *gain


def _spent(time: int, path: Path, steps: int) -> tuple[Cell, ...]:
    return time, time / path.length_ns if path.length_ns else None, time / steps if steps else None


def _won(found: Dependencies, path: Path, groups: Iterable[int]) -> tuple[Cell, Cell]:
    won = path.length_ns - found.length_if_halved(groups)
    return won, won / path.length_ns if path.length_ns else None


# -- dependencies: starts and ends of host calls and kernels as points, and links that take time -------------------------------
#
# As in HolisticTraceAnalysis, calls of a thread follow and contain each other, a kernel follows its launch or the kernel before
# it on its stream, and a call that synchronizes follows the kernel that it waited for and takes no time itself. The links that
# form the longest chain are the critical path.
#
# Profilers rarely record which stream waited for which. A kernel that had been launched, and whose stream was free, follows the
# kernel of another stream that ended last before it started; a call that synchronizes follows the last kernel that ended in it.
#
# Time between two top-level calls counts as zero, as there: whether the thread ran or waited is unknown. The time in which a
# kernel waits for another stream, or for an unknown cause, counts as zero only `strictly`, as there.

HOST, COMPUTE, COMMUNICATION, COPIES = "host", "computing", "communication", "copies"
LAUNCH, BETWEEN, BLOCKED = "from launch to start", "between kernels", "blocked, not known why"
FARTHEST_NS = 1_500_000  # A kernel that starts later after the one before it was blocked by an unknown cause
SLACK_NS = 1_000
"""A stream that was free for longer before a kernel began, which had been launched, was held by another stream."""
_WAITS = ("Synchronize", "EventQuery")
_ON_HOST = ("cpu_op", "runtime")


class Group(NamedTuple):
    """What a link's time is spent on."""

    bound: str
    name: str


class Link(NamedTuple):
    """From one point to a later one."""

    source: int
    target: int
    time_ns: int
    group: int  # NOBODY where it takes no time


NOBODY = -1


class Path(NamedTuple):
    """The longest chain of links, from its beginning on."""

    length_ns: int
    links: tuple[Link, ...]


def check_single(profile: Profile, what: str) -> None:
    """Raise where rows stand for many executions: then it is not known when each of them was."""
    if any(row.count > 1 for row in profile.rows):
        raise OpcostError(
            f"{what} needs the time of every execution, and rows of this profile stand for many",
            hint="read_profile(..., executions=True), for traces below 64 MiB (8 MiB gzipped); else record fewer steps",
        )
    if not any(row.host_start_ns is not None for row in profile.rows):
        raise OpcostError(f"{what} needs calls of the host, and this profile has none", hint="record host and device")


class Dependencies:
    """The points and links of one rank."""

    def __init__(self, profile: Profile, rank: int, *, strictly: bool = False, inferred: bool = True) -> None:
        check_single(profile, "the critical path")
        self._strictly = strictly
        self._inferred = inferred
        """Whether calls and streams wait for what ended last, where the profiler does not write what they waited for."""
        self.groups: dict[Group, int] = {}
        self._times: list[int] = []
        self._links: list[Link] = []
        self.outside_ns: dict[int, int] = {}
        """Of points on the host, the time since the one before it in which no call was under way."""
        rows = [row for row in profile.rows if row.rank == rank]
        work = [(kernel, row.type) for row in rows for kernel in row.kernels]
        work += [(kernel, kernel.name) for kernel in profile.unattributed if kernel.rank in (None, rank)]
        work.sort(key=lambda item: (item[0].start_ns, item[0].duration_ns))
        # Points of kernels come first: what a host call waited for comes before its end, also where both are at one time.
        starts = [self._points(kernel.start_ns, kernel.start_ns + kernel.duration_ns) for kernel, _ in work]
        ends = sorted((self._times[start + 1], start + 1) for start in starts)
        calls = _Calls(rows, ends if inferred else ())
        launches: dict[int, int] = {}
        for events in calls.threads.values():
            self._follow_calls(events, calls, launches)
        self._follow_kernels(work, starts, launches, sorted(calls.graphs))
        self._order()

    @property
    def links(self) -> Sequence[Link]:
        """In an order in which everything that leads to a link's source comes before it."""
        return self._links

    def longest(self) -> Path:
        """The critical path."""
        reached = [0] * len(self._times)
        came: list[Link | None] = [None] * len(self._times)
        for link in self._links:
            way = reached[link.source] + link.time_ns
            if way > reached[link.target] or came[link.target] is None:
                reached[link.target], came[link.target] = way, link
        point = max(range(len(reached)), key=reached.__getitem__, default=NOBODY)
        length, found = reached[point] if reached else 0, []
        while point != NOBODY and (by := came[point]) is not None:
            found.append(by)
            point = by.source
        return Path(length, tuple(reversed(found)))

    def length_if_halved(self, groups: Iterable[int]) -> int:
        """The length of the longest chain if the links of these groups took half of their time."""
        halved = set(groups)
        reached = [0] * len(self._times)
        for source, target, time, group in self._links:
            way = reached[source] + (time // 2 if group in halved else time)
            if way > reached[target]:  # noqa: PLR1730 - quicker than `max`, and most of the work
                reached[target] = way
        return max(reached, default=0)

    def _order(self) -> None:
        places = [0] * len(self._times)
        for place, point in enumerate(sorted(range(len(self._times)), key=self._times.__getitem__)):
            places[point] = place
        self._links = [link for link in self._links if places[link.source] < places[link.target]]
        self._links.sort(key=lambda link: places[link.target])

    def _points(self, *times: int) -> int:
        """New points; the number of the first."""
        self._times.extend(times)
        return len(self._times) - len(times)

    def _join(self, source: int, target: int, group: Group | None) -> None:
        time = 0 if group is None else max(self._times[target] - self._times[source], 0)
        number = NOBODY if group is None else self.groups.setdefault(group, len(self.groups))
        self._links.append(Link(source, target, time, number))

    # -- the host ------------------------------------------------------------------------------------------------------

    def _follow_calls(self, events: Sequence[ProfileRow], calls: _Calls, launches: dict[int, int]) -> None:
        """The points of a thread, each after the one before it, in the innermost call that holds both."""
        open_calls: list[tuple[int, ProfileRow]] = []
        last = NOBODY

        def reach(time: int) -> int:
            nonlocal last
            point = self._points(time)
            if last != NOBODY:
                within = open_calls[-1][1] if open_calls else None
                waited = within is None or within.id in calls.waited
                self._join(last, point, None if within is None or waited else Group(HOST, within.type))
                self.outside_ns[point] = self._times[point] - self._times[last] if within is None else 0
            last = point
            return point

        def close() -> None:
            point = reach(open_calls[-1][0])
            _, row = open_calls.pop()
            if (kernel_end := calls.waited.get(row.id, NOBODY)) != NOBODY:
                self._join(kernel_end, point, None)

        for row in events:
            start = row.host_start_ns or 0
            while open_calls and open_calls[-1][0] <= start:
                close()
            point = reach(start)
            if row.provider == "runtime":
                launches.setdefault(start, point)
            end = start + (row.host_ns or 0)
            open_calls.append((min(end, open_calls[-1][0]) if open_calls else end, row))
        while open_calls:
            close()

    # -- devices -------------------------------------------------------------------------------------------------------

    def _follow_kernels(
        self,
        work: Sequence[tuple[Kernel, str]],
        starts: Sequence[int],
        launches: Mapping[int, int],
        graphs: Sequence[int],
    ) -> None:
        before: dict[tuple[str, str], int] = {}
        ended: list[tuple[int, int, tuple[str, str]]] = []
        """Ends of kernels that began before, with their points and streams."""
        for (kernel, owner), start in zip(work, starts, strict=True):
            stream = kernel.device, kernel.stream
            self._join(start, start + 1, Group(_bound_of(kernel), owner))
            launched = kernel.launched_ns
            if launched is None and kernel.why != "outside":  # a captured graph replays it
                place = bisect_right(graphs, kernel.start_ns)
                launched = graphs[place - 1] if place else None
            launch = launches.get(launched, NOBODY) if launched is not None and launched < kernel.start_ns else NOBODY
            previous = before.get(stream, NOBODY)
            began = self._times[launch] if launch != NOBODY else 0
            free = self._times[previous] if previous != NOBODY else 0
            releases = self._released(ended, kernel.start_ns, stream) if self._inferred else NOBODY
            if releases != NOBODY and self._times[releases] > max(began, free) + SLACK_NS:
                self._join(releases, start, None if self._strictly else Group(BETWEEN, owner))
            elif launch != NOBODY and began > free:
                self._join(launch, start, Group(LAUNCH, owner))
                launch = NOBODY
            elif previous != NOBODY and 0 <= kernel.start_ns - free < FARTHEST_NS:
                self._join(previous, start, Group(BETWEEN, owner))
            elif previous != NOBODY and not self._strictly:
                self._join(previous, start, Group(BLOCKED, owner))
            if launch != NOBODY:  # it still cannot begin before its launch
                self._join(launch, start, None)
            before[stream] = start + 1
            insort(ended, (self._times[start + 1], start + 1, stream))

    @staticmethod
    def _released(ended: list[tuple[int, int, tuple[str, str]]], start: int, stream: tuple[str, str]) -> int:
        """The kernel of another stream that ended last before this time; only the last few are looked at."""
        place = bisect_left(ended, (start + 1,))
        for _, point, other in reversed(ended[max(0, place - 4) : place]):
            if other != stream:
                return point
        return NOBODY


class _Calls:
    """The calls of a host by thread, and which of them waited for the device."""

    def __init__(self, rows: Sequence[ProfileRow], ends: Sequence[tuple[int, int]]) -> None:
        on_host = [row for row in rows if row.provider in _ON_HOST and row.host_ns]
        copied = {
            kernel.launched_ns: kernel.start_ns + kernel.duration_ns
            for row in rows
            for kernel in row.kernels
            if kernel.launched_ns is not None and is_copy(kernel.name)
        }
        self.graphs: list[int] = []
        self.waited: dict[int, int] = {}
        """By the number of their row, calls that waited, and the point of the kernel that they waited for, if any."""
        thread_at: dict[int, str] = {}
        for row in on_host:
            if row.provider != "runtime" or row.host_start_ns is None:
                continue
            thread_at[row.host_start_ns] = row.stream
            end = row.host_start_ns + (row.host_ns or 0)
            if "GraphLaunch" in row.type:
                self.graphs.append(row.host_start_ns)
            if any(word in row.type for word in _WAITS) or copied.get(row.host_start_ns, end + 1) <= end:
                place = bisect_right(ends, (end, len(ends) * 2))
                is_within = place and ends[place - 1][0] > row.host_start_ns
                self.waited[row.id] = ends[place - 1][1] if is_within else NOBODY
        self.threads: dict[str, list[ProfileRow]] = {}
        for row in on_host:
            # Of an operator that launched kernels, the row names their stream; the launch is on the operator's thread.
            launched = next((kernel.launched_ns for kernel in row.kernels if kernel.launched_ns is not None), None)
            thread = row.stream if not row.kernels else thread_at.get(launched or NOBODY, "")
            self.threads.setdefault(thread, []).append(row)
        self._merge_backward()
        for events in self.threads.values():
            events.sort(key=lambda row: (row.host_start_ns or 0, -(row.host_ns or 0), row.id))

    def _merge_backward(self) -> None:
        """The backward pass runs on a thread of its own while the other one waits: together they are one after the other."""
        backward = [name for name, rows in self.threads.items() if any("autograd" in row.type for row in rows)]
        others = sorted((len(rows), name) for name, rows in self.threads.items() if name not in backward)
        if len(backward) == 1 and others:
            self.threads[others[-1][1]] += self.threads.pop(backward[0])


def _bound_of(kernel: Kernel) -> str:
    return COMMUNICATION if is_collective(kernel.name) else COPIES if is_copy(kernel.name) else COMPUTE
