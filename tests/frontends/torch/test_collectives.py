"""What ranks send each other: type, ranks, axis of the mesh and bytes of every collective that PyTorch's parallelisms make.

One process is rank 0 of sixteen: its process group is a fake one, which sends nothing. Of g ranks, a ring sends (g - 1) / g of
what is gathered, scattered or exchanged, twice that of a sum that all get, and all of what is broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.core.report import Report

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

import torch.distributed._functional_collectives as functional  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.tensor import Shard  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

REPLICAS, SHARDS, PARTS = 2, 2, 4
RANKS = REPLICAS * SHARDS * PARTS
B, S, D, H = 2, 8, 16, 32  # batch, this rank's share of the sequence, widths
FLOAT, BFLOAT = 4, 2
NORM, FIRST, SECOND = 2 * D, D * H, H * D  # parameters of each layer

Seen = tuple[str, str, str, int, int]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.first = nn.Linear(D, H, bias=False)
        self.second = nn.Linear(H, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(self.norm(x))))


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    try:
        yield init_device_mesh("cpu", (REPLICAS, SHARDS, PARTS), mesh_dim_names=("replicate", "fsdp", "tp"))
    finally:
        dist.destroy_process_group()


def seen(report: Report) -> list[Seen]:
    """Phase, axis, type, ranks and bytes that this rank sends, in the order in which they ran; nothing of what only waits."""
    assert report.coverage.complete
    return [
        (
            row.op.phase,
            str(row.op.attrs.get("axis", "")),
            str(row.op.attrs["fn"]),
            row.op.attrs["group"],
            row.cost.bytes_read,
        )  # type: ignore[misc]
        for row in report.rows
        if row.op.kind == "collective" and row.op.attrs["fn"] != "wait" and row.cost
    ]


def test_sequence_parallel_gathers_before_the_layers_and_scatters_sums_behind_them(mesh: DeviceMesh) -> None:
    plan = {
        "norm": SequenceParallel(),
        "first": ColwiseParallel(input_layouts=Shard(1)),
        "second": RowwiseParallel(output_layouts=Shard(1)),
    }
    net = parallelize_module(Net(), mesh["tp"], plan)
    report = opcost.count(net, torch.ones(B, S, D, requires_grad=True), backward=True)
    whole = B * S * PARTS * D * FLOAT
    sent = whole * (PARTS - 1) // PARTS  # of both: what is gathered, and what is summed and scattered
    assert seen(report) == [
        ("forward", "tp", "all_gather", PARTS, sent),
        ("forward", "tp", "reduce_scatter", PARTS, sent),
        ("backward", "tp", "all_gather", PARTS, sent),  # each is the gradient of the other
        ("backward", "tp", "reduce_scatter", PARTS, sent),
    ]


def test_fully_sharded_layers_with_mixed_precision(mesh: DeviceMesh) -> None:
    net, policy = Net(), MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(net.first, mesh=mesh["fsdp"], mp_policy=policy)
    fully_shard(net, mesh=mesh["fsdp"], mp_policy=policy)
    rest = NORM + SECOND

    def sent(numbers: int, width: int) -> int:
        return numbers * width * (SHARDS - 1) // SHARDS

    report = opcost.count(net, torch.ones(B, D), backward=True)
    assert seen(report) == [
        ("forward", "fsdp", "all_gather", SHARDS, sent(rest, BFLOAT)),  # the root keeps its weights for backward
        ("forward", "fsdp", "all_gather", SHARDS, sent(FIRST, BFLOAT)),
        ("backward", "fsdp", "all_gather", SHARDS, sent(FIRST, BFLOAT)),
        ("backward", "fsdp", "reduce_scatter", SHARDS, sent(FIRST, FLOAT)),
        ("backward", "fsdp", "reduce_scatter", SHARDS, sent(rest, FLOAT)),
    ]


def test_shards_with_replicas_are_summed_over_both_axes(mesh: DeviceMesh) -> None:
    net = Net()
    fully_shard(net, mesh=mesh["replicate", "fsdp"])
    weights = (NORM + FIRST + SECOND) * FLOAT
    of_shards, of_replicas = weights * (SHARDS - 1) // SHARDS, 2 * weights // SHARDS * (REPLICAS - 1) // REPLICAS
    report = opcost.count(net, torch.ones(B, D), backward=True)
    assert seen(report) == [
        ("forward", "fsdp", "all_gather", SHARDS, of_shards),
        ("backward", "fsdp", "reduce_scatter", SHARDS, of_shards),
        ("backward", "replicate", "all_reduce", REPLICAS, of_replicas),
    ]


def test_axes_that_were_flattened_have_their_own_name(mesh: DeviceMesh) -> None:
    net = Net()
    fully_shard(net, mesh=mesh["replicate", "fsdp"]._flatten("dp"))
    ranks = REPLICAS * SHARDS
    sent = (NORM + FIRST + SECOND) * FLOAT * (ranks - 1) // ranks
    assert seen(opcost.count(net, torch.ones(B, D))) == [("forward", "dp", "all_gather", ranks, sent)]


class Experts(nn.Module):
    """Tokens go to the ranks of their experts and come back."""

    def __init__(self, exchange: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.expert = nn.Linear(D, D)
        self.exchange = exchange

    def forward(self, x: Tensor) -> Tensor:
        return self.exchange(self.expert(self.exchange(x)))


def test_tokens_of_experts_are_exchanged_four_times_in_a_step(mesh: DeviceMesh) -> None:
    group, tokens = mesh.get_group("tp"), 4 * PARTS

    def exchange(x: Tensor) -> Tensor:
        even = [tokens // PARTS] * PARTS
        return functional.all_to_all_single_autograd(x, even, even, group)

    report = opcost.count(Experts(exchange), torch.ones(tokens, D, requires_grad=True), backward=True)
    sent = tokens * D * FLOAT * (PARTS - 1) // PARTS  # each rank keeps the tokens of its own experts
    assert seen(report) == [(phase, "tp", "all_to_all", PARTS, sent) for phase in ("forward", "backward") for _ in "io"]


X = B * D * FLOAT  # bytes of one tensor of these tests


def _lists(x: Tensor) -> list[Tensor]:
    return [torch.empty_like(x) for _ in range(PARTS)]


@pytest.mark.parametrize(
    ("call", "fn", "sent"),
    [
        (lambda x, g: dist.all_reduce(x, group=g), "all_reduce", 2 * X * (PARTS - 1) // PARTS),
        (lambda x, g: dist.all_reduce(x, group=g, async_op=True).wait(), "all_reduce", 2 * X * (PARTS - 1) // PARTS),
        (lambda x, g: dist.all_gather(_lists(x), x, group=g), "all_gather", X * (PARTS - 1)),
        (lambda x, g: dist.all_gather_into_tensor(x.repeat(PARTS, 1), x, group=g), "all_gather", X * (PARTS - 1)),
        (lambda x, g: dist.reduce_scatter(x, _lists(x), group=g), "reduce_scatter", X * (PARTS - 1)),
        (lambda x, g: dist.reduce_scatter_tensor(x, x.repeat(PARTS, 1), group=g), "reduce_scatter", X * (PARTS - 1)),
        (lambda x, g: dist.all_to_all_single(x.clone(), x, group=g), "all_to_all", X * (PARTS - 1) // PARTS),
        # The list has a tensor for each rank, its own included; here four times the same one
        (lambda x, g: dist.all_to_all(_lists(x), [x] * PARTS, group=g), "all_to_all", X * (PARTS - 1)),
        # In parts of the rows: this rank keeps the first part, and all that goes to a neighbour is sent
        (lambda x, g: functional.all_to_all_single(x, [1, 0, 1, 0], [1, 0, 1, 0], g), "all_to_all", X // B),
        (lambda x, g: dist.all_to_all_single(x.clone(), x, [2, 0, 0, 0], [2, 0, 0, 0], group=g), "all_to_all", 0),
        (lambda x, g: functional.permute_tensor(x, [1, 2, 3, 0], g), "all_to_all", X),
        (lambda x, g: dist.broadcast(x, 0, group=g), "broadcast", X),
        (lambda x, g: dist.reduce(x, 0, group=g), "reduce", X),
        (lambda x, g: dist.gather(x, _lists(x), 0, group=g), "gather", 0),  # the root only receives
        (lambda x, g: dist.gather(x, None, 1, group=g), "gather", X),
        (lambda x, g: dist.scatter(x, _lists(x), 0, group=g), "scatter", X * (PARTS - 1)),
        (lambda x, g: dist.scatter(x, None, 1, group=g), "scatter", 0),
        (lambda x, g: dist.send(x, 1, group=g), "send", X),
        (lambda x, g: dist.recv(x, 1, group=g), "recv", 0),
    ],
)
@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_collectives_of_process_groups(mesh: DeviceMesh, call: Callable[..., Any], fn: str, sent: int) -> None:
    group = mesh.get_group("tp")

    class Calls(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            call(x, group)
            return x + 1

    assert seen(opcost.count(Calls(), torch.ones(B, D))) == [("forward", "tp", fn, PARTS, sent)]


def test_tensors_pass_from_one_stage_of_a_pipeline_to_the_next(mesh: DeviceMesh) -> None:
    group, neighbour = mesh.get_group("replicate"), SHARDS * PARTS  # the ranks that differ in the first axis alone

    class Stage(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            other = torch.empty_like(x)
            both = [dist.P2POp(dist.isend, x, neighbour, group), dist.P2POp(dist.irecv, other, neighbour, group)]
            for work in dist.batch_isend_irecv(both):
                work.wait()
            return x * 2

    report = opcost.count(Stage(), torch.ones(B, D))
    assert seen(report) == [("forward", "replicate", fn, REPLICAS, sent) for fn, sent in (("send", X), ("recv", 0))]


def test_the_first_stage_sends_each_microbatch_on_and_gets_its_gradient_back(mesh: DeviceMesh) -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    group, microbatches = mesh.get_group("replicate"), 16
    first, inside = torch.empty(1, D), torch.empty(1, D, requires_grad=True)

    class Pipeline(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(D, D)
            ends = {"input_args": (first,), "output_args": (inside,)}
            stage = PipelineStage(self.part, 0, REPLICAS, torch.device("cpu"), group=group, **ends)
            self.schedule = Schedule1F1B(stage, microbatches, loss_fn=nn.functional.mse_loss)

        def forward(self, x: Tensor) -> Tensor:
            self.schedule.step(x)
            return x * 1

    x = torch.ones(microbatches, D, requires_grad=True)
    sent, received = opcost.count(Pipeline(), x, backward=True).collectives
    row = D * FLOAT
    assert (sent.collective, sent.axis, sent.calls, sent.wire_bytes) == (
        "send",
        "replicate",
        microbatches,
        microbatches * row,
    )
    assert (received.collective, received.axis, received.calls) == ("recv", "replicate", microbatches)
    assert (received.payload_bytes, received.wire_bytes) == (microbatches * row, 0)  # the next stage sends it


def test_groups_that_no_mesh_made_have_no_axis(mesh: DeviceMesh) -> None:
    pair = dist.new_group([0, 1])

    class Sums(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            dist.all_reduce(x)
            dist.all_reduce(x, group=pair)
            return functional.all_reduce(x, "sum", pair) * 2

    report = opcost.count(Sums(), torch.ones(B, D))
    every = ("forward", "", "all_reduce", RANKS, 2 * X * (RANKS - 1) // RANKS)
    assert seen(report) == [every, *[("forward", "", "all_reduce", 2, X)] * 2]  # of two ranks each sends half, twice


def test_a_long_run_counts_each_repetition(mesh: DeviceMesh) -> None:
    """Runs of more than 4,000 operators are stored as repeated patterns."""
    group, times = mesh.get_group("tp"), 3_000

    def sums(x: Tensor) -> Tensor:
        for _ in range(times):
            x = x * 2
            dist.all_reduce(x, group=group)
        return x

    report = opcost.count(sums, torch.ones(B, D))
    assert len(report.rows) == 2 * times
    (found,) = report.collectives
    assert (found.axis, found.calls, found.payload_bytes) == ("tp", times, times * X)
    assert report.wire_bytes == times * 2 * X * (PARTS - 1) // PARTS


def test_an_axis_of_all_ranks_has_its_name_though_its_group_has_none(mesh: DeviceMesh) -> None:
    """A mesh takes the process group of all ranks for an axis of that many."""
    every = init_device_mesh("cpu", (1, RANKS), mesh_dim_names=("replicate", "fsdp"))
    assert every.get_group("fsdp") is dist.group.WORLD
    net = Net()
    fully_shard(net, mesh=every["fsdp"])
    sent = (NORM + FIRST + SECOND) * FLOAT * (RANKS - 1) // RANKS
    assert seen(opcost.count(net, torch.ones(B, D))) == [("forward", "fsdp", "all_gather", RANKS, sent)]
    rows = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    net = parallelize_module(Net(), rows, {"first": ColwiseParallel(), "second": RowwiseParallel()})
    summed = 2 * X * (RANKS - 1) // RANKS
    assert seen(opcost.count(net, torch.ones(B, D))) == [("forward", "tp", "all_reduce", RANKS, summed)]


def test_wrappers_name_an_axis_of_all_ranks_too(mesh: DeviceMesh) -> None:
    every = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    weights, ranks = (NORM + FIRST + SECOND) * FLOAT, ("dp", RANKS)
    wrapped = nn.parallel.DistributedDataParallel(Net(), device_mesh=every)
    (averaged,) = opcost.count(wrapped, torch.ones(B, D), backward=True).collectives
    assert (averaged.collective, averaged.axis, averaged.ranks, averaged.payload_bytes) == (
        "all_reduce",
        *ranks,
        weights,
    )
    flat = FullyShardedDataParallel(Net(), device_mesh=every, device_id=torch.device("cpu"))
    (gathered,) = opcost.count(flat, torch.ones(B, D)).collectives
    assert (gathered.collective, gathered.axis, gathered.ranks, gathered.payload_bytes) == (
        "all_gather",
        *ranks,
        weights,
    )
