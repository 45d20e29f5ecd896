"""What a measurement depends on besides the model: versions, threads, precision switches, clocks."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from opcost import __version__


def conditions(device: torch.device) -> dict[str, str]:
    """Everything about this machine and process that a second measurement must share to be comparable."""
    asked: dict[str, Callable[[], Any]] = {
        "opcost": lambda: __version__,
        "torch": lambda: torch.__version__,
        "python": platform.python_version,
        "system": platform.platform,
        "cpu": _cpu_name,
        "cpus": os.cpu_count,
        "cpu_clock_mhz": _cpu_clock,
        "cpu_governor": lambda: _line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "threads": torch.get_num_threads,
        "interop_threads": torch.get_num_interop_threads,
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "deterministic": torch.are_deterministic_algorithms_enabled,
        "mkldnn": lambda: torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
    }
    if device.type == "cuda":
        asked |= {
            "gpu": lambda: torch.cuda.get_device_name(device),
            "gpu_memory_bytes": lambda: torch.cuda.get_device_properties(device).total_memory,
            "gpu_multiprocessors": lambda: torch.cuda.get_device_properties(device).multi_processor_count,
            "cuda": lambda: torch.version.cuda or torch.version.hip,
            "cudnn": torch.backends.cudnn.version,
            "cudnn_benchmark": lambda: torch.backends.cudnn.benchmark,
            "cudnn_tf32": lambda: torch.backends.cudnn.allow_tf32,
            "matmul_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
            "gpu_clock_mhz": lambda: torch.cuda.clock_rate(device),
            "gpu_temperature_c": lambda: torch.cuda.temperature(device),
        }
    return {name: text for name, ask in asked.items() if (text := _answer(ask))}


def _answer(ask: Callable[[], Any]) -> str:
    """What is said, or nothing: clocks need another library, and some switches refuse to be read beside newer ones."""
    try:
        value = ask()
    except Exception:  # noqa: BLE001 - a condition that cannot be read is left out, whatever the reason
        return ""
    return "" if value is None else str(value)


def _line(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").strip()


def _cpu_name() -> str:
    named = (
        line.partition(":")[2].strip() for line in _line("/proc/cpuinfo").splitlines() if line.startswith("model name")
    )
    return next(named, platform.machine())


def _cpu_clock() -> str:
    clocks = [
        line.partition(":")[2].strip() for line in _line("/proc/cpuinfo").splitlines() if line.startswith("cpu MHz")
    ]
    return ", ".join(clocks)
