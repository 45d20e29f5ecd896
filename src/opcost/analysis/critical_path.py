"""The critical path of a run (what decides how long it takes, and what would help), and how far the host was ahead of devices."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeAlias

from opcost.analysis.breakdown import devices, kernels_by_device
from opcost.analysis.part import percentile
from opcost.core.names import is_collective, is_copy
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.core.sheet import Cell, Sheet, Table
from opcost.core.units import format_time
from opcost.errors import OpcostError

BOUNDS, PARTS = "critical path", "operators on it"
MOST_TRIED = 12
"""Operators of which is reported what half of their time would save: each takes a walk through all links."""


def critical_path(profile: Profile) -> Sheet:
    """The longest chain of dependencies by what it is spent on, and by operator with what it would save to halve its time."""
    check_single(profile, "the critical path")
    steps = max((use.steps for use in devices(profile)), default=0)
    bounds: list[tuple[Cell, ...]] = []
    parts: list[tuple[Cell, ...]] = []
    length = outside = 0
    for rank in sorted({row.rank for row in profile.rows}):
        found = Dependencies(profile, rank)
        path = found.longest()
        length += path.length_ns
        outside += sum(found.outside_ns.get(link.target, 0) for link in path.links if not link.time_ns)
        bounds += [(rank, *line) for line in _lines(found, path, steps, by_name=False)]
        parts += [(rank, *line) for line in _lines(found, path, steps, by_name=True)]
    spent = "time:time share:share per_step:time? halved:time gain:share"
    total: tuple[Cell, ...] = "", "total", length, 1.0, length / steps if steps else None, "", ""
    remarks = ["halved: by so much the path is shorter if all of this takes half of its time, on the path or not"]
    if outside:
        what = "lie between operators of the host and count as nothing: the program itself, or waits that the trace does not show"
        remarks.append(f"{format_time(outside)} more {what}")
    columns = f"rank:number? bound:text {spent}"
    by_bound = Table.of(BOUNDS, columns, bounds, total=total if bounds else None, remarks=remarks)
    by_operator = Table.of(PARTS, f"rank:number? operator:name bound:text links:number {spent}", parts)
    tables = by_bound, by_operator
    return Sheet(name="critical path", meta=profile.meta, tables=tables, notes=profile.notes)


def _lines(found: Dependencies, path: Path, steps: int, *, by_name: bool) -> Iterator[tuple[Cell, ...]]:
    """Links on the path by what bounds them, or by operator too, the longest time first."""
    keys: list[tuple[str, ...]] = [(name, bound) if by_name else (bound,) for bound, name in found.groups]
    members: dict[tuple[str, ...], list[int]] = {}
    for number, key in enumerate(keys):
        members.setdefault(key, []).append(number)
    times: dict[tuple[str, ...], list[int]] = {}
    for link in path.links:
        if link.time_ns:
            times.setdefault(keys[link.group], []).append(link.time_ns)
    for place, (key, own) in enumerate(sorted(times.items(), key=lambda item: -sum(item[1]))):
        time, whole = sum(own), path.length_ns
        counted = (len(own),) if by_name else ()
        saved = whole - found.length_if_halved(members[key]) if not by_name or place < MOST_TRIED else None
        gain = saved / whole if saved is not None and whole else None
        yield *key, *counted, time, time / whole if whole else None, time / steps if steps else None, saved, gain


# -- dependencies: starts and ends of host calls and kernels as points, and links that take time -------------------------------
#
# As in HolisticTraceAnalysis, calls of a thread follow and contain each other, a kernel follows its launch or the kernel before
# it on its stream, and a call that synchronizes follows the kernel that it waited for and takes no time itself. The links that
# form the longest chain are the critical path.
#
# Profilers rarely record which stream waited for which. A kernel that had been launched, and whose stream was free, follows the
# kernel of another stream that ended last before it started; a call that synchronizes follows the last kernel that ended in it.
#
# Time between two top-level calls counts as zero, as there: whether the thread ran or waited is unknown. Unlike there, the time
# in which a kernel waits for another stream, or for an unknown cause, counts.

HOST, COMPUTE, COMMUNICATION, COPIES = "host", "computing", "communication", "copies"
LAUNCH, BETWEEN, BLOCKED = "from launch to start", "between kernels", "blocked, not known why"
FARTHEST_NS = 1_500_000  # A kernel that starts later after the one before it was blocked by an unknown cause
SLACK_NS = 1_000
"""A stream that was free for longer before a kernel began, which had been launched, waited for another stream."""
_WAITS = ("Synchronize", "EventQuery")
_ON_HOST = ("cpu_op", "runtime")


Spending: TypeAlias = tuple[str, str]  # what a link's time is spent on: what bounds it, and the operator


class Link(NamedTuple):
    """From one point to a later one."""

    source: int
    target: int
    time_ns: int
    group: int  # NOWHERE where it takes no time


NOWHERE = -1


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

    def __init__(self, profile: Profile, rank: int, *, inferred: bool = True) -> None:
        check_single(profile, "the critical path")
        self._inferred = inferred
        """Whether calls and streams wait for what ended last, where the profiler does not write what they waited for."""
        self.groups: dict[Spending, int] = {}
        self._times: list[int] = []
        self._links: list[Link] = []
        self.outside_ns: dict[int, int] = {}
        """Of points on the host, the time since the one before it in which no call was under way."""
        rows = [row for row in profile.rows if row.rank == rank]
        work = [(kernel, row.type) for row in rows for kernel in row.kernels]
        work += [(kernel, kernel.name) for kernel in profile.unattributed if kernel.rank in (None, rank)]
        work.sort(key=lambda item: (item[0].start_ns, item[0].duration_ns))
        # Points of kernels come first: what a host call waited for comes before its end, also where both are at one time.
        started = [
            (kernel, owner, self._points(kernel.start_ns, kernel.start_ns + kernel.duration_ns))
            for kernel, owner in work
        ]
        ends = sorted((self._times[start + 1], start + 1) for _, _, start in started)
        calls = _LaunchCalls(rows, ends if inferred else ())
        launches: dict[int, int] = {}
        for events in calls.threads.values():
            self._follow_calls(events, calls, launches)
        self._follow_kernels(started, launches, sorted(calls.graphs))
        places = [0] * len(self._times)
        for place, point in enumerate(sorted(range(len(self._times)), key=self._times.__getitem__)):
            places[point] = place
        links = [link for link in self._links if places[link.source] < places[link.target]]
        self.links: Sequence[Link] = sorted(links, key=lambda link: places[link.target])
        """In an order in which everything that leads to a link's source comes before it."""

    def longest(self) -> Path:
        """The critical path."""
        reached = [0] * len(self._times)
        came: list[Link | None] = [None] * len(self._times)
        for link in self.links:
            way = reached[link.source] + link.time_ns
            if way > reached[link.target] or came[link.target] is None:
                reached[link.target], came[link.target] = way, link
        point = max(range(len(reached)), key=reached.__getitem__, default=NOWHERE)
        length, found = max(reached, default=0), []
        while point != NOWHERE and (by := came[point]) is not None:
            found.append(by)
            point = by.source
        return Path(length, tuple(reversed(found)))

    def length_if_halved(self, groups: Iterable[int]) -> int:
        """The length of the longest chain if the links of these groups took half of their time."""
        halved = set(groups)
        reached = [0] * len(self._times)
        for source, target, time, group in self.links:
            way = reached[source] + (time // 2 if group in halved else time)
            if way > reached[target]:  # noqa: PLR1730 - quicker than `max`, and most of the work
                reached[target] = way
        return max(reached, default=0)

    def _points(self, *times: int) -> int:
        """New points; the number of the first."""
        self._times.extend(times)
        return len(self._times) - len(times)

    def _join(self, source: int, target: int, group: Spending | None) -> None:
        time = 0 if group is None else max(self._times[target] - self._times[source], 0)
        number = NOWHERE if group is None else self.groups.setdefault(group, len(self.groups))
        self._links.append(Link(source, target, time, number))

    # -- the host ------------------------------------------------------------------------------------------------------

    def _follow_calls(self, events: Sequence[ProfileRow], calls: _LaunchCalls, launches: dict[int, int]) -> None:
        """The points of a thread, each after the one before it, in the innermost call that holds both."""
        open_calls: list[tuple[int, ProfileRow]] = []
        last = NOWHERE

        def reach(time: int) -> int:
            nonlocal last
            point = self._points(time)
            if last != NOWHERE:
                within = open_calls[-1][1] if open_calls else None
                waited = within is None or within.id in calls.waited
                self._join(last, point, None if within is None or waited else (HOST, within.type))
                self.outside_ns[point] = self._times[point] - self._times[last] if within is None else 0
            last = point
            return point

        def close() -> None:
            point = reach(open_calls[-1][0])
            _, row = open_calls.pop()
            if (kernel_end := calls.waited.get(row.id, NOWHERE)) != NOWHERE:
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
        self, work: Iterable[tuple[Kernel, str, int]], launches: Mapping[int, int], graphs: Sequence[int]
    ) -> None:
        """The links of each kernel, given with its operator and the point where it starts."""
        before: dict[tuple[str, str], int] = {}
        ended: list[tuple[int, int, tuple[str, str]]] = []  # of kernels that began before: ends, points and streams
        for kernel, owner, start in work:
            stream = kernel.device, kernel.stream
            sort = COMMUNICATION if is_collective(kernel.name) else COPIES if is_copy(kernel.name) else COMPUTE
            self._join(start, start + 1, (sort, owner))
            launched = kernel.launched_ns
            if launched is None and kernel.why != "outside":  # a captured graph replays it
                place = bisect_right(graphs, kernel.start_ns)
                launched = graphs[place - 1] if place else None
            launch = launches.get(launched, NOWHERE) if launched is not None and launched < kernel.start_ns else NOWHERE
            previous = before.get(stream, NOWHERE)
            began = self._times[launch] if launch != NOWHERE else 0
            free = self._times[previous] if previous != NOWHERE else 0
            # The kernel of another stream that ended last before this one began; only the last few are looked at
            recent = reversed(ended[max(0, (end := bisect_left(ended, (kernel.start_ns + 1,))) - 4) : end])
            others = (point for _, point, other in recent if other != stream) if self._inferred else ()
            releases = next(iter(others), NOWHERE)
            if releases != NOWHERE and self._times[releases] > max(began, free) + SLACK_NS:
                self._join(releases, start, (BETWEEN, owner))
            elif launch != NOWHERE and began > free:
                self._join(launch, start, (LAUNCH, owner))
                launch = NOWHERE
            elif previous != NOWHERE:
                is_near = 0 <= kernel.start_ns - free < FARTHEST_NS
                self._join(previous, start, (BETWEEN if is_near else BLOCKED, owner))
            if launch != NOWHERE:  # it still cannot begin before its launch
                self._join(launch, start, None)
            before[stream] = start + 1
            insort(ended, (self._times[start + 1], start + 1, stream))


