"""One rank's trace reduced to plain columns, and such columns made into a profile again.

A row of the columns is an operator, a kernel, a note and so on: `what` is which, and the other columns depend on that.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from opcost.core.devices import HOST
from opcost.core.document import write_attrs
from opcost.core.graph import Attr, Note, TensorSpec
from opcost.core.names import MESSAGES, collective_kind
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.traces.file import TraceFile
from opcost.traces.kineto.device_use import Collective, Message, exchanges
from opcost.traces.kineto.reader import KinetoReader, tabulate
from opcost.traces.kineto.table import GROUPED, TraceTable
from opcost.traces.kineto.trace import REASONS
from opcost.traces.registry import reader_of

if TYPE_CHECKING:
    import polars as pl

_EXTRA = {
    "device": "devices", "steps": "steps", "copy": "copies", "memory": "memory", "holder": "holders",
    "memory over time": "memory_over_time",
}  # fmt: skip
"""What rows are that have an entry of a profile's `extra` whole, and under which name it is there."""

CACHE_VERSION = "15"  # changed whenever the columns or the way to them change, so that old caches are not used

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
        entries = [{"rank": table.rank, **row} for row in _of_table(table)]
    else:
        entries = [*_of_profile(found.read(file, partial=partial))]
    for entry in entries:
        entry["source"] = file.name
    # Columns are UTF-8, which cannot represent half of a surrogate pair: its escape is written.
    texts = {
        name: [entry.get(name, "").encode("utf-8", "backslashreplace").decode("utf-8") for entry in entries]
        for name in TEXTS
    }
    return {**texts, **{name: [entry.get(name) for entry in entries] for name in NUMBERS}}


def is_partial(table: pl.DataFrame) -> bool:
    """Whether this is the table of a damaged file, of which a part is missing."""
    return ("note", "partial") in zip(table["what"], table["type"], strict=True)


def _of_table(table: TraceTable) -> Iterator[dict[str, Any]]:
    """The rows of a profile, with the spread of their single executions, and what the profile only sums up."""
    profile = table.profile
    for entry in _of_profile(profile):
        if entry["what"] == "run":
            entry["type"] = profile.meta.get("device", "")
        elif entry["what"] == "operator":
            row = profile.rows[entry["place"]]
            device = row.spread.device_ns if row.spread else [row.device_ns or 0]
            entry.update(_spread(device if row.kernels else table.host[row.id]))
        yield entry
    seen: Counter[tuple[str, str]] = Counter()
    for device, _, duration, message, exposed in table.collectives:
        group = message.group + (f" ({message.members})" if message.members else "")
        key = message.name, group
        # A message has another name, or another number, on the rank that gets it; on a host groups may not be known
        compared = collective_kind(message.name) not in MESSAGES and (message.ranks or device != HOST)
        size = message.ranks if compared else 0
        named = {"type": message.name, "stream": group, "device": device, "place": seen[key], "count": size}
        attrs = json.dumps(message._asdict() | {"exposed": exposed})
        yield {"what": "collective", **named, "device_ns": duration, "attrs": attrs}
        seen[key] += 1
    extra: Mapping[str, Any] = profile.extra
    for what, name in _EXTRA.items():
        for use in extra.get(name, ()):
            entry = {"what": what, "device": use["device"], "attrs": json.dumps(use)}
            if what == "device":
                entry |= {"host_ns": use["span_ns"], "device_ns": use["busy_ns"], "count": use["kernels"]}
            yield entry


def _of_profile(profile: Profile) -> Iterator[dict[str, Any]]:
    yield {"what": "run", "host_ns": profile.wall_ns}
    for note in profile.notes:
        if note.code != GROUPED:
            yield {"what": "note", "type": note.code, "kind": note.text}
    for place, row in enumerate(profile.rows):
        found = {
            "what": "operator",
            "place": place,
            **{name: getattr(row, name) for name in (*_WORDS, "step", *_TIMES)},
        }
        found |= {"ins": _specs(row.ins), "outs": _specs(row.outs), "attrs": json.dumps(write_attrs(row.attrs))}
        yield found
        for kernel in row.kernels:
            yield {"what": "kernel", "place": place, **_of_kernel(kernel)}
    for kernel in profile.unattributed:
        yield {"what": "unattributed", "kind": kernel.why or "none", **_of_kernel(kernel)}


