"""accelerate's `estimate-memory`: how much memory a model takes to load and to train, by element type.

python -m opcost.compat.accelerate timm:resnet50 --dtypes float32 float16
"""

from __future__ import annotations

from opcost.compat.accelerate.estimate import estimate_command, estimate_command_parser, estimate_memory, gather_data
from opcost.compat.accelerate.table import create_ascii_table

__all__ = ["create_ascii_table", "estimate_command", "estimate_command_parser", "estimate_memory", "gather_data"]
