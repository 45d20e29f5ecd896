"""Events out of the text of a Kineto trace, by msgspec: which fields are decoded, with times as floats or exact decimals.

msgspec skips every field that is not declared here without making an object of it.
"""

import re
from decimal import Decimal
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

OPERATOR, ANNOTATION, RUNTIME, OVERHEAD, MODULE, DEVICE, MEMORY, BACKEND = range(8)
"""What an event is. What third-party backends record (BACKEND) is on the host or on their device: where it ran decides."""
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
"""Kineto's categories, in all versions, that are work or changes of memory; the others repeat work or are none."""

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
    "group_description": "Process Group Description", "group_ranks": "Process Group Ranks",
    "address": "Addr", "changed": "Bytes", "device_id": "Device Id", "device_type": "Device Type",
    "allocated": "Total Allocated", "reserved": "Total Reserved", "task": "Task Type",
    "occupancy": "est. achieved occupancy %", "blocks_per_sm": "blocks per SM",
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
    group_description: Raw = NOTHING
    group_ranks: Raw = NOTHING
    task: Raw = NOTHING  # what Ascend's tools write of work on a device, which they give no category
    device: Number = None
    stream: Number = None
    correlation: Number = ABSENT  # what links a call of the device's runtime to the work that it launched
    kernel: Raw = NOTHING  # the name of the launched kernel, which ROCm writes
    bytes: Number = None
    occupancy: Number = None  # in percent
    blocks_per_sm: Number = None


class MemoryArgs(Args, gc=False, rename=_NAMES):
    """The same, and what changes of memory have beside."""

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


# -- how it is decoded

EXACT_BELOW = 2.0**43
UNSURE = (2.0**42 - 1e11, 2.0**52 / 1000 + 1e11)
"""Microseconds as a float, times 1000 and rounded, are the right nanoseconds below 2**43: what the float is off is less than
half a nanosecond. Only from 2**42 to 2**52 nanoseconds does the product add half a step of its own. A day more on either
side, because only some events are looked at."""
SAMPLES = 8

_NOT_FINITE = re.compile(rb"([:\[,]\s*)(-?(?:nan|inf|infinity))(?=\s*[,}\]])", re.IGNORECASE)
_QUOTED_TIME = re.compile(r"got `str` - at `\$\[\d+\]\.(?:ts|dur)`")
"""msgspec's error for a time between quotes, as torch_npu writes them; decimals are read out of texts too."""

MALFORMED: type[Exception] = msgspec.DecodeError
INVALID: type[Exception] = msgspec.ValidationError
FAULTS: tuple[type[Exception], ...] = (MALFORMED, UnicodeDecodeError, RecursionError)
"""All that decoding may raise: text that is no JSON (MALFORMED), of which JSON that is no event (INVALID), and the others."""


@cache
def _decoder(args: type[Args], time: Any) -> Any:
    """Of lists of events with such arguments and times."""
    fields = [("ts", time | None, None), ("dur", time | None, None), ("args", args | None, None)]
    return msgspec.json.Decoder(list[msgspec.defstruct("Event", fields, bases=(Event,), gc=False)])  # type: ignore[misc]


class EventDecoder:
    """Decodes the blocks of one file, with changes of memory or without, and remembers whether its times need decimals."""

    def __init__(self, *, memory: bool) -> None:
        self.args = MemoryArgs if memory else Args
        self.exact = False

    def decode(self, text: bytes) -> list[Event]:
        """The events of a list; NaN and infinity, which some writers put into arguments, count as missing."""
        try:
            return self._decode(text)
        except MALFORMED as exc:
            # An empty text as long as what it replaces, so that everything behind keeps its place.
            finite = _NOT_FINITE.sub(lambda found: found[1] + b'""'.ljust(len(found[2])), text)
            if isinstance(exc, INVALID) or finite == text:
                raise
        return self._decode(finite)

    def _decode(self, text: bytes) -> list[Event]:
        """Decode with floats, and once a time of the file needs decimals, with those."""
        if not self.exact:
            try:
                found: list[Any] = _decoder(self.args, int | float).decode(text)
            except INVALID as exc:
                if _QUOTED_TIME.search(str(exc)) is None:
                    raise
            else:
                sample = found[:: len(found) // SAMPLES + 1]  # one clock times all events of a file
                times = [event.ts for event in sample if event.cat in CATEGORIES and type(event.ts) is float]
                # A float may be the wrong nanosecond, as on a clock that counts from 1970.
                if not any(time >= EXACT_BELOW or UNSURE[0] <= time < UNSURE[1] for time in times):
                    return found
        exact: list[Any] = _decoder(self.args, Decimal).decode(text)
        self.exact = True
        return exact
