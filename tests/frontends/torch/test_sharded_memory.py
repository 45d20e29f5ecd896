"""The memory of one rank of a fully sharded model: what its storages have, operator by operator, to the byte.

One process is rank 0 of eight: its process group is a fake one, which sends nothing, but whose collectives have real memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from live_storages import LiveStorages
from torch import Tensor, nn

import opcost
from opcost.errors import ForwardError
from opcost.frontends.torch.recording.recorder import REPLAYS_AFTER

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

RANKS = 8
FLOAT = 4
B, D, H = 8, 64, 256
X = B * D * FLOAT  # the input of each block
HIDDEN = B * H * FLOAT
BLOCK = 2 * D * H * FLOAT  # the two weights of a block


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    try:
        yield init_device_mesh("cpu", (RANKS,))
    finally:
        dist.destroy_process_group()


class Blocks(nn.Module):
    """Blocks of two layers; the model returns its own loss."""

    def __init__(self, count: int, hidden: int = H, *, bias: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        for _ in range(count):
            first, second = nn.Linear(D, hidden, bias=bias), nn.Linear(hidden, D, bias=bias)
            self.blocks.append(nn.Sequential(first, nn.ReLU(), second))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        for block in self.blocks:
            x = block(x)
        return {"loss": x.sum()}


def sharded(model: Blocks, mesh: DeviceMesh, **options: Any) -> Blocks:
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def measured(model: Blocks, *, backward: bool) -> int:
    """The peak of a run on real memory, with gradients that are there."""
    x = torch.ones(B, D)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    with LiveStorages([*model.parameters(), *gradients], x) as live, torch.set_grad_enabled(backward):
        loss = model(x)["loss"]
        if backward:
            loss.backward()
    return live.peak


@pytest.mark.parametrize("count", [3, 24])
def test_a_forward_pass_has_three_gathered_blocks_at_most(mesh: DeviceMesh, count: int) -> None:
    """Gathered weights, what the collective before wrote them to, and what the next collective writes to."""
    memory = opcost.count(sharded(Blocks(count), mesh), torch.ones(B, D)).known_memory()
    shards = count * BLOCK // RANKS
    assert memory.peak_bytes == shards + 3 * BLOCK + 2 * X  # the input of the model and that of the block
    assert memory.parts == {"weights": shards, "gathered": BLOCK, "inputs": X, "temporary": 2 * BLOCK + X}
    assert memory.peak_bytes == measured(sharded(Blocks(count), mesh), backward=False)


@pytest.mark.parametrize("count", [3, 24])
def test_a_backward_pass_frees_what_it_gathered_again(mesh: DeviceMesh, count: int) -> None:
    """The peak is in the last but one block that the backward pass reaches, at the product for the gradient of its input.

    By then all blocks after it have gradients. There are its gathered weights and their gradients, the gathered weights of the
    first block as they arrived, and the gradients of the block after it as they were sent.
    """
    memory = opcost.count(sharded(Blocks(count), mesh), torch.ones(B, D), backward=True).known_memory()
    shards, gradients = count * BLOCK // RANKS, (count - 2) * BLOCK // RANKS
    saved = X + HIDDEN + X  # the inputs of both layers of the first block, and of the first layer of the second
    passing = HIDDEN + X  # the gradients of both sides of the first layer of the second block
    assert (
        memory.peak_bytes == shards + gradients + 4 * BLOCK + saved + passing + 2 * FLOAT
    )  # the loss and its gradient
    assert memory.parts["gathered"] == BLOCK
    assert memory.parts["gradients"] == gradients
    assert memory.peak_bytes == measured(sharded(Blocks(count), mesh), backward=True)


@pytest.mark.parametrize("count", [3, 24])
def test_gradients_of_earlier_passes_are_there_from_the_start(mesh: DeviceMesh, count: int) -> None:
    """So the peak is as early in the backward pass as two blocks are gathered, in the last but one.

    Beside it and its gradients there are both sides of its first layer, and the inputs of the layers of all blocks before it. Its
    own gradients are added in place and let go.
    """
    model = sharded(Blocks(count), mesh)
    report = opcost.count(model, torch.ones(B, D), backward=True, accumulate=3)
    memory, shards = report.known_memory(), count * BLOCK // RANKS
    assert memory.base_bytes == shards + X
    assert memory.parts["gradients"] == shards
    saved, passing = (count - 2) * (X + HIDDEN) + X, HIDDEN + X
    assert memory.peak_bytes == shards + shards + 4 * BLOCK + saved + passing + 2 * FLOAT
    added = [row for row in report.rows if row.op.raw == "aten::add_"]
    assert [(row.op.phase, row.op.repeat) for row in added] == [
        ("backward", 2)
    ] * 2 * count  # the first adds to nothing
    sent = {(each.collective, each.phase): each.calls for each in report.collectives}
    assert sent == {
        ("all_gather", "forward"): 3 * count, ("all_gather", "backward"): 3 * count, ("reduce_scatter", "backward"): 3 * count,
    }  # fmt: skip
    measured(model, backward=True)
    assert memory.peak_bytes == measured(model, backward=True)


CASES: list[dict[str, Any]] = [
    {},
    {"reshard_after_forward": False},
    {"reshard_after_forward": 2},
    {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
]


@pytest.mark.parametrize("options", CASES, ids=lambda options: next(iter(options), "plain"))
@pytest.mark.parametrize("backward", [False, True])
def test_memory_is_that_of_live_storages(mesh: DeviceMesh, options: dict[str, Any], *, backward: bool) -> None:
    """Also of shards that are padded, because rows do not share out evenly."""

    def make() -> Blocks:
        return sharded(Blocks(4, 250, bias=True), mesh, **options)

    model = make()
    assert opcost.count(model, torch.ones(B, D), backward=backward).known_memory().peak_bytes == measured(
        model, backward=backward
    )
    if backward:
        later = opcost.count(make(), torch.ones(B, D), backward=True, accumulate=2).known_memory()
        assert later.peak_bytes == measured(model, backward=True)


@pytest.mark.parametrize("backward", [False, True])
def test_memory_of_shards_that_are_replicated(mesh: DeviceMesh, *, backward: bool) -> None:
    both = init_device_mesh("cpu", (2, RANKS // 2), mesh_dim_names=("replicate", "shard"))
    model = sharded(Blocks(3), both)
    counted = opcost.count(model, torch.ones(B, D), backward=backward).known_memory()
    assert counted.peak_bytes == measured(model, backward=backward)
    if backward:
        later = opcost.count(sharded(Blocks(3), both), torch.ones(B, D), backward=True, accumulate=2).known_memory()
        assert later.peak_bytes == measured(model, backward=True)


def test_a_model_on_the_meta_device_has_the_memory_of_one_with_data(mesh: DeviceMesh) -> None:
    with torch.device("meta"):
        without = sharded(Blocks(4, 250, bias=True), mesh)
    parameters = {name: (p, p.grad) for name, p in without.named_parameters()}
    found, expected = (
        opcost.count(model, torch.ones(B, D), backward=True, optimizer="adamw")
        for model in (without, sharded(Blocks(4, 250, bias=True), mesh))
    )
    assert found.memory == expected.memory
    assert found.totals == expected.totals
    for name, p in without.named_parameters():
        assert (p, p.grad) == parameters[name]
        assert p.device.type == "meta"
    without.to_empty(device="cpu")
    without(torch.ones(B, D))["loss"].backward()  # as if it had never been counted


def test_a_run_for_real_has_the_same_memory(mesh: DeviceMesh) -> None:
    real = opcost.count(sharded(Blocks(3), mesh), torch.ones(B, D), backward=True, real=True)
    assert real.known_memory().peak_bytes == measured(sharded(Blocks(3), mesh), backward=True)
    assert real.known_memory().parts["gathered"] == BLOCK


@pytest.mark.parametrize("trained", [False, True])
def test_earlier_runs_change_nothing_and_what_they_gathered_stays(mesh: DeviceMesh, *, trained: bool) -> None:
    """After a pass without gradients the root keeps its gathered weights, which are parameters of the model then."""
    net = nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, D))
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    x = torch.ones(B, D)
    fresh = opcost.count(net, x, backward=True)
    with torch.set_grad_enabled(trained):
        before = net(x)
        if trained:
            before.sum().backward()
    gathered = net[2].weight
    for _ in range(2):
        again = opcost.count(net, x, backward=True)
        assert again.totals._replace(ops=0) == fresh.totals._replace(ops=0)  # ranges of the profiler are fewer
        assert again.known_memory().parts == fresh.known_memory().parts
        assert net[2].weight is gathered
    if not trained:
        assert gathered.shape == (D, H)
        assert gathered.untyped_storage().nbytes() == D * H * FLOAT
        assert torch.equal(net(x), before)


def test_a_long_forward_pass_is_followed_tensor_by_tensor(mesh: DeviceMesh) -> None:
    """Of 180 blocks, which run more operators than those from which other runs are recorded as repeated patterns."""
    report = opcost.count(sharded(Blocks(180), mesh), torch.ones(B, D))
    assert len(report.rows) > REPLAYS_AFTER
    assert report.known_memory().peak_bytes == 180 * BLOCK // RANKS + 3 * BLOCK + 2 * X


def test_a_count_that_fails_leaves_the_model_as_it_was(mesh: DeviceMesh) -> None:
    net = sharded(Blocks(3), mesh)
    parameters = {name: (p, p.grad) for name, p in net.named_parameters()}
    for _ in range(2):  # before and after a first run
        with pytest.raises(ForwardError):
            opcost.count(net, torch.ones(B, D - 1), backward=True)
        assert {name: (p, p.grad) for name, p in net.named_parameters()} == parameters
        assert measured(net, backward=True) == measured(sharded(Blocks(3), mesh), backward=True)
        net.zero_grad()
