"""Published peaks of accelerators, for the percent-of-peak columns; all figures are dense.

Of each device there is the maker's document, and its address or that of a page that repeats its figures. Makers like to print
rates for matrices with every other element zero; `halved` says that the document does so and the table has half of it.
A type whose figure was found on no such page is left out, and lines of that type have no percentage. `devices.json` has them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opcost.core.parsing import packaged_table
from opcost.errors import UnknownName

TERA = 10**12
GIGA = 10**9
UNUSABLE_BYTES = 1316 << 20  # of a device's memory for driver, context and libraries of a process (H200, CUDA 13)
PROCESS_BYTES = 740 << 20  # the process' share after products and convolutions; each new kernel adds some MiB
LIBRARY_BYTES = 34 << 20  # bytes that cuBLAS takes from PyTorch's allocator as its workspace and keeps (H200, CUDA 13)


PRODUCTS_SOURCE = "https://github.com/stas00/ml-engineering/tree/master/compute/accelerator"
"""Maximum achievable matmul FLOPS, means of 100 products after 50; of 2025 and 2026."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator: FLOP/s by element type (of matrix units where it has them) and bytes per second of its memory."""

    name: str
    flops: Mapping[str, int]
    bandwidth: int
    source: str  # the maker's document, and of which unit the figures are
    url: str = ""  # its address, or that of a page that repeats its figures
    driver: str = ""  # the driver's name for it, as a regular expression; empty where it reports only one of two dies
    memory: int | None = None  # bytes as its driver reports them; None: several sizes, or two devices to a program
    halved: bool = False  # the document prints rates of matrix units with sparsity, twice those here
    multiprocessors: int | None = None
    clock: int | None = None  # their highest, in MHz
    power: int | None = None  # what it may draw, in watts
    draw: int | None = None  # what training would draw at the clocks of a calibration (`analysis/prediction/power.py`)
    products: float | None = (
        None  # the share of the peak that the best products of bfloat16 reach; of `PRODUCTS_SOURCE`
    )

    @property
    def issue_rate(self) -> int | None:
        """Clocks of all multiprocessors in a microsecond: how fast it runs what waits for neither memory nor matrix units."""
        return None if self.multiprocessors is None or self.clock is None else self.multiprocessors * self.clock

    @property
    def usable(self) -> int | None:
        """Bytes of its memory that tensors may get."""
        return None if self.memory is None else self.memory - UNUSABLE_BYTES

    def peak_flops(self, dtype: str, *, tf32: bool = False) -> int | None:
        """The peak for products of elements of this type; None where the maker prints none."""
        name = _SAME_UNITS.get(dtype, dtype)
        if name == "float32" and tf32 and "tf32" in self.flops:
            name = "tf32"
        return self.flops.get(name)

    @property
    def description(self) -> str:
        """The source of the peaks, in one line."""
        return f"{self.name}: {self.source}{', halved for dense matrices' if self.halved else ''}"


_SAME_UNITS = {
    "qint8": "int8", "quint8": "int8", "uint8": "int8", "float8_e4m3fn": "float8", "float8_e5m2": "float8",
    "float8_e4m3fnuz": "float8", "float8_e5m2fnuz": "float8", "complex64": "float32", "complex128": "float64",
}  # fmt: skip
"""Types that run at the rate of another one on every device of the table."""


def _read(entry: dict[str, Any]) -> Device:
    """From gigabytes per second of memory and TFLOP/s; most devices run bfloat16 at the rate of float16."""
    tera = entry.pop("tera")
    if entry.pop("bfloat16", True) and "float16" in tera:
        tera["bfloat16"] = tera["float16"]
    memory = entry.pop("mebibytes") << 20 if "mebibytes" in entry else None
    flops, bandwidth = {dtype: round(peak * TERA) for dtype, peak in tera.items()}, round(entry.pop("bandwidth") * GIGA)
    return Device(flops=flops, bandwidth=bandwidth, memory=memory, **entry)


DEVICES: Mapping[str, Device] = {entry["name"]: _read(entry) for entry in packaged_table(__package__, "devices.json")}

_MAKERS = ("nvidia", "amd", "apple", "google", "qualcomm", "instinct", "geforce", "tesla", "jetson")
_VARIANT = r"(?!\w| (?:Ti|SUPER|D|Laptop|Max-Q)\b)"
"""What may not follow a driver's name: another device has the longer one."""


def device(name: str) -> Device:
    """The device of this name, in any capitals, with or without its maker, blanks and dashes; or of its driver's name."""
    wanted = "".join(word for word in re.split(r"[ _]", name.casefold()) if word not in _MAKERS)
    for known, found in DEVICES.items():
        if wanted in (known, known.replace("-", "")):
            return found
    if (named := named_by_driver(name)) is not None:
        return named
    raise UnknownName("device", name, DEVICES, hint="opcost predict --help lists all")


HOST = "cpu"  # the name of the processor; there are no published peaks for it, only its own calibration


def autocasts_like(name: str | None) -> str | None:
    """The type of device by whose rules autocast casts on a device of this name, if one is named."""
    return None if name is None else HOST if name == HOST else "cuda"


def named_by_driver(name: str) -> Device | None:
    """The device of this name, or with this driver name (`NVIDIA H100 80GB HBM3`); None where there is none, or it is unsure."""
    if name in DEVICES:
        return DEVICES[name]
    for found in DEVICES.values():
        if found.driver and re.search(rf"(?<!\w){found.driver}{_VARIANT}", name, re.IGNORECASE):
            return found
    return None


def device_named_in(meta: Mapping[str, str]) -> Device | None:
    """The device that the meta data of a profile name; None where the table has none like it."""
    return named_by_driver(meta.get("gpu") or meta.get("device", ""))


def measured(flops: int | None, bandwidth: int | None) -> Device:
    """A device with the caller's own peaks, the same for every element type."""
    dtypes = ("float64", "float32", "tf32", "float16", "bfloat16", "float8", "int8")
    peaks = dict.fromkeys(dtypes, flops) if flops else {}
    return Device(name="measured", flops=peaks, bandwidth=bandwidth or 0, source="given by the caller")
