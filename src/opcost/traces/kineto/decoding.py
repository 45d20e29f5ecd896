"""Events out of the text of a Kineto trace, by msgspec: which fields are decoded, and with which of four decoders.

msgspec skips every field that is not declared here without making an object of it. The typed decoders know all categories and
decode only what each needs; the plain ones read any event. Both exist with float times and with exact decimals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, reduce
from operator import or_
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Raw

OPERATOR, ANNOTATION, RUNTIME, OVERHEAD, MODULE, DEVICE, MEMORY, BACKEND = range(8)
"""What an event is. What third-party backends record (BACKEND) is on the host or on their device: where it ran decides."""
IGNORED, UNREAD = -1, -2  # no work; and work on a device without a category, which is counted and not read
PROVIDERS = {
    OPERATOR: "cpu_op", ANNOTATION: "user_annotation", RUNTIME: "runtime", OVERHEAD: "overhead", BACKEND: "runtime",
}  # fmt: skip

CATEGORIES: dict[str, int] = {
    "cpu_op": OPERATOR, "Operator": OPERATOR, "hpu_op": BACKEND,
    "user_annotation": ANNOTATION,
    "cuda_runtime": RUNTIME, "cuda_driver": RUNTIME, "Runtime": RUNTIME, "mtia_runtime": RUNTIME, "glow_runtime": RUNTIME,
    "xpu_runtime": RUNTIME, "xpu_driver": RUNTIME, "privateuse1_runtime": BACKEND, "privateuse1_driver": BACKEND,
    "hip_runtime": RUNTIME, "hip_driver": RUNTIME,
    "overhead": OVERHEAD,
    "python_function": MODULE,
    "kernel": DEVICE, "Kernel": DEVICE, "gpu_memcpy": DEVICE, "Memcpy": DEVICE, "gpu_memset": DEVICE, "Memset": DEVICE,
    "mtia_ccp_events": DEVICE, "concurrent_kernel": DEVICE, "privateuse1_kernel": DEVICE,
    "cpu_instant_event": MEMORY,
}  # fmt: skip
"""Kineto's categories, in all versions, that are work or changes of memory."""
NO_WORK = (
    "ac2g", "async_cpu_to_gpu", "fwdbwd", "forward_backward", "gpu_user_annotation", "Trace", "cuda_sync",
    "cuda_event", "cuda_profiler_range", "hardware_counters", "xpu_sync", "collective_comm", "mtia_insight", "mtia_counters", "",
)  # fmt: skip
"""Categories that repeat work or are none."""

# -- what is decoded of an event

Number: TypeAlias = int | str | float | None
"""Old writers put some identifiers between quotes, and re-written files may have them as floats."""
NOTHING = Raw()
ABSENT = -1

_NAMES = {
    "external": "External id", "sequence": "Sequence number", "forward_thread": "Fwd thread id", "concrete": "Concrete Inputs",
    "types": "Input type", "strides": "Input Strides", "dims": "Input Dims", "old_dims": "Input dims",
    "collective": "Collective name", "group_name": "Process Group Name", "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems", "group_size": "Group size", "element": "dtype",
    "address": "Addr", "changed": "Bytes", "device_id": "Device Id", "device_type": "Device Type",
    "allocated": "Total Allocated", "reserved": "Total Reserved", "task": "Task Type",
}  # fmt: skip
"""Our names of arguments, and the trace's."""


class Args(msgspec.Struct, gc=False, rename=_NAMES):
    """The arguments of an event that may be anything."""

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
    task: Raw = NOTHING  # what Ascend's tools write of work on a device, which they give no category
    device: Number = None
    stream: Number = None
    correlation: Number = ABSENT  # what links a call of the device's runtime to the work that it launched
    kernel: Raw = NOTHING  # the name of the launched kernel, which ROCm writes
    bytes: Number = None
    address: Number = ABSENT
    changed: Number = None
    device_id: Number = None
    device_type: Number = None
    allocated: Number = ABSENT
    reserved: Number = ABSENT


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """One event of any category; work has a beginning and a duration, in microseconds."""

    cat: str | None = None
    name: str | None = None
    pid: Number = 0
    tid: Number = 0
    ts: int | float | None = None
    dur: int | float | None = None
    args: Args | None = None

    @property
    def sort(self) -> int:
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


_COLLECTIVE = "collective group_name in_elements out_elements group_size element"
_DEVICE = f"external device stream correlation bytes {_COLLECTIVE}"
_ARGS = {
    OPERATOR: f"external sequence forward_thread concrete types strides dims old_dims {_COLLECTIVE}",
    RUNTIME: "correlation kernel", DEVICE: _DEVICE, BACKEND: _DEVICE,
    MEMORY: "address changed device_id device_type allocated reserved",
}  # fmt: skip
"""The arguments that events of each kind have, in the order in which the profiler writes them."""


