"""The events of a Kineto trace sorted into columns of numbers: what each thread did, and what each device did.

A large trace has millions of events, so no object is kept per event: arrays hold nanoseconds and numbers of names.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from opcost.traces.aten import USES_VALUES

if TYPE_CHECKING:
    from opcost.traces.kineto_event import Args, Event, Number

PYTHON, ANNOTATION, OPERATOR, RUNTIME, DEVICE, SKIP = range(6)  # of two that begin and end together, the outer first
PROVIDERS = {OPERATOR: "cpu_op", ANNOTATION: "user_annotation", RUNTIME: "runtime"}

CATEGORIES: dict[str, int] = {
    "cpu_op": OPERATOR, "Operator": OPERATOR, "hpu_op": OPERATOR,
    "user_annotation": ANNOTATION,
    "cuda_runtime": RUNTIME, "cuda_driver": RUNTIME, "Runtime": RUNTIME, "mtia_runtime": RUNTIME, "glow_runtime": RUNTIME,
    "xpu_runtime": RUNTIME, "xpu_driver": RUNTIME, "privateuse1_runtime": RUNTIME, "privateuse1_driver": RUNTIME,
    "hip_runtime": RUNTIME, "hip_driver": RUNTIME,
    "python_function": PYTHON,
    "kernel": DEVICE, "Kernel": DEVICE, "gpu_memcpy": DEVICE, "Memcpy": DEVICE, "gpu_memset": DEVICE, "Memset": DEVICE,
    "mtia_ccp_events": DEVICE, "concurrent_kernel": DEVICE, "privateuse1_kernel": DEVICE,
}  # fmt: skip
"""The categories of all vintages that are work; the others repeat something (gpu_user_annotation), or measure Kineto."""

MODULE = "nn.Module: "
NONE = -1


class Signature(NamedTuple):
    """What two executions must share to be the same: the operator, and its arguments as the trace spells them."""

    sort: int
    name: str
    dims: bytes
    types: bytes
    concrete: bytes


@dataclass(slots=True)
class Lane:
    """Intervals of one sort on one thread. `link` is the sequence number of operators, the correlation of launches."""

    sort: int
    start: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("q"))
    signature: array[int] = field(default_factory=lambda: array("i"))
    link: array[int] = field(default_factory=lambda: array("q"))
    external: array[int] = field(default_factory=lambda: array("q"))
    ordered: bool = True


@dataclass(slots=True)
class DeviceColumns:
    """Work on devices, in the order of the file."""

    start: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("q"))
    name: array[int] = field(default_factory=lambda: array("i"))
    queue: array[int] = field(default_factory=lambda: array("i"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    external: array[int] = field(default_factory=lambda: array("q"))


class Columns:
    """Everything that is kept of a trace."""

    def __init__(self) -> None:
        self.threads: dict[tuple[Number, Number], dict[int, Lane]] = {}
        self.device = DeviceColumns()
        self.signatures: dict[Signature, int] = {}
        self.kernel_names: dict[str, int] = {}
        self.queues: dict[tuple[str, str], int] = {}
        """Device and stream."""
        self.steps: list[tuple[int, int, int]] = []
        """Start, end and number of each step that the profiler's schedule marked."""
        self.collectives: dict[int, tuple[str, str]] = {}
        """Of device events that are collectives: name and process group, by their place in the device columns."""
        self.modules = False
        self._lanes: dict[tuple[Number, Number, int], Lane] = {}

    def add(self, events: Iterable[Event]) -> None:
        """Sort a block of events in."""
        categories = CATEGORIES
        lanes = self._lanes
        signatures = self.signatures
        for event in events:
            if event.dur is None:
                continue
            sort = categories.get(event.cat, SKIP)  # type: ignore[arg-type]
            if sort == SKIP:
                continue
            start = round(event.ts * 1000)
            duration = round(event.dur * 1000)
            if sort == DEVICE:
                self._add_device(event, start, duration)
                continue
            name = event.name or ""
            lane = lanes.get((event.pid, event.tid, sort))
            if lane is None:
                lane = lanes[event.pid, event.tid, sort] = Lane(sort)
                self.threads.setdefault((event.pid, event.tid), {})[sort] = lane
            if lane.ordered and lane.start and start <= lane.start[-1]:
                lane.ordered = start == lane.start[-1] and duration <= lane.duration[-1]
            lane.start.append(start)
            lane.duration.append(duration)
            args = event.args
            if sort == OPERATOR:
                if args is None:
                    key = Signature(sort, name, b"", b"", b"")
                    lane.link.append(NONE)
                    lane.external.append(NONE)
                else:
                    concrete = bytes(args.concrete) if name in USES_VALUES else b""
                    key = Signature(sort, name, bytes(args.dims) or bytes(args.old_dims), bytes(args.types), concrete)
                    lane.link.append(_sequence(args))
                    lane.external.append(_small(args.external))
            elif sort == PYTHON:
                if name.startswith(MODULE):
                    self.modules = True
                    key = Signature(sort, name[len(MODULE) :], b"", b"", b"")
                else:
                    lane.signature.append(NONE)
                    continue
            else:
                key = Signature(sort, name, b"", b"", b"")
                if sort == RUNTIME:
                    lane.link.append(_small(args.correlation) if args is not None else NONE)
                elif name.startswith("ProfilerStep#") and name[13:].isdecimal():
                    self.steps.append((start, start + duration, int(name[13:])))
            number = signatures.get(key)
            if number is None:
                number = signatures[key] = len(signatures)
            lane.signature.append(number)

    def _add_device(self, event: Event, start: int, duration: int) -> None:
        columns = self.device
        args = event.args
        device: Number = event.pid
        stream: Number = event.tid
        correlation = external = NONE
        if args is not None:
            device = event.pid if args.device is None else args.device
            stream = event.tid if args.stream is None else args.stream
            correlation = _small(args.correlation)
            external = _small(args.external)
            if args.collective is not None:
                self.collectives[len(columns.start)] = args.collective, args.group_name or ""
        name = event.name or ""
        columns.start.append(start)
        columns.duration.append(duration)
        columns.name.append(self.kernel_names.setdefault(name, len(self.kernel_names)))
        columns.queue.append(self.queues.setdefault((f"gpu:{device}", str(stream)), len(self.queues)))
        columns.correlation.append(correlation)
        columns.external.append(external)


def _small(value: Number) -> int:
    """An identifier as a number that fits a column; one that is no number, or beyond 63 bits, ties nothing."""
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 20 else NONE
    return int(value) if value is not None and -1 <= value < 2**63 else NONE


def _sequence(args: Args) -> int:
    """The sequence number: as it is for a forward operator, below -1 for one that the backward pass ran for it."""
    sequence = _small(args.sequence)
    if sequence < 0:
        return NONE
    return -2 - sequence if args.forward_thread not in {None, 0, "0"} else sequence
