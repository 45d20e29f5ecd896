"""The events of a Kineto trace sorted into columns of numbers: what each thread did, and what each device did.

A large trace has millions of events, so no object is kept per event: arrays hold nanoseconds and numbers of names.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from math import floor
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from opcost.core.names import is_collective
from opcost.frontends.aten.known import known
from opcost.traces.kineto.categories import (
    ANNOTATION,
    BACKEND,
    DEVICE,
    IGNORED,
    MEMORY,
    MODULE,
    OPERATOR,
    OVERHEAD,
    PROVIDERS,
    RUNTIME,
    UNREAD,
)
from opcost.traces.kineto.lane import INTS, LONGS, NONE, Lane

if TYPE_CHECKING:
    from opcost.traces.kineto.event import Event, Number, OperatorArgs

CALLS, LEAVES, MODULES = range(3)
"""What a thread's intervals are: operators and annotations, which hold others; runtime calls, which do not; modules."""
_LANES = {OPERATOR: CALLS, ANNOTATION: CALLS, RUNTIME: LEAVES, OVERHEAD: LEAVES, MODULE: MODULES, BACKEND: LEAVES}

MODULE_PREFIX = "nn.Module: "
STEP_PREFIX = "ProfilerStep#"
SPEAKS = "record_param_comms"
"""The operator around the launch of a collective, which bears what is told of it."""
MESSAGE = ("collective", "group_name", "in_elements", "out_elements", "group_size", "element")
"""The fields of arguments that tell it."""
APART = b"\0"
"""No JSON text has this byte in it."""
LARGEST = 2**63
LATEST, LONGEST = 2**52, 2**42
"""Microseconds: 142 years are later than every clock, and thousands of 50 days are still below 64 bits of nanoseconds."""
HALVES_BELOW = 2**42
"""Microseconds; a thousand times that, a float still tells half a nanosecond."""


class Signature(NamedTuple):
    """What two executions must share to be the same: the operator, and its arguments as the trace spells them."""

    sort: int
    name: str
    dims: bytes = b""
    types: bytes = b""
    concrete: bytes = b""
    strides: bytes = b""


@dataclass(slots=True)
class DeviceColumns:
    """Work on devices, in the order of the file."""

    start: array[int] = field(default_factory=LONGS)
    duration: array[int] = field(default_factory=LONGS)
    name: array[int] = field(default_factory=INTS)
    queue: array[int] = field(default_factory=INTS)
    correlation: array[int] = field(default_factory=LONGS)
    external: array[int] = field(default_factory=LONGS)


@dataclass(slots=True)
class MemoryColumns:
    """What allocators gave and took back, in the order of the file; NONE is what an old trace does not tell."""

    time: array[int] = field(default_factory=LONGS)
    thread: array[int] = field(default_factory=INTS)
    place: array[int] = field(default_factory=INTS)
    """The number of the device."""
    address: array[int] = field(default_factory=LONGS)
    changed: array[int] = field(default_factory=LONGS)
    """Bytes, below zero where they were given back."""
    allocated: array[int] = field(default_factory=LONGS)
    reserved: array[int] = field(default_factory=LONGS)
    threads: dict[tuple[Number, Number], int] = field(default_factory=dict)
    devices: dict[tuple[Number, Number], int] = field(default_factory=dict)
    """By type and number, as the profiler writes them."""


class _Spelled(dict[str, Callable[[Any], tuple[bytes, ...]]]):
    """Of each operator, what of its arguments tells two calls of it apart; every event asks, a dictionary answers quickest."""

    def __missing__(self, name: str) -> Callable[[Any], tuple[bytes, ...]]:
        told = known(name)
        if name == SPEAKS:
            found = self[name] = attrgetter("dims", "old_dims", "types", *MESSAGE)
            return found
        values, strides = ("concrete",) * told.asks_values, ("strides",) * told.asks_strides
        found = self[name] = attrgetter("dims", "old_dims", "types", *values, *strides)
        return found


