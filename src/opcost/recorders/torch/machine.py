"""What a measurement depends on besides the model: versions, threads, precision switches, clocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opcost.recorders.host import answers, host_conditions


def conditions(device: torch.device) -> dict[str, str]:
    """Everything about this machine and process that a second measurement must share to be comparable."""
    asked: dict[str, Callable[[], Any]] = {
        "torch": lambda: torch.__version__,
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
            "gpu_compute_capability": lambda: ".".join(map(str, torch.cuda.get_device_capability(device))),
            "sdp_backends": _attention_backends,
        }
    return host_conditions() | answers(asked)


def _attention_backends() -> str:
    switches = {
        "flash": torch.backends.cuda.flash_sdp_enabled,
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
        "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
        "math": torch.backends.cuda.math_sdp_enabled,
    }
    return ", ".join(name for name, enabled in switches.items() if enabled())
