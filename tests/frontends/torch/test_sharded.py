"""Models spread over ranks are counted as one rank runs them: its own operators, its shards, and the collectives.

One process is rank 0 of four: its process group is a fake one, which sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.core.report import Report, Row

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

RANKS = 4
B, D, H = 8, 16, 32
FLOAT = 4
WEIGHTS = D * H + H + H * D + D
MACS = B * D * H + B * H * D
BACKWARD = B * D * H + 2 * B * H * D  # for both weights, and for the input of the second layer
X = torch.ones(B, D)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(D, H)
        self.second = nn.Linear(H, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    try:
        yield init_device_mesh("cpu", (RANKS,))
    finally:
        dist.destroy_process_group()


def in_parallel(mesh: DeviceMesh) -> nn.Module:
    """The first layer's outputs and the second one's inputs are split, so the results are parts of a sum."""
    return parallelize_module(Net(), mesh, {"first": ColwiseParallel(), "second": RowwiseParallel()})


def fully_sharded(mesh: DeviceMesh, **options: Any) -> nn.Module:
    """Two groups of weights: the first layer, and the rest."""
    net = Net()
    fully_shard(net.first, mesh=mesh, **options)
    fully_shard(net, mesh=mesh, **options)
    return net


def collectives(report: Report, phase: str = "forward") -> list[Row]:
    return [row for row in report.rows if row.op.kind == "collective" and row.op.phase == phase]


def summaries(rows: list[Row]) -> list[tuple[Any, Any, int]]:
    return [(row.op.attrs["fn"], row.op.attrs["group"], row.cost.bytes_read if row.cost else -1) for row in rows]


def parameters_of(net: nn.Module) -> dict[str, tuple[Any, ...]]:
    return {
        name: (p, type(p), p.placements, p.to_local().data_ptr(), p.grad)
        for name, p in net.named_parameters()
        if isinstance(p, DTensor)
    }


def test_tensor_parallel_counts_the_operators_of_one_rank(mesh: DeviceMesh) -> None:
    net = in_parallel(mesh)
    before = parameters_of(net)
    report = opcost.count(net, X)
    assert report.coverage.complete
    assert report.totals.macs == MACS // RANKS
    assert report.module("first").total.macs == B * D * H // RANKS
    assert report.totals.params == D * H // RANKS + H // RANKS + H * D // RANKS + D  # the last bias is on every rank
    assert report.module("first").parameters == ("first.weight", "first.bias")
    # A ring sends each part once around to sum it, and once more to spread the sum: 2 (g - 1) / g of the tensor.
    assert summaries(collectives(report)) == [("all_reduce", RANKS, 2 * (RANKS - 1) * B * D * FLOAT // RANKS)]
    assert parameters_of(net) == before
    assert {"first.weight", "first.bias", "second.weight", "second.bias"} == set(before)


def test_the_first_count_of_an_operator_sees_no_whole_tensors(mesh: DeviceMesh) -> None:
    """How results are spread over the ranks is found with whole tensors, once for each operator and shape, and is no work."""
    first, second = (opcost.count(in_parallel(mesh), torch.ones(13, D)) for _ in range(2))
    assert first.totals == second.totals
    assert first.totals.macs == 2 * 13 * D * H // RANKS


def test_tensor_parallel_backward(mesh: DeviceMesh) -> None:
    net = in_parallel(mesh)
    report = opcost.count(net, X, backward=True)
    assert report.totals.macs == (MACS + BACKWARD) // RANKS
    with_input_grad = opcost.count(net, X.clone().requires_grad_(), backward=True)
    # The gradient of the input is a product more, and a sum over the ranks more.
    assert with_input_grad.totals.macs == (MACS + BACKWARD + B * D * H) // RANKS
    assert summaries(collectives(with_input_grad, "backward")) == summaries(collectives(with_input_grad))
    assert all(p.grad is None for p in net.parameters())


def test_an_optimizer_updates_the_shards_of_one_rank(mesh: DeviceMesh) -> None:
    sharded = D * H // RANKS + H // RANKS + H * D // RANKS + D
    report = opcost.count(in_parallel(mesh), X, optimizer="SGD")
    updates = [row for row in report.rows if row.op.phase == "update" and row.cost and row.cost.flops]
    assert sum(row.outs[0].numel for row in updates) == sharded


def test_a_sequence_that_is_split_is_gathered_for_a_layer_that_needs_all_of_it(mesh: DeviceMesh) -> None:
    net = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, H))
    plan = {"0": SequenceParallel(), "1": ColwiseParallel(input_layouts=Shard(1))}
    report = opcost.count(parallelize_module(net, mesh, plan), torch.ones(2, B, D))  # this rank's share of the sequence
    norm = next(row for row in report.rows if row.op.kind == "norm")
    assert norm.ins[0].dims == (2, B, D)
    whole = 2 * RANKS * B
    assert report.totals.macs == whole * D * H // RANKS
    assert summaries(collectives(report)) == [("all_gather", RANKS, whole * D * FLOAT * (RANKS - 1) // RANKS)]


def test_a_distributed_input(mesh: DeviceMesh) -> None:
    net = distribute_module(Net(), mesh)
    report = opcost.count(net, distribute_tensor(X, mesh, [Shard(0)]))
    assert report.totals.params == WEIGHTS  # each rank has all weights, and a share of the batch
    assert report.totals.macs == MACS // RANKS
    whole = opcost.count(net, distribute_tensor(X, mesh, [Replicate()]))
    assert whole.totals.macs == MACS


def test_fully_sharded_layers_gather_their_weights(mesh: DeviceMesh) -> None:
    net = fully_sharded(mesh)
    before = parameters_of(net)
    report = opcost.count(net, X)
    assert report.coverage.complete
    assert report.totals.params == WEIGHTS // RANKS
    assert report.totals.macs == MACS
    assert report.module("").type == "Net"
    assert report.module("first").type == "Linear"
    first, rest = (D * H + H) * FLOAT, (H * D + D) * FLOAT
    # The root gathers what no inner group holds before its own forward. A ring moves (g - 1) / g of what is gathered.
    assert [(row.op.module, *summaries([row])[0]) for row in collectives(report)] == [
        ("", "all_gather", RANKS, rest * (RANKS - 1) // RANKS),
        ("first", "all_gather", RANKS, first * (RANKS - 1) // RANKS),
    ]
    # Shards are copied into their place before, and gathered weights out of it afterwards.
    puts = [row.cost for row in report.rows if row.op.raw == "fsdp::all_gather_copy_in" and row.cost]
    assert [(cost.bytes_read, cost.bytes_written) for cost in puts] == [(n // RANKS, n // RANKS) for n in (rest, first)]
    takes = [row.cost for row in report.rows if row.op.raw == "fsdp::split_with_sizes_copy" and row.cost]
    assert [(cost.bytes_read, cost.bytes_written) for cost in takes] == [(rest, rest), (first, first)]
    assert parameters_of(net) == before
    assert net._get_fsdp_state()._is_root is None  # it does not know yet that it is the root: it never ran


def test_fully_sharded_backward_gathers_again_and_scatters_gradients(mesh: DeviceMesh) -> None:
    net = fully_sharded(mesh)
    before = parameters_of(net)
    report = opcost.count(net, X, backward=True)
    assert report.coverage.complete
    assert report.totals.macs == MACS + BACKWARD
    first, rest = (D * H + H) * FLOAT * (RANKS - 1) // RANKS, (H * D + D) * FLOAT * (RANKS - 1) // RANKS
    # The root keeps its weights for backward; the gradients leave in the order in which they are ready.
    assert sorted(summaries(collectives(report, "backward"))) == sorted(
        [("all_gather", RANKS, first), ("reduce_scatter", RANKS, rest), ("reduce_scatter", RANKS, first)]
    )
    assert parameters_of(net) == before
    assert opcost.count(net, X, backward=True).totals == report.totals


def test_a_fully_sharded_model_trains_after_a_count_as_before(mesh: DeviceMesh) -> None:
    net = fully_sharded(mesh)
    net(X).sum().backward()
    grads = {name: p.grad for name, p in net.named_parameters()}
    values = {name: grad.to_local().clone() for name, grad in grads.items() if isinstance(grad, DTensor)}
    assert len(values) == 4
    opcost.count(net, X, backward=True)
    for name, p in net.named_parameters():
        assert p.grad is grads[name]
        assert torch.equal(p.grad.to_local(), values[name])
    net.zero_grad()
    net(X).sum().backward()
    assert all(isinstance(p.grad, DTensor) for p in net.parameters())


def test_fully_sharded_weights_without_memory_are_counted(mesh: DeviceMesh) -> None:
    with torch.device("meta"):
        net = Net()
    fully_shard(net, mesh=mesh)
    assert opcost.count(net, X).totals.macs == MACS
    assert opcost.count(net, X, backward=True).totals.macs == MACS + BACKWARD
    assert all(p.device.type == "meta" and p.grad is None for p in net.parameters())


def test_a_real_run_of_one_rank(mesh: DeviceMesh) -> None:
    assert opcost.count(in_parallel(mesh), X, real=True).totals == opcost.count(in_parallel(mesh), X).totals
    real = opcost.count(fully_sharded(mesh), X, real=True, backward=True)
    without_data = opcost.count(fully_sharded(mesh), X, backward=True)
    assert real.totals._replace(ops=0) == without_data.totals._replace(ops=0)  # they differ in views, which are free


def test_a_report_says_that_it_is_of_one_rank(mesh: DeviceMesh) -> None:
    assert [note.code for note in opcost.count(in_parallel(mesh), X).notes] == ["ranks"]
    assert opcost.count(Net(), X).notes == ()


def test_collectives_in_forward_are_never_run(mesh: DeviceMesh) -> None:
    """Other ranks do not count, so a collective that ran would wait for them for ever, also on small known contents."""

    class Sums(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            lengths = torch.tensor([1, 2, 3])
            dist.all_reduce(lengths)
            dist.all_reduce_coalesced([x, x + 1])
            return x * 2

    report = opcost.count(Sums(), X)
    both, each = 2 * (RANKS - 1) * 3 * 8 // RANKS, 2 * (RANKS - 1) * B * D * FLOAT // RANKS
    assert summaries(collectives(report)) == [("all_reduce", RANKS, both), ("all_reduce", RANKS, 2 * each)]


def test_operators_that_write_known_contents_and_return_nothing_are_recorded() -> None:
    def steps(x: Tensor) -> Tensor:
        counters = [torch.zeros(3), torch.zeros(5)]
        torch._foreach_add_(counters, 1)
        return x * counters[0][0]

    report = opcost.count(steps, X)
    added = [row for row in report.rows if row.op.raw == "aten::_foreach_add_"]
    assert [row.cost.flops for row in added if row.cost] == [3 + 5]


def test_profiled_ranges_in_a_model_are_kept_apart() -> None:
    """Each range is an object of its own that cannot be compared with the one before."""

    def ranges(x: Tensor) -> Tensor:
        for _ in range(50):
            with torch.profiler.record_function("step"):
                x = x + 1
        return x

    assert opcost.count(ranges, X).totals.flops == 50 * B * D