class _LaunchCalls:
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
                self.waited[row.id] = ends[place - 1][1] if is_within else NOWHERE
        self.threads: dict[str, list[ProfileRow]] = {}
        for row in on_host:
            # Of an operator that launched kernels, the row names their stream; the launch is on the operator's thread.
            launched = next((kernel.launched_ns for kernel in row.kernels if kernel.launched_ns is not None), None)
            thread = row.stream if not row.kernels else thread_at.get(launched or NOWHERE, "")
            self.threads.setdefault(thread, []).append(row)
        # The backward pass runs on a thread of its own while the other one waits: together they are one after the other.
        backward = [name for name, rows in self.threads.items() if any("autograd" in row.type for row in rows)]
        others = sorted((len(rows), name) for name, rows in self.threads.items() if name not in backward)
        if len(backward) == 1 and others:
            self.threads[others[-1][1]] += self.threads.pop(backward[0])
        for events in self.threads.values():
            events.sort(key=lambda row: (row.host_start_ns or 0, -(row.host_ns or 0), row.id))


# -- how far the host was ahead of its devices: queues and delays after launches over time, and where devices waited for it

OVER_TIME, BEHIND = "queue and launches over time", "where the host was behind"
TENTHS = 10  # parts into which the time of a trace without steps is divided
FED = 8  # this many kernels in a row that were launched in time end a region in which the host was behind
MOST_REGIONS = 10


