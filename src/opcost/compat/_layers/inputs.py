"""Inputs of a shape and a type, as the peers that ask for shapes make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from opcost.frontends.torch.load import device_of


def element_type(given: Any) -> torch.dtype:
    """A type as the peers say it: `torch.float32`, or a class of tensors such as `torch.LongTensor`."""
    found: torch.dtype = getattr(given, "dtype", given)
    return found


def without_data(shape: Sequence[int], dtype: torch.dtype, model: nn.Module) -> torch.Tensor:
    """An input without data; integers may decide what runs, so they are zeros."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.empty(tuple(shape), dtype=dtype, device="meta")
    return torch.zeros(tuple(shape), dtype=dtype, device=device_of(model))
