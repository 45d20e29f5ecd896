"""Steps of small models that several processes run for real, with gloo between them, and record with PyTorch's profiler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from rank_runs import LIMIT, B, D, Net, data_parallel
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.profiler import ProfilerActivity, profile

STEPS, MICROBATCHES = 2, 4


def fully_sharded() -> nn.Module:
    net = Net()
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    for module in net.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # gloo has no averages
    return net


def training(make: Callable[[], nn.Module]) -> Callable[[], object]:
    """One forward and backward pass."""
    model, x = make(), torch.ones(B, D)

    def step() -> None:
        model(x)["loss"].backward()

    return step


def pipeline() -> Callable[[], object]:
    """One step of as many stages as there are ranks, each a linear layer."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    stage = PipelineStage(nn.Linear(D, D), rank, ranks, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=lambda y, target: (y - target).square().sum())
    given = (torch.ones(B, D),) if rank == 0 else ()
    target = {"target": torch.ones(B, D)} if rank == ranks - 1 else {}
    return lambda: schedule.step(*given, **target)


RUNS: dict[str, Callable[[], Callable[[], object]]] = {
    "ddp": lambda: training(data_parallel), "fsdp": lambda: training(fully_sharded), "pp": pipeline,
}  # fmt: skip


def record_rank(rank: int, ranks: int, folder: str) -> None:
    """Record every run, each into a folder of its own."""
    torch.set_num_threads(1)
    where = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=ranks, timeout=LIMIT)
    for name, make in RUNS.items():
        step = make()
        step()
        step()  # DistributedDataParallel makes new buckets after the first
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
            for _ in range(STEPS):
                step()
        Path(folder, name).mkdir(exist_ok=True)
        recorded.export_chrome_trace(str(Path(folder, name, f"rank{rank}.json")))
    dist.barrier()
    dist.destroy_process_group()
