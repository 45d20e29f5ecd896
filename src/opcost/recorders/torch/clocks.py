"""The clocks, temperature and power of a GPU, asked of its driver: PyTorch itself asks by a package that few have."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress

import torch

_SM, _MEMORY = 1, 2
"""What NVML calls its clock domains."""
_TEMPERATURE = 0


def gpu_state(device: torch.device) -> dict[str, str]:
    """How fast and how warm the device is at this moment; empty where nobody can tell."""
    try:
        return _by_nvml(device)
    except (OSError, AttributeError, LookupError):
        return _by_torch(device)


def _by_nvml(device: torch.device) -> dict[str, str]:
    library = ctypes.CDLL("libnvidia-ml.so.1")
    if library.nvmlInit_v2() != 0:
        raise LookupError("the driver does not answer")
    try:
        handle = ctypes.c_void_p()
        # By its own number, because what torch calls the first device may be another one for the driver.
        name = f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode("ascii")
        if library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)) != 0:
            raise LookupError("the driver does not know this device")

        def ask(function: Callable[..., int], *which: int) -> int | None:
            value = ctypes.c_uint()
            return value.value if function(handle, *which, ctypes.byref(value)) == 0 else None

        milliwatts = ask(library.nvmlDeviceGetPowerUsage)
        found = {
            "gpu_clock_mhz": ask(library.nvmlDeviceGetClockInfo, _SM),
            "gpu_clock_max_mhz": ask(library.nvmlDeviceGetMaxClockInfo, _SM),
            "gpu_memory_clock_mhz": ask(library.nvmlDeviceGetClockInfo, _MEMORY),
            "gpu_temperature_c": ask(library.nvmlDeviceGetTemperature, _TEMPERATURE),
            "gpu_power_w": None if milliwatts is None else round(milliwatts / 1000),
        }
    finally:
        library.nvmlShutdown()
    return {name: str(value) for name, value in found.items() if value is not None}


def _by_torch(device: torch.device) -> dict[str, str]:
    """The devices of AMD, and NVIDIA's where the driver's library lies elsewhere."""
    found = {}
    for name, ask in (("gpu_clock_mhz", torch.cuda.clock_rate), ("gpu_temperature_c", torch.cuda.temperature)):
        with suppress(Exception):  # it needs a further package, which is seldom there
            found[name] = str(ask(device))
    return found
