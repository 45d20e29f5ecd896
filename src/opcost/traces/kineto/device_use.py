"""How the devices of a trace were used: busy and idle time and why, copies, collectives, delays after the launch.

Why a device was idle is what its next piece of work was waiting on. Where the host launched that work only after the device had
run dry, the host was behind: because it had waited for the device itself (synchronisation), for the next batch (input), or for
its own code. While the call that launches it runs it is that call, which takes long where it loads a module or a library. After
the call it is the launch that takes time, and beyond what launches take, whatever else the work needed: an event, another stream.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from statistics import median, quantiles
from typing import Any, NamedTuple

from opcost.core.devices import HOST
from opcost.core.graph import BITS
from opcost.core.names import (
    MESSAGES,
    algorithm_of,
    collective_kind,
    group_label,
    is_copy,
    is_transfer,
    members_text,
    short_kernel_name,
)
from opcost.core.profile import IDLE_CAUSES, Busy, CollectiveSummary, CopySummary
from opcost.core.timeline import CoveredTime, covered, long_gaps
from opcost.frontends.inputs import ALIASES
from opcost.traces.file import is_shape
from opcost.traces.kineto.columns import APART, COLLECTIVE_OPERATOR, GLOO, decoded
from opcost.traces.kineto.memory_use import memory_of
from opcost.traces.kineto.modules import LOADS, NEVER, RECOMPUTE
from opcost.traces.kineto.operators import DTYPES
from opcost.traces.kineto.trace import Trace, Unowned

SYNCHRONISES = "Synchronize"
LONGEST_LAUNCH = 50_000
"""Nanoseconds; work that does not begin within them after its launch waits for something else, and a call that takes longer
does more than to launch."""


def device_uses(trace: Trace) -> dict[str, Sequence[Busy]]:
    """The use of each device, in the order of first use in the file, as `Profile.extra` names it.

    From its first kernel to its last, and in the marked steps, but for the first of several.
    """
    work = trace.columns.device
    places: dict[str, array[int]] = {}
    of_queue = [places.setdefault(device, array("i")) for device, _ in trace.queues]
    for place, queue in enumerate(work.queue):
        of_queue[queue].append(place)
    use_of = _DeviceUse(trace).busy
    whole: list[Busy] = []
    in_steps: list[Busy] = []
    steps = trace.steps[1:] or trace.steps
    for device, own in places.items():
        if not own:
            continue
        whole.append(use_of(device, own))
        if not steps or trace.skew:  # steps are on the clock of the host
            continue
        # By what was launched in steps: from the end of the work before them to the end of theirs
        launched = [trace.launched_at(place) for place in own]
        times = [work.start[place] if time is None else time for place, time in zip(own, launched, strict=True)]
        inside = [p for p, time in zip(own, times, strict=True) if steps[0].start <= time < steps[-1].end]
        earlier = [p for p, time in zip(own, times, strict=True) if time < steps[0].start]
        if not inside:
            continue
        begin = min(work.start[place] for place in inside)
        if earlier and len(trace.steps) > 1:
            begin = min(begin, max(work.start[place] + work.duration[place] for place in earlier))
        found = use_of(device, inside, begin, most_gaps=len(steps) - 1)
        in_steps.append(found._replace(steps=len(steps)))
    return {"devices": whole, "steps": in_steps}


_FIELDS = ("idle_host_ns", "idle_synchronised_ns", "idle_input_ns", "idle_launch_ns", "idle_blocked_ns")
"""Fields of `Busy` in the order of IDLE_CAUSES."""


class _DeviceUse:
    """What devices did in a trace, and what the host did that left them idle."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._ends = sorted(end for _, end in _spans(trace, SYNCHRONISES))
        self._between_stages = {
            place
            for place, message in _messages(trace)
            if message.ranks is not None and collective_kind(message.name) in MESSAGES
        }
        self._loads = sorted(_spans(trace, LOADS))
        """When the host waited for the next batch; such waits of one process do not overlap."""

    def busy(
        self, device: str, places: Sequence[int], begin: int | None = None, *, most_gaps: int | None = None
    ) -> Busy:
        """The use of a device by the work in these places, from `begin` or the first of them on."""
        trace = self._trace
        work, owner = trace.columns.device, trace.owner
        ordered = sorted(places, key=work.start.__getitem__)
        durations = [work.duration[place] for place in ordered]
        owned = [place for place in ordered if owner[place] >= 0]
        launched = [trace.launched_at(place) for place in ordered]
        each = [*zip(ordered, launched, durations, strict=True)]
        # From launch to beginning; two clocks that disagree give nothing, and what a graph replays has no launch of its own
        waited = [work.start[p] - time for p, time, _ in each if time is not None and owner[p] != Unowned.GRAPH]
        delays = sorted(delay for delay in waited if delay >= 0)
        # Work whose successor on the device had been launched before it began
        fed = [spent for (p, _, spent), (_, time, _) in pairwise(each) if time is not None and time <= work.start[p]]
        moments = sorted({time for time in launched if time is not None})
        recomputed = [work.duration[place] for place in owned if trace.rows.phase[owner[place]] == RECOMPUTE]
        steps = [step.end - step.start for step in trace.steps]
        later_steps = steps[1:] or steps
        begin = work.start[ordered[0]] if begin is None else begin
        end = max(work.start[place] + spent for place, _, spent in each)
        # What nearly every step has is a habit, and no event.
        most = most_gaps if most_gaps is not None else max(1, len(steps) - 2) if len(steps) > 1 else len(places)
        return Busy(
            device=device, rank=trace.rank, span_ns=end - begin, work_ns=sum(durations), kernels=len(durations),
            median_ns=median(durations), operators=len({owner[place] for place in owned}), owned=len(owned),
            launches=len(delays), delay_ns=median(delays) if delays else None,
            delay_p90_ns=quantiles(delays, n=10, method="inclusive")[8] if len(delays) > 1 else next(iter(delays), None),
            fed_ns=sum(fed), recomputed_ns=sum(recomputed),
            launch_every_ns=median([b - a for a, b in pairwise(moments)]) if len(moments) > 1 else None,
            steps=len(steps), first_step_ns=steps[0] if steps else None, step_ns=median(later_steps) if steps else None,
            least_step_ns=min(later_steps, default=None), most_step_ns=max(later_steps, default=None),
            **self._by_class(ordered), **self._idle(ordered, begin, end, most),
        )  # fmt: skip

    def _by_class(self, ordered: list[int]) -> dict[str, Any]:
        """Busy time by what the device did: computing, communicating, copying; what overlaps counts for the first of them."""
        trace = self._trace
        work, names = trace.columns.device, trace.kernel_names
        collective = _collective_kernels(trace)
        copy = {number for number, name in enumerate(names) if is_copy(name)}
        transfer = {number for number in copy if is_transfer(names[number])}

        def spent(places: Iterable[int]) -> int:
            return covered((work.start[place], work.start[place] + work.duration[place]) for place in places)

        def without(kinds: set[int], places: list[int] = ordered) -> list[int]:
            return [place for place in places if work.name[place] not in kinds] if kinds else places

        others = without(copy)
        computes = without(collective, others)
        busy, working = spent(ordered), spent(others)
        computing = spent(computes) if collective else working
        apart = self._between_stages
        without_messages = spent(place for place in others if place not in apart) if apart else working
        return {
            "busy_ns": busy,
            "compute_ns": computing,
            "communication_ns": working - computing,
            "stages_ns": working - without_messages,
            "copies_ns": busy - working,
            "transfers_ns": (spent(without(copy - transfer)) if transfer else working) - working,
            "all_communication_ns": spent(place for place in others if work.name[place] in collective),
            "all_copies_ns": spent(place for place in ordered if work.name[place] in copy),
            "compute_work_ns": sum([work.duration[place] for place in computes]),
        }

    def _idle(self, ordered: Sequence[int], begin: int, end: int, most_gaps: int) -> dict[str, Any]:
        """The gaps between pieces of device work, given by their places in the order of starts, as fields of `Busy`.

        Gaps of work that has no launch in the trace have no cause. Long gaps are events of their own and no part of the
        times by cause, as long as there are no more than `most_gaps` of them.
        """
        work = self._trace.columns.device
        starts, durations = work.start, work.duration
        spans = ((starts[place], starts[place] + durations[place]) for place in ordered)
        long = long_gaps(spans, begin, end, len(ordered), most_gaps)
        excepted = {since for since, _ in long}
        spent: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        longest: Counter[str] = Counter()
        reached = begin
        for place in ordered:
            if starts[place] > reached:
                if reached not in excepted:
                    self._add(spent, calls, reached, place)
                elif reached == long[0][0]:
                    in_calls: Counter[str] = Counter()
                    self._add(longest, in_calls, reached, place)
                    longest.update({f"in {name}": time for name, time in in_calls.items()})
            reached = max(reached, starts[place] + durations[place])
        found: dict[str, Any] = {field: spent[cause] for field, cause in zip(_FIELDS, IDLE_CAUSES, strict=True)}
        found["idle_call_ns"] = calls.total()
        found["idle_call"] = max(calls, key=calls.__getitem__, default="")
        if long:
            since, until = long[0]
            found |= {
                "gaps": len(long),
                "gap_ns": sum(until - since for since, until in long),
                "longest_gap_ns": until - since,
                "longest_gap_at_ns": since - begin,
                "longest_gap_cause": _main_causes(longest),
            }
        return found

    def _add(self, spent: Counter[str], calls: Counter[str], reached: int, place: int) -> None:
        """Find why the device was idle from `reached` until this work began; a long call counts under its own name."""
        host, synchronised, loading, launching, blocked = IDLE_CAUSES
        trace = self._trace
        call = trace.launches.get(trace.columns.device.correlation[place])
        if call is None:
            return
        rows, start = trace.rows, trace.columns.device.start[place]
        launched = min(start, max(reached, rows.start[call]))
        returned = min(start, max(launched, rows.start[call] + rows.duration[call]))
        if returned - launched > LONGEST_LAUNCH:
            calls[trace.name_of(call)] += returned - launched
        else:
            spent[launching] += returned - launched
        late = min(start - returned, LONGEST_LAUNCH)
        spent[launching] += late
        spent[blocked] += start - returned - late
        if launched > reached:
            waited = 0
            for since, until in self._loads[max(bisect_right(self._loads, (reached, NEVER)) - 1, 0) :]:
                if since >= launched:
                    break
                waited += max(0, min(launched, until) - max(reached, since))
            waited = min(waited, launched - reached)
            spent[loading] += waited
            place = bisect_left(self._ends, reached)
            has_synchronised = place < len(self._ends) and self._ends[place] <= launched
            spent[synchronised if has_synchronised else host] += launched - reached - waited


