"""Profile <-> JSON, versioned; reading back what was written is the identity, and a damaged file is one clear error.

A run repeats itself, so each distinct tensor, text and operator is written once and rows refer to it by number.
"""

from itertools import repeat
from typing import Any

import msgspec

from opcost.core import document
from opcost.core.document import Number, entries, entry
from opcost.core.graph import Note
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
    occupancy: float | None = None
    blocks_per_sm: float | None = None


_Columns: Any = document.stored_columns(
    "Columns", id=Number, **dict.fromkeys(TEXTS, Number), phase=document.PhaseNumber, rank=Number, step=Number | None,
    count=Number, **dict.fromkeys(TIMES, document.Time | None), kernels=list[_Kernel], ins=list[Number],
    outs=list[Number], attrs=Number, cost=Number | None,
)  # fmt: skip
# Only of a profile that was added up while it was read.
_SPREAD = ("spread", list[tuple[_Times, _Times] | None] | msgspec.UnsetType, msgspec.UNSET)
_Rows: Any = msgspec.defstruct("Rows", [_SPREAD], bases=(_Columns,))


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


def _record(profile: Profile) -> _Profile:
    tables, costs, kernels = document.RowTables(), document.Interned[Any](), document.Interned[Any]()
    texts = tables.texts

    def written_kernel(kernel: Kernel) -> Any:
        key = kernel[:3]
        number = kernels.number(key, lambda: texts.numbers(key))
        record: list[Any] = [number, kernel.start_ns, kernel.duration_ns]
        measured = kernel.occupancy is not None or kernel.blocks_per_sm is not None
        many = kernel.count != 1 or kernel.rank is not None or len(kernel.spread) > 0 or measured
        if kernel.launched_ns is None and not kernel.why and not many:
            return record
        record += [kernel.launched_ns, texts.number(kernel.why)]
        record += [kernel.count, kernel.rank, list(kernel.spread)] if many else []
        return [*record, kernel.occupancy, kernel.blocks_per_sm] if measured else record

    columns = tables.columns(profile.rows, ProfileRow._fields, TEXTS)
    columns["phase"] = list(map(document.PHASES.index, columns["phase"]))
    columns["kernels"] = [list(map(written_kernel, found)) for found in columns["kernels"]]
    columns["cost"] = [cost if cost is None else costs.number(cost) for cost in columns["cost"]]
    spread = columns.pop("spread")
    if any(spread):
        columns["spread"] = [times and [list(each) for each in times] for times in spread]
    unattributed = [written_kernel(kernel) for kernel in profile.unattributed]
    return _Profile(
        schema=SCHEMA, meta=dict(profile.meta), wall_ns=profile.wall_ns, timed_ns=profile.timed_ns, notes=profile.notes,
        extra=dict(profile.extra), rows=_Rows(**columns), unattributed=unattributed, kernels=kernels.entries,
        texts=texts.entries, specs=tables.specs.entries, attrs=tables.attrs.entries, costs=costs.entries,
    )  # fmt: skip


def _read(data: _Profile) -> Profile:
    columns, texts = document.read_columns(data, TEXTS), data.texts
    costs = [document.read_cost(record, f"costs[{number}]") for number, record in enumerate(data.costs)]
    names = [entries(texts, numbers, "kernels") for numbers in data.kernels]

    def kernels(records: list[_Kernel], where: str) -> tuple[Kernel, ...]:
        return tuple(
            Kernel._make((
                *entry(names, record.named, where), record.start_ns, record.duration_ns, record.launched_ns,
                "" if record.why is None else entry(texts, record.why, where), record.count, record.rank, record.spread,
                record.occupancy, record.blocks_per_sm,
            ))
            for record in records
        )  # fmt: skip

    columns["phase"] = entries(document.PHASES, columns["phase"], "rows.phase")
    columns["cost"] = [number if number is None else entry(costs, number, "rows.cost") for number in columns["cost"]]
    columns["kernels"] = [kernels(records, "rows.kernels") for records in columns["kernels"]]
    spread = columns["spread"]
    columns["spread"] = repeat(None) if spread is msgspec.UNSET else [times and Spread(*times) for times in spread]
    rows = tuple(map(ProfileRow, *(columns[name] for name in ProfileRow._fields)))
    alone = kernels(data.unattributed, "unattributed")
    same = {name: getattr(data, name) for name in ("meta", "wall_ns", "timed_ns", "notes", "extra")}
    return Profile(rows=rows, unattributed=alone, **same)


_DOCUMENT = document.Document(
    noun="profile", schema=SCHEMA, again="opcost profile SOURCE -o FILE", form=_Profile, read=_read,
    write=_record,
)  # fmt: skip
load, loads, from_dict = _DOCUMENT.load, _DOCUMENT.loads, _DOCUMENT.from_dict
to_dict, dumps = _DOCUMENT.to_dict, _DOCUMENT.dumps