class _Numbers(dict[tuple[str, bytes], int]):
    """The distinct signatures of one sort and their numbers, given when they are first asked for.

    The key is the name and, with a zero byte between them, what `_Spelled` picks of the arguments.
    """

    def __init__(self, sort: int, signatures: list[Signature]) -> None:
        self.sort = sort
        self.signatures = signatures

    def __missing__(self, key: tuple[str, bytes]) -> int:
        number = self[key] = len(self.signatures)
        self.signatures.append(self._signature(*key))
        return number

    def _signature(self, name: str, spelled: bytes) -> Signature:
        if not spelled:
            return Signature(self.sort, name)
        told = known(name)
        dims, old_dims, types, *more = spelled.split(APART)
        if name == SPEAKS:
            return Signature(self.sort, name, dims or old_dims, types, APART.join(more))
        concrete = more.pop(0) if told.asks_values else b""
        return Signature(self.sort, name, dims or old_dims, types, concrete, more.pop() if told.asks_strides else b"")


class Columns:
    """Everything that is kept of a trace."""

    def __init__(self, *, owners: Sequence[int] = (OPERATOR,), providers: Mapping[int, str] = PROVIDERS) -> None:
        self.owners = owners
        """Sorts of calls that own what is launched in them."""
        self.providers = providers
        """What rows of each sort say they come from."""
        self.threads: dict[tuple[Number, Number], dict[int, Lane]] = {}
        """By process and thread, the lanes of CALLS, LEAVES and MODULES."""
        self.device = DeviceColumns()
        self.memory = MemoryColumns()
        self.signatures: list[Signature] = []
        self.kernel_names: dict[str, int] = {}
        self.queues: dict[tuple[Number, Number], int] = {}
        """Device and stream."""
        self.steps: list[tuple[int, int, int]] = []
        """Start, end and number of each step that the profiler's schedule marked."""
        self.collectives: dict[int, int] = {}
        """Of device events that are collectives: the number of what is told of them, by their place in the device columns."""
        self.messages: dict[tuple[bytes, ...], int] = {}
        """What is told of collectives, as the trace spells it, and its number."""
        self.launches: dict[bytes, int] = {}
        """What calls of the runtime say that they launch, as the trace spells it, and its number."""
        self.moved: dict[tuple[int, int], int] = {}
        """Bytes that copies of one queue and name moved, where the trace tells."""
        self.negative = 0
        """Events with a duration below zero, which counts as none."""
        self.untimed = 0
        """Events without a beginning or a duration, which are left out."""
        self.unread = 0
        """Work on a device without a category, which is left out."""
        self.beyond = 0
        """Events with times that no column holds, which are left out."""
        self._spelled = _Spelled()
        self._spoken = attrgetter(*MESSAGE)
        self._numbers = {sort: _Numbers(sort, self.signatures) for sort in _LANES}

    def add(self, events: Iterable[Event]) -> None:
        """Sort a block of events in, first by sort and thread, then column by column, which is quicker."""
        sorts: dict[int, list[Event]] = {}
        unread = 0
        for sort, run in groupby(events, _SORT):
            if sort in sorts:
                sorts[sort] += run
            elif sort == UNREAD:
                unread += len(list(run))
            elif sort != IGNORED:
                sorts[sort] = list(run)
        if BACKEND in sorts:
            work = [event for event in sorts[BACKEND] if event.args is not None and event.args.stream is not None]
            sorts[BACKEND] = [event for event in sorts[BACKEND] if event.args is None or event.args.stream is None]
            sorts[DEVICE] = sorts.get(DEVICE, []) + work
        memory = self._instants(sorts.pop(MEMORY, []))
        # All times first: they may be beyond what a column holds, and then nothing of this block is kept.
        timed = [
            (sort, thread, self._timed(bucket))
            for sort, found in sorts.items()
            for thread, bucket in (
                _threads(_modules(found) if sort == MODULE else found) if sort != DEVICE else [(None, found)]
            )
        ]
        self.unread += unread
        self._add_memory(*memory)
        for sort, thread, columns in timed:
            if thread is None:
                self._add_device(*columns)
                continue
            lane = self.threads.setdefault(thread, {}).setdefault(_LANES[sort], Lane())
            if sort == OPERATOR:
                self._add_operators(lane, *columns)
            else:
                self._add_calls(lane, sort, *columns)

    def move_device_work(self) -> None:
        """Take work of third-party backends off threads of processes that run no operator: those are their devices."""
        backend = {number for number, signature in enumerate(self.signatures) if signature.sort == BACKEND}
        hosts = {pid for (pid, _), lanes in self.threads.items() if CALLS in lanes}
        for (pid, tid), lanes in [*self.threads.items()] if backend and hosts else ():
            lane = lanes.get(LEAVES)
            if pid in hosts or lane is None or not backend.issuperset(lane.signature):
                continue
            del lanes[LEAVES]
            work, names = self.device, self.kernel_names
            called = [self.signatures[signature].name for signature in lane.signature]
            queue = self.queues.setdefault((pid, tid), len(self.queues))
            work.name.extend([names.setdefault(name, len(names)) for name in called])
            work.queue.extend([queue] * len(called))
            work.correlation.extend(lane.link)
            work.external.extend(lane.external)
            work.start.extend(lane.start)
            work.duration.extend(lane.duration)

    @property
    def empty(self) -> bool:
        """Whether nothing was kept."""
        lanes = (lane for found in self.threads.values() for lane in found.values())
        return not self.device.start and not any(lane.start for lane in lanes)

    @property
    def library_kernels(self) -> set[int]:
        """The numbers of kernels that bear the name of a library of collectives."""
        return {number for name, number in self.kernel_names.items() if is_collective(name)}

    def fits(self, event: Event) -> bool:
        """Whether the times of an event are such as columns hold; those that are not are counted."""
        if event.sort == IGNORED or event.ts is None or (event.sort != MEMORY and event.dur is None):
            return True
        try:
            _nanoseconds([event.ts], LATEST)
            _nanoseconds([0 if event.sort == MEMORY else event.dur], LONGEST)
        except OverflowError:
            self.beyond += 1
            return False
        return True

    def _instants(self, events: list[Event]) -> tuple[list[Event], array[int]]:
        """The changes of memory among events that have no duration, and when they were."""
        found = [
            event for event in events if event.name == "[memory]" and event.ts is not None and event.args is not None
        ]
        return found, _nanoseconds([event.ts for event in found], LATEST)

    def _add_memory(self, bucket: list[Event], times: array[int]) -> None:
        if not bucket:
            return
        memory = self.memory
        told = [_CHANGE(event.args) for event in bucket]
        address, changed, allocated, reserved, kinds, numbers = zip(*told, strict=True)
        memory.time.extend(times)
        memory.thread.extend(_numbered(list(map(_THREAD, bucket)), memory.threads))
        memory.place.extend(_numbered(list(zip(kinds, numbers, strict=True)), memory.devices))
        memory.address.extend(_identifiers(address))
        memory.changed.extend(_signed(changed))
        memory.allocated.extend(_identifiers(allocated))
        memory.reserved.extend(_identifiers(reserved))

    def _timed(self, events: list[Event]) -> tuple[list[Event], array[int], array[int]]:
        """The events that have a beginning and a duration, and both in nanoseconds."""
        spent = [event.dur for event in events]
        try:
            starts = _nanoseconds([event.ts for event in events], LATEST)
            durations = _nanoseconds(spent, LONGEST)
        except TypeError:  # None is neither smaller nor larger than a time
            complete = [event for event in events if event.ts is not None and event.dur is not None]
            self.untimed += len(events) - len(complete)
            return self._timed(complete)
        if min(spent, default=0) < 0:  # type: ignore[type-var, operator]
            self.negative += sum(duration < 0 for duration in durations)
            durations = array("q", [max(duration, 0) for duration in durations])
        return events, starts, durations

    def _add_operators(self, lane: Lane, bucket: list[Event], starts: array[int], durations: array[int]) -> None:
        from opcost.traces.kineto.event import NO_ARGS

        numbers, spelled, join = self._numbers[OPERATOR], self._spelled, APART.join
        arguments: list[OperatorArgs] = [event.args or NO_ARGS for event in bucket]
        names = [event.name or "" for event in bucket]
        found = [numbers[name, join(spelled[name](args))] for name, args in zip(names, arguments, strict=True)]
        sequences = _identifiers([args.sequence for args in arguments])
        lane.start.extend(starts)
        lane.duration.extend(durations)
        lane.signature.extend(array("i", found))
        lane.link.extend(sequences)
        lane.backward.extend(_backward(sequences, arguments))
        lane.external.extend(_identifiers([args.external for args in arguments]))

    def _add_calls(self, lane: Lane, sort: int, bucket: list[Event], starts: array[int], durations: array[int]) -> None:
        numbers = self._numbers[sort]
        lane.start.extend(starts)
        lane.duration.extend(durations)
        lane.signature.extend(array("i", [numbers[event.name or "", b""] for event in bucket]))
        nothing = array("q", [NONE]) * len(bucket)
        lane.external.extend(self._launched(bucket) if sort == RUNTIME else nothing)
        lane.backward.extend(array("b", bytes(len(bucket))))
        if sort in (RUNTIME, BACKEND):
            lane.link.extend(_identifiers([NONE if event.args is None else event.args.correlation for event in bucket]))
        else:
            lane.link.extend(nothing)
        if sort == ANNOTATION:
            self._add_steps(bucket, starts, durations)

    def _launched(self, bucket: list[Event]) -> array[int]:
        """Of calls of the runtime, the number of the kernel that they launch, where it is told."""
        from opcost.traces.kineto.event import NOTHING

        known = self.launches
        kernels = [NOTHING if event.args is None else event.args.kernel for event in bucket]
        return array("q", [NONE if each is NOTHING else known.setdefault(bytes(each), len(known)) for each in kernels])

    @property
    def launched_kernels(self) -> list[str]:
        """The names of kernels that calls of the runtime tell, by their numbers."""
        return [text if isinstance(text := _decoded(name), str) else "" for name in self.launches]

    def _add_steps(self, bucket: list[Event], starts: array[int], durations: array[int]) -> None:
        for event, start, duration in zip(bucket, starts, durations, strict=True):
            number = (event.name or "").removeprefix(STEP_PREFIX)
            if number != event.name and number.isdecimal() and len(number) < 20:
                self.steps.append((start, start + duration, int(number) % LARGEST))

    def _add_device(self, bucket: list[Event], starts: array[int], durations: array[int]) -> None:
        from opcost.traces.kineto.event import NO_ARGS, NOTHING

        columns, names, queues = self.device, self.kernel_names, self.queues
        arguments = [event.args or NO_ARGS for event in bucket]
        columns.name.extend([names.setdefault(event.name or "", len(names)) for event in bucket])
        for place, (event, args) in enumerate(zip(bucket, arguments, strict=True), len(columns.start)):
            device = event.pid if args.device is None else args.device
            stream = event.tid if args.stream is None else args.stream
            queue = queues.setdefault((device, stream), len(queues))
            columns.queue.append(queue)
            if args.collective is not NOTHING:
                message = tuple(map(bytes, self._spoken(args)))
                self.collectives[place] = self.messages.setdefault(message, len(self.messages))
            if args.bytes is not None:
                key = queue, columns.name[place]
                self.moved[key] = self.moved.get(key, 0) + max(_small(args.bytes), 0)
        columns.correlation.extend(_identifiers([args.correlation for args in arguments]))
        columns.external.extend(_identifiers([args.external for args in arguments]))
        columns.start.extend(starts)
        columns.duration.extend(durations)


