"""Layers that train in float8: products and conversions are derived from the extents, and a real step runs the same operators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from helpers_live import Live, work
from torch import Tensor, nn

import opcost
from opcost.errors import InputError
from opcost.frontends.torch.models.float8 import Float8Linear, training_in_float8

B, K, M, WORDS, DEEP = 32, 64, 128, 48, 2
"""Rows, features of a block and inside of it, outputs of the last layer, and the number of blocks."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(K, M, bias=False), nn.Linear(M, K)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x).relu())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(DEEP)), nn.Linear(K, WORDS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x).float().square().mean()


def rows() -> Tensor:
    return torch.randn(B, K, dtype=torch.bfloat16)


def model() -> Net:
    return Net().to(torch.bfloat16)


def products(report: opcost.Report, raw: str) -> list[Any]:
    return [row for row in report.rows if row.op.raw == raw]


@pytest.mark.parametrize("scheme", ["fp8", "fp8-rows"])
def test_three_products_of_each_layer_of_the_blocks_read_float8(scheme: Any) -> None:
    plain, trained = (opcost.count(model(), rows(), backward=True, quantize=each) for each in (None, scheme))
    found = products(trained, "aten::_scaled_mm")
    layers = 2 * DEEP
    assert len(found) == 3 * layers - 1  # the first block's input has no gradient
    assert {spec.dtype for row in found for spec in row.ins[:2]} == {"float8_e4m3fn", "float8_e5m2"}
    assert trained.totals.macs == plain.totals.macs
    assert all(row.cost.macs == B * K * M for row in found)
    # the logits, and the gradients of their inputs and weights
    assert len(products(trained, "aten::mm")) == 3
    assert trained.totals.params == plain.totals.params
    assert trained.totals.param_bytes == plain.totals.param_bytes
    scales = {spec.shape for row in found for spec in row.ins[2:4]}
    assert scales == ({()} if scheme == "fp8" else {(B, 1), (K, 1), (M, 1), (1, K), (1, M), (1, B)} & scales)
    assert trained.coverage.complete


@pytest.mark.parametrize("scheme", ["fp8", "fp8-rows"])
def test_a_real_step_runs_the_same_and_its_gradients_are_near_those_without(scheme: Any) -> None:
    torch.manual_seed(0)
    net, x = model(), rows()
    net(x).backward()
    made: Any = training_in_float8(net, scheme)
    assert made.blocks[0].up.weight is net.blocks[0].up.weight
    assert type(net.blocks[0].up) is nn.Linear
    assert type(made.blocks[0].up) is Float8Linear
    assert type(made.head) is nn.Linear
    before = [parameter.grad.clone() for parameter in net.parameters()]  # type: ignore[union-attr]
    for parameter in net.parameters():
        parameter.grad = None
    try:
        with Live() as live:
            made(x).backward()
    except (RuntimeError, NotImplementedError) as exc:
        pytest.skip(f"no product of float8 on this processor: {exc}")
    report = opcost.count(model(), x, backward=True, quantize=scheme)
    assert [name for name, _ in work(report)] == [name for name, _ in live.work]
    for gradient, parameter in zip(before, net.parameters(), strict=True):
        assert parameter.grad is not None
        error = (parameter.grad - gradient).float().norm() / gradient.float().norm()
        assert (
            error < 0.3
        )  # an eighth of each number is rounded at most, of gradients twice that; a wrong scale is off by more


def test_fully_sharded_weights_are_gathered_in_float8() -> None:
    pytest.importorskip("torch.distributed")
    ranks = 4

    def gathered(scheme: Any) -> list[int]:
        report = opcost.count(
            Net(), torch.empty(B, K), backward=True, mesh=f"fsdp={ranks}", precision="bf16-mixed", quantize=scheme
        )
        return [row.outs[0].nbytes for row in report.rows if row.op.attrs.get("fn") == "all_gather"]

    weights, bias, head = 2 * K * M, K, K * WORDS
    assert gathered(None) == [2 * head, *(2 * (weights + bias),) * (2 * DEEP)]
    assert gathered("fp8-gather") == [2 * head, *(weights + 2 * bias,) * (2 * DEEP)]
    assert gathered("fp8") == gathered("fp8-rows") == gathered(None)


@pytest.mark.slow
def test_real_ranks_with_parts_of_the_sequence_find_the_gradients_of_one(tmp_path: Path) -> None:
    """The largest values of the whole decide the scales, so that each number is rounded as on one rank."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("PyTorch without gloo")
    try:
        training_in_float8(model(), "fp8")(rows()).backward()
    except (RuntimeError, NotImplementedError) as exc:
        pytest.skip(f"no product of float8 on this processor: {exc}")
    from float8_ranks import run_rank

    torch.multiprocessing.spawn(run_rank, (2, str(tmp_path)), nprocs=2)
    for rank in range(2):
        off = json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8"))
        assert len(off) == 21  # seven products and two norms in each of two layers, the embedding, a norm and the head
        assert max(off.values()) < 1e-4


def test_what_does_not_train_in_float8_is_refused() -> None:
    with pytest.raises(InputError, match="how layers are trained"):
        opcost.count(model(), rows(), quantize="fp8-rows")
    with pytest.raises(InputError, match="not trained"):
        opcost.count(model(), rows(), backward=True, quantize="int8")
    with pytest.raises(InputError, match="no linear layer"):
        opcost.count(nn.Linear(7, 9), torch.randn(2, 7), backward=True, quantize="fp8")
