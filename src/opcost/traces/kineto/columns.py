"""The events of a Kineto trace as columns of numbers: what each thread did, what each device did, and changes of memory.

A large trace has millions of events, so no object is kept per event: arrays have nanoseconds and numbers of names. `Columns.add`
sorts a block of events in, first by kind of event and thread, then column by column, which is quickest.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache, partial
from itertools import compress, groupby, islice
from math import floor, isnan, nan
from operator import attrgetter, itemgetter, lt, not_
from typing import Any, NamedTuple, TypeVar

from opcost.core.names import is_collective, step_number
from opcost.core.profile import weighted_mean
from opcost.frontends.aten.results import known
from opcost.traces.kineto.decoding import (
    ANNOTATION,
    BACKEND,
    CATEGORIES,
    DEVICE,
    MEMORY,
    MODULE,
    NO_ARGS,
    NOTHING,
    OPERATOR,
    OVERHEAD,
    PROVIDERS,
    RUNTIME,
    Args,
    Event,
    Number,
)

LONGS, INTS, BYTES = partial(array, "q"), partial(array, "i"), partial(array, "b")  # Empty columns of 64, 32 and 8 bits
AMOUNTS: partial[array[float]] = partial(array, "d")  # not a number where there is none
NONE = -1  # in a column: no value. Numbers of rows and identifiers of a trace are never below zero

CALLS, LEAVES, MODULES = range(3)
"""What a thread's intervals are: operators and annotations, which hold others; runtime calls, which do not; modules."""
_LANES = {OPERATOR: CALLS, ANNOTATION: CALLS, RUNTIME: LEAVES, OVERHEAD: LEAVES, MODULE: MODULES, BACKEND: LEAVES}

MODULE_PREFIX = "nn.Module: "
COLLECTIVE_OPERATOR = "record_param_comms"
"""The operator around the launch of a collective, whose arguments describe it."""
GLOO = "gloo:"  # begins the annotation of a collective that runs on the host
COLLECTIVE_FIELDS = (
    "collective", "group_name", "in_elements", "out_elements", "group_size", "element", "group_description", "group_ranks",
)  # fmt: skip
"""The fields of arguments that describe a collective."""
K = TypeVar("K")
APART = b"\0"  # between the parts of a signature; no JSON text has this byte in it
LARGEST = 2**63
LATEST, LONGEST = 2**52, 2**42
"""Microseconds: 142 years are later than every clock, and thousands of 50 days are still below 64 bits of nanoseconds."""
HALVES_BELOW = 2**42  # microseconds; a thousand times that, a float still has half a nanosecond


class Numbers(dict[K, int]):
    """The numbers of distinct things, in the order in which they are first met."""

    def __missing__(self, key: K) -> int:
        self[key] = number = len(self)
        return number


@dataclass(slots=True)
class Lane:
    """The intervals of one kind on one thread, in the order of the file, or sorted."""

    start: array[int] = field(default_factory=LONGS)
    duration: array[int] = field(default_factory=LONGS)
    signature: array[int] = field(default_factory=INTS)
    link: array[int] = field(default_factory=LONGS)  # the sequence number of an operator, the correlation of a launch
    backward: array[int] = field(default_factory=BYTES)
    """Whether the backward pass ran this operator, for the forward one with the same sequence number."""
    external: array[int] = field(default_factory=LONGS)
    """`External id` of an operator; of a runtime call, the number of the kernel that it launches."""

    def sort(self) -> None:
        """Order by start, of two that start together the longer first; most profilers write them so."""
        start, duration = self.start, self.duration
        if _increases(start):
            return
        order = sorted(range(len(start)), key=start.__getitem__)
        if not _increases([start[place] for place in order]):
            order.sort(key=lambda place: (start[place], -duration[place]))
        pick = itemgetter(*order)
        for name in self.__slots__:
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, pick(column)))

    def extend(self, other: Lane) -> None:
        """Add the intervals of another lane behind the own ones."""
        for name in self.__slots__:
            getattr(self, name).extend(getattr(other, name))


def _increases(times: Sequence[int]) -> bool:
    return all(map(lt, times, islice(times, 1, None)))


class TracedSignature(NamedTuple):
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
    occupancy: array[float] = field(default_factory=AMOUNTS)  # in percent
    blocks_per_sm: array[float] = field(default_factory=AMOUNTS)

    def fill(self, places: Sequence[int]) -> tuple[float | None, float | None]:
        """How far kernels filled the device, means over their time: occupancy, and blocks for each multiprocessor."""
        occupancy, blocks = (self._mean(column, places) for column in (self.occupancy, self.blocks_per_sm))
        return None if occupancy is None else occupancy / 100, blocks

    def _mean(self, column: array[float], places: Sequence[int]) -> float | None:
        return weighted_mean((column[place], self.duration[place]) for place in places if not isnan(column[place]))


