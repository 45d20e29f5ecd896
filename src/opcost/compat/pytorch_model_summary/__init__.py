"""pytorch_model_summary: `summary`, a table of layers as text.

from opcost.compat.pytorch_model_summary import summary
"""

from __future__ import annotations

from opcost.compat.pytorch_model_summary.hierarchical import hierarchical_summary
from opcost.compat.pytorch_model_summary.model_summary import summary

__all__ = ["hierarchical_summary", "summary"]
