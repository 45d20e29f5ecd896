"""Peaks of accelerators, for the percent-of-peak columns. Dense figures; makers also print twice that, for sparse.

`source` names the document to hold a figure against; the figures have not been checked against them line by line yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opcost.errors import UnknownName

TERA = 10**12
GIGA = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator: FLOP/s by element type (of matrix units where it has them) and bytes per second of its memory."""

    name: str
    flops: Mapping[str, int]
    bandwidth: int
    source: str

    def peak_flops(self, dtype: str, *, tf32: bool = False) -> int | None:
        """The peak for products of elements of this type; None where the maker prints none."""
        name = _SAME_UNITS.get(dtype, dtype)
        if name == "float32" and tf32 and "tf32" in self.flops:
            name = "tf32"
        return self.flops.get(name)


_SAME_UNITS = {
    "bfloat16": "float16",
    "qint8": "int8",
    "quint8": "int8",
    "uint8": "int8",
    "float8_e4m3fn": "float8",
    "float8_e5m2": "float8",
    "float8_e4m3fnuz": "float8",
    "float8_e5m2fnuz": "float8",
    "complex64": "float32",
    "complex128": "float64",
}
"""Types that run at the rate of another one on every device of the table."""


def _device(name: str, bandwidth: int, source: str, **tera: float) -> Device:
    return Device(
        name=name,
        flops={dtype: round(peak * TERA) for dtype, peak in tera.items()},
        bandwidth=bandwidth,
        source=source,
    )


_HOPPER = {"float64": 66.9, "float32": 66.9, "tf32": 494.7, "float16": 989.4, "float8": 1978.9, "int8": 1978.9}
_AMPERE = {"float64": 19.5, "float32": 19.5, "tf32": 156.0, "float16": 312.0, "int8": 624.0}

_ALL = (
    _device(
        "b200",
        8000 * GIGA,
        "NVIDIA DGX B200 datasheet, one of eight GPUs",
        float16=2250.0,
        float8=4500.0,
    ),
    _device("h200", 4800 * GIGA, "NVIDIA H200 Tensor Core GPU datasheet, SXM", **_HOPPER),
    _device("h100", 3350 * GIGA, "NVIDIA H100 Tensor Core GPU datasheet, SXM5 80 GB", **_HOPPER),
    _device(
        "h100-pcie",
        2000 * GIGA,
        "NVIDIA H100 Tensor Core GPU datasheet, PCIe 80 GB",
        float64=51.2,
        float32=51.2,
        tf32=378.0,
        float16=756.0,
        float8=1513.0,
        int8=1513.0,
    ),
    _device("a100", 2039 * GIGA, "NVIDIA A100 80GB Tensor Core GPU datasheet, SXM4", **_AMPERE),
    _device("a100-40gb", 1555 * GIGA, "NVIDIA A100 Tensor Core GPU datasheet, 40 GB", **_AMPERE),
    _device("a100-pcie", 1935 * GIGA, "NVIDIA A100 80GB Tensor Core GPU datasheet, PCIe", **_AMPERE),
    _device(
        "a10", 600 * GIGA, "NVIDIA A10 Tensor Core GPU datasheet", float32=31.2, tf32=62.5, float16=125.0, int8=250.0
    ),
    _device(
        "v100", 900 * GIGA, "NVIDIA V100 Tensor Core GPU datasheet, SXM2", float64=7.8, float32=15.7, float16=125.0
    ),
    _device("t4", 320 * GIGA, "NVIDIA T4 Tensor Core GPU datasheet", float32=8.1, float16=65.0, int8=130.0, int4=260.0),
    _device(
        "l4",
        300 * GIGA,
        "NVIDIA L4 Tensor Core GPU datasheet, halved where it says sparsity",
        float32=30.3,
        tf32=60.0,
        float16=121.0,
        float8=242.5,
        int8=242.5,
    ),
    _device(
        "l40s",
        864 * GIGA,
        "NVIDIA L40S datasheet",
        float32=91.6,
        tf32=183.0,
        float16=362.05,
        float8=733.0,
        int8=733.0,
    ),
    _device(
        "rtx4090",
        1008 * GIGA,
        "NVIDIA Ada GPU architecture whitepaper, 16-bit products summed in 32 bits",
        float32=82.6,
        tf32=82.6,
        float16=165.2,
        float8=330.3,
        int8=660.6,
    ),
    _device(
        "rtx3090",
        936 * GIGA,
        "NVIDIA Ampere GA102 GPU architecture whitepaper, 16-bit products summed in 32 bits",
        float32=35.6,
        tf32=35.6,
        float16=71.0,
        int8=284.0,
    ),
    _device(
        "mi300x",
        5300 * GIGA,
        "AMD Instinct MI300X accelerator data sheet, matrix figures",
        float64=163.4,
        float32=163.4,
        tf32=653.7,
        float16=1307.4,
        float8=2614.9,
        int8=2614.9,
    ),
    _device(
        "mi250x",
        3277 * GIGA,
        "AMD Instinct MI250X accelerator data sheet, matrix figures",
        float64=95.7,
        float32=95.7,
        float16=383.0,
        int8=383.0,
    ),
)

DEVICES: Mapping[str, Device] = {device.name: device for device in _ALL}


def device(name: str) -> Device:
    """The device of this name, in any capitals and with or without blanks and dashes."""
    wanted = name.casefold().replace(" ", "").replace("_", "-")
    for known, found in DEVICES.items():
        if wanted in (known, known.replace("-", "")):
            return found
    raise UnknownName(
        "device", name, DEVICES, hint="measured peaks can be given instead: --peak-flops, --peak-bandwidth"
    )


def measured(flops: int | None, bandwidth: int | None) -> Device:
    """A device with the caller's own peaks, the same for every element type."""
    dtypes = ("float64", "float32", "tf32", "float16", "float8", "int8")
    return Device(
        name="measured",
        flops=dict.fromkeys(dtypes, flops) if flops else {},
        bandwidth=bandwidth or 0,
        source="given by the caller",
    )
