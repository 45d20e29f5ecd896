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
from opcost.core.document import Number
from opcost.core.graph import Attrs, TensorSpec
from opcost.core.rendering import ListsTuples, brief, brief_repr

SCHEMA = "opcost.calibration/1"


@brief_repr
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(ListsTuples):
    """What was timed on a device."""

    device: str
    """Its name in the table of devices."""
    meta: Mapping[str, str]
    """Product, day, versions, clocks, and switches such as TF32 for products of float32."""
    position: int
    """How many cases of the plan are done: an interrupted calibration resumes here."""
    rows: tuple[Measured, ...]

    def __repr__(self) -> str:
        return brief(self, [f"{len(self.rows):,} operators timed", self.meta.get("made", "")], self.device)


_TEXTS = ("kind", "raw")
_Rows: Any = document.stored_columns(
    "MeasuredRows", kind=Number, raw=Number, attrs=Number, ins=list[Number], outs=list[Number], device_ns=Number,
    host_ns=Number, workspace=Number,
)  # fmt: skip


class _CalibrationFile(msgspec.Struct, kw_only=True):
    schema: str
    device: str
    meta: dict[str, str]
    position: Number
    texts: list[str]
    specs: list[document.SpecRecord]
    attrs: list[dict[str, Any]]
    rows: _Rows


def dumps(calibration: Calibration) -> str:
    """The text of the file: each distinct tensor, name and set of attributes is written once."""
    tables = document.RowTables()
    columns = tables.columns(calibration.rows, Measured._fields, _TEXTS)
    made = _CalibrationFile(
        schema=SCHEMA, device=calibration.device, meta=dict(calibration.meta), position=calibration.position,
        texts=tables.texts.entries, specs=tables.specs.entries, attrs=tables.attrs.entries, rows=_Rows(**columns),
    )  # fmt: skip
    return document.dumps(document.builtins_of(made))


def _read(file: _CalibrationFile) -> Calibration:
    columns = document.read_columns(file, _TEXTS)
    rows = map(Measured, *(columns[name] for name in Measured._fields))
    return Calibration(device=file.device, meta=file.meta, position=file.position, rows=tuple(rows))


DOCUMENT = document.Document(
    noun="calibration", schema=SCHEMA, again="opcost calibrate -o FILE", form=_CalibrationFile, read=_read
)
