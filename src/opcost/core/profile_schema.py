"""Profile <-> JSON, versioned; reading back what was written is the identity, and a damaged file is one clear error.

A run repeats itself, so each distinct tensor, text and operator is written once and rows refer to it by number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opcost.core import document
from opcost.core.checked import (
    LARGEST,
    Bad,
    columns_of,
    count_of,
    get,
    instance,
    objects,
    pick,
    pick_all,
    read_attrs,
    read_cost,
    read_spec,
    short,
    text_of,
)  # fmt: skip
from opcost.core.cost import Cost
from opcost.core.graph import Attrs, Note, TensorSpec
from opcost.core.profile import Kernel, Profile, ProfileRow, Spread
from opcost.core.saved import PHASES
from opcost.core.schema import Table, write_attrs, write_cost

SCHEMA = "opcost.profile/1"

TEXTS = ("name", "type", "kind", "module", "device", "stream", "provider")
TIMES = ("host_start_ns", "host_ns", "host_self_ns", "device_ns", "device_total_ns")


def dumps(profile: Profile) -> str:
    """The profile as JSON text."""
    return document.dumps(to_dict(profile))


def to_dict(profile: Profile) -> dict[str, Any]:
    """The profile as dictionaries, lists, strings and integers."""
    texts, specs, attrs, costs, kernels = Table(), Table(), Table(), Table(), Table()

    def number_of_text(text: str) -> int:
        return texts.number(text, lambda: text)

    def number_of_spec(spec: TensorSpec) -> int:
        shape = None if spec.shape is None else list(spec.shape)
        return specs.number(spec, lambda: {"shape": shape, "dtype": spec.dtype})

    def number_of_attrs(row: ProfileRow) -> int:
        written = write_attrs(row.attrs)
        return attrs.number(json.dumps(written), lambda: written)

    def number_of_cost(cost: Cost) -> int:
        return costs.number(cost, lambda: write_cost(cost))

    def written_kernel(kernel: Kernel) -> list[Any]:
        key = kernel[:3]
        number = kernels.number(key, lambda: [number_of_text(text) for text in key])
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
    columns["phase"] = [PHASES.index(row.phase) for row in rows]
    for name in ("rank", "step", "count", *TIMES):
        columns[name] = [getattr(row, name) for row in rows]
    columns["kernels"] = [[written_kernel(kernel) for kernel in row.kernels] for row in rows]
    columns["ins"] = [[number_of_spec(spec) for spec in row.ins] for row in rows]
    columns["outs"] = [[number_of_spec(spec) for spec in row.outs] for row in rows]
    columns["attrs"] = [number_of_attrs(row) for row in rows]
    columns["cost"] = [None if row.cost is None else number_of_cost(row.cost) for row in rows]
    if any(row.spread for row in rows):
        columns["spread"] = [row.spread and [list(times) for times in row.spread] for row in rows]
    unattributed = [written_kernel(kernel) for kernel in profile.unattributed]
    return {
        "schema": SCHEMA,
        "meta": dict(profile.meta),
        "wall_ns": profile.wall_ns,
        "timed_ns": list(profile.timed_ns),
        "notes": [{"code": note.code, "text": note.text, "where": note.where} for note in profile.notes],
        "extra": _plain(profile.extra),
        "rows": columns,
        "unattributed": unattributed,
        "kernels": kernels.entries,
        "texts": texts.entries,
        "specs": specs.entries,
        "attrs": attrs.entries,
        "costs": costs.entries,
    }


def _plain(value: object) -> Any:
    """What only one format has, as JSON; a tuple becomes a list."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _read(data: dict[str, Any]) -> Profile:
    texts = [text_of(text) for text in get(data, "texts", list)]
    specs = [read_spec(entry) for entry in get(data, "specs", list)]
    attrs: list[Attrs] = [read_attrs(instance(entry, dict)) for entry in get(data, "attrs", list)]
    costs = [read_cost(instance(entry, dict)) for entry in get(data, "costs", list)]
    names = [_kernel_name(entry, texts) for entry in get(data, "kernels", list)]
    columns: tuple[str, ...] = (
        *TEXTS,
        *TIMES,
        "kernels",
        "ins",
        "outs",
        "attrs",
        "cost",
        "id",
        "phase",
        "rank",
        "step",
        "count",
    )
    table = get(data, "rows", dict)
    if "spread" in table:  # Only of a profile that was added up while it was read.
        columns = (*columns, "spread")
    rows = []
    for values in zip(*columns_of(table, "rows", columns), strict=True):
        row = dict(zip(columns, values, strict=True))
        rows.append(
            ProfileRow(
                **{name: pick(texts, row[name]) for name in TEXTS},  # type: ignore[arg-type]
                **{name: _time(row[name]) for name in TIMES},  # type: ignore[arg-type]
                id=count_of(row["id"]),
                phase=pick(PHASES, row["phase"]),
                rank=count_of(row["rank"]),
                step=None if row["step"] is None else count_of(row["step"]),
                kernels=tuple(_kernel(entry, names, texts) for entry in instance(row["kernels"], list)),
                ins=pick_all(specs, row["ins"]),
                outs=pick_all(specs, row["outs"]),
                attrs=pick(attrs, row["attrs"]),
                cost=None if row["cost"] is None else pick(costs, row["cost"]),
                count=count_of(row["count"]),
                spread=None if row.get("spread") is None else _spread(row["spread"]),
            )
        )
    wall = get(data, "wall_ns", int, optional=True)
    return Profile(
        meta={text_of(key): text_of(value) for key, value in get(data, "meta", dict).items()},
        rows=tuple(rows),
        unattributed=tuple(_kernel(entry, names, texts) for entry in get(data, "unattributed", list)),
        wall_ns=None if wall is None else count_of(wall),
        timed_ns=tuple(count_of(time) for time in get(data, "timed_ns", list)),
        notes=tuple(
            Note(get(entry, "code", str), get(entry, "text", str), get(entry, "where", str))
            for entry in objects(data, "notes")
        ),
        extra=get(data, "extra", dict),
    )


