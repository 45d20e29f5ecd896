"""A calibration: what single operators took on a device, and the laws that are fitted to it once for predictions.

A calibration is a JSON file with a schema, read like any file that a user names; files of one device can be merged. The laws of
devices that come with the package are `NAME.laws`, written by `python benchmarks/fit_laws.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from os import PathLike
from statistics import median
from typing import Any, NamedTuple, TypeAlias

import msgspec

from opcost.core import document
from opcost.core.devices import HOST, Device
from opcost.core.devices import device as find_device
from opcost.core.document import Number
from opcost.core.graph import Attrs, TensorSpec
from opcost.core.rendering import ListsTuples, brief, brief_repr
from opcost.devices.neighbours import Neighbours
from opcost.errors import InputError

SCHEMA = "opcost.calibration/1"

STEADY = {"cuda": 0.1, "cpu": 0.4}
"""Up to which spread of repeated calls nothing else ran: clocks and caches make it 1 or 2 % on a GPU, and more on a processor."""
HOST_CALLS = "host"  # the name of all calls of the host together, among those that are repeated


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
    host: Mapping[str, int] = field(default_factory=dict)
    """Nanoseconds of each call that times the host, by its name."""
    repeats: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The same few calls, timed at the start, again and again, and at the end: what a busy machine makes differ."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Operators that failed on this device or in this PyTorch, and how often."""
    merged: tuple[Mapping[str, str], ...] = ()
    """What each of the merged files has as `meta`."""

    def __repr__(self) -> str:
        return brief(self, [f"{len(self.rows):,} operators timed", self.meta.get("made", "")], self.device)

    @property
    def spreads(self) -> tuple[float, float]:
        """By how much the slowest of repeated calls is above the fastest: the median of those on the device, and the host's."""
        found = {name: max(times) / max(1, min(times)) - 1 for name, times in self.repeats.items() if times}
        host = found.pop(HOST_CALLS, 0.0)
        return median(found.values()) if found else 0.0, host

    @property
    def is_busy(self) -> bool:
        """Whether something else ran beside the calibration, and `force` was not given."""
        device, host = self.spreads
        steady = device <= STEADY["cpu" if self.device == HOST else "cuda"] and host <= STEADY["cpu"]
        return not steady and self.meta.get("accepted") != "busy"


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
    host: dict[str, Number] = {}
    repeats: dict[str, list[Number]] = {}
    left_out: dict[str, Number] = {}
    merged: list[dict[str, str]] = []


def _record(calibration: Calibration) -> _CalibrationFile:
    """Each distinct tensor, name and set of attributes is written once."""
    tables = document.RowTables()
    columns = tables.columns(calibration.rows, Measured._fields, _TEXTS)
    return _CalibrationFile(
        schema=SCHEMA, device=calibration.device, meta=dict(calibration.meta), position=calibration.position,
        texts=tables.texts.entries, specs=tables.specs.entries, attrs=tables.attrs.entries, rows=_Rows(**columns),
        host=dict(calibration.host), repeats={name: list(times) for name, times in calibration.repeats.items()},
        left_out=dict(calibration.left_out), merged=[dict(meta) for meta in calibration.merged],
    )  # fmt: skip


def _read(file: _CalibrationFile) -> Calibration:
    columns = document.read_columns(file, _TEXTS)
    rows = map(Measured, *(columns[name] for name in Measured._fields))
    return Calibration(
        device=file.device, meta=file.meta, position=file.position, rows=tuple(rows), host=file.host,
        repeats={name: tuple(times) for name, times in file.repeats.items()}, left_out=file.left_out,
        merged=tuple(file.merged),
    )  # fmt: skip


DOCUMENT = document.Document(
    noun="calibration", schema=SCHEMA, again="opcost calibrate -o FILE", form=_CalibrationFile, read=_read, write=_record
)  # fmt: skip
dumps = DOCUMENT.dumps


def refuse_busy(found: Calibration, path: str | PathLike[str]) -> None:
    """Raise if something else ran beside the calibration in this file."""
    if found.is_busy:
        processes = found.meta.get("gpu_processes", "1")
        beside = "" if processes in ("0", "1") else f"; {processes} processes used the GPU"
        raise InputError(
            f"the calibration {str(path)!r} was made on a busy machine: the same operators took up to {max(found.spreads):.0%} "
            f"longer at one time than at another{beside}",
            hint="make it again, to a new file, when nothing else runs; opcost calibrate --force accepts it as it is",
        )


# -- several calibrations of one device as one ---------------------------------------------------------------------------

