"""PyTorch's operators in opcost's words: what a call computes, and on which tensors. No framework is imported here.

Each file holds one family and registers its handlers by operator name; in-place forms, `out=` overloads, `_foreach_`
lists, `_copy` forms and views are recognised by name and schema, so they are not listed one by one.
"""

from __future__ import annotations

from opcost.frontends.aten import (  # noqa: F401  (imported for their entries in the table)
    attention,
    contraction,
    elementwise,
    layers,
    libraries,
    movement,
)
from opcost.frontends.aten.call import HANDLERS, Translation
from opcost.frontends.aten.schema import Plan, plan_of, plan_without_schema, translate

__all__ = ["HANDLERS", "Plan", "Translation", "plan_of", "plan_without_schema", "translate"]
