"""A calibration: what single operators took on a device, and the laws that are fitted to it once for predictions.

A calibration is a JSON file with a schema, read like any file that a user names. The laws of devices that come with the package
are `NAME.laws`, written by `python benchmarks/fit_laws.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from opcost.core import document
from opcost.core.devices import Device
from opcost.core.devices import device as find_device
from opcost.core.document import Number
from opcost.core.graph import Attrs, TensorSpec
from opcost.core.rendering import ListsTuples, brief, brief_repr
from opcost.devices.neighbours import Neighbours

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


def _record(calibration: Calibration) -> _CalibrationFile:
    """Each distinct tensor, name and set of attributes is written once."""
    tables = document.RowTables()
    columns = tables.columns(calibration.rows, Measured._fields, _TEXTS)
    return _CalibrationFile(
        schema=SCHEMA, device=calibration.device, meta=dict(calibration.meta), position=calibration.position,
        texts=tables.texts.entries, specs=tables.specs.entries, attrs=tables.attrs.entries, rows=_Rows(**columns),
    )  # fmt: skip


def _read(file: _CalibrationFile) -> Calibration:
    columns = document.read_columns(file, _TEXTS)
    rows = map(Measured, *(columns[name] for name in Measured._fields))
    return Calibration(device=file.device, meta=file.meta, position=file.position, rows=tuple(rows))


DOCUMENT = document.Document(
    noun="calibration", schema=SCHEMA, again="opcost calibrate -o FILE", form=_CalibrationFile, read=_read, write=_record
)  # fmt: skip
dumps = DOCUMENT.dumps


# -- the laws that were fitted to a calibration: what a prediction needs, without the operators that were timed ----------

SHIPPED = ("h200",)  # devices whose laws come with the package


class Law(NamedTuple):
    """One family of operators on elements of one type: t = start + max(FLOPs / (share * peak), bytes / (share * bandwidth))."""

    start_ns: float
    compute: float  # the share of the peak that it reaches
    memory: float
    spread: float
    near: Neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class Laws:
    """All that was fitted to one device."""

    home: Device  # the device that was calibrated
    meta: Mapping[str, str]  # product, day, versions, clocks, and switches such as TF32 for products of float32
    operators: int  # how many were timed
    laws: dict[tuple[str, str], Law] = field(default_factory=dict)  # by family and element type
    host_ns: Mapping[str, float] = field(default_factory=dict)
    """The usual time of the host for each operator, for each kind, and under the empty name for any."""
    workspaces: Mapping[tuple[str, str], Neighbours] = field(default_factory=dict)
    """Memory beside the results as a share of what an operator moves or a convolution converts, by family and element type."""


class _LawsFile(msgspec.Struct, array_like=True):
    device: str
    meta: dict[str, str]
    operators: int
    host_ns: dict[str, float]
    laws: list[tuple[str, str, Law]]
    workspaces: list[tuple[str, str, Neighbours]]


def packed(laws: Laws) -> bytes:
    """The content of the file of laws."""
    fitted = [(*key, law) for key, law in laws.laws.items()]
    workspaces = [(*key, near) for key, near in laws.workspaces.items()]
    made = _LawsFile(laws.home.name, dict(laws.meta), laws.operators, dict(laws.host_ns), fitted, workspaces)
    return msgspec.msgpack.encode(made, enc_hook=Neighbours.packed)


def unpacked(content: bytes) -> Laws:
    """What such a file holds."""
    found = msgspec.msgpack.decode(content, type=_LawsFile, dec_hook=lambda _, packed: Neighbours(packed=packed))
    laws = {(family, dtype): law for family, dtype, law in found.laws}
    workspaces = {(family, dtype): near for family, dtype, near in found.workspaces}
    return Laws(
        home=find_device(found.device), meta=found.meta, operators=found.operators, laws=laws, host_ns=found.host_ns,
        workspaces=workspaces,
    )  # fmt: skip


@lru_cache(maxsize=4)
def shipped(device: str) -> Laws:
    """The laws of this device that come with the package."""
    return unpacked((files(__package__) / f"{device}.laws").read_bytes())