def _time(value: object) -> int | None:
    """A duration or a moment: a moment may lie before the zero of its clock, and self time below nought by rounding."""
    if value is None:
        return None
    if type(value) is not int or abs(value) > LARGEST:
        raise Bad(f"{short(value)} stands where a time in nanoseconds belongs")
    return value


def _kernel_name(entry: object, texts: list[str]) -> tuple[str, str, str]:
    found = pick_all(texts, entry)
    if len(found) != 3:
        raise Bad("a kernel has a name, a device and a stream")
    return found[0], found[1], found[2]


def _kernel(entry: object, names: list[tuple[str, str, str]], texts: list[str]) -> Kernel:
    fields = instance(entry, list)
    if len(fields) not in (3, 5, 8):
        raise Bad("a kernel's record has three numbers, five with its launch, or eight where it stands for many")
    name, device, stream = pick(names, fields[0])
    start, duration = _time(fields[1]), _time(fields[2])
    if start is None or duration is None:
        raise Bad("a kernel has a start and a duration")
    found = Kernel(name, device, stream, start, duration)
    if len(fields) > 3:
        found = found._replace(launched_ns=_time(fields[3]), why=pick(texts, fields[4]))
    if len(fields) > 5:
        rank = None if fields[6] is None else count_of(fields[6])
        found = found._replace(count=count_of(fields[5]), rank=rank, spread=_times(fields[7]))
    return found


def _times(value: object) -> tuple[int, ...]:
    found = tuple(_time(entry) for entry in instance(value, list))
    if None in found:
        raise Bad("a time is missing in a list of times")
    return found  # type: ignore[return-value]


def _spread(value: object) -> Spread:
    fields = instance(value, list)
    if len(fields) != 2:
        raise Bad("a row has times of its executions on the host and on the device")
    return Spread(_times(fields[0]), _times(fields[1]))


_DOCUMENT = document.Document(noun="profile", schema=SCHEMA, again="opcost profile SOURCE -o FILE", read=_read)
load, loads, from_dict = _DOCUMENT.load, _DOCUMENT.loads, _DOCUMENT.from_dict