_NO_THREAD = frozenset({None, 0, "0"})
_SORT = attrgetter("sort")
_THREAD = attrgetter("pid", "tid")
_CHANGE = attrgetter("address", "changed", "allocated", "reserved", "device_type", "device_id")


def _modules(events: list[Event]) -> list[Event]:
    """Of the calls of Python functions those that are modules, a few of very many."""
    letter = MODULE_PREFIX[0]
    return [event for event in events if (name := event.name) and name[0] == letter and name.startswith(MODULE_PREFIX)]


def _threads(events: list[Event]) -> Iterable[tuple[tuple[Number, Number], list[Event]]]:
    """The events of each process and thread, in their order."""
    pids, tids = [event.pid for event in events], [event.tid for event in events]
    if events and pids.count(pids[0]) == tids.count(tids[0]) == len(events):
        return [((pids[0], tids[0]), events)]
    found: dict[tuple[Number, Number], list[Event]] = {}
    for key, run in groupby(events, _THREAD):
        if key in found:
            found[key] += run
        else:
            found[key] = list(run)
    return found.items()


def _nanoseconds(microseconds: Sequence[float | Decimal | None], limit: int) -> array[int]:
    """Floats, integers or decimals, each to the nearest nanosecond; the quick way needs a bit for the half."""
    times: list[Any] = list(microseconds)
    if not times:
        return array("q")
    is_exact = type(times[0]) is Decimal
    if is_exact and not all(time is None or time.is_finite() for time in times):
        raise OverflowError("a time that is no number is none")
    most = max(times)
    if most > limit or min(times) < -limit:
        raise OverflowError("such times, or sums of them, do not fit into 64 bits of nanoseconds")
    if most < HALVES_BELOW and not is_exact:
        return array("q", [floor(time * 1e3 + 0.5) for time in times])
    return array("q", [round(time * 1000) for time in times])