@dataclass(slots=True)
class MemoryColumns:
    """Allocations and frees, in the order of the file; NONE is what an old trace does not have."""

    time: array[int] = field(default_factory=LONGS)
    thread: array[int] = field(default_factory=INTS)
    place: array[int] = field(default_factory=INTS)  # the number of the device
    address: array[int] = field(default_factory=LONGS)
    changed: array[int] = field(default_factory=LONGS)  # bytes, below zero where they were freed
    allocated: array[int] = field(default_factory=LONGS)
    reserved: array[int] = field(default_factory=LONGS)
    threads: Numbers[tuple[Number, Number]] = field(default_factory=Numbers)
    devices: Numbers[tuple[Number, Number]] = field(default_factory=Numbers)
    """By type and number, as the profiler writes them."""


@cache
def _picker(name: str) -> Callable[[Any], tuple[bytes, ...]]:
    """What picks those of an operator's arguments that distinguish two calls of it."""
    needs = known(name)
    more: tuple[str, ...] = ("concrete",) * needs.asks_values + ("strides",) * needs.asks_strides
    return attrgetter("dims", "old_dims", "types", *(COLLECTIVE_FIELDS if name == COLLECTIVE_OPERATOR else more))


class _SignatureNumbers(dict[tuple[str, bytes], int]):
    """The distinct signatures of one kind and their numbers, given when they are first met.

    The key is the name and, joined by APART, what `_picker` picks of the arguments.
    """

    def __init__(self, sort: int, signatures: list[TracedSignature]) -> None:
        self.sort = sort
        self.signatures = signatures

    def __missing__(self, key: tuple[str, bytes]) -> int:
        number = self[key] = len(self.signatures)
        name, spelled = key
        signature = TracedSignature(self.sort, name)
        if spelled:
            needs = known(name)
            dims, old_dims, types, *more = spelled.split(APART)
            if name == COLLECTIVE_OPERATOR:
                more = [APART.join(more), b""]
            else:
                more = [more[0] if needs.asks_values else b"", more[-1] if needs.asks_strides else b""]
            signature = TracedSignature(self.sort, name, dims or old_dims, types, *more)
        self.signatures.append(signature)
        return number


