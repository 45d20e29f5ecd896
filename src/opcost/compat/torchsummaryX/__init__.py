"""torchsummaryX: `summary`, a table of layers with kernels, shapes, parameters and mult-adds.

from opcost.compat.torchsummaryX import summary
"""

from __future__ import annotations

from opcost.compat.torchsummaryX.torchsummaryX import summary

__all__ = ["summary"]
