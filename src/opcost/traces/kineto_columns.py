"""The events of a Kineto trace sorted into columns of numbers: what each thread did, and what each device did.

A large trace has millions of events, so no object is kept per event: arrays hold nanoseconds and numbers of names.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, NamedTuple

from opcost.traces.aten import USES_VALUES

if TYPE_CHECKING:
    from opcost.traces.kineto_event import Args, Event, Number

OPERATOR, ANNOTATION, RUNTIME, OVERHEAD, MODULE, DEVICE = range(6)
PROVIDERS = {OPERATOR: "cpu_op", ANNOTATION: "user_annotation", RUNTIME: "runtime", OVERHEAD: "overhead"}

CATEGORIES: dict[str | None, int] = {
    "cpu_op": OPERATOR, "Operator": OPERATOR, "hpu_op": OPERATOR,
    "user_annotation": ANNOTATION,
    "cuda_runtime": RUNTIME, "cuda_driver": RUNTIME, "Runtime": RUNTIME, "mtia_runtime": RUNTIME, "glow_runtime": RUNTIME,
    "xpu_runtime": RUNTIME, "xpu_driver": RUNTIME, "privateuse1_runtime": RUNTIME, "privateuse1_driver": RUNTIME,
    "hip_runtime": RUNTIME, "hip_driver": RUNTIME,
    "overhead": OVERHEAD,
    "python_function": MODULE,
    "kernel": DEVICE, "Kernel": DEVICE, "gpu_memcpy": DEVICE, "Memcpy": DEVICE, "gpu_memset": DEVICE, "Memset": DEVICE,
    "mtia_ccp_events": DEVICE, "concurrent_kernel": DEVICE, "privateuse1_kernel": DEVICE,
}  # fmt: skip
"""The categories of all vintages that are work; the others repeat these (gpu_user_annotation)."""

CALLS, LEAVES, MODULES = range(3)
"""What a thread's intervals are: operators and annotations, which hold others; runtime calls, which do not; modules."""
_LANES = {OPERATOR: CALLS, ANNOTATION: CALLS, RUNTIME: LEAVES, OVERHEAD: LEAVES, MODULE: MODULES}

MODULE_PREFIX = "nn.Module: "
STEP_PREFIX = "ProfilerStep#"
NONE = -1
LARGEST = 2**63


class Signature(NamedTuple):
    """What two executions must share to be the same: the operator, and its arguments as the trace spells them."""

    sort: int
    name: str
    dims: bytes = b""
    types: bytes = b""
    concrete: bytes = b""


@dataclass(slots=True)
class Lane:
    """Intervals of one sort on one thread, in the order of the file."""

    start: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("q"))
    signature: array[int] = field(default_factory=lambda: array("i"))
    link: array[int] = field(default_factory=lambda: array("q"))
    """The sequence number of an operator, the correlation of a launch."""
    external: array[int] = field(default_factory=lambda: array("q"))

    def sort(self) -> None:
        """Order by start, of two that start together the longer first; most profilers write them so."""
        start, duration = self.start, self.duration
        if all(map(lt, start, islice(start, 1, None))):
            return
        order = sorted(range(len(start)), key=lambda place: (start[place], -duration[place]))
        for name in ("start", "duration", "signature", "link", "external"):
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, [column[place] for place in order]))

    def extend(self, other: Lane) -> None:
        """Add the intervals of another lane behind the own ones."""
        for name in ("start", "duration", "signature", "link", "external"):
            getattr(self, name).extend(getattr(other, name))