class Columns:
    """Everything that is kept of a trace."""

    def __init__(
        self, *, owners: Sequence[int] = (OPERATOR,), providers: Mapping[int, str] = PROVIDERS, memory: bool = False
    ) -> None:
        self.sorts = {category: sort for category, sort in CATEGORIES.items() if memory or sort != MEMORY}
        self.owners = owners  # kinds of events that own the device work launched in them
        self.providers = providers  # the provider that rows of each kind name
        self.threads: dict[tuple[Number, Number], dict[int, Lane]] = {}
        """By process and thread, the lanes of CALLS, LEAVES and MODULES."""
        self.device = DeviceColumns()
        self.memory = MemoryColumns()
        self.signatures: list[TracedSignature] = []
        self.kernel_names = Numbers[str]()
        self.queues = Numbers[tuple[Number, Number]]()  # device and stream
        self.steps: list[tuple[int, int, int]] = []
        """Start, end and number of each step that the profiler's schedule marked."""
        self.collectives: dict[int, int] = {}
        """By place in the device columns, the number of a collective's description."""
        self.messages = Numbers[tuple[bytes, ...]]()
        """The descriptions of collectives, as the trace spells them, and their numbers."""
        self.launches = Numbers[bytes]()
        """The kernels that runtime calls name, as the trace spells them, and their numbers."""
        self.moved: dict[tuple[int, int], int] = {}
        """Bytes that copies of one queue and name moved, where the trace has them."""
        self.negative = 0  # events with a duration below zero, which counts as none
        self.untimed = 0  # events without a beginning or a duration, which are left out
        self.unread = 0  # work on a device without a category, which is left out
        self.beyond = 0  # events with times that no column can have, which are left out
        self._describe = attrgetter(*COLLECTIVE_FIELDS)
        self._numbers = {sort: _SignatureNumbers(sort, self.signatures) for sort in _LANES}

    def add(self, events: Iterable[Event]) -> None:
        """Sort a block of events in."""
        sorts: dict[int, list[Event]] = {}
        sort_of = self.sorts.get
        for category, run in groupby(events, _CATEGORY):
            if (sort := sort_of(category)) is not None:
                sorts.setdefault(sort, []).extend(run)
            elif category is None:
                self.unread += sum(event.args is not None and event.args.task is not NOTHING for event in run)
        if BACKEND in sorts:
            on_device = [event.args is not None and event.args.stream is not None for event in sorts[BACKEND]]
            sorts.setdefault(DEVICE, []).extend(compress(sorts[BACKEND], on_device))
            sorts[BACKEND] = [*compress(sorts[BACKEND], map(not_, on_device))]
        changes = [e for e in sorts.pop(MEMORY, []) if e.name == "[memory]" and e.args and e.ts is not None]
        for change in changes:
            change.dur = 0
        self._add_memory(*self._timed(changes))
        self._add_device(*self._timed(sorts.pop(DEVICE, [])))
        if MODULE in sorts:  # of the calls of Python functions those that are modules, a few of very many
            sorts[MODULE] = [event for event in sorts[MODULE] if event.name and event.name.startswith(MODULE_PREFIX)]
        for sort, found in sorts.items():
            threads: dict[tuple[Number, Number], list[Event]] = {}
            for thread, run in groupby(found, _THREAD):
                threads.setdefault(thread, []).extend(run)
            for thread, bucket in threads.items():
                lane = self.threads.setdefault(thread, {}).setdefault(_LANES[sort], Lane())
                self._add_calls(lane, sort, *self._timed(bucket))

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
            work.name.extend([names[name] for name in called])
            work.queue.extend([self.queues[pid, tid]] * len(called))
            work.correlation.extend(lane.link)
            work.external.extend(lane.external)
            work.start.extend(lane.start)
            work.duration.extend(lane.duration)
            for column in (work.occupancy, work.blocks_per_sm):
                column.extend([nan] * len(called))

    @property
    def empty(self) -> bool:
        """Whether nothing was kept."""
        lanes = (lane for found in self.threads.values() for lane in found.values())
        return not self.device.start and not any(lane.start for lane in lanes)

    @property
    def library_kernels(self) -> set[int]:
        """The numbers of kernels that have the name of a library of collectives."""
        return {number for name, number in self.kernel_names.items() if is_collective(name)}

    @property
    def launched_kernels(self) -> list[str]:
        """The names of kernels that runtime calls launch, by their numbers."""
        return [text if isinstance(text := decoded(name), str) else "" for name in self.launches]

    def _add_memory(self, bucket: list[Event], times: array[int], _: object) -> None:
        if not bucket:
            return
        memory = self.memory
        changes = zip(*(_CHANGE(event.args) for event in bucket), strict=True)
        address, changed, allocated, reserved, kinds, numbers = changes
        memory.time.extend(times)
        memory.thread.extend(map(memory.threads.__getitem__, map(_THREAD, bucket)))
        memory.place.extend(map(memory.devices.__getitem__, zip(kinds, numbers, strict=True)))
        # A difference; what is no number, or beyond 63 bits, is none
        memory.changed.extend([each if type(each) is int and -LARGEST <= each < LARGEST else 0 for each in changed])
        for column, values in ((memory.address, address), (memory.allocated, allocated), (memory.reserved, reserved)):
            column.extend(_identifiers(values))

    def _timed(self, events: list[Event]) -> tuple[list[Event], array[int], array[int]]:
        """The events that have a beginning and a duration which columns can have, and both in nanoseconds."""
        spent = [event.dur for event in events]
        try:
            starts = _nanoseconds([event.ts for event in events], LATEST)
            durations = _nanoseconds(spent, LONGEST)
        except (TypeError, OverflowError):  # None is neither smaller nor larger than a time
            return self._timed([event for event in events if self._has_times(event)])
        if min(spent, default=0) < 0:  # type: ignore[type-var, operator]
            self.negative += sum(duration < 0 for duration in durations)
            durations = array("q", [max(duration, 0) for duration in durations])
        return events, starts, durations

    def _has_times(self, event: Event) -> bool:
        """Whether columns can have the times of an event; those that they cannot are counted."""
        if event.ts is None or event.dur is None:
            self.untimed += 1
            return False
        try:
            _nanoseconds([event.ts], LATEST)
            _nanoseconds([event.dur], LONGEST)
        except OverflowError:
            self.beyond += 1
            return False
        return True

    def _add_calls(self, lane: Lane, sort: int, bucket: list[Event], starts: array[int], durations: array[int]) -> None:
        numbers, count = self._numbers[sort], len(bucket)
        nothing = array("q", [NONE]) * count
        names = [event.name or "" for event in bucket]
        link, external, backward = nothing, nothing, array("b", bytes(count))
        if sort == OPERATOR:
            arguments: list[Args] = [event.args or NO_ARGS for event in bucket]
            join = APART.join
            found = [numbers[name, join(_picker(name)(args))] for name, args in zip(names, arguments, strict=True)]
            link = _identifiers([args.sequence for args in arguments])
            if max(link, default=NONE) >= 0:
                # What the backward pass ran has a sequence number and names the thread of its forward.
                threads = [args.forward_thread for args in arguments]
                pairs = zip(link, threads, strict=True)
                backward = array("b", [number >= 0 and thread not in _NO_THREAD for number, thread in pairs])
            external = _identifiers([args.external for args in arguments])
        else:
            found = [numbers[name, b""] for name in names]
        if sort == ANNOTATION:  # those of collectives on the host have their tensors
            for place, (name, event) in enumerate(zip(names, bucket, strict=True)):
                if name.startswith(GLOO) and event.args is not None:
                    found[place] = numbers[name, APART.join(_picker(name)(event.args))]
        if sort == RUNTIME:
            # The number of the kernel that a call launches, where the trace names it
            kernels = [NOTHING if event.args is None else event.args.kernel for event in bucket]
            launched = [each if each is NOTHING else bytes(each) for each in kernels]
            external = array("q", [NONE if each is NOTHING else self.launches[each] for each in launched])
        if sort in (RUNTIME, BACKEND):
            link = _identifiers([NONE if event.args is None else event.args.correlation for event in bucket])
        for name, column in (
            ("start", starts), ("duration", durations), ("signature", array("i", found)), ("link", link),
            ("backward", backward), ("external", external),
        ):  # fmt: skip
            getattr(lane, name).extend(column)
        for name, start, duration in zip(names, starts, durations, strict=True) if sort == ANNOTATION else ():
            if (number := step_number(name)) is not None:
                self.steps.append((start, start + duration, number % LARGEST))

    def _add_device(self, bucket: list[Event], starts: array[int], durations: array[int]) -> None:
        columns, names, queues = self.device, self.kernel_names, self.queues
        arguments = [event.args or NO_ARGS for event in bucket]
        columns.name.extend([names[event.name or ""] for event in bucket])
        for place, (event, args) in enumerate(zip(bucket, arguments, strict=True), len(columns.start)):
            device = event.pid if args.device is None else args.device
            stream = event.tid if args.stream is None else args.stream
            queue = queues[device, stream]
            columns.queue.append(queue)
            if args.collective is not NOTHING:
                message = tuple(map(bytes, self._describe(args)))
                self.collectives[place] = self.messages[message]
            if args.bytes is not None:
                key = queue, columns.name[place]
                self.moved[key] = self.moved.get(key, 0) + max(_identifier(args.bytes), 0)
        columns.correlation.extend(_identifiers([args.correlation for args in arguments]))
        columns.external.extend(_identifiers([args.external for args in arguments]))
        columns.occupancy.extend([_amount(args.occupancy) for args in arguments])
        columns.blocks_per_sm.extend([_amount(args.blocks_per_sm) for args in arguments])
        columns.start.extend(starts)
        columns.duration.extend(durations)