def _main_causes(spent: Counter[str]) -> str:
    """The causes of at least a tenth of the time, the largest first; empty where none is known."""
    whole = spent.total()
    causes = dict.fromkeys((*IDLE_CAUSES, *spent))
    large = sorted((cause for cause in causes if 10 * spent[cause] >= whole > 0), key=lambda cause: -spent[cause])
    if len(large) < 2:
        return "".join(large)
    return ", ".join(f"{cause} {100 * spent[cause] / whole:.0f} %" for cause in large)


def _spans(trace: Trace, word: str) -> list[tuple[int, int]]:
    """Start and end of all that has this word in its name."""
    wanted = {number for number, signature in enumerate(trace.signatures) if word in signature.name}
    rows = trace.rows
    found = [row for row, signature in enumerate(rows.signature) if signature in wanted] if wanted else []
    return [(rows.start[row], rows.start[row] + rows.duration[row]) for row in found]


# -- copies and collectives


def copies_of(trace: Trace) -> tuple[CopySummary, ...]:
    """What copies of each sort moved on each device, in the order of the file."""
    work, names = trace.columns.device, trace.kernel_names
    copies = {number for number, name in enumerate(names) if is_copy(name)}
    if not copies:
        return ()
    times: dict[tuple[str, int], list[int]] = {}
    for name, queue, duration in zip(work.name, work.queue, work.duration, strict=True):
        if name in copies:
            times.setdefault((trace.queues[queue][0], name), []).append(duration)
    moved: Counter[tuple[str, int]] = Counter()
    for (queue, name), count in trace.columns.moved.items():
        moved[trace.queues[queue][0], name] += count
    return tuple(
        CopySummary(device, trace.rank, names[name], len(spent), sum(spent), moved.get((device, name)))
        for (device, name), spent in times.items()
    )


