"""This process as one rank of a mesh, for a time: a process group that sends nothing, and its groups along each axis."""

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


@contextmanager
def as_rank(mesh: Mesh, rank: int) -> Iterator[Any]:
    """The `DeviceMesh` of a mesh, as this rank sees it; afterwards this process belongs to no group again."""
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
            yield _device_mesh(mesh, rank)
        finally:
            dist.destroy_process_group()
            sys.excepthook = hook


def _device_mesh(mesh: Mesh, rank: int) -> Any:
    """Made of the groups of this rank alone: `init_device_mesh` makes those of all ranks, for half a minute at 16,384."""
    from torch.distributed.device_mesh import DeviceMesh

    shape = mesh.shape
    groups = [dist.new_group(list(mesh.group(rank, axis)), group_desc=f"mesh_{axis}") for axis in shape]
    ranks = torch.arange(mesh.size, dtype=torch.int, device="cpu").reshape(*shape.values())
    return DeviceMesh.from_group(groups, "cpu", mesh=ranks, mesh_dim_names=tuple(shape))
