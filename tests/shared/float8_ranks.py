"""Gradients of layers in float8 that real processes share, with gloo between them, and of one process that has them alone."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from rank_runs import LIMIT, WORDS, Language
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from opcost.distributed.mesh import Mesh
from opcost.distributed.sharding import Sharding
from opcost.frontends.torch.models.float8 import training_in_float8
from opcost.frontends.torch.sharding.expert_parallel import SpreadExperts
from opcost.frontends.torch.sharding.tensor_parallel import parallelize

FLOAT8 = torch.float8_e4m3fn, torch.float8_e5m2


def gradients(net: nn.Module, tokens: Tensor) -> dict[str, Tensor]:
    net(tokens)["loss"].backward()
    found = {name: parameter.grad for name, parameter in net.named_parameters()}
    return {name: getattr(grad, "full_tensor", lambda grad=grad: grad)() for name, grad in found.items()}


def as_bytes(gather: Any) -> Any:
    """A gather that sends float8 as bytes: gloo has no such type."""

    def gathered(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if tensor.dtype not in FLOAT8:
            return gather(tensor, *args, **kwargs)
        sent = gather(tensor.contiguous().view(torch.uint8), *args, **kwargs)
        return functional.wait_tensor(sent).view(tensor.dtype)

    return gathered


def run_rank(rank: int, ranks: int, folder: str) -> None:
    """Write how far each gradient is from that of one process, with parts of the sequence between layers."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks, timeout=LIMIT)
    for name in ("all_gather_single", "all_gather_tensor"):  # as versions of PyTorch call it
        if hasattr(functional, name):
            setattr(functional, name, as_bytes(getattr(functional, name)))
    tokens = torch.randint(0, WORDS, (2, 32))
    alone = training_in_float8(Language(), "fp8")
    shared = copy.deepcopy(alone)
    sharding = Sharding(mesh=Mesh(tp=ranks), sequence=True)
    parallelize(shared, init_device_mesh("cpu", (ranks,)), sharding, SpreadExperts())
    expected, found = gradients(alone, tokens), gradients(shared, tokens)
    off = {name: float((found[name] - grad).norm() / grad.norm()) for name, grad in expected.items()}
    Path(folder, f"{rank}.json").write_text(json.dumps(off), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
