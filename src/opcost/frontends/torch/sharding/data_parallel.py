"""Data parallelism: FSDP2 with a group of parameters for each repeated block and one for the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from opcost.distributed.sharding import Sharding
from opcost.frontends.torch import private
from opcost.frontends.torch.models.unwrap import lists_of_blocks
from opcost.frontends.torch.restore.process import replaced


def shard_fully(
    model: nn.Module,
    mesh: Any,
    sharding: Sharding,
    param_dtype: torch.dtype | None,
    apart: Iterable[tuple[list[nn.Module], Any]],
) -> None:
    """Shard the parameters of a model over the ranks of a mesh: one axis, or copies of that in the first of two.

    Modules that are `apart` are gathered together, over a mesh of their own.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    named = sharding.reduce_dtype
    mixed = torch.float32 if param_dtype is not None else None
    reduce_dtype = mixed if named is None else getattr(torch, named)
    policy = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=reduce_dtype)
    with replaced(private.fully_sharded_parameters(), "_chunk_with_empty", _shares):
        for modules, own in apart:
            fully_shard(modules, mesh=own, mp_policy=policy, reshard_after_forward=sharding.reshard)
        for _, blocks in lists_of_blocks(model):
            for block in blocks.children():
                if any(True for _ in block.parameters()):
                    fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=sharding.reshard)
        fully_shard(model, mesh=mesh, mp_policy=policy)


def _shares(tensor: torch.Tensor, ranks: int, dim: int) -> list[torch.Tensor]:
    """The shares of all ranks. Those without elements are one tensor: thousands for each parameter take seconds to make."""
    shares = [*torch.chunk(tensor, ranks, dim=dim)]
    return shares + [tensor.new_empty(0)] * (ranks - len(shares))
