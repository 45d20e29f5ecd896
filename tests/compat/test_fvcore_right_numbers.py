"""Where fvcore counts nothing, too little or cannot run, opcost.compat.fvcore gives the number that the shapes say."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import fvcore.nn as theirs
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import opcost.compat.fvcore as ours


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[None, None]:
        return None, None


def lstm_macs(steps: int, width: int, hidden: int) -> int:
    """Two layers in both directions; the second reads both directions of the first."""
    return sum(2 * steps * 4 * hidden * (inputs + hidden) for inputs in (width, 2 * hidden))


MISSED: dict[str, tuple[nn.Module, tuple[tuple[int, ...], ...], str, int]] = {
    "attention": (Call(attention), ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)), "scaled_dot_product_attention", 6 * 5 * 7 * 10),
    "lstm": (nn.LSTM(4, 5, 2, bidirectional=True), ((7, 3, 4),), "lstm", lstm_macs(21, 4, 5)),
    "gru": (nn.GRU(4, 5), ((7, 3, 4),), "gru", 21 * 3 * 5 * (4 + 5)),
    "rnn": (nn.RNN(4, 5), ((7, 3, 4),), "rnn_tanh", 21 * 5 * (4 + 5)),
    "bilinear": (nn.Bilinear(3, 4, 5), ((2, 3), (2, 4)), "bilinear", 2 * 5 * 3 * 4),
    "tensordot": (Call(lambda a, b: torch.tensordot(a, b, 2)), ((3, 4, 5), (4, 5, 6)), "tensordot", 3 * 20 * 6),
    "addbmm": (Call(torch.addbmm), ((3, 5), (2, 3, 4), (2, 4, 5)), "addbmm", 2 * 3 * 4 * 5),
    "baddbmm": (Call(torch.baddbmm), ((2, 3, 5), (2, 3, 4), (2, 4, 5)), "baddbmm", 2 * 3 * 4 * 5),
    "custom function": (Call(Twice.apply), ((3, 4), (4, 5)), "matmul", 3 * 4 * 5),
    "broadcast matmul": (Call(torch.matmul), ((2, 3), (5, 3, 4)), "matmul", 5 * 2 * 3 * 4),
    "rounded einsum": (
        Call(lambda a, b: torch.einsum("bik,bkj->bij", a, b)), ((5, 128, 64), (5, 64, 128)), "einsum", 5 * 128 * 64 * 128,
    ),
    "same padding": (nn.Conv2d(3, 4, 3, padding="same"), ((1, 3, 8, 8),), "conv", 4 * 8 * 8 * 3 * 9),
    "dropped result": (Call(lambda x, w: (x @ w, x)[1]), ((3, 4), (4, 5)), "matmul", 3 * 4 * 5),
}  # fmt: skip


@pytest.mark.parametrize("case", MISSED)
def test_what_fvcore_misses_is_counted(case: str) -> None:
    model, shapes, operator, macs = MISSED[case]
    inputs = tuple(torch.randn(shape) for shape in shapes)
    assert theirs.FlopCountAnalysis(model, inputs).total() != macs, "fvcore is right by now"
    assert ours.FlopCountAnalysis(model, inputs).by_operator() == {operator: macs}


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 5)

    def forward(self, *, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)


class Unregistered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(4, 5)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[0](x)


CRASHES: dict[str, tuple[Callable[[], nn.Module], Any, int]] = {
    "vectors": (lambda: Call(torch.matmul), (torch.randn(3, 4), torch.randn(4)), 3 * 4),
    "keyword arguments": (Keywords, {"x": torch.randn(2, 4)}, 2 * 4 * 5),
    "scripted": (lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 5), nn.ReLU())), torch.randn(2, 4), 2 * 4 * 5),
    "unregistered": (Unregistered, torch.randn(2, 4), 2 * 4 * 5),
    "one-dimensional norm": (lambda: nn.LayerNorm(6), torch.randn(6), 5 * 6),
}


@pytest.mark.parametrize("case", CRASHES)
def test_what_fvcore_cannot_run_is_counted(case: str) -> None:
    make, inputs, flops = CRASHES[case]
    with pytest.raises((AssertionError, IndexError, RuntimeError, TypeError)):
        theirs.FlopCountAnalysis(make(), inputs).total()
    assert ours.FlopCountAnalysis(make(), inputs).total() == flops


def test_keyword_arguments_may_come_beside_the_others() -> None:
    flops = ours.FlopCountAnalysis(Keywords(), (), kwargs={"x": torch.randn(2, 4)})
    assert flops.by_module() == {"": 2 * 4 * 5, "fc": 2 * 4 * 5}


def test_attention_writes_its_scores_and_its_output() -> None:
    shapes = (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)
    acts = ours.ActivationCountAnalysis(Call(attention), tuple(torch.randn(shape) for shape in shapes))
    assert acts.total() == 2 * 3 * 5 * 7 + 2 * 3 * 5 * 6


def test_a_model_without_data_is_counted_and_left_alone() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4096, 4096), nn.BatchNorm1d(4096))
    hooks = [len(module._forward_hooks) for module in model.modules()]
    flops = ours.FlopCountAnalysis(model.train(), torch.empty(8, 4096, device="meta"))
    assert flops.by_operator() == {"linear": 8 * 4096 * 4096, "batch_norm": 5 * 8 * 4096}
    assert [len(module._forward_hooks) for module in model.modules()] == hooks
    assert model.training


def test_a_failing_forward_leaves_no_hooks() -> None:
    model = nn.Sequential(nn.Linear(4, 5))
    with pytest.raises(RuntimeError, match=r"reduction dim|cannot be multiplied") as raised:
        ours.FlopCountAnalysis(model, torch.randn(2, 3)).total()
    assert any("in module '0'" in note for note in getattr(raised.value, "__notes__", ["in module '0'"]))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