class Message(NamedTuple):
    """What a collective is and moves; None and empty where the trace does not have it."""

    name: str = ""
    group: str = ""
    ranks: int | None = None
    bytes: int | None = None
    dtype: str = ""
    algorithm: str = ""
    members: str = ""  # ranks, as `members_text` writes them


class Collective(NamedTuple):
    """One collective on a device."""

    device: str
    start: int
    duration: int
    message: Message
    exposed: int | None = 0  # of the duration, that while nothing computed on the device; None of one on the host


def collectives_of(trace: Trace) -> tuple[Collective, ...]:
    """Kernels that the profiler marked as collectives, or that have the library's name, by start; without a device gloo's."""
    if not trace.has_device:
        return tuple(sorted(_on_host(trace), key=lambda each: each.start))
    work = trace.columns.device
    computing: dict[str, CoveredTime] = {}
    found = []
    for place, message in _messages(trace):
        device, start, spent = trace.queues[work.queue[place]][0], work.start[place], work.duration[place]
        if device not in computing:
            computing[device] = _computing(trace, device)
        exposed = spent - computing[device].within(start, start + spent)
        found.append(Collective(device, trace.base_ns + start, spent, message, exposed))
    return tuple(sorted(found, key=lambda each: each.start))


def _on_host(trace: Trace) -> Iterator[Collective]:
    """The collectives of gloo, of which the trace has the tensor that goes in; and the group, if there is one alone."""
    known: dict[int, Message] = {}
    name, (description, ranks) = next(iter(trace.groups.items())) if len(trace.groups) == 1 else ("", ("", ()))
    rows = trace.rows
    for row, number in enumerate(rows.signature):
        signature = trace.signatures[number]
        if not signature.name.startswith(GLOO):
            continue
        if number not in known:
            dims, types = decoded(signature.dims), decoded(signature.types)
            shape = dims[0] if isinstance(dims, list) and dims else None
            width = BITS.get(DTYPES.get(types[0], ""), 0) // 8 if isinstance(types, list) and types else 0
            moved = prod(shape) * width if shape is not None and is_shape(shape) and width else None
            kind = collective_kind(signature.name)
            if moved is not None and kind == "all_gather":
                moved = moved * len(ranks) or None
            known[number] = Message(
                name=signature.name.removeprefix(GLOO), group=group_label(name, description), ranks=len(ranks) or None,
                bytes=moved, dtype=types[0] if width else "", members=members_text(ranks),
            )  # fmt: skip
        yield Collective(HOST, trace.base_ns + rows.start[row], rows.duration[row], known[number], None)


