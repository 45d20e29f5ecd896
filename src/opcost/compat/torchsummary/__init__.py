"""torchsummary's calls: `summary` prints a table of layers, their output shapes and parameters.

The table is that of the released version; the arguments and results are also those of its repository.
"""

from __future__ import annotations

from opcost.compat.torchsummary.torchsummary import summary, summary_string

__all__ = ["summary", "summary_string"]
