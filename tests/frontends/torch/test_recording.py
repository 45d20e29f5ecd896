"""`with opcost.recording() as r:` counts whatever runs inside the block, and changes nothing about it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import opcost
from opcost.errors import InputError, UnknownName


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


FORWARD = 2 * 3 * 4 + 2 * 4 * 5


def test_functions_and_modules_are_counted_alike() -> None:
    x, weight = torch.ones(2, 3), torch.ones(3, 7)
    with opcost.recording() as r:
        x @ weight
        Net()(x)
    assert r.report.totals.macs == 2 * 3 * 7 + FORWARD


def test_modules_go_by_their_class_and_names() -> None:
    net = Net()
    with opcost.recording() as r:
        net(torch.ones(2, 3))
        net(torch.ones(2, 3))
        Net()(torch.ones(1, 3))
    by_module: dict[str, int] = {}
    for row in r.report.rows:
        if row.cost is not None and row.cost.macs:
            by_module[row.op.module] = by_module.get(row.op.module, 0) + row.cost.macs
    assert by_module == {
        "<Net>.body.0": 2 * 2 * 3 * 4,
        "<Net>.head": 2 * 2 * 4 * 5,
        "<Net 2>.body.0": 3 * 4,
        "<Net 2>.head": 4 * 5,
    }


def test_results_gradients_and_updates_are_the_users() -> None:
    def step(net: nn.Module) -> tuple[torch.Tensor, list[torch.Tensor]]:
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        loss = net(torch.ones(2, 3)).square().sum()
        loss.backward()
        optimizer.step()
        return loss, [p.detach().clone() for p in net.parameters()]

    torch.manual_seed(0)
    plain = step(Net())
    torch.manual_seed(0)
    net = Net()
    with opcost.recording() as r:
        recorded = step(net)
    assert torch.equal(plain[0], recorded[0])
    assert all(map(torch.equal, plain[1], recorded[1]))
    # Backward: the gradient of every weight, and of the input of the second layer.
    assert r.report.totals.macs == FORWARD + FORWARD + 2 * 4 * 5
    phases = {row.op.phase for row in r.report.rows}
    assert phases == {"forward", "backward"}
    assert r.report.totals.params == r.report.totals.trainable_params == 3 * 4 + 4 + 4 * 5 + 5


def test_gradients_belong_to_the_module_whose_forward_they_are_of() -> None:
    net = Net()
    with opcost.recording() as r:
        net(torch.ones(2, 3)).sum().backward()
    found = {row.op.module for row in r.report.rows if row.op.phase == "backward" and row.cost and row.cost.macs}
    assert found == {"<Net>.body.0", "<Net>.head"}


def test_parameters_made_in_the_block_are_parameters() -> None:
    with opcost.recording() as r:
        nn.Linear(3, 4)(torch.ones(1, 3))
    assert r.report.totals.trainable_params == 3 * 4 + 4


def test_statistics_of_a_norm_go_on_as_they_would() -> None:
    plain, norm = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    plain(x)
    with opcost.recording():
        norm(x)
    assert torch.equal(plain.running_mean, norm.running_mean)


def test_tensors_without_data_and_questions_for_values_are_both_welcome() -> None:
    with opcost.recording() as r:
        F.linear(torch.empty(2, 3, device="meta"), torch.empty(4, 3, device="meta"))
        if torch.ones(2, 2).sum().item() > 3:
            torch.ones(5, 2) @ torch.ones(2, 5)
    assert r.report.totals.macs == 2 * 3 * 4 + 5 * 2 * 5


def test_what_the_block_raises_comes_through_and_nothing_stays() -> None:
    call = nn.Module.__call__
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), opcost.recording() as r:
        nn.Linear(3, 4)(torch.ones(1, 5))
    assert nn.Module.__call__ is call
    assert r.report.totals.macs == 0
    torch.ones(1, 3) @ torch.ones(3, 1)
    assert r.report.totals.macs == 0


def test_a_recording_inside_a_recording_is_refused() -> None:
    with opcost.recording(), pytest.raises(InputError, match="inside another recording"), opcost.recording():
        pass


def test_rules_and_causal_are_as_for_a_count() -> None:
    q: Any = torch.ones(1, 1, 4, 2)
    with opcost.recording(causal="half") as r:
        F.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert r.report.totals.macs == 2 * 2 * (4 * 5 // 2)  # q times k, scores times v, over the unmasked half
    with pytest.raises(UnknownName):
        opcost.recording(causal="third")  # type: ignore[arg-type]
