"""A calibration: what single operators took on a device, with the versions and switches under which they were timed.

It is a JSON file with a schema, read like any file that a user names. What predictions need of it is fitted once
(`opcost.devices.laws`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from opcost.core import document
from opcost.core.document import Number, entries
from opcost.core.graph import Attrs, TensorSpec
from opcost.core.rendering import Listed, brief, brief_record

SCHEMA = "opcost.calibration/1"


class Measured(NamedTuple):
    """One operator on one set of sizes, and what one call of it takes."""

    kind: str
    raw: str
    attrs: Attrs
    ins: tuple[TensorSpec, ...]
    outs: tuple[TensorSpec, ...]
    device_ns: int  # from its start to the start of the next operator, while the device does not wait for the host
    host_ns: int = 0  # what the host needs to start it
    workspace: int = 0  # bytes allocated while it runs, beyond its outputs

    def __repr__(self) -> str:
        return brief_record(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was timed on a device."""

    device: str
    """Its name in the table of devices."""
    meta: Mapping[str, str]
    """Product, day, versions, clocks, and switches such as TF32 for products of float32."""
    position: int
    """How many cases of the plan are done: an interrupted calibration resumes here."""
    rows: tuple[Measured, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", Listed(self.rows))

    def __repr__(self) -> str:
        return brief(self, [f"{len(self.rows):,} operators timed", self.meta.get("made", "")], self.device)


class _MeasuredRows(document.StoredColumns):
    kind: list[Number]
    raw: list[Number]
    attrs: list[Number]
    ins: list[list[Number]]
    outs: list[list[Number]]
    device_ns: list[Number]
    host_ns: list[Number]
    workspace: list[Number]


class _CalibrationFile(msgspec.Struct, kw_only=True):
    schema: str
    device: str
    meta: dict[str, str]
    position: Number
    texts: list[str]
    specs: list[document.SpecRecord]
    attrs: list[dict[str, Any]]
    rows: _MeasuredRows


def dumps(calibration: Calibration) -> str:
    """The text of the file: each distinct tensor, name and set of attributes is written once."""
    specs, texts, attrs = document.Specs(), document.Interned[str](), document.Interned[dict[str, Any]]()

    def number_of_attrs(row: Measured) -> int:
        written = document.write_attrs(row.attrs)
        return attrs.number(str(written), written.copy)

    measured = calibration.rows
    columns: dict[str, list[Any]] = {
        name: [getattr(row, name) for row in measured] for name in ("device_ns", "host_ns", "workspace")
    }
    for name in ("kind", "raw"):
        words: list[str] = [getattr(row, name) for row in measured]
        columns[name] = [texts.number(word, word.__str__) for word in words]
    for name in ("ins", "outs"):
        columns[name] = [specs.all_of(getattr(row, name)) for row in measured]
    columns["attrs"] = [number_of_attrs(row) for row in measured]
    made = _CalibrationFile(
        schema=SCHEMA, device=calibration.device, meta=dict(calibration.meta), position=calibration.position,
        texts=texts.entries, specs=[document.SpecRecord(spec.shape, spec.dtype) for spec in specs.entries],
        attrs=attrs.entries, rows=_MeasuredRows(**columns),
    )  # fmt: skip
    return document.dumps(document.builtins_of(made))


def _read(file: _CalibrationFile) -> Calibration:
    specs, attrs = document.read_specs(file.specs), [document.read_attrs(each) for each in file.attrs]
    columns = msgspec.structs.asdict(file.rows)
    for name, table in (("kind", file.texts), ("raw", file.texts), ("attrs", attrs)):
        columns[name] = entries(table, columns[name], f"rows.{name}")
    for name in ("ins", "outs"):
        columns[name] = [entries(specs, numbers, f"rows.{name}") for numbers in columns[name]]
    rows = map(Measured, *(columns[name] for name in Measured._fields))
    return Calibration(device=file.device, meta=file.meta, position=file.position, rows=tuple(rows))


DOCUMENT = document.Document(
    noun="calibration", schema=SCHEMA, again="opcost calibrate -o FILE", form=_CalibrationFile, read=_read
)
