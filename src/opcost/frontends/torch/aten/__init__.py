"""PyTorch's operators in opcost's words: `translate` says what one call computes, and on which tensors.

Each file holds one family and registers its handlers by operator name; in-place forms, `out=` overloads, `_foreach_`
lists, `_copy` forms and views are recognised by name and schema, so they are not listed one by one.
"""

from __future__ import annotations

from typing import Any

import torch

from opcost.frontends.torch.aten import (  # noqa: F401  (imported for their entries in the table)
    attention,
    collective,
    contraction,
    convolution,
    elementwise,
    library,
    linalg,
    loss,
    move,
    norm,
    optimizer,
    pool,
    prims,
    quantized,
    random,
    recurrent,
    reduce,
    sample,
    sort,
    sparse,
    view,
    vision,
)
from opcost.frontends.torch.aten.call import Translation
from opcost.frontends.torch.aten.resolve import complete, plan_of

__all__ = ["Translation", "translate"]


def translate(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outs: tuple[torch.Tensor, ...]) -> Translation:
    """What this call computes: kind, attributes, and its tensors in the order of the kind.

    `args`, `kwargs` and `outs` hold tensors whose shape, strides and type are valid; their data is never looked at. An
    operator that nobody knows is of the kind `unknown`.
    """
    plan = plan_of(func)
    call = plan.call(args, kwargs, outs)
    return complete(plan, call, plan.handler(call))