_NO_THREAD = frozenset({None, 0, "0"})
_CATEGORY = attrgetter("cat")
_THREAD = attrgetter("pid", "tid")
_CHANGE = attrgetter("address", "changed", "allocated", "reserved", "device_type", "device_id")


def _nanoseconds(times: list[Any], limit: int) -> array[int]:
    """Floats, integers or decimals, each to the nearest nanosecond; the quick path needs a bit for the half."""
    if not times:
        return array("q")
    is_exact = type(times[0]) is Decimal
    if is_exact and not all(time is None or time.is_finite() for time in times):
        raise OverflowError("a time is not a number")
    most = max(times)
    if most > limit or min(times) < -limit:
        raise OverflowError("such times, or sums of them, do not fit into 64 bits of nanoseconds")
    if most < HALVES_BELOW and not is_exact:
        return array("q", [floor(time * 1e3 + 0.5) for time in times])
    return array("q", [round(time * 1000) for time in times])


def decoded(spelled: bytes) -> Any:
    """The JSON value of a field as the trace spells it; None where it is empty or damaged."""
    try:
        return json.loads(spelled) if spelled else None
    except ValueError:  # also a number of thousands of digits
        return None


def _amount(value: Number) -> float:
    """What is above zero: the profiler writes an occupancy of 0 where it cannot tell that of a kernel, which ran."""
    return nan if value is None or isinstance(value, str) or not 0 < value < LARGEST else float(value)


def _identifier(value: Number) -> int:
    """An identifier; what is no number, or beyond 63 bits, links nothing, as one that is below zero."""
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < 19 else NONE
    return int(value) if value is not None and 0 <= value < LARGEST else NONE


def _identifiers(values: Sequence[Number]) -> array[int]:
    """A column of identifiers; mostly all are plain numbers already."""
    try:
        return array("q", values)  # type: ignore[arg-type]  # that they are numbers is what is tried
    except (TypeError, OverflowError):
        return array("q", map(_identifier, values))
