"""What operators consist of that PyTorch itself takes apart: a program may name them whole, a run never shows them.

Each function gives the operators that a run on the CPU shows in the place of one, with the tensors between them, so that a
program costs what the model costs. Those that are not here cost the same either way.
"""

from __future__ import annotations

from opcost.frontends.aten.composite import (  # noqa: F401  (imported for their entries in the table)
    layers,
    products,
)
from opcost.frontends.aten.composite.products import COMPOSITES, ComposedStep, taken_apart

__all__ = ["COMPOSITES", "ComposedStep", "taken_apart"]
