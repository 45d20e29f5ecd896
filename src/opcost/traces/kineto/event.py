"""What is decoded of a Kineto event; msgspec skips everything else without making an object of it."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Raw

from opcost.traces.kineto.categories import (
    ANNOTATION,
    BACKEND,
    CATEGORIES,
    DEVICE,
    IGNORED,
    MEMORY,
    MODULE,
    OPERATOR,
    OVERHEAD,
    RUNTIME,
    UNREAD,
)

Number: TypeAlias = int | str | float | None
"""Old writers put some identifiers between quotes, and re-written files may have them as floats."""

Time: TypeAlias = int | float
NOTHING = Raw()
ABSENT = -1

_NAMES = {
    "external": "External id",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "concrete": "Concrete Inputs",
    "types": "Input type",
    "strides": "Input Strides",
    "dims": "Input Dims",
    "old_dims": "Input dims",
    "collective": "Collective name",
    "group_name": "Process Group Name",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "group_size": "Group size",
    "element": "dtype",
    "address": "Addr",
    "changed": "Bytes",
    "device_id": "Device Id",
    "device_type": "Device Type",
    "allocated": "Total Allocated",
    "reserved": "Total Reserved",
    "task": "Task Type",
}


class OperatorArgs(msgspec.Struct, gc=False, rename=_NAMES):
    """What an operator worked on, in the order in which the profiler writes it."""

    external: Number = ABSENT
    sequence: Number = ABSENT
    forward_thread: Number = None
    concrete: Raw = NOTHING
    types: Raw = NOTHING
    strides: Raw = NOTHING
    dims: Raw = NOTHING
    old_dims: Raw = NOTHING
    collective: Raw = NOTHING
    group_name: Raw = NOTHING
    in_elements: Raw = NOTHING
    out_elements: Raw = NOTHING
    group_size: Raw = NOTHING
    element: Raw = NOTHING


class CallArgs(msgspec.Struct, gc=False):
    """What a call of the device's runtime is tied to."""

    correlation: Number = ABSENT
    kernel: Raw = NOTHING
    """What a launch is for, as ROCm tells."""


class DeviceArgs(msgspec.Struct, gc=False, rename=_NAMES):
    """What a piece of device work is tied to, and where it ran."""

    external: Number = ABSENT
    device: Number = None
    stream: Number = None
    correlation: Number = ABSENT
    bytes: Number = None
    collective: Raw = NOTHING
    group_name: Raw = NOTHING
    in_elements: Raw = NOTHING
    out_elements: Raw = NOTHING
    group_size: Raw = NOTHING
    element: Raw = NOTHING


class MemoryArgs(msgspec.Struct, gc=False, rename=_NAMES):
    """What an allocator gave or took back."""

    address: Number = ABSENT
    changed: Number = None
    device_id: Number = None
    device_type: Number = None
    allocated: Number = ABSENT
    reserved: Number = ABSENT


class Args(OperatorArgs, gc=False, rename=_NAMES):
    """All of these, for an event that may be anything."""

    task: Raw = NOTHING
    """What Ascend's tools write of work on a device, which they give no category."""

    device: Number = None
    stream: Number = None
    correlation: Number = ABSENT
    kernel: Raw = NOTHING
    bytes: Number = None
    address: Number = ABSENT
    changed: Number = None
    device_id: Number = None
    device_type: Number = None
    allocated: Number = ABSENT
    reserved: Number = ABSENT


class Event(msgspec.Struct, gc=False):
    """One event, whatever its category; work that was done has a beginning and a duration."""

    cat: str | None = None
    name: str | None = None
    pid: Number = 0
    tid: Number = 0
    ts: Time | None = None
    dur: Time | None = None
    args: Args | None = None

    @property
    def sort(self) -> int:
        """Which sort of work it is."""
        if self.cat is None:
            return IGNORED if self.args is None or self.args.task is NOTHING else UNREAD
        return CATEGORIES.get(self.cat, IGNORED)


class DecimalEvent(Event, gc=False):
    """The same with times that keep every decimal."""

    ts: Decimal | None = None  # type: ignore[assignment]
    dur: Decimal | None = None  # type: ignore[assignment]


class Skipped(msgspec.Struct, gc=False):
    """An event of a category that is no work: nothing of it is decoded."""

    sort: ClassVar[int] = IGNORED


_ARGS: dict[int, Any] = {
    OPERATOR: OperatorArgs, RUNTIME: CallArgs, DEVICE: DeviceArgs, ANNOTATION: None, OVERHEAD: None, MODULE: None,
    MEMORY: MemoryArgs, BACKEND: DeviceArgs,
}  # fmt: skip

NO_WORK = (
    "ac2g", "async_cpu_to_gpu", "fwdbwd", "forward_backward", "gpu_user_annotation", "Trace", "cuda_sync",
    "cuda_event", "cuda_profiler_range", "hardware_counters", "xpu_sync", "collective_comm", "mtia_insight", "mtia_counters", "",
)  # fmt: skip
"""Categories that repeat work or are none."""


def quick(time: Any, *, memory: bool) -> Any:
    """A type for events of the known categories: the category decides what is decoded.

    An event without a category, or with an unknown one, fails; `Event` reads every one.
    """
    found = [_struct(category, [], Skipped) for category in NO_WORK]
    for category, sort in CATEGORIES.items():
        if sort == MEMORY and not memory:
            found.append(_struct(category, [], Skipped))
            continue
        fields = [
            ("name", str | None, None), ("pid", Number, 0), ("tid", Number, 0), ("ts", time | None, None),
            ("dur", time | None, None),
        ]  # fmt: skip
        if (args := _ARGS[sort]) is not None:
            fields.append(("args", args | None, None))
        found.append(_struct(category, fields, msgspec.Struct, sort=sort))
    return reduce(or_, found)


def _struct(category: str, fields: list[tuple[str, Any, Any]], base: Any, **own: int) -> Any:
    name = f"Event_{category}"
    return msgspec.defstruct(name, fields, bases=(base,), namespace=own, gc=False, tag_field="cat", tag=category)


NO_ARGS = Args()
