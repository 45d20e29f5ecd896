"""The table of devices: rates from cores and clocks, bandwidths from buses, and the names that find them."""

from __future__ import annotations

from typing import TypeAlias

import pytest

import opcost
from opcost.core.devices import DEVICES, GIGA, TERA, device, named_by_driver
from opcost.errors import InputError, UnknownName

Multiples: TypeAlias = dict[str, float]
"""What a core does of each type, in multiples of float32; products of 16 bits summed in float32."""
TURING: Multiples = {"float32": 1, "float16": 4, "int8": 16}
AMPERE: Multiples = {"float32": 1, "tf32": 1, "float16": 2, "int8": 8}
ADA: Multiples = {**AMPERE, "float8": 4}
WHOLE_AMPERE: Multiples = {"float32": 1, "tf32": 2, "float16": 4, "int8": 8}  # the matrix units sum at full rate
ORIN: Multiples = {"float32": 1, "float16": 8, "int8": 16}
CDNA2: Multiples = {"float64": 2, "float32": 2, "float16": 8, "int8": 8}
CDNA3: Multiples = {"float64": 2, "float32": 2, "tf32": 8, "float16": 16, "float8": 32, "int8": 32}
CDNA4: Multiples = {"float64": 1, "float32": 2, "float16": 32, "float8": 64, "int8": 64}
TPU: Multiples = {"bfloat16": 1}
CORES: dict[str, tuple[int, float, Multiples]] = {  # cores, GHz, and the multiples
    "rtx2060": (1920, 1.68, TURING), "rtx2070": (2304, 1.62, TURING), "rtx2080": (2944, 1.71, TURING),
    "rtx2080ti": (4352, 1.545, TURING), "rtx3060": (3584, 1.777, AMPERE), "rtx3070": (5888, 1.725, AMPERE),
    "rtx3080": (8704, 1.71, AMPERE), "rtx3090": (10496, 1.695, AMPERE), "rtx3090ti": (10752, 1.86, AMPERE),
    "rtx4060": (3072, 2.46, ADA), "rtx4060ti": (4352, 2.535, ADA), "rtx4070": (5888, 2.475, ADA),
    "rtx4070ti": (7680, 2.61, ADA), "rtx4080": (9728, 2.505, ADA), "rtx4090": (16384, 2.52, ADA),
    "rtx5070": (6144, 2.512, ADA), "rtx5070ti": (8960, 2.452, ADA), "rtx5080": (10752, 2.617, ADA),
    "rtx5090": (21760, 2.407, ADA), "a6000": (10752, 1.8, WHOLE_AMPERE), "a40": (10752, 1.74, WHOLE_AMPERE),
    "rtx6000-ada": (18176, 2.505, WHOLE_AMPERE | {"float8": 8}), "a10": (9216, 1.695, {"float32": 1, "float16": 4}),
    "t4": (2560, 1.59, TURING | {"float16": 8}), "v100": (5120, 1.53, {"float64": 0.5, "float32": 1, "float16": 8}),
    "a100": (6912, 1.41, {"float64": 1, "float32": 1, "tf32": 8, "float16": 16, "int8": 32}),
    "h100": (16896, 1.98, {"float64": 1, "float32": 1}), "agx-orin": (2048, 1.3, ORIN), "orin-nx": (1024, 0.918, ORIN),
    "orin-nano-super": (1024, 1.02, ORIN), "orin-nano": (1024, 0.625, {"float32": 1}),
    "mi250": (13312, 1.7, CDNA2), "mi250x": (14080, 1.7, CDNA2), "mi300x": (19456, 2.1, CDNA3),
    "mi325x": (19456, 2.1, CDNA3), "mi350x": (16384, 2.2, CDNA4), "mi355x": (16384, 2.4, CDNA4),
    # multipliers of the matrix units: units, each of 128 x 128
    "tpu-v2": (2 * 128 * 128, 0.7, TPU), "tpu-v3": (4 * 128 * 128, 0.94, TPU), "tpu-v4": (8 * 128 * 128, 1.05, TPU),
}  # fmt: skip
BUSES = {  # bits, and Gbit/s of each
    "rtx2060": (192, 14), "rtx2070": (256, 14), "rtx2080": (256, 14), "rtx2080ti": (352, 14), "rtx3060": (192, 15),
    "rtx3070": (256, 14), "rtx3080": (320, 19), "rtx3090": (384, 19.5), "rtx3090ti": (384, 21), "rtx4060": (128, 17),
    "rtx4060ti": (128, 18), "rtx4070": (192, 21), "rtx4070ti": (192, 21), "rtx4080": (256, 22.4), "rtx4090": (384, 21),
    "rtx5070": (192, 28), "rtx5070ti": (256, 28), "rtx5080": (256, 30), "rtx5090": (512, 28), "a6000": (384, 16),
    "rtx6000-ada": (384, 20), "a40": (384, 14.5), "a10": (384, 12.5), "l4": (192, 12.5), "l40": (384, 18),
    "l40s": (384, 18), "t4": (256, 10), "mi250x": (8192, 3.2), "agx-orin": (256, 6.4), "orin-nx": (128, 6.4),
    "orin-nano-super": (128, 6.4), "orin-nano": (128, 4.266), "m1": (128, 4.266), "m3-ultra": (1024, 6.4),
    "m4": (128, 7.5), "m4-pro": (256, 8.533), "m4-max": (512, 8.533), "snapdragon-8-gen-2": (64, 8.4),
    "snapdragon-8-gen-3": (64, 9.6), "snapdragon-x-elite": (128, 8.448),
}  # fmt: skip
PRINTED = 0.0055
"""Makers print two to four digits: a rate of 7.5 is 7.465."""


