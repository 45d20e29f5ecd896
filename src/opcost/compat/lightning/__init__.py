"""Lightning's `ModelSummary` and `measure_flops`.

from opcost.compat.lightning import ModelSummary, measure_flops
"""

from __future__ import annotations

from opcost.compat.lightning.model_summary import LayerSummary, ModelSummary, summarize
from opcost.compat.lightning.throughput import measure_flops

__all__ = ["LayerSummary", "ModelSummary", "measure_flops", "summarize"]