def _typed(time: Any, *, memory: bool) -> Any:
    """A union of one type per known category; an event without a category, or with an unknown one, fails."""

    def struct(category: str, fields: list[tuple[str, Any, Any]], base: Any, **own: int) -> Any:
        name = f"Event_{category}"
        return msgspec.defstruct(name, fields, bases=(base,), namespace=own, gc=False, tag_field="cat", tag=category)

    skipped = [*NO_WORK, *(category for category, sort in CATEGORIES.items() if sort == MEMORY and not memory)]
    found = [struct(category, [], Skipped) for category in skipped]
    known = {field.name: (field.name, field.type, field.default) for field in msgspec.structs.fields(Args)}
    timed = [(name, time | None, None) for name in ("ts", "dur")]
    for category, sort in CATEGORIES.items():
        if category in skipped:
            continue
        fields: list[Any] = [("name", str | None, None), ("pid", Number, 0), ("tid", Number, 0), *timed]
        if sort in _ARGS:
            own = [known[name] for name in _ARGS[sort].split()]
            args: Any = msgspec.defstruct(f"Args_{category}", own, gc=False, rename=_NAMES)
            fields.append(("args", args | None, None))
        found.append(struct(category, fields, msgspec.Struct, sort=sort))
    return reduce(or_, found)


# -- how it is decoded

EXACT_BELOW = 2.0**43
UNSURE = (2.0**42 - 1e11, 2.0**52 / 1000 + 1e11)
"""Microseconds as a float, times 1000 and rounded, are the right nanoseconds below 2**43: what the float is off is less than
half a nanosecond. Only from 2**42 to 2**52 nanoseconds does the product add half a step of its own. A day more on either
side, because only some events are looked at."""
SAMPLES = 8
STRANGE = 4
"""The typed decoder is no longer tried if it failed in more than one of this many blocks, and more often than this."""

_NOT_FINITE = re.compile(rb"([:\[,]\s*)(-?(?:nan|inf|infinity))(?=\s*[,}\]])", re.IGNORECASE)
_QUOTED_TIME = re.compile(r"got `str` - at `\$\[\d+\]\.(?:ts|dur)`")
"""msgspec's error for a time between quotes, as torch_npu writes them; decimals are read out of texts too."""

MALFORMED: type[Exception] = msgspec.DecodeError
INVALID: type[Exception] = msgspec.ValidationError
FAULTS: tuple[type[Exception], ...] = (MALFORMED, UnicodeDecodeError, RecursionError)
"""All that decoding may raise: text that is no JSON (MALFORMED), of which JSON that is no event (INVALID), and the others."""


@cache
def _decoders(memory: bool) -> tuple[Any, Any, Any, Any]:  # noqa: FBT001 - the key of the cache
    """Typed and plain, each with floats and exact. The types are put together once: that takes as long as a small trace."""
    types = _typed(int | float, memory=memory), _typed(Decimal, memory=memory), Event, DecimalEvent
    typed, typed_exact, plain, plain_exact = (msgspec.json.Decoder(list[of]) for of in types)  # type: ignore[valid-type]
    return typed, typed_exact, plain, plain_exact


@dataclass(slots=True)
class EventDecoder:
    """Decodes the blocks of one file, and remembers which decoder its events need."""

    memory: bool  # whether changes of memory are decoded
    exact: bool = False
    blocks: int = 0
    strange: int = 0

    def decode(self, text: bytes, *, by_category: bool = True) -> list[Event]:
        """The events of a list; NaN and infinity, which some writers put into arguments, count as missing.

        Bad events say nothing about the categories of a file: they are decoded without the typed decoders.
        """
        try:
            return self._decode(text, by_category=by_category)
        except MALFORMED as exc:
            # An empty text as long as what it replaces, so that everything behind keeps its place.
            finite = _NOT_FINITE.sub(lambda found: found[1] + b'""'.ljust(len(found[2])), text)
            if isinstance(exc, INVALID) or finite == text:
                raise
        return self._decode(finite, by_category=by_category)

    def _decode(self, text: bytes, *, by_category: bool) -> list[Event]:
        typed, typed_exact, plain, plain_exact = _decoders(self.memory)
        if by_category and (self.strange <= STRANGE or self.strange * STRANGE < self.blocks):
            self.blocks += 1
            try:
                return self._timed(text, typed, typed_exact)
            except INVALID:
                self.strange += 1  # an event of an unknown phase or category
        return self._timed(text, plain, plain_exact)

    def _timed(self, text: bytes, decoder: Any, exact: Any) -> list[Event]:
        """Decode with floats, and once a time of the file needs decimals, with those."""
        found: list[Event]
        if not self.exact:
            try:
                found = decoder.decode(text)
            except INVALID as exc:
                if _QUOTED_TIME.search(str(exc)) is None:
                    raise
            else:
                sample = found[:: len(found) // SAMPLES + 1]  # one clock times all events of a file
                times = [event.ts for event in sample if event.sort != IGNORED and type(event.ts) is float]
                # A float may be the wrong nanosecond, as on a clock that counts from 1970.
                if not any(time >= EXACT_BELOW or UNSURE[0] <= time < UNSURE[1] for time in times):
                    return found
        found = exact.decode(text)
        self.exact = True
        return found
