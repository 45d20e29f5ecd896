"""Lightning's `measure_flops`.

from opcost.compat.lightning import measure_flops
"""

from __future__ import annotations

from opcost.compat.lightning.throughput import measure_flops

__all__ = ["measure_flops"]