def _messages(trace: Trace) -> Iterator[tuple[int, Message]]:
    """What each collective on a device is, and its place."""
    columns = trace.columns
    library, messages = columns.library_kernels, list(columns.messages)
    if not library and not columns.collectives:
        return
    for place, name in enumerate(columns.device.name):
        marked = columns.collectives.get(place)
        if marked is None and name not in library:
            continue
        spelt: tuple[bytes, ...] = () if marked is None else messages[marked]
        owner = trace.owner_of(place)
        if marked is None and owner is not None and trace.name_of(owner) == COLLECTIVE_OPERATOR:
            spelt = tuple(trace.signatures[trace.rows.signature[owner]].concrete.split(APART))
        message, description = _message(spelt, trace.kernel_names[name])
        if message.group:
            listed, ranks = trace.groups.get(message.group, ("", ()))
            members = message.members or (members_text(ranks) if len(ranks) == message.ranks else "")
            message = message._replace(group=group_label(message.group, description or listed), members=members)
        yield place, message


def _collective_kernels(trace: Trace) -> set[int]:
    """The numbers of kernels that are collectives."""
    columns = trace.columns
    return columns.library_kernels | {columns.device.name[place] for place in columns.collectives}


def _computing(trace: Trace, device: str) -> CoveredTime:
    """When something computed on a device."""
    work = trace.columns.device
    others = {number for number, name in enumerate(trace.kernel_names) if is_copy(name)} | _collective_kernels(trace)
    spans = (
        (start, start + spent)
        for name, queue, start, spent in zip(work.name, work.queue, work.start, work.duration, strict=True)
        if name not in others and trace.queues[queue][0] == device
    )
    return CoveredTime(sorted(spans))


