"""This process as one rank of a mesh, for a time: a process group that sends nothing, and its groups along the axes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed as dist

from opcost.distributed.mesh import Mesh
from opcost.errors import InputError
from opcost.frontends.torch import private
from opcost.frontends.torch.restore.process import one_at_a_time


class RankMesh:
    """The ranks of a mesh as one of them sees them, while this process is that one."""

    def __init__(self, mesh: Mesh, rank: int) -> None:
        self._mesh, self._rank = mesh, rank

    def along(self, *axes: str) -> Any:
        """The `DeviceMesh` of this rank along some axes, also of one rank; neighbours may be taken together, as `fsdp_cp`.

        Made of the groups of this rank alone: `init_device_mesh` makes those of all ranks, for half a minute at 16,384.
        """
        from torch.distributed.device_mesh import DeviceMesh

        mesh, of_rank = self._mesh, self._mesh.coordinates(self._rank)
        together = [name for axis in axes for name in axis.split("_")]
        ranks = torch.arange(mesh.size, dtype=torch.int, device="cpu").reshape(*mesh.shape.values())
        ranks = ranks[tuple(slice(None) if name in together else of_rank[name] for name in mesh.shape)]
        groups = [dist.new_group([*mesh.group(self._rank, axis)], group_desc=f"mesh_{axis}") for axis in axes]
        ranks = ranks.reshape([mesh.along(axis) for axis in axes])
        return DeviceMesh.from_group(groups, "cpu", mesh=ranks, mesh_dim_names=tuple(axes))


@contextmanager
def as_rank(mesh: Mesh, rank: int) -> Iterator[RankMesh]:
    """This process as one rank of a mesh; afterwards it belongs to no group again."""
    if not dist.is_available():
        raise InputError("PyTorch was built without torch.distributed, and a mesh needs it")
    with one_at_a_time():
        if dist.is_initialized():
            rank, size = dist.get_rank(), dist.get_world_size()
            fault = f"this process is already rank {rank} of {size}, so it cannot be one of a mesh too"
            hint = "count where no process group is initialized, or shard the model yourself and leave mesh out"
            raise InputError(fault, hint=hint)
        hook = sys.excepthook  # which PyTorch replaces by one that names the rank
        dist.init_process_group("fake", store=private.fake_store(), rank=rank, world_size=mesh.size)
        try:
            yield RankMesh(mesh, rank)
        finally:
            dist.destroy_process_group()
            sys.excepthook = hook