def _of_kernel(kernel: Kernel) -> dict[str, Any]:
    fill = {"occupancy": kernel.occupancy, "blocks_per_sm": kernel.blocks_per_sm}
    found = {"type": kernel.name, "device": kernel.device, "stream": kernel.stream, "count": kernel.count}
    found["attrs"] = json.dumps({name: value for name, value in fill.items() if value is not None})
    return {**found, "device_ns": kernel.duration_ns, **_spread(kernel.spread or [kernel.duration_ns])}


def _spread(durations: Sequence[int]) -> dict[str, int]:
    """The shortest, the longest, and the shortest that half of them, or 99 of 100, do not exceed."""
    ordered, count = sorted(durations), len(durations)
    middle, high = ordered[ceil(count * 50 / 100) - 1], ordered[ceil(count * 99 / 100) - 1]
    return {"least_ns": ordered[0], "median_ns": middle, "p99_ns": high, "most_ns": ordered[-1]}


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
    # Device work that belongs to no operator has the reason and the rank.
    reasons = REASONS.values()
    lost = [
        _read_kernel(row)._replace(why=row["kind"] if row["kind"] in reasons else "", rank=row["rank"])
        for row in of["unattributed"]
    ]
    exchanged: defaultdict[int, list[Collective]] = defaultdict(list)
    for row in of["collective"]:
        attrs = json.loads(row["attrs"])
        exposed = attrs.pop("exposed")
        exchanged[row["rank"]].append(Collective(row["device"], 0, row["device_ns"], Message(**attrs), exposed))
    extra: dict[str, list[dict[str, Any]]] = {
        name: [json.loads(row["attrs"]) | {"rank": row["rank"]} for row in of[what]] for what, name in _EXTRA.items()
    }
    extra["collectives"] = [each._asdict() for rank, found in exchanged.items() for each in exchanges(found, rank)]
    faults = [Note(row["type"], f"rank {row['rank']}: {row['kind']}") for row in of["note"] if row["type"] in DAMAGES]
    operators = [
        ProfileRow(
            id=number, name=row["type"], **{name: row[name] for name in (*_WORDS, "rank", "step", *_TIMES)},
            kernels=tuple(kernels[row["rank"], row["place"]]), ins=_read_specs(row["ins"]), outs=_read_specs(row["outs"]),
            attrs={name: _attr(value) for name, value in json.loads(row["attrs"]).items()},
        )
        for number, row in enumerate(of["operator"])
    ]  # fmt: skip
    names = ", ".join(sources[rank] for rank in sorted(sources))
    devices = ", ".join(dict.fromkeys(row["type"] for row in of["run"] if row["type"]))
    return Profile(
        meta={"source": names, "format": "ranks", "ranks": str(len(sources)), "device": devices},
        rows=tuple(operators), unattributed=tuple(lost),
        wall_ns=max((row["host_ns"] for row in of["run"] if row["host_ns"] is not None), default=None),
        notes=(*notes, *faults), extra={name: entries for name, entries in extra.items() if entries or name == "devices"},
    )  # fmt: skip


def _read_kernel(row: Mapping[str, Any]) -> Kernel:
    fill = json.loads(row["attrs"])
    return Kernel(row["type"], row["device"], row["stream"], 0, row["device_ns"], count=row["count"], **fill)


def _read_specs(text: str) -> tuple[TensorSpec, ...]:
    found = json.loads(text) if text else ()
    return tuple(TensorSpec(None if shape is None else tuple(shape), dtype) for shape, dtype in found)


def _attr(value: Any) -> Attr:
    return tuple(_attr(item) for item in value) if isinstance(value, list) else value
