"""One rank's trace reduced to plain columns, and such columns made into a profile again.

A row of the columns is an operator, a kernel, a note and so on: `what` is which, and the other columns depend on that.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from opcost.core.answer import Busy
from opcost.core.document import write_attrs
from opcost.core.graph import Attr, Note, TensorSpec
from opcost.core.profile import (
    AllocationHolder,
    AllocatorMemory,
    AllocatorMemoryOverTime,
    CollectiveSummary,
    CopySummary,
    Kernel,
    Profile,
    ProfileRow,
)
from opcost.traces.file import TraceFile
from opcost.traces.kineto.device_use import Collective, Message, Uses, exchanges, extra_of
from opcost.traces.kineto.memory_use import MemoryUse
from opcost.traces.kineto.reader import KinetoReader, tabulate
from opcost.traces.kineto.table import Group, Table, Times
from opcost.traces.kineto.trace import REASONS
from opcost.traces.registry import reader_of

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

_MEMORY: dict[str, Any] = {
    "memory": AllocatorMemory,
    "holder": AllocationHolder,
    "memory over time": AllocatorMemoryOverTime,
}
"""What rows about memory are, in the order of `MemoryUse`."""

CACHE_VERSION = "12"  # changed whenever the columns or the way to them change, so that old caches are not used

TEXTS = ("what", "type", "kind", "module", "phase", "provider", "device", "stream", "ins", "outs", "attrs", "source")
NUMBERS = (
    "rank", "step", "place", "count", "host_ns", "host_self_ns", "device_ns", "device_total_ns",
    "least_ns", "median_ns", "p99_ns", "most_ns",
)  # fmt: skip

DAMAGES = ("partial", "faulty", "untimed", "negative", "incomplete", "clocks")
"""Notes that are kept of every rank; what the others count is in the rows."""
_WORDS = ("type", "kind", "module", "phase", "provider", "device", "stream")
_TIMES = ("count", "host_ns", "host_self_ns", "device_ns", "device_total_ns")


def reduce_file(path: str, *, partial: bool = False, reader: str | None = None) -> dict[str, list[Any]]:
    """The columns of one file: its operators, kernels, device use, collectives; `what` is which a row is."""
    file = TraceFile(path)
    found = reader_of(file, reader)
    if isinstance(found, KinetoReader):
        table = tabulate(file, partial=partial)
        entries = [{"rank": table.rank, **row, "source": file.name} for row in _of_table(table)]
    else:
        profile = found.read(file, partial=partial)
        entries = [{**row, "source": file.name} for row in _of_profile(profile)]
    texts = {name: [_encodable(entry.get(name, "")) for entry in entries] for name in TEXTS}
    return {**texts, **{name: [entry.get(name) for entry in entries] for name in NUMBERS}}


def is_partial(table: pl.DataFrame) -> bool:
    """Whether this is the table of a damaged file, of which a part is missing."""
    return ("note", "partial") in zip(table["what"], table["type"], strict=True)


def _encodable(text: str) -> str:
    """Columns are UTF-8, which cannot represent half of a surrogate pair: its escape is written."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _of_table(table: Table) -> Iterator[dict[str, Any]]:
    yield {"what": "run", "host_ns": table.wall_ns, "type": table.meta.get("device", "")}
    for note in table.notes:
        yield {"what": "note", "type": note.code, "kind": note.text}
    for place, group in enumerate(table.groups):
        yield {"what": "operator", "place": place, **_of_group(group, has_device=bool(table.devices.whole))}
        for queue, times in group.kernels.items():
            yield {"what": "kernel", "place": place, **_of_kernel(queue, times)}
    for (queue, reason), times in table.unattributed.items():
        yield {"what": "unattributed", "kind": reason, **_of_kernel(queue, times)}
    for use in table.devices.whole:
        spent = {"host_ns": use.span_ns, "device_ns": use.busy_ns, "count": use.kernels}
        yield {"what": "device", "device": use.device, **spent, "attrs": json.dumps(use._asdict())}
    for use in table.devices.steps:
        yield {"what": "steps", "device": use.device, "attrs": json.dumps(use._asdict())}
    seen: Counter[tuple[str, str]] = Counter()
    for device, _, duration, message in table.collectives:
        key = message.name, message.group
        place = seen[key]
        seen[key] += 1
        yield {
            "what": "collective",
            "type": message.name,
            "stream": message.group,
            "device": device,
            "place": place,
            "device_ns": duration,
            "attrs": json.dumps(message._asdict()),
        }
    for copied in table.copies:
        yield {"what": "copy", "device": copied.device, "attrs": json.dumps(copied._asdict())}
    for what, entries in zip(_MEMORY, table.memory, strict=True):
        entry: Any
        for entry in entries:
            yield {"what": what, "device": entry.device, "attrs": json.dumps(entry._asdict())}


def _of_group(group: Group, *, has_device: bool) -> dict[str, Any]:
    queue = next(iter(group.kernels), None)
    return {
        "type": group.type, "kind": group.operator.kind, "module": group.module, "phase": group.phase,
        "provider": group.provider, "device": queue.device if queue else "cpu",
        "stream": queue.stream if queue else group.thread,
        "ins": _specs(group.operator.ins), "outs": _specs(group.operator.outs),
        "attrs": json.dumps(write_attrs(group.operator.attrs)), "step": group.step, "count": group.host.count,
        "host_ns": group.host.total, "host_self_ns": group.host_self.total,
        "device_ns": group.device.total if has_device else None,
        "device_total_ns": group.device_total if has_device else None,
        **_spread(group.device if queue else group.host),
    }  # fmt: skip


