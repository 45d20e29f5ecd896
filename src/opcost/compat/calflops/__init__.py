"""calflops: `calculate_flops`.

from opcost.compat.calflops import calculate_flops
"""

from __future__ import annotations

from opcost.compat.calflops.flops_counter import calculate_flops
from opcost.compat.deepspeed.numbers import flops_to_string, macs_to_string, number_to_string, params_to_string

__all__ = ["calculate_flops", "flops_to_string", "macs_to_string", "number_to_string", "params_to_string"]
