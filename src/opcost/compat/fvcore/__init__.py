"""fvcore.nn's flop, activation and parameter counts: one fused multiply-add is one flop.

    from opcost.compat.fvcore import FlopCountAnalysis, flop_count_table

Where fvcore misses a contraction (attention, recurrent layers, custom functions) it is counted here; the differences are
listed in docs/compat.md.
"""

import sys

from opcost.compat.fvcore import print_model_statistics
from opcost.compat.fvcore.activation_count import ActivationCountAnalysis, activation_count
from opcost.compat.fvcore.flop_count import FlopCountAnalysis, flop_count
from opcost.compat.fvcore.jit_analysis import JitModelAnalysis
from opcost.compat.fvcore.jit_handles import Handle
from opcost.compat.fvcore.print_model_statistics import (
    flop_count_str,
    flop_count_table,
    parameter_count,
    parameter_count_table,
)

__all__ = [
    "ActivationCountAnalysis", "FlopCountAnalysis", "Handle", "JitModelAnalysis", "activation_count", "flop_count",
    "flop_count_str", "flop_count_table", "parameter_count", "parameter_count_table",
]  # fmt: skip
sys.modules[f"{__name__}.parameter_count"] = print_model_statistics
