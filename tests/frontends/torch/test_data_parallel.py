"""DistributedDataParallel: the gradients of a backward pass are averaged over the ranks, bucket by bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import opcost
from opcost.core.graph import Cost
from opcost.core.report import Report, Row

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

RANKS = 4
B, D, OUT = 8, 512, 64
FLOAT = 4
LAST, MIDDLE, FIRST = D * OUT + OUT, D * D + D, D * D + D  # parameters of the layers
PARAMETERS = FIRST + MIDDLE + LAST
X = torch.ones(B, D)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, OUT)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"loss": self.last(torch.relu(self.middle(torch.relu(self.first(x))))).sum()}


@pytest.fixture(scope="module", autouse=True)
def ranks() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    try:
        yield
    finally:
        dist.destroy_process_group()


def collectives(report: Report) -> list[Row]:
    return [row for row in report.rows if row.op.kind == "collective"]


def elements(report: Report) -> list[int]:
    """The elements that each all-reduce averages."""
    found = collectives(report)
    assert {(row.op.attrs["fn"], row.op.attrs["group"], row.op.phase) for row in found} == {
        ("all_reduce", RANKS, "backward")
    }
    return [row.outs[0].numel for row in found]


# Gradients arrive from the last layer to the first, the bias of each before its weight.
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [LAST + MIDDLE, FIRST]),  # the first one is sent with the gradient that makes it 1 MiB
        ({"bucket_cap_mb": 1}, [LAST + MIDDLE, FIRST]),
        ({"bucket_cap_mb": 0.01}, [LAST, MIDDLE, FIRST]),  # the bias of 2 KiB is too little
        # The weight of the first layer is 1 MiB by itself; which parameters were used is a number for each
        ({"find_unused_parameters": True}, [D + MIDDLE + LAST, D * D, 6]),
        ({"static_graph": True, "find_unused_parameters": True}, [LAST + MIDDLE, FIRST]),
    ],
)
def test_each_bucket_is_averaged_once(options: dict[str, Any], expected: list[int]) -> None:
    net = Net()
    wrapped = DistributedDataParallel(net, **options)
    report = opcost.count(wrapped, X, backward=True)
    assert report.coverage.complete
    assert elements(report) == expected
    ring = 2 * (RANKS - 1) * FLOAT
    assert [row.cost.bytes_read for row in collectives(report) if row.cost] == [ring * n // RANKS for n in expected]
    assert {row.op.module for row in collectives(report)} == {""}
    assert report.module("first").parameters == ("first.weight", "first.bias")
    assert all(p.grad is None and not p._backward_hooks for p in net.parameters())


def test_without_a_backward_pass_nothing_is_averaged() -> None:
    wrapped = DistributedDataParallel(Net())
    assert opcost.count(wrapped, X).totals == opcost.count(wrapped.module, X).totals
    with wrapped.no_sync():
        assert opcost.count(wrapped, X, backward=True).totals == opcost.count(wrapped.module, X, backward=True).totals


def test_buckets_are_gradients_that_are_there_before_the_step() -> None:
    plain = opcost.count(Net(), X, backward=True).known_memory()
    apart = opcost.count(DistributedDataParallel(Net()), X, backward=True).known_memory()
    assert apart.base_bytes == plain.base_bytes + PARAMETERS * FLOAT
    assert apart.parts["gradients"] == 2 * PARAMETERS * FLOAT
    inside = opcost.count(DistributedDataParallel(Net(), gradient_as_bucket_view=True), X, backward=True).known_memory()
    assert inside.parts["gradients"] == PARAMETERS * FLOAT


def test_parameters_that_are_frozen_or_left_out_are_in_no_bucket() -> None:
    net = Net()
    net.first.requires_grad_(requires_grad=False)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["middle.bias"])
    report = opcost.count(DistributedDataParallel(net), X, backward=True)
    assert elements(report) == [LAST + D * D]
    assert report.phases["backward"] == opcost.count(net, X, backward=True).phases["backward"] + added(LAST + D * D)


def added(numel: int) -> Cost:
    """Each of three gradients times a number into its bucket, the average, and each back into the gradient.

    In a ring, each rank adds up all but one share of the bucket.
    """
    size = numel * FLOAT
    ring = 2 * (RANKS - 1) * size // RANKS
    return Cost(0, numel + (RANKS - 1) * numel // RANKS, size + ring + size, size + ring + size)


def test_the_optimizer_updates_with_the_averages() -> None:
    report = opcost.count(DistributedDataParallel(Net(), gradient_as_bucket_view=True), X, optimizer="SGD")
    assert elements(report) == [LAST + MIDDLE, FIRST]
    assert report.phases["update"] == opcost.count(Net(), X, optimizer="SGD").phases["update"]
