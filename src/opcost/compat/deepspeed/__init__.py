"""DeepSpeed's flops profiler: `get_model_profile`.

from opcost.compat.deepspeed import get_model_profile     # instead of deepspeed.profiling.flops_profiler
"""

from __future__ import annotations

from opcost.compat.deepspeed.profiler import get_model_profile

__all__ = ["get_model_profile"]
