"""What a reader tells of a whole run beside its rows, under names in `Profile.extra`: small tables, checked when read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_type_hints

from opcost.errors import SourceError

Entry = TypeVar("Entry", bound=NamedTuple)


class Copied(NamedTuple):
    """What one sort of copy moved on one device; in `extra["copies"]`."""

    device: str
    rank: int
    name: str
    """As the profiler writes it: `Memcpy HtoD (Pinned -> Device)`."""
    number: int
    time_ns: int
    bytes: int | None = None
    """None where the trace does not tell."""


class Exchanged(NamedTuple):
    """Collectives of one sort and size on one device; in `extra["collectives"]`."""

    device: str
    rank: int
    name: str
    """As the framework or the library calls it."""
    group: str
    """The process group; empty where the trace does not tell, and so on below."""
    ranks: int | None
    """Members of the group."""
    bytes: int | None
    """Of one of them: the larger of what goes in and what comes out on a rank, as nccl-tests take it."""
    dtype: str
    algorithm: str
    """As the kernel's name tells it: `RING_LL`."""
    number: int
    time_ns: int
    least_ns: int
    median_ns: float


class Waited(NamedTuple):
    """What one rank of many waited for others in collectives, and they for it; in `extra["ranks"]`."""

    rank: int
    collective_ns: int
    wait_ns: int | None
    """None where it is not compared with the others."""
    held_up_ns: int
    """How long the others waited for this one, which came last."""
    last: int
    """In how many collectives it was the one that others waited for."""


class Held(NamedTuple):
    """Memory of one device as its allocator told; in `extra["memory"]`."""

    device: str
    rank: int
    changes: int
    first_bytes: int
    """Allocated before the first change that the trace has."""
    last_bytes: int
    peak_bytes: int
    peak_at_ns: int
    """When the most was allocated, from the first change on."""
    reserved_bytes: int | None
    """The most that was reserved; None where the trace does not tell."""
    growth_bytes: float | None
    """From the end of one step to that of the next, the median but for the first; None without three steps."""


class Holder(NamedTuple):
    """What one operator in one module had allocated of what was there at the peak; in `extra["holders"]`."""

    device: str
    rank: int
    type: str
    module: str
    number: int
    bytes: int


class HeldOver(NamedTuple):
    """Memory in one step, or in a tenth of the time where there are none; in `extra["memory_over_time"]`."""

    device: str
    rank: int
    part: str
    peak_bytes: int
    last_bytes: int
    reserved_bytes: int | None


def told(extra: Mapping[str, object], key: str, shape: type[Entry]) -> list[Entry]:
    """The entries under a name; what nobody has vetted and is not of this shape is one clear error."""
    entries = extra.get(key, [])
    if not isinstance(entries, (list, tuple)):
        raise _damaged(key)
    return [_checked(key, entry, shape) for entry in entries]


def _checked(key: str, entry: Any, shape: type[Entry]) -> Entry:
    hints = _hints(shape)
    needed = set(hints) - set(shape._field_defaults)
    if not isinstance(entry, Mapping) or not needed <= set(entry) <= set(hints):
        raise _damaged(key)
    for name, value in entry.items():
        textual = hints[name] is str
        if isinstance(value, str) != textual or not (textual or value is None or type(value) in (int, float)):
            raise _damaged(key)
        if value is None and hints[name] is int:
            raise _damaged(key)
    made: Callable[..., Entry] = shape
    return made(**entry)


@cache
def _hints(shape: type[NamedTuple]) -> dict[str, Any]:
    """What each field holds; to evaluate what stands there takes long."""
    return get_type_hints(shape)


def _damaged(key: str) -> SourceError:
    return SourceError(f"what the profile says about its {key} is damaged", hint="record the profile again")
