"""Lightning's `ModelSummary`, and its `Throughput` with what belongs to it.

from opcost.compat.lightning import ModelSummary, measure_flops
"""

from __future__ import annotations

from opcost.compat.lightning.model_summary import (
    LEFTOVER_PARAMS_NAME,
    NOT_APPLICABLE,
    UNKNOWN_SIZE,
    LayerSummary,
    ModelSummary,
    summarize,
)
from opcost.compat.lightning.throughput import Throughput, ThroughputMonitor, get_available_flops, measure_flops

__all__ = [
    "LEFTOVER_PARAMS_NAME",
    "NOT_APPLICABLE",
    "UNKNOWN_SIZE",
    "LayerSummary",
    "ModelSummary",
    "Throughput",
    "ThroughputMonitor",
    "get_available_flops",
    "measure_flops",
    "summarize",
]
