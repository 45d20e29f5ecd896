"""PyTorch's operators as objects, translated by the table of `frontends.aten`."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import torch

from opcost.errors import RuleError
from opcost.frontends import aten
from opcost.frontends.aten.schema import parse
from opcost.frontends.aten.tensor import Tensor
from opcost.frontends.torch.operators.asked import unasked_of_layer
from opcost.frontends.torch.operators.ranks import group_size

Tensor.register(torch.Tensor)


def translate(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outs: tuple[torch.Tensor, ...]
) -> aten.Translation:
    """What this call of an operator overload or a higher-order operator computes.

    `args`, `kwargs` and `outs` hold tensors whose shape, strides and type are valid; their data is never looked at. An
    operator that nobody knows is of the kind `unknown`.
    """
    plan = _plan(func)
    call = plan.call(args, kwargs, outs)  # type: ignore[arg-type]
    found = aten.translate(plan, call)
    if found.kind == "collective" and "group" not in found.attrs and (size := group_size(call.args)) is not None:
        found.attrs["group"] = size
    if found.kind == "unknown" and (formula := _formulas().get(getattr(func, "_overloadpacket", None))) is not None:
        return aten.Translation("custom", {"flops": _flops_by(formula, func, args, kwargs, outs)})
    if found.kind == "recurrent" and "grad" in found.attrs:
        found.attrs.update(unasked_of_layer(call))
    return found


def _formulas() -> dict[Any, Any]:
    """The formulas that were registered with PyTorch's own counter, beside those that it brings for PyTorch's operators."""
    counter = sys.modules.get("torch.utils.flop_counter")
    return {} if counter is None else counter.flop_registry


def _flops_by(formula: Any, func: Any, args: Any, kwargs: Any, outs: tuple[torch.Tensor, ...]) -> int:
    try:
        return int(formula(*args, **kwargs, out_val=outs[0] if len(outs) == 1 else outs))
    except Exception as exc:
        raise RuleError(f"the FLOP formula registered for {func} raised {type(exc).__name__}: {exc}") from exc


@cache
def _plan(func: Any) -> aten.Plan:
    schema = getattr(func, "_schema", None)
    return (
        aten.plan_of(parse(str(schema)))
        if schema is not None
        else aten.plan_without_schema(f"higher_order::{func.name()}")
    )
