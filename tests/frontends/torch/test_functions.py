"""A function is counted as a model is: nothing has to be wrapped."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

import opcost
from opcost.errors import InputError, UnknownSource

B, D, H, OUT = 5, 4, 8, 3
X = torch.ones(B, D)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(D, H)
        self.second = nn.Linear(H, OUT)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))

    def encode(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.first(x) * scale


def test_a_function_a_partial_and_a_builtin_are_counted() -> None:
    def gram(x: Tensor, times: int = 1) -> Tensor:
        return sum((x.t() @ x for _ in range(times)), torch.zeros(()))

    assert opcost.count(gram, X).totals.macs == D * B * D
    assert opcost.count(functools.partial(gram, times=3), X).totals.macs == 3 * D * B * D
    assert opcost.count(torch.matmul, (X, torch.ones(D, OUT))).totals.macs == B * D * OUT
    assert opcost.count(gram, shapes=(7, 2)).totals.macs == 2 * 7 * 2


def test_a_compiled_and_a_traced_function_are_counted() -> None:
    def square(x: Tensor) -> Tensor:
        return x @ x

    x = torch.ones(D, D)
    assert opcost.count(torch.compile(square), x).totals.macs == D**3
    assert opcost.count(torch.jit.trace(square, x), x).totals.macs == D**3
    torch._dynamo.reset()


def test_modules_that_a_function_calls_are_named_and_their_weights_counted() -> None:
    layer = nn.Linear(D, H)
    report = opcost.count(lambda x: layer(layer(x)[:, :D]), X)
    assert (report.totals.params, report.totals.macs) == (D * H + H, 2 * B * D * H)
    assert report.module("<Linear>").total.macs == 2 * B * D * H


def test_a_method_is_counted_within_its_model() -> None:
    net = Net()
    report = opcost.count(net.encode, X)
    assert report.module("self.first").own.macs == B * D * H
    assert report.totals.macs == B * D * H
    assert report.totals.unused_params == H * OUT + OUT


def test_a_function_leaves_what_it_closes_over_as_it_was() -> None:
    norm = nn.BatchNorm1d(D)
    opcost.count(lambda x: norm(x) * 2, X)
    assert norm.num_batches_tracked.item() == 0
    assert not norm.running_mean.any()


def test_a_class_is_refused_with_how_to_make_one() -> None:
    with pytest.raises(UnknownSource, match="Net is a class") as caught:
        opcost.count(Net, X)
    assert caught.value.hint == "make one: Net(...)"


def test_a_function_without_its_inputs_is_refused() -> None:
    with pytest.raises(InputError, match=r"^<lambda>\(x\) needs inputs, and none were given"):
        opcost.count(lambda x: x)


@pytest.mark.parametrize("mapping", [{"x": X}, {"x": X, "scale": 2.0}])
def test_a_mapping_of_argument_names_is_the_keyword_arguments(mapping: dict[str, Any]) -> None:
    assert opcost.count(Net().encode, mapping).totals.macs == B * D * H


def test_any_other_mapping_and_a_named_tuple_are_one_argument() -> None:
    assert opcost.count(lambda batch: batch["x"] @ batch["x"].t(), {"x": X}).totals.macs == B * D * B
    packed = nn.utils.rnn.pack_sequence([torch.ones(4, D), torch.ones(2, D)])
    assert opcost.count(nn.LSTM(D, H), packed).totals.macs == (4 + 2) * 4 * H * (D + H)


def test_a_function_that_is_named_makes_the_model_and_one_handed_over_is_it(tmp_path: Path) -> None:
    path = tmp_path / "nets.py"
    path.write_text("import torch\ndef small(width=2):\n    return torch.nn.Linear(width, 3)\n", encoding="utf-8")
    assert opcost.count(f"{path}:small", shapes=(5, 2)).totals.macs == 5 * 2 * 3


def test_the_first_line_says_that_a_forward_pass_is_that_of_training() -> None:
    fresh = nn.Sequential(nn.Linear(4, 4), nn.Dropout())  # in train mode, as every model that was just made

    def first(source: Any, **options: Any) -> str:
        return str(opcost.count(source, torch.zeros(2, 4), **options)).partition(":")[0]

    assert first(fresh) == "Sequential, 2x4, forward in train mode"
    assert first(fresh.forward) == "forward, 2x4, forward in train mode"
    assert first(fresh, mode="eval") == first(fresh.eval()) == "Sequential, 2x4, forward"
    assert "forward and backward in eval mode" in first(fresh, backward=True)
    assert " mode" not in first(fresh, backward=True, mode="train")
    assert first(torch.relu) == "relu, 2x4, forward"  # a function has no mode
    assert "LoRA r=2" in first(fresh, mode="train", optimizer="adamw", lora="r=2,targets=0")