@dataclass(slots=True)
class DeviceColumns:
    """Work on devices, in the order of the file."""

    start: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("q"))
    name: array[int] = field(default_factory=lambda: array("i"))
    queue: array[int] = field(default_factory=lambda: array("i"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    external: array[int] = field(default_factory=lambda: array("q"))


class _Numbers(dict[tuple[int, str, bytes, bytes, bytes], int]):
    """Each distinct signature and its number, given when it is first asked for."""

    def __init__(self, signatures: list[Signature]) -> None:
        self.signatures = signatures

    def __missing__(self, key: tuple[int, str, bytes, bytes, bytes]) -> int:
        number = self[key] = len(self.signatures)
        self.signatures.append(Signature(*key))
        return number


class Columns:
    """Everything that is kept of a trace."""

    def __init__(self) -> None:
        self.threads: dict[tuple[Number, Number], dict[int, Lane]] = {}
        """By process and thread, the lanes of CALLS, LEAVES and MODULES."""
        self.device = DeviceColumns()
        self.signatures: list[Signature] = []
        self.kernel_names: dict[str, int] = {}
        self.queues: dict[tuple[Number, Number], int] = {}
        """Device and stream."""
        self.steps: list[tuple[int, int, int]] = []
        """Start, end and number of each step that the profiler's schedule marked."""
        self.collectives: dict[int, tuple[str, str]] = {}
        """Of device events that are collectives: name and process group, by their place in the device columns."""
        self._numbers = _Numbers(self.signatures)

    def add(self, events: Iterable[Event]) -> None:
        """Sort a block of events in, first by thread and category, then column by column, which is quicker."""
        category_of = CATEGORIES.get
        buckets: dict[tuple[int, Number, Number], list[Event]] = {}
        bucket_of = buckets.get
        for event in events:
            if event.dur is None:
                continue
            sort = category_of(event.cat)
            if sort is None or (sort == MODULE and not (event.name or "").startswith(MODULE_PREFIX)):
                continue
            key = (sort, event.pid, event.tid)
            bucket = bucket_of(key)
            if bucket is None:
                buckets[key] = [event]
            else:
                bucket.append(event)
        for (sort, pid, tid), bucket in buckets.items():
            if sort == DEVICE:
                self._add_device(bucket)
                continue
            lane = self.threads.setdefault((pid, tid), {}).setdefault(_LANES[sort], Lane())
            if sort == OPERATOR:
                self._add_operators(lane, bucket)
            else:
                self._add_calls(lane, sort, bucket)
            lane.start.extend([round(event.ts * 1000) for event in bucket])
            lane.duration.extend([round(event.dur * 1000) for event in bucket])  # type: ignore[operator]

    def _add_operators(self, lane: Lane, bucket: list[Event]) -> None:
        from opcost.traces.kineto_event import NO_ARGS

        numbers = self._numbers
        pairs = [(event.name or "", event.args or NO_ARGS) for event in bucket]
        lane.signature.extend(
            [
                numbers[
                    OPERATOR,
                    name,
                    bytes(args.dims) or bytes(args.old_dims),
                    bytes(args.types),
                    bytes(args.concrete) if name in USES_VALUES else b"",
                ]
                for name, args in pairs
            ]
        )
        lane.link.extend([NONE if args.sequence is None else _sequence(args) for _, args in pairs])
        lane.external.extend([_small(args.external) for _, args in pairs])

    def _add_calls(self, lane: Lane, sort: int, bucket: list[Event]) -> None:
        numbers = self._numbers
        lane.signature.extend([numbers[sort, event.name or "", b"", b"", b""] for event in bucket])
        lane.external.extend([NONE] * len(bucket))
        if sort == RUNTIME:
            lane.link.extend([NONE if event.args is None else _small(event.args.correlation) for event in bucket])
            return
        lane.link.extend([NONE] * len(bucket))
        if sort == ANNOTATION:
            for event in bucket:
                name = event.name or ""
                if name.startswith(STEP_PREFIX) and name[len(STEP_PREFIX) :].isdecimal():
                    start = round(event.ts * 1000)
                    end = start + round((event.dur or 0) * 1000)
                    self.steps.append((start, end, int(name[len(STEP_PREFIX) :]) % LARGEST))

    def _add_device(self, bucket: list[Event]) -> None:
        from opcost.traces.kineto_event import NO_ARGS

        columns, names, queues = self.device, self.kernel_names, self.queues
        for event in bucket:
            args = event.args or NO_ARGS
            device = event.pid if args.device is None else args.device
            stream = event.tid if args.stream is None else args.stream
            if args.collective is not None:
                self.collectives[len(columns.start)] = args.collective, args.group_name or ""
            columns.start.append(round(event.ts * 1000))
            columns.duration.append(round((event.dur or 0) * 1000))
            columns.name.append(names.setdefault(event.name or "", len(names)))
            columns.queue.append(queues.setdefault((device, stream), len(queues)))
            columns.correlation.append(_small(args.correlation))
            columns.external.append(_small(args.external))


def _small(value: Number) -> int:
    """An identifier as a number that fits a column; one that is no number, or beyond 63 bits, ties nothing."""
    if type(value) is int:
        return value if 0 <= value < LARGEST else NONE
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < 19 else NONE
    return int(value) if value is not None and 0 <= value < LARGEST else NONE


def _sequence(args: Args) -> int:
    """The sequence number: as it is for a forward operator, below -1 for one that the backward pass ran for it."""
    sequence = _small(args.sequence)
    if sequence < 0:
        return NONE
    return -2 - sequence if args.forward_thread not in {None, 0, "0"} else sequence
