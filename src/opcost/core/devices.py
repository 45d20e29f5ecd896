"""Published peaks of accelerators, for the percent-of-peak columns; all figures are dense.

Of each device there is the maker's document, and its address or that of a page that repeats its figures. Makers like to print
rates for matrices with every other element zero; `halved` says that the document does so and the table has half of it.
A type whose figure was found on no such page is left out, and lines of that type have no percentage.
"""

from __future__ import annotations

import re
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
    """The maker's document."""
    url: str = ""
    """Its address, or that of a page that repeats its figures."""
    halved: bool = False
    """The document prints rates of matrix units with sparsity, twice those here."""

    def peak_flops(self, dtype: str, *, tf32: bool = False) -> int | None:
        """The peak for products of elements of this type; None where the maker prints none."""
        name = _SAME_UNITS.get(dtype, dtype)
        if name == "float32" and tf32 and "tf32" in self.flops:
            name = "tf32"
        return self.flops.get(name)

    @property
    def told(self) -> str:
        """What the peaks are held against, in one line."""
        return f"{self.name}: {self.source}{', halved for dense matrices' if self.halved else ''}"


_SAME_UNITS = {
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

_NO_BFLOAT16 = ("v100", "v100-pcie", "t4")
"""Older than the type; all the others run it at the rate of float16."""


def _device(
    name: str, bandwidth: float, source: str, url: str, *, tera: Mapping[str, float], halved: bool = False
) -> Device:
    """Gigabytes per second of memory, and operations per second in tera."""
    peaks = dict(tera)
    if "float16" in peaks and name not in _NO_BFLOAT16:
        peaks["bfloat16"] = peaks["float16"]
    return Device(
        name=name,
        flops={dtype: round(peak * TERA) for dtype, peak in peaks.items()},
        bandwidth=round(bandwidth * GIGA),
        source=source,
        url=url,
        halved=halved,
    )


_AMPERE = {"float64": 19.5, "float32": 19.5, "tf32": 156.0, "float16": 312.0, "int8": 624.0}
_HOPPER = {"float64": 66.9, "float32": 66.9, "tf32": 494.7, "float16": 989.4, "float8": 1978.9, "int8": 1978.9}
_HOPPER_PCIE = {"float64": 51.0, "float32": 51.0, "tf32": 378.0, "float16": 756.5, "float8": 1513.0, "int8": 1513.0}
_CDNA3 = {"float64": 163.4, "float32": 163.4, "tf32": 653.7, "float16": 1307.4, "float8": 2614.9, "int8": 2614.9}

_A100 = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
_V100 = "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
_T4 = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf"
_MI200 = "https://zexron.com/amd-mi250-x-aldebaran-as-mcm-with-up-to-479-teraflop-s-and-560-watt-tdp"

_ALL = (
    _device(
        "b200",
        8000,
        "NVIDIA Blackwell datasheet, HGX B200, one of eight GPUs",
        "https://glennklockwood.com/garden/processors/B200",
        tera={"float64": 40, "float32": 80, "tf32": 1100, "float16": 2250, "float8": 4500, "int8": 4500},
        halved=True,
    ),
    _device(
        "h200",
        4800,
        "NVIDIA H200 Tensor Core GPU datasheet, SXM; compute units are those of the H100",
        "https://itkb.uw.cz/2026/06/nvidia-h200-vs-b300-precisions-cores.html",
        tera=_HOPPER,
        halved=True,
    ),
    _device(
        "h100",
        3350,
        "NVIDIA H100 Tensor Core GPU architecture whitepaper, SXM5 80 GB",
        "https://glennklockwood.com/garden/processors/h100",
        tera=_HOPPER,
    ),
    _device(
        "h100-pcie",
        2000,
        "NVIDIA H100 Tensor Core GPU datasheet, PCIe 80 GB",
        "https://archive-lib.hpctech.co.jp/gpuproduct/nvidia-h100.html",
        tera=_HOPPER_PCIE,
        halved=True,
    ),
    _device("a100", 2039, "NVIDIA A100 Tensor Core GPU datasheet, SXM 80 GB", _A100, tera=_AMPERE),
    _device("a100-pcie", 1935, "NVIDIA A100 Tensor Core GPU datasheet, PCIe 80 GB", _A100, tera=_AMPERE),
    _device(
        "a100-40gb",
        1555,
        "NVIDIA A100 Tensor Core GPU datasheet, 40 GB",
        "https://www.thundercompute.com/blog/nvidia-a100-specs-full-guide",
        tera=_AMPERE,
    ),
    _device(
        "a40",
        696,
        "NVIDIA A40 datasheet",
        "https://www.ecer.com/corp/details-uuuedqa-p1bsay9-multi-display-setups-supported-by-48gb-gddr6-ecc-memory-nvidia-a40-gpu-and-vga-outputs.html",
        tera={"float32": 37.4, "tf32": 74.8, "float16": 149.7, "int8": 299.3},
    ),
    _device(
        "a10",
        600,
        "NVIDIA A10 Tensor Core GPU datasheet",
        "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf",
        tera={"float32": 31.2, "float16": 125.0},
    ),
    _device(
        "v100", 900, "NVIDIA V100 datasheet, SXM2", _V100, tera={"float64": 7.8, "float32": 15.7, "float16": 125.0}
    ),
    _device(
        "v100-pcie", 900, "NVIDIA V100 datasheet, PCIe", _V100, tera={"float64": 7.0, "float32": 14.0, "float16": 112.0}
    ),
    _device("t4", 320, "NVIDIA T4 datasheet", _T4, tera={"float32": 8.1, "float16": 65.0, "int8": 130.0}),
    _device(
        "l4",
        300,
        "NVIDIA L4 Tensor Core GPU datasheet",
        "https://www.yobitel.com/knowledge-base/nvidia-l4",
        tera={"float32": 30.3, "tf32": 60.0, "float16": 121.0, "float8": 242.5, "int8": 242.5},
        halved=True,
    ),
    _device(
        "l40",
        864,
        "NVIDIA L40 datasheet",
        "https://www.mullet.se/product.html?product_id=355414",
        tera={"float32": 90.5, "tf32": 90.5, "float16": 181.05, "float8": 362.0, "int8": 362.0},
    ),
    _device(
        "l40s",
        864,
        "NVIDIA L40S datasheet",
        "https://www.mullet.se/product.html?product_id=355414",
        tera={"float32": 91.6, "tf32": 183.0, "float16": 362.05, "float8": 733.0, "int8": 733.0},
    ),
    _device(
        "rtx4090",
        1008,
        "NVIDIA Ada GPU architecture whitepaper, 16-bit products summed in 32 bits",
        "https://waredb.com/processor/nvidia-geforce-rtx-4090",
        tera={"float32": 82.6, "tf32": 82.6, "float16": 165.2, "float8": 330.3, "int8": 660.6},
    ),
    _device(
        "rtx3090",
        936,
        "NVIDIA Ampere GA102 GPU architecture whitepaper",
        "https://holynerdvana.blogspot.com/2022/10/nvidia-geforce-rtx-3090-specifications.html",
        tera={"float32": 35.6},
    ),
    _device(
        "mi325x",
        6000,
        "AMD Instinct MI325X data sheet, matrix figures",
        "https://awesomeagents.ai/hardware/amd-mi325x",
        tera=_CDNA3,
    ),
    _device(
        "mi300x",
        5300,
        "AMD Instinct MI300X data sheet, matrix figures",
        "https://awesomeagents.ai/hardware/amd-mi325x",
        tera=_CDNA3,
    ),
    _device(
        "mi250x",
        3276.8,
        "AMD Instinct MI200 series brochure, matrix figures, both dies",
        _MI200,
        tera={"float64": 95.7, "float32": 95.7, "float16": 383.0, "int8": 383.0},
    ),
    _device(
        "mi250",
        3276.8,
        "AMD Instinct MI200 series brochure, matrix figures, both dies",
        _MI200,
        tera={"float64": 90.5, "float32": 90.5, "float16": 362.1, "int8": 362.1},
    ),
)  # fmt: skip

DEVICES: Mapping[str, Device] = {device.name: device for device in _ALL}


_MAKERS = ("nvidia", "amd", "instinct", "geforce", "tesla")


def device(name: str) -> Device:
    """The device of this name, in any capitals, with or without its maker, blanks and dashes."""
    words = [word for word in re.split(r"[ _]", name.casefold()) if word not in _MAKERS]
    wanted = "".join(words)
    for known, found in DEVICES.items():
        if wanted in (known, known.replace("-", "")):
            return found
    raise UnknownName(
        "device",
        name,
        DEVICES,
        hint=f"known are {', '.join(DEVICES)}; measured peaks can be given instead: --peak-flops, --peak-bandwidth",
    )


def measured(flops: int | None, bandwidth: int | None) -> Device:
    """A device with the caller's own peaks, the same for every element type."""
    dtypes = ("float64", "float32", "tf32", "float16", "bfloat16", "float8", "int8")
    return Device(
        name="measured",
        flops=dict.fromkeys(dtypes, flops) if flops else {},
        bandwidth=bandwidth or 0,
        source="given by the caller",
    )
