"""A model in another floating element type, beside the user's own, which stays as it is."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from opcost.errors import InputError


def retyped(model: nn.Module, dtype: torch.dtype, *, real: bool) -> nn.Module:
    """A copy whose floats are of this type; without data, unless it is to run on its own weights."""
    if not dtype.is_floating_point:
        raise InputError(
            f"a model cannot compute in {str(dtype).removeprefix('torch.')}", hint="give a floating type: bf16"
        )
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) in memo:
            continue
        wanted = dtype if tensor.dtype.is_floating_point else tensor.dtype
        keeps = real or not tensor.dtype.is_floating_point
        made = tensor.detach().to(wanted) if keeps else torch.empty_like(tensor, dtype=wanted, device="meta")
        if isinstance(tensor, nn.Parameter):
            made = nn.Parameter(made, requires_grad=tensor.requires_grad and wanted.is_floating_point)
        memo[id(tensor)] = made
    try:
        return copy.deepcopy(model, memo)
    except (RuntimeError, TypeError, NotImplementedError) as exc:
        raise InputError(
            f"{type(model).__name__} cannot be copied, so it cannot be counted in another type: {exc}",
            hint="make the model in that type",
        ) from exc
