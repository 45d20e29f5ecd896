"""A model as one rank of a mesh has it: a copy on the meta device, spread by PyTorch's own code, then given shapes alone.

The user's model is only read. The copy is spread outside of any mode, because `DeviceMesh` looks at its ranks, and gets tensors
that seem to lie on the CPU afterwards, because autograd hands gradients to tensors of the same device.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from opcost.distributed.sharding import Sharding
from opcost.errors import InputError, OpcostError
from opcost.frontends.torch import private
from opcost.frontends.torch.models.absent import without_absent
from opcost.frontends.torch.models.float8 import gather_in_float8
from opcost.frontends.torch.models.unwrap import type_name
from opcost.frontends.torch.models.weights import copied, has_lazy_parts
from opcost.frontends.torch.sharding.data_parallel import shard_fully
from opcost.frontends.torch.sharding.expert_parallel import average_gradients, experts_of, spread_experts
from opcost.frontends.torch.sharding.ranks import RankMesh, as_rank
from opcost.frontends.torch.sharding.tensor_parallel import parallelize


@contextmanager
def spread(copy: nn.Module, sharding: Sharding, param_dtype: torch.dtype | None) -> Iterator[nn.Module]:
    """The copy as one rank has it, while this process is that rank; in DistributedDataParallel, where the mesh is one of that."""
    with spread_all([(copy, sharding)], param_dtype) as (copies, _):
        yield copies[0]


@contextmanager
def spread_all(
    copies: Sequence[tuple[nn.Module, Sharding]], param_dtype: torch.dtype | None
) -> Iterator[tuple[list[nn.Module], RankMesh]]:
    """The same of several copies of one rank, each with its own choices, and the ranks."""
    model, sharding = copies[0]
    splits_loss = any(own.splits_loss for _, own in copies)
    with as_rank(sharding.mesh, sharding.rank) as ranks:
        try:
            spread = [_spread(copy, ranks, own, param_dtype) for copy, own in copies]
        except OpcostError:
            raise
        except (RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError) as exc:
            raise InputError(f"{type_name(model)} cannot be spread over {sharding.mesh}: {exc}") from exc
        with warnings.catch_warnings(), private.loss_in_parts() if splits_loss else nullcontext():
            # Outputs are not changed in place here, and random numbers have no values.
            warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
            warnings.filterwarnings("ignore", "DTensor random operators may not have complete support", UserWarning)
            yield spread, ranks


def copy_on_meta(
    model: nn.Module, blocks: str = "", first: int = 0, instead: Mapping[nn.Module, nn.Module] | None = None
) -> nn.Module:
    """A copy whose parameters have no data, of a list of blocks only with the `first` ones, and of some modules with others.

    Buffers, whose contents may decide what runs, are shared.
    """
    if has_lazy_parts(model):
        raise InputError(f"{type_name(model)} has lazy parameters, which cannot be sharded", hint="run it once before")
    memo: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
    members = [*model.get_submodule(blocks).children()][first:] if blocks else []
    memo.update({id(member): nn.Identity() for member in members})
    memo.update({id(module): other for module, other in (instead or {}).items()})
    for parameter in _parameters(model, memo):
        if id(parameter) not in memo:
            made = torch.empty_like(parameter, device="meta")
            memo[id(parameter)] = nn.Parameter(made, requires_grad=parameter.requires_grad)
    copy = copied(model, memo, "as a rank of a mesh", "shard it yourself and leave mesh out")
    if blocks:
        kept = copy.get_submodule(blocks)
        for name in [*kept._modules][first:]:
            del kept._modules[name]
    return copy


def _parameters(module: nn.Module, gone: Mapping[int, Any]) -> Iterator[nn.Parameter]:
    """The parameters of a module and of those in it, but of modules that are gone."""
    yield from module.parameters(recurse=False)
    for child in module.children():
        if id(child) not in gone:
            yield from _parameters(child, gone)


def _spread(copy: nn.Module, ranks: RankMesh, sharding: Sharding, param_dtype: torch.dtype | None) -> nn.Module:
    experts = experts_of(copy, sharding)
    others = ("cp",) if experts.sums else ("cp", "ep")  # along which ranks have tokens of their own, as along fsdp
    data = [sharding.along("replicate"), sharding.along("fsdp", *others) or "fsdp"] if sharding.gathers else []
    data = [axis for axis in data if axis]
    layers = [axis for axis in (sharding.along("tp"), "ep" if experts.sums else "") if axis]
    mesh: Any = ranks.along(*data, *layers) if data or layers else None
    apart = spread_experts(copy, experts, ranks, mesh, sharding)
    if sharding.mesh.tp > 1:
        with without_absent(copy):
            parallelize(copy, mesh["tp"], sharding, experts)
    if sharding.gathers:
        shard_fully(copy, mesh[tuple(data)], sharding, param_dtype, apart)
    with private.fake_mode():
        copy._apply(_on_cpu)
    for group in private.fully_sharded_groups(copy):
        for shard in group.fsdp_params:
            gather_in_float8(shard)
    averaged = sharding.along("replicate", *others)
    if sharding.gathers or not averaged or sharding.mesh.tp > 1:
        return copy
    return average_gradients(copy, ranks.along(averaged).get_group(), experts)


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, device="cpu") if tensor.device.type == "meta" else tensor
