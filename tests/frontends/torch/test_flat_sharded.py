"""FullyShardedDataParallel: a rank gathers the flat parameters of a block for a call, and has the memory of live storages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from live_storages import LiveStorages
from torch import Tensor, nn

import opcost
from opcost.core.report import Report
from opcost.errors import ForwardError

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy  # noqa: E402
from torch.distributed.fsdp.wrap import ModuleWrapPolicy  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

RANKS = 8
FLOAT = 4
B, D, H = 8, 64, 256
BLOCKS = 3
BLOCK = 2 * D * H + H + D  # 33,088 parameters, which eight ranks share evenly
FORWARD = 2 * B * D * H  # multiply-accumulates of a block


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, D)) for _ in range(BLOCKS))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        for block in self.blocks:
            x = block(x)
        return {"loss": x.sum()}


@pytest.fixture(scope="module", autouse=True)
def ranks() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    try:
        yield
    finally:
        dist.destroy_process_group()


def sharded(**options: Any) -> FullyShardedDataParallel:
    wrap = ModuleWrapPolicy({nn.Sequential})
    return FullyShardedDataParallel(Net(), auto_wrap_policy=wrap, device_id=torch.device("cpu"), **options)


def measured(model: FullyShardedDataParallel, *, backward: bool) -> int:
    """The peak of a run on real memory."""
    x = torch.ones(B, D)
    flat = [part._handle.flat_param for part in model.fsdp_modules(model) if part._handle]
    with LiveStorages(flat, x) as live, torch.set_grad_enabled(backward):
        loss = model(x)["loss"]
        if backward:
            loss.backward()
    return live.peak


def collectives(report: Report) -> list[tuple[str, Any, Any]]:
    rows = [row for row in report.rows if row.op.kind == "collective"]
    assert {row.op.attrs["group"] for row in rows} <= {RANKS}
    return [(row.op.phase, row.op.attrs["fn"], row.cost and row.cost.bytes_read) for row in rows]


@pytest.mark.parametrize("use_orig_params", [False, True])
def test_flat_parameters_are_gathered_and_their_gradients_scattered(*, use_orig_params: bool) -> None:
    model = sharded(use_orig_params=use_orig_params)
    before = {name: (p, tuple(p.shape), p.grad) for name, p in model.named_parameters()}
    forward, step = opcost.count(model, torch.ones(B, D)), opcost.count(model, torch.ones(B, D), backward=True)
    assert forward.coverage.complete
    assert step.coverage.complete
    assert forward.totals.macs == BLOCKS * FORWARD
    assert step.totals.macs == 3 * BLOCKS * FORWARD - B * D * H  # nothing needs the gradient of the input
    assert forward.totals.params == BLOCKS * BLOCK // RANKS
    ring = (RANKS - 1) * BLOCK * FLOAT // RANKS
    assert collectives(forward) == [("forward", "all_gather", ring)] * BLOCKS
    backward = ["all_gather", "all_gather", "reduce_scatter", "all_gather", "reduce_scatter", "reduce_scatter"]
    assert collectives(step) == collectives(forward) + [("backward", fn, ring) for fn in backward]
    assert "lies on 8 ranks" in next(note.text for note in step.notes if note.code == "ranks")
    assert {name: (p, tuple(p.shape), p.grad) for name, p in model.named_parameters()} == before


def test_a_forward_pass_has_one_gathered_block() -> None:
    memory = opcost.count(sharded(), torch.ones(B, D)).known_memory()
    hidden, edge = B * H * FLOAT, B * D * FLOAT
    assert memory.parts == {
        "weights": BLOCKS * BLOCK * FLOAT // RANKS, "gathered": BLOCK * FLOAT, "inputs": edge,
        "temporary": edge + 2 * hidden,  # the input of a block, and both sides of its activation
    }  # fmt: skip


CASES: list[dict[str, Any]] = [
    {},
    {"use_orig_params": True},
    {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP},
    {"sharding_strategy": ShardingStrategy.NO_SHARD},
    {"mixed_precision": MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
]


@pytest.mark.parametrize("options", CASES, ids=lambda options: str(next(iter(options.values()), "plain"))[:30])
@pytest.mark.parametrize("backward", [False, True])
def test_memory_is_that_of_live_storages(options: dict[str, Any], *, backward: bool) -> None:
    counted = opcost.count(sharded(**options), torch.ones(B, D), backward=backward).known_memory()
    model = sharded(**options)
    assert counted.peak_bytes == measured(model, backward=backward)
    model.zero_grad()
    after = opcost.count(model, torch.ones(B, D), backward=backward).known_memory()  # of a model that has run before
    assert after.parts == counted.parts
    measured(model, backward=backward)  # and can still run


def test_large_parameters_have_no_memory_in_a_count() -> None:
    """Their contents are not kept, so that only a size says whether they are gathered."""
    width = 1024
    net = nn.Sequential(nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False))
    wrap = ModuleWrapPolicy({nn.Linear})
    model = FullyShardedDataParallel(net, auto_wrap_policy=wrap, device_id=torch.device("cpu"))
    report = opcost.count(model, torch.ones(1, width), optimizer="adamw", real=False)
    assert report.totals.params == 2 * width * width // RANKS
    updated = [row for row in report.rows if row.op.phase == "update" and row.op.raw == "aten::sqrt"]
    assert sum(row.outs[0].numel for row in updated) == 2 * width * width // RANKS


@pytest.mark.parametrize("use_orig_params", [False, True])
def test_a_count_that_fails_leaves_the_model_as_it_was(*, use_orig_params: bool) -> None:
    model = sharded(use_orig_params=use_orig_params)
    expected = measured(sharded(use_orig_params=use_orig_params), backward=True)
    for _ in range(2):  # before and after a first run
        before = {name: (p, tuple(p.shape), p.grad) for name, p in model.named_parameters()}
        with pytest.raises(ForwardError):
            opcost.count(model, torch.ones(B, D - 1), backward=True)
        assert {name: (p, tuple(p.shape), p.grad) for name, p in model.named_parameters()} == before
        assert measured(model, backward=True) == expected
        model.zero_grad()
