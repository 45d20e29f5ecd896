"""Small models that each of several processes runs for real and counts, with gloo between them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from live_storages import LiveStorages
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils._pytree import tree_leaves

import opcost

B, D, H = 8, 64, 256
ODD = 250  # rows that four ranks do not share evenly
LIMIT = timedelta(seconds=240)

Sent = tuple[str, int, int]
"""A collective: its operator, the bytes of its larger side, and the ranks of its group."""


class Net(nn.Module):
    def __init__(self, hidden: int = H) -> None:
        super().__init__()
        layers = [(nn.Linear(D, hidden), nn.ReLU(), nn.Linear(hidden, D)) for _ in range(3)]
        self.blocks = nn.ModuleList(nn.Sequential(*each) for each in layers)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        for block in self.blocks:
            x = block(x)
        return {"loss": x.sum()}


class RankRun(LiveStorages):
    """What a rank sends beside what its storages have."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sent: list[Sent] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            sides = [sum(t.nbytes for t in tree_leaves(side) if isinstance(t, Tensor)) for side in args]
            group = next(
                arg for arg in args if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type())
            )
            self.sent.append((func._schema.name, max(sides), dist.ProcessGroup.unbox(group).size()))
        return super().__torch_dispatch__(func, types, args, kwargs)


def fully_sharded() -> nn.Module:
    net = Net(ODD)
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    for module in net.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # gloo has no averages
    return net


def flat_sharded() -> nn.Module:
    wrap = ModuleWrapPolicy({nn.Sequential})
    return FullyShardedDataParallel(Net(), auto_wrap_policy=wrap, device_id=torch.device("cpu"))


def data_parallel() -> nn.Module:
    return nn.parallel.DistributedDataParallel(Net(), bucket_cap_mb=0.1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "fully_shard": fully_sharded, "FullyShardedDataParallel": flat_sharded, "DistributedDataParallel": data_parallel,
    "fully_shard, accumulating": fully_sharded,
}  # fmt: skip
ACCUMULATING = frozenset({"fully_shard, accumulating"})


def measured(model: nn.Module, *, accumulates: bool) -> tuple[int, list[Sent]]:
    """The least peak of some steps, and what was sent in the last; DistributedDataParallel makes new buckets after the first.

    Threads of gloo hold what they have sent for a moment longer, in some steps.
    """
    x = torch.ones(B, D)
    peaks = []
    for _ in range(4):
        if not accumulates:
            model.zero_grad()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        with RankRun([getattr(t, "_local_tensor", t) for t in (*model.parameters(), *grads)], x) as run:
            model(x)["loss"].backward()
        peaks.append(run.peak)
    return min(peaks[1:]), run.sent


def counted(model: nn.Module, *, accumulates: bool) -> tuple[int, list[Sent]]:
    """The same of one step, or of its later passes, without running it."""
    report = opcost.count(model, torch.ones(B, D), backward=True, real=False, accumulate=2 if accumulates else 1)
    sent = [
        (row.op.raw, max(sum(spec.nbytes for spec in side) for side in (row.ins, row.outs)), row.op.attrs["group"])
        for row in report.rows
        if row.op.kind == "collective"
    ]
    return report.known_memory().peak_bytes, sent


def run_rank(rank: int, ranks: int, folder: str) -> None:
    """Run and count every model, and write what was found to a file."""
    torch.set_num_threads(1)
    where = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=ranks, timeout=LIMIT)
    found = {}
    for name, make in MODELS.items():
        accumulates = name in ACCUMULATING
        found[name] = {
            "counted": counted(make(), accumulates=accumulates), "measured": measured(make(), accumulates=accumulates),
        }  # fmt: skip
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