SWITCHES = ("tf32_convolutions", "tf32_products", "cudnn_benchmark", "threads")
"""What makes times of one device incomparable."""


def merge(found: Sequence[Calibration]) -> Calibration:
    """Calibrations of one device as one: of what several timed, the median; where their `meta` differ, all of it."""
    first = found[0]
    for other in found[1:]:
        if other.device != first.device:
            raise InputError(
                f"calibrations of {first.device!r} and of {other.device!r} cannot be merged",
                hint="merge those of one device",
            )
        for switch in SWITCHES:
            if other.meta.get(switch) != first.meta.get(switch):
                values = f"{first.meta.get(switch)} and {other.meta.get(switch)}"
                hint = "make them again with the same setting"
                raise InputError(f"calibrations with {switch} {values} cannot be merged", hint=hint)
    every: dict[Any, list[Measured]] = {}
    for row in (row for each in found for row in each.rows):
        every.setdefault((row.kind, row.raw, repr(sorted(row.attrs.items())), row.ins, row.outs), []).append(row)
    names = dict.fromkeys(name for each in found for name in each.host)
    sources = tuple(meta for each in found for meta in each.merged or (each.meta,))
    return replace(
        first,
        meta={
            name: ", ".join(dict.fromkeys(meta[name] for meta in sources if name in meta))
            for name in dict.fromkeys(name for meta in sources for name in meta)
        },
        position=max(each.position for each in found),
        rows=tuple(_middle(rows) for rows in every.values()),
        host={name: round(median(each.host[name] for each in found if name in each.host)) for name in names},
        repeats={},
        left_out={name: max(each.left_out.get(name, 0) for each in found) for each in found for name in each.left_out},
        merged=sources,
    )


def _middle(rows: Sequence[Measured]) -> Measured:
    """One row with the median times of several of the same operator."""
    times = {name: round(median(getattr(row, name) for row in rows)) for name in ("device_ns", "host_ns", "workspace")}
    return rows[0]._replace(**times)


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
    """The usual time of the host to start each operator, each kind, and under the empty name any."""
    host: Mapping[str, int] = field(default_factory=dict)
    """The parts of that host, as in the calibration; of laws that come with the package they are in `hosts`."""


class _LawsFile(msgspec.Struct, array_like=True):
    device: str
    meta: dict[str, str]
    operators: int
    host_ns: dict[str, float]
    laws: list[tuple[str, str, Law]]


def packed(laws: Laws) -> bytes:
    """The content of the file of laws."""
    fitted = [(*key, law) for key, law in laws.laws.items()]
    made = _LawsFile(laws.home.name, dict(laws.meta), laws.operators, dict(laws.host_ns), fitted)
    return msgspec.msgpack.encode(made, enc_hook=Neighbours.packed)


def unpacked(content: bytes) -> Laws:
    """What such a file holds."""
    found = msgspec.msgpack.decode(content, type=_LawsFile, dec_hook=lambda _, packed: Neighbours(packed=packed))
    laws = {(family, dtype): law for family, dtype, law in found.laws}
    return Laws(
        home=find_device(found.device), meta=found.meta, operators=found.operators, laws=laws, host_ns=found.host_ns
    )


@lru_cache(maxsize=4)
def shipped(device: str) -> Laws:
    """The laws of this device that come with the package."""
    return unpacked((files(__package__) / f"{device}.laws").read_bytes())


@lru_cache(maxsize=1)
def kernels() -> Laws:
    """The laws of kernels that a compiler writes, as shares of the bandwidth: they were measured on an H200, in whole models."""
    return unpacked((files(__package__) / f"{SHIPPED[0]}.kernels").read_bytes())


# -- memory that operators take for themselves ----------------------------------------------------------------------------

Taken: TypeAlias = Mapping[tuple[str, str], Neighbours]
"""By family and element type: shares of what operators move, and which of its tensors a convolution converts."""


def packed_workspaces(taken: Taken) -> bytes:
    """The content of the file of workspaces."""
    return msgspec.msgpack.encode([(*key, near) for key, near in taken.items()], enc_hook=Neighbours.packed)


@lru_cache(maxsize=1)
def shipped_workspaces() -> Taken:
    """Those that come with the package, which were measured on an H200."""
    content = (files(__package__) / f"{SHIPPED[0]}.workspaces").read_bytes()
    form = list[tuple[str, str, Neighbours]]
    found = msgspec.msgpack.decode(content, type=form, dec_hook=lambda _, packed: Neighbours(packed=packed))
    return {(family, dtype): near for family, dtype, near in found}
