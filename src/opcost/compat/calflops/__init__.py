"""calflops: `calculate_flops` and `calculate_flops_hf`.

from opcost.compat.calflops import calculate_flops
"""

from __future__ import annotations

from opcost.compat.calflops.flops_counter import calculate_flops, calculate_flops_hf
from opcost.compat.deepspeed.numbers import flops_to_string, macs_to_string, number_to_string, params_to_string

__all__ = [
    "calculate_flops",
    "calculate_flops_hf",
    "flops_to_string",
    "macs_to_string",
    "number_to_string",
    "params_to_string",
]
