"""ptflops: parameters and multiply-adds of a model, and the model's repr with them.

    from opcost.compat.ptflops import get_model_complexity_info

Its numbers are multiply-adds, and one more for each element of a bias, norm, activation, pooling input or sum; what
differs is listed in docs/compat.md.
"""

from __future__ import annotations

from opcost.compat.ptflops.flops_counter import FLOPS_BACKEND, get_model_complexity_info
from opcost.compat.ptflops.text import flops_to_string, params_to_string

__all__ = ["FLOPS_BACKEND", "flops_to_string", "get_model_complexity_info", "params_to_string"]
