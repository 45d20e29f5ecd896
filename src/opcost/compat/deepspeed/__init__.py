"""DeepSpeed's flops profiler: `get_model_profile` and `FlopsProfiler`.

from opcost.compat.deepspeed import get_model_profile     # instead of deepspeed.profiling.flops_profiler
"""

from __future__ import annotations

from opcost.compat.deepspeed.profiler import FlopsProfiler, get_model_profile

__all__ = ["FlopsProfiler", "get_model_profile"]