def _decoded(spelled: bytes) -> object:
    try:
        return json.loads(spelled)
    except ValueError:
        return None


def _identifiers(values: Sequence[Number]) -> array[int]:
    """Identifiers as a column; one that is no number, or beyond 63 bits, ties nothing, as one that is below zero."""
    try:
        return array("q", values)  # type: ignore[arg-type]  # that they are numbers is what is tried
    except (TypeError, OverflowError):
        return array("q", map(_small, values))


def _numbered(keys: list[tuple[Number, Number]], known: dict[tuple[Number, Number], int]) -> list[int]:
    """The number of each of these, given when it is first met; mostly all are the same."""
    if keys.count(keys[0]) == len(keys):
        return [known.setdefault(keys[0], len(known))] * len(keys)
    return [known.setdefault(key, len(known)) for key in keys]


def _signed(values: Sequence[Number]) -> array[int]:
    """Differences as a column; one that is no number, or beyond 63 bits, is none."""
    try:
        return array("q", values)  # type: ignore[arg-type]  # that they are numbers is what is tried
    except (TypeError, OverflowError):
        return array("q", [value if type(value) is int and -LARGEST <= value < LARGEST else 0 for value in values])


def _small(value: Number) -> int:
    if type(value) is int:
        return value if 0 <= value < LARGEST else NONE
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < 19 else NONE
    return int(value) if value is not None and 0 <= value < LARGEST else NONE


def _backward(sequences: array[int], arguments: list[OperatorArgs]) -> array[int]:
    """Of each operator, whether the backward pass ran it: it has a sequence number and names the thread of its forward."""
    if max(sequences, default=NONE) < 0:
        return array("b", bytes(len(sequences)))
    threads = [args.forward_thread for args in arguments]
    pairs = zip(sequences, threads, strict=True)
    return array("b", [sequence >= 0 and thread not in _NO_THREAD for sequence, thread in pairs])
