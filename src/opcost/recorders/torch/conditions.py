"""What a measurement depends on besides the model: versions, threads, precision switches, clocks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from opcost.recorders.measure import host_conditions, readable_conditions


def conditions(device: torch.device) -> dict[str, str]:
    """Everything about this machine and process that a second measurement must share to be comparable."""
    wanted: dict[str, Callable[[], Any]] = {
        "torch": lambda: torch.__version__,
        "threads": torch.get_num_threads,
        "interop_threads": torch.get_num_interop_threads,
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "deterministic": torch.are_deterministic_algorithms_enabled,
        "mkldnn": lambda: torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
    }
    if device.type == "cuda":
        cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
        switches = {"flash": "flash", "efficient": "mem_efficient", "cudnn": "cudnn", "math": "math"}
        wanted |= {
            "gpu": lambda: torch.cuda.get_device_name(device),
            "gpu_memory_bytes": lambda: torch.cuda.get_device_properties(device).total_memory,
            "gpu_multiprocessors": lambda: torch.cuda.get_device_properties(device).multi_processor_count,
            "cuda": lambda: torch.version.cuda or torch.version.hip,
            "cudnn": cudnn.version,
            "cudnn_benchmark": lambda: cudnn.benchmark,
            "cudnn_tf32": lambda: cudnn.allow_tf32,
            "matmul_tf32": lambda: cuda.matmul.allow_tf32,
            "gpu_compute_capability": lambda: ".".join(map(str, torch.cuda.get_device_capability(device))),
            "sdp_backends": lambda: ", ".join(
                name for name, word in switches.items() if getattr(cuda, f"{word}_sdp_enabled")()
            ),
        }
    return host_conditions() | readable_conditions(wanted)


# -- clocks, temperature and power of a GPU, from its driver: PyTorch itself needs a package that few have

_SM, _MEMORY = 1, 2  # what NVML calls its clock domains
_TEMPERATURE = 0


def gpu_state(device: torch.device) -> dict[str, str]:
    """Clocks, temperature and power of the device at this moment; empty where they are unknown."""
    try:
        return _by_nvml(device)
    except (OSError, AttributeError, LookupError):
        # The devices of AMD, and NVIDIA's where the driver's library is elsewhere
        found = {}
        for name, ask in (("gpu_clock_mhz", torch.cuda.clock_rate), ("gpu_temperature_c", torch.cuda.temperature)):
            with suppress(Exception):  # it needs a further package, which is seldom there
                found[name] = str(ask(device))
        return found


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
