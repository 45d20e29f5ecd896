"""Optimizers by name: every one of `torch.optim` against a real step, and those whose state has eight bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers_live import Live, work
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import opcost
from opcost.errors import DataDependent, ForwardError, InputError, UnknownName
from opcost.frontends.torch.recording.training_step import EIGHT_BIT

N, K, M = 8, 16, 32
NAMES = [name for name, found in vars(torch.optim).items() if isinstance(found, type) and name != "Optimizer"]
MADE_ONCE = ("zeros", "new_zeros", "ones", "lift_fresh", "clone", "full", "empty", "_local_scalar_dense")
"""Operators that make state in the first step, and the one that reads a number from it."""


class Net(nn.Module):
    """Two layers and a loss; all parameters are matrices, which some optimizers demand."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(K, M, bias=False), nn.Linear(M, K, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).square().mean()


class Words(nn.Module):
    """The same with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(K, M, sparse=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens).square().mean()


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    tensors = [t for state in optimizer.state.values() for t in tree_leaves(state) if isinstance(t, Tensor)]
    return sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}.values())


def steady(ops: list[Any]) -> list[str]:
    names = [op[0].removeprefix("aten::") for op in ops]
    return [name for name in names if "::" not in name and not name.startswith(MADE_ONCE)]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("LBFGS", "SparseAdam")])
def test_an_optimizer_runs_and_keeps_what_its_second_real_step_does(name: str) -> None:
    model, x = Net(), torch.randn(N, K)
    optimizer = getattr(torch.optim, name)(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(x).backward()
        with Live() as live:
            optimizer.step()
    report = opcost.count(model, x, optimizer=name.lower())
    update = [row.op.phase == "update" for row in report.rows]
    forward = Live()
    forward.ops = [(row.op.raw, ()) for row in report.rows if row.op.phase != "update"]
    assert steady(work(report))[len(steady(forward.work)) :] == steady(live.work)
    assert report.memory.parts.get("optimizer", 0) == state_bytes(optimizer)
    gradients, loss = 4 * 2 * K * M, 4
    temporary = max(at for at, is_update in zip(report.memory.curve, update, strict=True) if is_update)
    assert temporary - report.memory.base_bytes - gradients - loss == live.peak
    assert report.totals.uncounted == 0


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("LBFGS", "SparseAdam")])
def test_every_optimizer_is_counted_as_on_a_gpu_and_predicted(name: str) -> None:
    plain, on_gpu = (opcost.count(Net(), torch.zeros(N, K), optimizer=name, device=device) for device in (None, "h200"))
    assert on_gpu.totals.uncounted == 0
    assert len([row for row in on_gpu.rows if row.op.phase == "update"]) <= len(plain.rows)
    assert opcost.predict(Net(), torch.zeros(N, K), optimizer=name).latency_ns > 0


def test_one_for_sparse_gradients_keeps_dense_state() -> None:
    report = opcost.count(Words(), torch.zeros(N, dtype=torch.int64), optimizer="SparseAdam", real=True)
    assert report.memory.parts["optimizer"] == 2 * 4 * K * M


def test_what_an_optimizer_refuses_is_reported_as_its_own_error() -> None:
    with pytest.raises(ForwardError, match="the optimizer raised ValueError: Muon only supports 2D parameters"):
        opcost.count(nn.Linear(K, M), torch.zeros(N, K), optimizer="Muon")
    with pytest.raises(ForwardError, match="the optimizer raised RuntimeError: SparseAdam does not support dense"):
        opcost.count(Net(), torch.zeros(N, K), optimizer="sparseadam")
    with pytest.raises(InputError, match="LBFGS runs the model again and again"):
        opcost.count(Net(), torch.zeros(N, K), optimizer="LBFGS")
    with pytest.raises(UnknownName, match="unknown optimizer 'adamw8'; did you mean 'AdamW' or 'AdamW8bit'"):
        opcost.count(Net(), torch.zeros(N, K), optimizer="adamw8")


def test_other_inputs_are_not_tried_where_the_optimizer_fails() -> None:
    class Pair(nn.Module):  # what it takes as the second input is unknown, so several forms would be tried
        calls = 0

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(K, M, device="meta")

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            Pair.calls += 1
            return self.layer(x) + y

    with pytest.raises(DataDependent, match="_local_scalar_dense"):  # adafactor reads the size of the weights
        opcost.count(Pair(), optimizer="adafactor")
    once, Pair.calls = Pair.calls, 0
    opcost.count(Pair(), optimizer="adamw")
    assert once == Pair.calls


# -- state of eight bits ----------------------------------------------------------------------------------------------------

LARGE, SMALL = 96 * 64, 96
"""Elements of a weight, and of the bias, which has fewer than 4,096."""


def layer() -> nn.Linear:
    return nn.Linear(64, 96)


@pytest.mark.parametrize(
    ("name", "states", "flops"),
    [
        ("adam8bit", 2, 14),
        ("AdamW8bit", 2, 16),
        ("lion8bit", 1, 9),
        ("SGD8bit", 1, 4),
        ("rmsprop8bit", 1, 9),
        ("Adagrad8bit", 1, 6),
    ],
)
@pytest.mark.parametrize("real", [False, True])
def test_state_of_eight_bits_has_a_byte_for_an_element_and_scales(
    name: str, states: int, flops: int, real: bool
) -> None:
    report = opcost.count(layer(), torch.zeros(2, 64), optimizer=name, real=real)
    scales, levels = 4 * (LARGE // 256), 4 * 256  # of each block of 256; what each byte means, shared by all
    assert report.memory.parts["optimizer"] == states * (LARGE + scales + levels + 4 * SMALL)
    updates = [row for row in report.rows if row.op.raw.startswith("opcost::")]
    assert [row.op.raw for row in updates] == [
        "opcost::optimizer_update_8bit_blockwise",
        "opcost::optimizer_update_32bit",
    ]
    assert report.phases["update"].flops == flops * (LARGE + SMALL)
    # The gradient and the parameter, the state with its scales, and the levels; all but the gradient and levels are written.
    kept = states * (LARGE + scales)
    assert (updates[0].cost.bytes_read, updates[0].cost.bytes_written) == (
        8 * LARGE + kept + states * levels,
        4 * LARGE + kept,
    )


def test_a_last_block_that_is_not_full_has_a_scale_too() -> None:
    report = opcost.count(nn.Linear(4097, 1, bias=False), torch.zeros(1, 4097), optimizer="lion8bit")
    assert report.memory.parts["optimizer"] == 4097 + 4 * 17 + 4 * 256


def test_a_step_needs_a_quarter_of_the_state_and_no_temporary_memory() -> None:
    model, x = nn.Linear(1024, 1024, bias=False), torch.zeros(1, 1024)
    whole, eight = (opcost.count(model, x, optimizer=name).memory for name in ("AdamW", "AdamW8bit"))
    assert eight.parts["optimizer"] < 0.26 * whole.parts["optimizer"]
    gradient, row = 4 * 1024 * 1024, 4 * 1024
    assert eight.peak_bytes - eight.base_bytes == gradient + 2 * row


def test_a_prediction_starts_a_kernel_for_each_parameter() -> None:
    once, four = (
        opcost.predict(
            nn.Sequential(*(nn.Linear(64, 64) for _ in range(deep))), torch.zeros(1, 64), optimizer="adamw8bit"
        )
        for deep in (1, 4)
    )
    started = [[row.device_ns for row in found.rows if row.phase == "update"] for found in (once, four)]
    assert [len(times) for times in started] == [2, 8]
    assert sum(started[1]) == pytest.approx(4 * sum(started[0]), rel=0.01)


@pytest.mark.parametrize("name", EIGHT_BIT)
def test_it_keeps_what_bitsandbytes_keeps(name: str) -> None:
    library = pytest.importorskip("bitsandbytes")
    model, x = nn.Sequential(layer(), nn.Linear(96, 33)), torch.randn(2, 64)
    rate = {"lr": 0.1, "momentum": 0.9} if name == "SGD8bit" else {}
    theirs = getattr(library.optim, name)(model.parameters(), **rate)
    model(x).sum().backward()
    theirs.step()
    assert opcost.count(model, x, optimizer=name).memory.parts["optimizer"] == state_bytes(theirs)