class LaunchedKernel(NamedTuple):
    """A kernel whose launch is known."""

    launched: int
    start: int
    end: int
    is_late: bool  # it was launched when the device had nothing left to do
    idle: int  # how long the device had been idle when it began


def launches(profile: Profile) -> Sheet:
    """Queues and delays in each step, or in each tenth of the time, and the regions in which devices waited for the host."""
    check_single(profile, "how far the host was ahead")
    over_time: list[tuple[Cell, ...]] = []
    regions: list[tuple[int, tuple[Cell, ...]]] = []
    for (rank, device), kernels in kernels_by_device(profile).items():
        rows = [row for row in profile.rows if row.rank == rank]
        kernels.sort(key=lambda kernel: kernel.start_ns)
        work = [*_work(kernels)]
        if work:
            over_time += [(rank, device, part, *_launched(work, *span)) for part, *span in _parts(rows, kernels)]
            regions += [(idle, (rank, device, *region)) for idle, region in _regions(work, rows)]
    regions.sort(key=lambda found: -found[0])
    columns = (
        "rank:number? device:text part:text launches:number queue:ratio queue_max:number empty:share delay:time "
        "delay_p90:time late:share"
    )
    over = Table.of(OVER_TIME, columns, over_time, remarks=_REMARKS if over_time else ())
    ran = "host_ran: the operator that the host spent most time in, without what it called"
    columns = "rank:number? device:text from:time time:time kernels:number idle:time host_ran:name host_time:time"
    longest = [line for _, line in regions[:MOST_REGIONS]]
    behind = Table.of(BEHIND, columns, longest, remarks=(ran,) if regions else ())
    return Sheet(name="launches", meta=profile.meta, tables=(over, behind), notes=profile.notes)


