"""The laws that were fitted to a calibration, as data: what a prediction needs, without the operators that were timed.

Those of calibrated devices come with the package as `NAME.laws.json.gz`, written by `python benchmarks/fit_laws.py`.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from math import dist
from typing import NamedTuple

import msgspec

from opcost.core.devices import Device
from opcost.core.devices import device as find_device

SHIPPED = ("h200",)  # devices whose laws come with the package


class Near(NamedTuple):
    """One timed operator: its place among those like it, and by how much it missed the law, or its share of workspace."""

    place: tuple[float, ...]
    ratio: float


class Law(NamedTuple):
    """One family of operators on elements of one type: t = start + max(FLOPs / (share * peak), bytes / (share * bandwidth))."""

    start_ns: float
    compute: float  # the share of the peak that it reaches
    memory: float
    spread: float
    near: tuple[Near, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Laws:
    """All that was fitted to one device."""

    home: Device  # the device that was calibrated
    meta: Mapping[str, str]  # product, day, versions, clocks, and switches such as TF32 for products of float32
    operators: int  # how many were timed
    laws: dict[tuple[str, str], Law] = field(default_factory=dict)  # by family and element type
    host_ns: Mapping[str, float] = field(default_factory=dict)
    """The usual time of the host for each operator, for each kind, and under the empty name for any."""
    workspaces: Mapping[tuple[str, str], tuple[Near, ...]] = field(default_factory=dict)
    """Memory beside the results, as a share of the bytes that an operator moves, by family and element type."""


class _LawsFile(msgspec.Struct, array_like=True):
    device: str
    meta: dict[str, str]
    operators: int
    host_ns: dict[str, float]
    laws: list[tuple[str, str, Law]]
    workspaces: list[tuple[str, str, tuple[Near, ...]]]


def dumps(laws: Laws) -> bytes:
    """The content of the file."""
    fitted = [(*key, law) for key, law in laws.laws.items()]
    workspaces = [(*key, near) for key, near in laws.workspaces.items()]
    made = _LawsFile(laws.home.name, dict(laws.meta), laws.operators, dict(laws.host_ns), fitted, workspaces)
    return gzip.compress(msgspec.json.encode(made), 9, mtime=0)


def loads(packed: bytes) -> Laws:
    """What such a file holds."""
    found = msgspec.json.decode(gzip.decompress(packed), type=_LawsFile)
    laws = {(family, dtype): law for family, dtype, law in found.laws}
    workspaces = {(family, dtype): near for family, dtype, near in found.workspaces}
    return Laws(
        home=find_device(found.device), meta=found.meta, operators=found.operators, laws=laws, host_ns=found.host_ns,
        workspaces=workspaces,
    )  # fmt: skip


@lru_cache(maxsize=4)
def shipped(device: str) -> Laws:
    """The laws of this device that come with the package."""
    return loads((files(__package__) / f"{device}.laws.json.gz").read_bytes())


def nearest(near: tuple[Near, ...], place: tuple[float, ...]) -> Near:
    """The timed operator that is most like one at this place."""
    return min(near, key=lambda one: dist(one.place, place))
