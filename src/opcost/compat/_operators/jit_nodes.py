"""Operators of a graph that torch's jit traced: a handle that is called with them, and not by an analysis, is answered too."""

from __future__ import annotations

from typing import Any

import torch

from opcost.api import count


def macs_of_jit_node(node: Any) -> int:
    """The multiply-adds of one operator, which is counted with tensors of the shapes that the graph tells."""
    library, _, name = node.kind().partition("::")
    operator = getattr(getattr(torch.ops, library), name)
    places = torch._C.parse_schema(node.schema()).arguments  # noqa: SLF001 - torch has no other door to it
    given = [(place, _argument(value)) for place, value in zip(places, node.inputs(), strict=True)]
    args = [argument for place, argument in given if not place.kwarg_only]
    kwargs = {place.name: argument for place, argument in given if place.kwarg_only}
    return int(count(lambda: operator(*args, **kwargs), ()).totals.macs)


def _argument(value: Any) -> Any:
    if value.isCompleteTensor():
        return torch.empty(value.type().sizes(), dtype=value.type().dtype(), device="meta")
    if value.node().kind() == "prim::ListConstruct":
        return [_argument(item) for item in value.node().inputs()]
    return value.toIValue()
