"""opcost.compat.mmengine against mmengine itself, and against the tables that its documentation shows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import mmengine.analysis as theirs
import pytest
import torch
import torch.nn.functional as F
from mmengine.analysis.print_helper import complexity_stats_str, complexity_stats_table
from mmengine.model import BaseModel
from torch import nn

import opcost.compat.mmengine as ours

KEYS = ["flops", "flops_str", "activations", "activations_str", "params", "params_str", "out_table", "out_arch"]


class InnerNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(10, 10)
        self.fc2 = nn.Linear(10, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc1(self.fc2(x))


class TestNet(nn.Module):
    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(10, 10)
        self.fc2 = nn.Linear(10, 10)
        self.inner = InnerNet()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc1(self.fc2(self.inner(x)))


TABLE = """
+---------------------+----------------------+--------+--------------+
| module              | #parameters or shape | #flops | #activations |
+---------------------+----------------------+--------+--------------+
| model               | 0.44K                | 0.4K   | 40           |
|  fc1                |  0.11K               |  100   |  10          |
|   fc1.weight        |   (10, 10)           |        |              |
|   fc1.bias          |   (10,)              |        |              |
|  fc2                |  0.11K               |  100   |  10          |
|   fc2.weight        |   (10, 10)           |        |              |
|   fc2.bias          |   (10,)              |        |              |
|  inner              |  0.22K               |  0.2K  |  20          |
|   inner.fc1         |   0.11K              |   100  |   10         |
|    inner.fc1.weight |    (10, 10)          |        |              |
|    inner.fc1.bias   |    (10,)             |        |              |
|   inner.fc2         |   0.11K              |   100  |   10         |
|    inner.fc2.weight |    (10, 10)          |        |              |
|    inner.fc2.bias   |    (10,)             |        |              |
+---------------------+----------------------+--------+--------------+
"""

ARCH = """
TestNet(
  #params: 0.44K, #flops: 0.4K, #acts: 40
  (fc1): Linear(
    in_features=10, out_features=10, bias=True
    #params: 0.11K, #flops: 100, #acts: 10
  )
  (fc2): Linear(
    in_features=10, out_features=10, bias=True
    #params: 0.11K, #flops: 100, #acts: 10
  )
  (inner): InnerNet(
    #params: 0.22K, #flops: 0.2K, #acts: 20
    (fc1): Linear(
      in_features=10, out_features=10, bias=True
      #params: 0.11K, #flops: 100, #acts: 10
    )
    (fc2): Linear(
      in_features=10, out_features=10, bias=True
      #params: 0.11K, #flops: 100, #acts: 10
    )
  )
)"""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def test_the_documented_table_and_architecture_come_out_to_the_character() -> None:
    found = ours.get_model_complexity_info(TestNet(), (1, 10))
    assert list(found) == KEYS
    assert found["out_table"] == TABLE
    assert found["out_arch"] == ARCH
    assert (found["flops"], found["activations"], found["params"]) == (4 * 10 * 10, 4 * 10, 4 * (10 * 10 + 10))
    assert (found["flops_str"], found["activations_str"], found["params_str"]) == ("0.4K", "40", "0.44K")


class Mixed(nn.Module):
    """Two inputs, a batch norm, an unused layer and a shared one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.again = self.conv
        self.scale = nn.Linear(4, 8)
        self.skip = nn.Identity()
        self.unused = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.skip(self.norm(self.again(x))) * self.scale(y)[:, :, None, None] + self.conv(x)


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    "testnet": (TestNet, (10,)),
    "mixed": (Mixed, ((3, 9, 9), (4,))),
    "mixed in use": (lambda: Mixed().eval(), ((3, 9, 9), (4,))),
    "sequence": (lambda: nn.Sequential(nn.Conv1d(4, 6, 3), nn.GELU(), nn.Conv1d(6, 4, 1)), (4, 20)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_key_is_that_of_mmengine(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # mmengine cuts its table at the width of the terminal
    make, shape = CASES[case]
    model = make()
    their = theirs.get_model_complexity_info(model, shape)
    our = ours.get_model_complexity_info(model, shape)
    assert our == their


def test_the_table_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert ours.get_model_complexity_info(TestNet(), (1, 10))["out_table"] == TABLE
    assert theirs.get_model_complexity_info(TestNet(), (1, 10))["out_table"] != TABLE


def test_table_and_architecture_can_be_left_out() -> None:
    found = ours.get_model_complexity_info(TestNet(), (10,), show_table=False, show_arch=False)
    assert (found["out_table"], found["out_arch"], found["flops"]) == ("", "", 400)


def test_inputs_are_taken_as_they_are() -> None:
    model, x = nn.Linear(10, 7), torch.randn(3, 10)
    for inputs in (x, (x,)):
        found = ours.get_model_complexity_info(model, inputs=inputs, show_table=False)
        assert (found["flops"], found["activations"]) == (3 * 10 * 7, 3 * 7)


def test_a_shape_gets_a_batch_of_one_whatever_it_looks_like() -> None:
    assert ours.get_model_complexity_info(nn.Linear(10, 7), (5, 10))["flops"] == 1 * 5 * 10 * 7


@pytest.mark.parametrize("arguments", [{}, {"input_shape": (3,), "inputs": torch.randn(3)}, {"input_shape": [3]}])
def test_wrong_arguments_are_refused_as_mmengine_does(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="input_shape") as their:
        theirs.get_model_complexity_info(nn.Linear(3, 3), **arguments)
    with pytest.raises(ValueError, match="input_shape") as our:
        ours.get_model_complexity_info(nn.Linear(3, 3), **arguments)
    if arguments.get("input_shape") != [3]:  # their words run into each other there
        assert str(our.value) == str(their.value)


def test_a_model_in_half_precision_gets_inputs_of_its_type() -> None:
    assert ours.get_model_complexity_info(nn.Linear(10, 7).half(), (10,))["flops"] == 10 * 7


def test_a_model_without_parameters_is_counted() -> None:
    assert ours.get_model_complexity_info(nn.AdaptiveAvgPool2d(1), (3, 4, 4))["flops"] == 3 * 4 * 4


class Bottleneck(nn.Module):
    """The block of ResNet-50: 1x1, 3x3, 1x1 convolutions, each with a batch norm."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        sizes = ((inputs, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.convs = nn.ModuleList(nn.Conv2d(i, o, k, stride=s, padding=k // 2, bias=False) for i, o, k, s in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, _, _ in sizes)
        self.shortcut: nn.Module | None = None
        if stride > 1 or inputs != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for step, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y))
            y = F.relu(y) if step < 2 else y
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        stages, inputs = [], 64
        for stage, depth in enumerate((3, 4, 6, 3)):
            for block in range(depth):
                stages.append(Bottleneck(inputs, 64 << stage, 2 if stage and not block else 1))
                inputs = 256 << stage
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.pool(self.stages(self.stem(x))).flatten(1))


class MMResNet50(BaseModel):
    """The documentation's second example."""

    def __init__(self) -> None:
        super().__init__()
        self.resnet = ResNet50()

    def forward(self, imgs: torch.Tensor, labels: torch.Tensor | None = None, mode: str = "tensor") -> Any:
        x = self.resnet(imgs)
        if mode == "loss":
            return {"loss": F.cross_entropy(x, labels)}
        return (x, labels) if mode == "predict" else x


def resnet50_flops(*, norm: int) -> tuple[int, int]:
    """Flops and parameters from the plan of the network; `norm` flops for each element that a batch norm sees."""
    macs, normed, params = 64 * 112**2 * 3 * 49, 64 * 112**2, 3 * 64 * 49 + 2 * 64
    inputs, side = 64, 56
    for stage, depth in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(depth):
            strided = stage > 0 and block == 0
            out = side // 2 if strided else side
            layers = [(inputs, width, 1, side), (width, width, 3, out), (width, 4 * width, 1, out)]
            if block == 0:
                layers.append((inputs, 4 * width, 1, out))
            for i, o, k, size in layers:
                macs += i * o * k * k * size**2
                normed += o * size**2
                params += i * o * k * k + 2 * o
            inputs, side = 4 * width, out
    return macs + norm * normed + 2048 * 7 * 7 + 2048 * 1000, params + 2048 * 1000 + 1000


@pytest.mark.parametrize(("training", "norm", "text"), [(True, 5, "4.145G"), (False, 2, "4.112G")])
def test_a_base_model_has_the_documented_numbers(training: bool, norm: int, text: str) -> None:
    with torch.device("meta"):
        model = MMResNet50().train(training)
    found = ours.get_model_complexity_info(model, (3, 224, 224), show_table=False)
    assert (found["flops"], found["params"]) == resnet50_flops(norm=norm)
    assert (found["flops_str"], found["params_str"]) == (text, "25.557M")
    assert model.training is training
    assert "data_preprocessor" in found["out_arch"]


def test_the_other_names_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    model, x = Mixed().eval(), (torch.randn(1, 3, 9, 9), torch.randn(1, 4))
    their, our = theirs.FlopAnalyzer(model, x), ours.FlopAnalyzer(model, x)
    their_acts, our_acts = theirs.ActivationAnalyzer(model, x), ours.ActivationAnalyzer(model, x)
    assert our.by_module_and_operator() == their.by_module_and_operator()
    assert our_acts.by_operator() == their_acts.by_operator()
    assert ours.flop_count(model, x) == theirs.flop_count(model, x)
    assert ours.activation_count(model, x) == theirs.activation_count(model, x)
    assert ours.parameter_count(model) == theirs.parameter_count(model)
    assert ours.parameter_count_table(model) == theirs.parameter_count_table(model)
    assert ours.complexity_stats_table(our, 1) == complexity_stats_table(their, 1)
    assert ours.complexity_stats_str(our, our_acts) == complexity_stats_str(their, their_acts)


def test_attention_is_counted_where_mmengine_counts_nothing() -> None:
    class Attention(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, k)

    shapes = (2, 5, 4), (2, 7, 4)
    assert theirs.get_model_complexity_info(Attention(), inputs=tuple(map(torch.randn, shapes)))["flops"] == 0
    found = ours.get_model_complexity_info(Attention(), shapes)
    assert found["flops"] == 2 * 5 * 7 * (4 + 4)
    assert found["activations"] == 2 * 5 * 7 + 2 * 5 * 4