_REMARKS = (
    "queue: launched and not begun, the mean over time",
    "empty: the share of the time in which that is nothing",
    "late: of the kernels those that were launched when the device had nothing left to do",
)


def _work(kernels: Iterable[Kernel]) -> Iterator[LaunchedKernel]:
    """The kernels whose launch is known, by start; all others keep the device busy too."""
    busy_until: int | None = None
    for kernel in kernels:
        start, end, launched = kernel.start_ns, kernel.start_ns + kernel.duration_ns, kernel.launched_ns
        free = start if busy_until is None else busy_until
        if launched is not None and launched <= start:
            yield LaunchedKernel(launched, start, end, launched > free, max(0, start - free))
        busy_until = max(free, end)


def _parts(rows: Sequence[ProfileRow], kernels: Sequence[Kernel]) -> Iterator[tuple[str, int, int]]:
    """The steps of the host, or tenths of the time of the device."""
    spans: dict[int, tuple[int, int]] = {}
    for row in rows:
        if row.step is not None and row.host_start_ns is not None:
            start, end = spans.get(row.step, (row.host_start_ns, 0))
            spans[row.step] = min(start, row.host_start_ns), max(end, row.host_start_ns + (row.host_ns or 0))
    if spans:
        yield from ((f"step {step}", *span) for step, span in sorted(spans.items()))
        return
    begin = min(kernel.start_ns if kernel.launched_ns is None else kernel.launched_ns for kernel in kernels)
    length = max(kernel.start_ns + kernel.duration_ns for kernel in kernels) - begin
    for part in range(TENTHS):
        yield f"{part + 1}/{TENTHS}", begin + length * part // TENTHS, begin + length * (part + 1) // TENTHS


def _launched(work: Sequence[LaunchedKernel], start: int, end: int) -> tuple[Cell, ...]:
    """Of the launches in this time: how many, what waited (mean, most, share of the time without any), and how long."""
    within = [each for each in work if start <= each.launched < end]
    waiting = [each for each in work if each.launched < end and each.start > start]
    changes = [(max(each.launched, start), 1) for each in waiting] + [(min(each.start, end), -1) for each in waiting]
    length = most = area = empty = 0
    reached = start
    for time, change in sorted(changes):
        area += length * (time - reached)
        empty += (time - reached) * (length == 0)
        reached, length = time, length + change
        most = max(most, length)
    whole = end - start
    queued: tuple[Cell, ...] = (None,) * 3
    if whole > 0:
        queued = area / whole, most, (empty + end - reached) / whole
    waited: tuple[Cell, ...] = (None,) * 3
    if within:
        delays = sorted(each.start - each.launched for each in within)
        late = sum(each.is_late for each in within)
        waited = median(delays), percentile([(delay, 1) for delay in delays], 90), late / len(within)
    return len(within), *queued, *waited


def _regions(work: Sequence[LaunchedKernel], rows: Sequence[ProfileRow]) -> Iterator[tuple[int, tuple[Cell, ...]]]:
    """Stretches of kernels that were launched late, with few others between them, and how long the device was idle there."""
    late = [place for place, each in enumerate(work) if each.is_late]
    own = sorted((row.host_start_ns, row.id, row) for row in rows if row.host_start_ns is not None and row.host_self_ns)
    starts = [start for start, _, _ in own]
    place = 0
    while place < len(late):
        last = place
        while last + 1 < len(late) and late[last + 1] - late[last] <= FED:
            last += 1
        members = work[late[place] : late[last] + 1]
        since, until = members[0].start - members[0].idle, members[-1].end
        spent: dict[str, int] = {}
        for _, _, row in own[bisect_right(starts, since) : bisect_right(starts, until)]:
            if row.provider != "user_annotation":
                spent[row.type] = spent.get(row.type, 0) + (row.host_self_ns or 0)
        most = max(spent, key=spent.__getitem__, default="")
        idle = sum(each.idle for each in members)
        yield idle, (since - work[0].start, until - since, len(members), idle, most, spent.get(most))
        place = last + 1