@pytest.mark.parametrize("name", CORES)
def test_rates_are_cores_times_clock_times_two(name: str) -> None:
    cores, gigahertz, multiples = CORES[name]
    rates = {dtype: rate / TERA for dtype, rate in DEVICES[name].flops.items() if dtype in multiples}
    assert rates.keys() == multiples.keys()
    expected = {dtype: 2 * cores * gigahertz / 1000 * times for dtype, times in multiples.items()}
    assert rates == pytest.approx(expected, rel=PRINTED)


@pytest.mark.parametrize("name", BUSES)
def test_bandwidths_are_bus_width_times_data_rate(name: str) -> None:
    bits, gigabits = BUSES[name]
    assert DEVICES[name].bandwidth / GIGA == pytest.approx(bits * gigabits / 8, rel=PRINTED)


def test_every_device_names_its_source_and_has_sane_figures() -> None:
    for found in DEVICES.values():
        assert device(found.name.upper()) is found
        assert found.source
        assert found.url.startswith("https://")
        assert 30 * GIGA < found.bandwidth < 10_000 * GIGA
        assert all(TERA <= rate < 10_000 * TERA for rate in found.flops.values())
        wide = [found.flops[name] for name in ("float32", "tf32", "float16", "float8") if name in found.flops]
        assert wide == sorted(wide), f"{found.name}: narrower types are not slower"
        assert found.memory is None or 4 << 30 < found.memory < 400 << 30


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("RTX 4090", "rtx4090"), ("NVIDIA GeForce RTX 5070 Ti", "rtx5070ti"), ("nvidia rtx a6000", "a6000"),
        ("RTX 6000 Ada", "rtx6000-ada"), ("Jetson AGX Orin", "agx-orin"), ("Apple M1 Max", "m1-max"), ("M4", "m4"),
        ("TPU v5e", "tpu-v5e"), ("Google TPU v4", "tpu-v4"), ("Snapdragon X Elite", "snapdragon-x-elite"),
        ("AMD Instinct MI355X", "mi355x"),
    ],
)  # fmt: skip
def test_devices_are_found_by_what_people_call_them(typed: str, name: str) -> None:
    assert device(typed).name == name


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA GeForce RTX 4070 Ti", "rtx4070ti"), ("NVIDIA GeForce RTX 4070 Ti SUPER", None),
        ("NVIDIA GeForce RTX 4090 D", None), ("NVIDIA GeForce RTX 5090 Laptop GPU", None), ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000-ada"), ("NVIDIA GeForce RTX 3080", None),  # 10 or 12 GB
        ("TPU v5", "tpu-v5p"), ("TPU v5 lite", "tpu-v5e"), ("TPU v6 lite", "tpu-v6e"), ("Orin", None),
        ("h100", "h100"), ("NVIDIA H100", "h100-96gb"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100-pcie"),
    ],
)  # fmt: skip
def test_a_drivers_name_is_that_of_one_device_or_of_none(driver: str, name: str | None) -> None:
    found = named_by_driver(driver)
    assert (found and found.name) == name


def test_an_unknown_device_is_answered_in_two_short_lines() -> None:
    with pytest.raises(UnknownName) as raised:
        device("rtx40")
    assert raised.value.near[0].startswith("rtx40")
    with pytest.raises(UnknownName, match=r"and \d+ more") as raised:
        device("gaudi")
    assert len(str(raised.value)) < 300


def test_a_device_without_rates_is_not_predicted() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="m2 cannot be predicted"):
        opcost.predict(torch.nn.Linear(4, 4), shapes=(1, 4), device="m2")
