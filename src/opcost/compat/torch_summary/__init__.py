"""torch-summary 1.4.5, the predecessor of torchinfo, whose package is called torchsummary.

from opcost.compat.torch_summary import summary
"""

from __future__ import annotations

from opcost.compat.torch_summary.model_statistics import ModelStatistics
from opcost.compat.torch_summary.torchsummary import summary

__all__ = ["ModelStatistics", "summary"]