def _of_kernel(queue: tuple[str, str, str], times: Times) -> dict[str, Any]:
    name, device, stream = queue
    found = {"type": name, "device": device, "stream": stream, "count": times.count, "device_ns": times.total}
    return {**found, **_spread(times)}


def _spread(times: Times) -> dict[str, int]:
    return {
        "least_ns": times.least,
        "median_ns": times.percentile(50),
        "p99_ns": times.percentile(99),
        "most_ns": times.most,
    }


def _of_profile(profile: Profile) -> Iterator[dict[str, Any]]:
    """The rows of a format that has one file of ordinary size for each rank."""
    yield {"what": "run", "host_ns": profile.wall_ns}
    for note in profile.notes:
        yield {"what": "note", "type": note.code, "kind": note.text}
    for place, row in enumerate(profile.rows):
        yield {
            "what": "operator",
            **{name: getattr(row, name) for name in (*_WORDS, "step", *_TIMES)},
            "ins": _specs(row.ins),
            "outs": _specs(row.outs),
            "attrs": json.dumps(write_attrs(row.attrs)),
            "place": place,
        }
        for kernel in row.kernels:
            queue = (kernel.name, kernel.device, kernel.stream)
            yield {"what": "kernel", "place": place, **_of_kernel(queue, Times([kernel.duration_ns]))}
    for kernel in profile.unattributed:
        queue = (kernel.name, kernel.device, kernel.stream)
        yield {"what": "unattributed", **_of_kernel(queue, Times([kernel.duration_ns]))}


def _specs(specs: tuple[TensorSpec, ...]) -> str:
    return json.dumps([[None if spec.shape is None else list(spec.shape), spec.dtype] for spec in specs])


def profile_of(rows: Iterable[Mapping[str, Any]], notes: tuple[Note, ...]) -> Profile:
    """The columns of all ranks, row by row, as one profile."""
    of: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    sources: dict[int, str] = {}
    for row in rows:
        of[row["what"]].append(row)
        sources.setdefault(row["rank"], row["source"])
    kernels: defaultdict[tuple[int, int], list[Kernel]] = defaultdict(list)
    for row in of["kernel"]:
        kernels[row["rank"], row["place"]].append(_read_kernel(row))
    faults = [Note(row["type"], f"rank {row['rank']}: {row['kind']}") for row in of["note"] if row["type"] in DAMAGES]
    return Profile(
        meta={
            "source": ", ".join(sources[rank] for rank in sorted(sources)),
            "format": "ranks",
            "ranks": str(len(sources)),
            "device": ", ".join(dict.fromkeys(row["type"] for row in of["run"] if row["type"])),
        },
        rows=tuple(
            _read_row(number, row, kernels[row["rank"], row["place"]]) for number, row in enumerate(of["operator"])
        ),
        unattributed=tuple(_read_lost(row) for row in of["unattributed"]),
        wall_ns=max((row["host_ns"] for row in of["run"] if row["host_ns"] is not None), default=None),
        notes=(*notes, *faults),
        extra=extra_of(
            Uses(tuple(_whole(of["device"], Busy)), tuple(_whole(of["steps"], Busy))),
            _whole(of["copy"], CopySummary),
            _exchanged(of["collective"]),
            MemoryUse(*(tuple(_whole(of[what], shape)) for what, shape in _MEMORY.items())),
        ),
    )


def _whole(rows: Iterable[Mapping[str, Any]], shape: Callable[..., T]) -> list[T]:
    """Rows that have an entry of a profile's `extra` whole, but for the rank."""
    return [shape(**json.loads(row["attrs"]) | {"rank": row["rank"]}) for row in rows]


def _exchanged(rows: Iterable[Mapping[str, Any]]) -> list[CollectiveSummary]:
    ranks: defaultdict[int, list[Collective]] = defaultdict(list)
    for row in rows:
        message = Message(**json.loads(row["attrs"]))
        ranks[row["rank"]].append(Collective(row["device"], 0, row["device_ns"], message))
    return [each for rank, found in ranks.items() for each in exchanges(found, rank)]


def _read_row(number: int, row: Mapping[str, Any], kernels: list[Kernel]) -> ProfileRow:
    return ProfileRow(
        id=number,
        name=row["type"],
        **{name: row[name] for name in (*_WORDS, "rank", "step", *_TIMES)},
        kernels=tuple(kernels),
        ins=_read_specs(row["ins"]),
        outs=_read_specs(row["outs"]),
        attrs={name: _attr(value) for name, value in json.loads(row["attrs"]).items()},
    )


def _read_kernel(row: Mapping[str, Any]) -> Kernel:
    return Kernel(row["type"], row["device"], row["stream"], 0, row["device_ns"], count=row["count"])


def _read_lost(row: Mapping[str, Any]) -> Kernel:
    """Device work that belongs to no operator, with the reason and the rank."""
    why = row["kind"] if row["kind"] in REASONS.values() else ""
    return _read_kernel(row)._replace(why=why, rank=row["rank"])


def _read_specs(text: str) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(None if shape is None else tuple(shape), dtype)
        for shape, dtype in (json.loads(text) if text else ())
    )


def _attr(value: Any) -> Attr:
    return tuple(_attr(item) for item in value) if isinstance(value, list) else value
