"""Packed sequences: PyTorch's own code looks into the memory of their batch sizes, so it is handed real ones."""

from __future__ import annotations

from typing import Any

import torch

from opcost.frontends.torch.tensor import Recorded


def readable(sizes: torch.Tensor) -> torch.Tensor:
    """The batch sizes as a tensor with memory, where their content is known."""
    return sizes.real if type(sizes) is Recorded and sizes.real is not None else sizes


def pad_packed(data: torch.Tensor, batch_sizes: torch.Tensor, *rest: Any) -> Any:
    """What `pad_packed_sequence` calls, with batch sizes that can be read."""
    return torch.ops.aten._pad_packed_sequence(data, readable(batch_sizes), *rest)
