"""Profile <-> JSON, versioned; reading back what was written is the identity, and a damaged file is one clear error.

A run repeats itself, so each distinct tensor, text and operator is written once and rows refer to it by number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import msgspec

from opcost.core import document
from opcost.core.document import Number, entries, entry
from opcost.core.graph import Attrs, Note
from opcost.core.profile import Kernel, Profile, ProfileRow, Spread

SCHEMA = "opcost.profile/1"

TEXTS = ("name", "type", "kind", "module", "device", "stream", "provider")
TIMES = ("host_start_ns", "host_ns", "host_self_ns", "device_ns", "device_total_ns")
_Times = tuple[document.Time, ...]


class _Kernel(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    named: Number
    start_ns: document.Time
    duration_ns: document.Time
    launched_ns: document.Time | None = None
    why: Number | None = None
    count: Number = 1
    rank: Number | None = None
    spread: _Times = ()


_FORM: dict[str, Any] = {
    "id": list[Number], **dict.fromkeys(TEXTS, list[Number]), "phase": list[document.PhaseNumber], "rank": list[Number],
    "step": list[Number | None], "count": list[Number], **dict.fromkeys(TIMES, list[document.Time | None]),
    "kernels": list[list[_Kernel]], "ins": list[list[Number]], "outs": list[list[Number]], "attrs": list[Number],
    "cost": list[Number | None],
}  # fmt: skip
# Only of a profile that was added up while it was read.
_SPREAD = list[tuple[_Times, _Times] | None] | msgspec.UnsetType
_Rows: Any = msgspec.defstruct(
    "Rows", [*_FORM.items(), ("spread", _SPREAD, msgspec.UNSET)], bases=(document.StoredColumns,)
)


class _Profile(msgspec.Struct):
    schema: str
    meta: dict[str, str]
    wall_ns: Number | None
    timed_ns: tuple[Number, ...]
    notes: tuple[Note, ...]
    extra: dict[str, Any]
    rows: _Rows
    unattributed: list[_Kernel]
    kernels: list[tuple[Number, Number, Number]]
    texts: list[str]
    specs: list[document.SpecRecord]
    attrs: list[dict[str, Any]]
    costs: list[document.CostRecord]


def dumps(profile: Profile) -> str:
    """The profile as JSON text."""
    return document.dumps(to_dict(profile))


def to_dict(profile: Profile) -> dict[str, Any]:
    """The profile as dictionaries, lists, strings and integers."""
    specs = document.Specs()
    texts, attrs, costs, kernels = (document.Interned[Any]() for _ in range(4))

    def number_of_text(text: str) -> int:
        return texts.number(text, lambda: text)

    def number_of_attrs(row: ProfileRow) -> int:
        written = document.write_attrs(row.attrs)
        return attrs.number(json.dumps(written), lambda: written)

    def written_kernel(kernel: Kernel) -> Any:
        key = kernel[:3]
        number = kernels.number(key, lambda: tuple(map(number_of_text, key)))
        record: list[Any] = [number, kernel.start_ns, kernel.duration_ns]
        many = kernel.count != 1 or kernel.rank is not None or len(kernel.spread) > 0
        if kernel.launched_ns is None and not kernel.why and not many:
            return record
        record += [kernel.launched_ns, number_of_text(kernel.why)]
        return [*record, kernel.count, kernel.rank, list(kernel.spread)] if many else record

    rows = profile.rows
    columns: dict[str, list[Any]] = {"id": [row.id for row in rows]}
    for name in TEXTS:
        columns[name] = [number_of_text(getattr(row, name)) for row in rows]
    columns["phase"] = [document.PHASES.index(row.phase) for row in rows]
    for name in ("rank", "step", "count", *TIMES):
        columns[name] = [getattr(row, name) for row in rows]
    columns["kernels"] = [[written_kernel(kernel) for kernel in row.kernels] for row in rows]
    columns["ins"] = [specs.all_of(row.ins) for row in rows]
    columns["outs"] = [specs.all_of(row.outs) for row in rows]
    columns["attrs"] = [number_of_attrs(row) for row in rows]
    columns["cost"] = [cost if (cost := row.cost) is None else costs.number(cost, lambda: cost) for row in rows]
    if any(row.spread for row in rows):
        columns["spread"] = [row.spread and [list(times) for times in row.spread] for row in rows]
    unattributed = [written_kernel(kernel) for kernel in profile.unattributed]
    record = _Profile(
        schema=SCHEMA, meta=dict(profile.meta), wall_ns=profile.wall_ns, timed_ns=profile.timed_ns, notes=profile.notes,
        extra=dict(profile.extra), rows=_Rows(**columns), unattributed=unattributed, kernels=kernels.entries,
        texts=texts.entries, specs=specs.entries, attrs=attrs.entries, costs=costs.entries,
    )  # fmt: skip
    return document.builtins_of(record)


def _read(data: _Profile) -> Profile:
    texts, specs = data.texts, document.read_specs(data.specs)
    costs = [document.read_cost(record, f"costs[{number}]") for number, record in enumerate(data.costs)]
    attrs: list[Attrs] = [document.read_attrs(mapping) for mapping in data.attrs]
    names = [entries(texts, numbers, "kernels") for numbers in data.kernels]

    def kernels(records: list[_Kernel], where: str) -> tuple[Kernel, ...]:
        return tuple(
            Kernel._make((
                *entry(names, record.named, where), record.start_ns, record.duration_ns, record.launched_ns,
                "" if record.why is None else entry(texts, record.why, where), record.count, record.rank, record.spread,
            ))
            for record in records
        )  # fmt: skip

    columns = msgspec.structs.asdict(data.rows)
    tables: dict[str, Sequence[Any]] = {**dict.fromkeys(TEXTS, texts), "attrs": attrs, "phase": document.PHASES}
    for name, table in tables.items():
        columns[name] = entries(table, columns[name], f"rows.{name}")
    for name in ("ins", "outs"):
        columns[name] = [entries(specs, numbers, f"rows.{name}") for numbers in columns[name]]
    columns["cost"] = [number if number is None else entry(costs, number, "rows.cost") for number in columns["cost"]]
    columns["kernels"] = [kernels(records, "rows.kernels") for records in columns["kernels"]]
    spread = columns["spread"]
    columns["spread"] = repeat(None) if spread is msgspec.UNSET else [times and Spread(*times) for times in spread]
    rows = tuple(map(ProfileRow, *(columns[name] for name in ProfileRow._fields)))
    alone = kernels(data.unattributed, "unattributed")
    same = {name: getattr(data, name) for name in ("meta", "wall_ns", "timed_ns", "notes", "extra")}
    return Profile(rows=rows, unattributed=alone, **same)


_DOCUMENT = document.Document(
    noun="profile", schema=SCHEMA, again="opcost profile SOURCE -o FILE", form=_Profile, read=_read
)
load, loads, from_dict = _DOCUMENT.load, _DOCUMENT.loads, _DOCUMENT.from_dict