@lru_cache(maxsize=1 << 12)
def _message(spelt: tuple[bytes, ...], kernel: str) -> tuple[Message, str]:
    """The fields as the trace spells them, in the order of `COLLECTIVE_FIELDS`; and the description of the group."""
    bare = short_kernel_name(kernel)
    if not any(spelt):
        return Message(name=bare, algorithm=algorithm_of(kernel)), ""
    name, group, ins, outs, size, dtype, description, listed = map(decoded, spelt)
    word = str(dtype).lower()
    width = BITS.get(ALIASES.get(word, word), 0) // 8
    moved = [elements for elements in (ins, outs) if type(elements) is int]
    ranks = decoded(listed.encode()) if isinstance(listed, str) else listed  # of more than 30 it is no list
    whole = isinstance(ranks, list) and all(type(rank) is int for rank in ranks) and len(ranks) == size
    message = Message(
        name=bare if name is None else str(name),
        group="" if group is None else str(group),
        ranks=size if type(size) is int else None,
        bytes=max(moved) * width if moved and width else None,
        dtype=dtype if isinstance(dtype, str) else "",
        algorithm=algorithm_of(kernel),
        members=members_text(ranks) if whole else "",
    )
    return message, description if isinstance(description, str) else ""


def exchanges(found: Sequence[Collective], rank: int) -> list[CollectiveSummary]:
    """Those of one sort and size on a device together, in the order of the first of each."""
    alike: dict[tuple[str, Message], list[Collective]] = {}
    for each in found:
        alike.setdefault((each.device, each.message), []).append(each)
    summaries = []
    for (device, message), members in alike.items():
        times, hidden = [each.duration for each in members], [each.exposed for each in members]
        summaries.append(
            CollectiveSummary(
                device=device, rank=rank, **message._asdict(), number=len(times), time_ns=sum(times), least_ns=min(times),
                median_ns=median(times), exposed_ns=None if None in hidden else sum(filter(None, hidden)),
            )
        )  # fmt: skip
    return summaries


# -- all of it, as `Profile.extra` has it


def extra_of(trace: Trace, collectives: Sequence[Collective]) -> dict[str, list[dict[str, Any]]]:
    """What a profile has about its devices beside its rows, without what is empty."""
    exchanged = exchanges(collectives, trace.rank)
    parts: dict[str, Sequence[Any]] = {"copies": copies_of(trace), "collectives": exchanged, **memory_of(trace)}
    found = {name: [entry._asdict() for entry in entries] for name, entries in (device_uses(trace) | parts).items()}
    return {name: entries for name, entries in found.items() if entries or name == "devices"}
