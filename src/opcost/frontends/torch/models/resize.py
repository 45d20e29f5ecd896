"""An input of another size, of which no more is known than of the one that was given."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def resized(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor like this one in another shape: floats take no memory; integers are repeated, because models look at them."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        made = torch.empty(tuple(shape), dtype=tensor.dtype, device="meta")
        return made.requires_grad_(tensor.requires_grad)
    for dim, (wanted, extent) in enumerate(zip(shape, tensor.shape, strict=True)):
        if wanted != extent:
            places = torch.arange(wanted, device=tensor.device) % max(1, extent)
            tensor = tensor.index_select(dim, places)
    return tensor
