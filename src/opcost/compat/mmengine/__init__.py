"""mmengine.analysis: the complexity of a model as a dictionary with numbers, texts, a table and an architecture.

    from opcost.compat.mmengine import get_model_complexity_info

The numbers are fvcore's convention, one multiply-add is one flop; what differs is listed in docs/compat.md.
"""

from __future__ import annotations

from opcost.compat.mmengine.complexity_analysis import (
    ActivationAnalyzer,
    FlopAnalyzer,
    activation_count,
    flop_count,
    parameter_count,
    parameter_count_table,
)
from opcost.compat.mmengine.print_helper import (
    complexity_stats_str,
    complexity_stats_table,
    get_model_complexity_info,
)

__all__ = [
    "ActivationAnalyzer", "FlopAnalyzer", "activation_count", "complexity_stats_str", "complexity_stats_table",
    "flop_count", "get_model_complexity_info", "parameter_count", "parameter_count_table",
]  # fmt: skip
