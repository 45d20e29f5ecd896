"""What is known about each type of operators, a row each: its shapes, its element types, its kind and attributes."""

from __future__ import annotations

from opcost.frontends.megengine.operators import convolution, elements, layers, vision
from opcost.frontends.megengine.operators.table import Row

ROWS: dict[str, Row] = {**convolution.ROWS, **elements.ROWS, **layers.ROWS, **vision.ROWS}
"""The row of every type of operators that is known."""
