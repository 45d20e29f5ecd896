"""opcost.compat.torchsummary beside torchsummary itself: the same print where it is right, the right number where not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from opcost.compat import torchsummary as ours

theirs = pytest.importorskip("torchsummary")

MEBIBYTE = 1024**2


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x + self.norm(self.conv(x)))


def net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), Block(8), nn.Sequential(Block(8), nn.MaxPool2d(2)), nn.Flatten(), nn.Linear(8 * 7 * 7, 1000)
    )  # fmt: skip


def frozen() -> nn.Module:
    model = net()
    model[0].requires_grad_(False)
    model[1].norm.requires_grad_(False)
    return model


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(1, 2, 3, padding=1), nn.Linear(5, 4)

    def forward(self, image: torch.Tensor, vector: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.left(image), self.right(vector)


def printed(capsys: pytest.CaptureFixture[str], tool: Any, model: nn.Module, *args: Any, **kwargs: Any) -> str:
    capsys.readouterr()
    tool.summary(model, *args, **kwargs)
    return capsys.readouterr().out


@pytest.mark.parametrize("make", [net, frozen], ids=["net", "frozen"])
@pytest.mark.parametrize("options", [{}, {"batch_size": 16}, {"batch_size": -1}], ids=str)
def test_the_print_is_torchsummarys_to_the_character(
    capsys: pytest.CaptureFixture[str], make: Callable[[], nn.Module], options: dict[str, int]
) -> None:
    expected = printed(capsys, theirs, make(), (3, 31, 31), device="cpu", **options)
    assert printed(capsys, ours, make(), (3, 31, 31), device="cpu", **options) == expected


def test_layers_are_listed_when_they_are_done_and_containers_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, ours, net(), (3, 31, 31)).splitlines()
    names = [line.split()[0] for line in lines[3 : lines.index("=" * 64, 3)]]
    block = ["Conv2d", "BatchNorm2d", "ReLU", "Block"]
    order = ["Conv2d", *block, *block, "MaxPool2d", "Flatten", "Linear"]
    assert names == [f"{name}-{i}" for i, name in enumerate(order, 1)]


def test_the_default_device_does_not_ask_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, ours, net(), (3, 31, 31)) == printed(capsys, ours, net(), (3, 31, 31), device="cpu")
    with pytest.raises(AssertionError, match="please specify 'cuda' or 'cpu'"):
        ours.summary(net(), (3, 31, 31), device="tpu")


def fields(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


def test_several_inputs_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    side, n = 512, 5
    text = printed(capsys, ours, Two(), [(1, side, side), (n,)])
    outputs = 2 * side * side + 4
    assert fields(text)["Input size (MB)"] == f"{(side * side + n) * 4 / MEBIBYTE:.2f}"
    assert fields(text)["Forward/backward pass size (MB)"] == f"{2 * outputs * 4 / MEBIBYTE:.2f}"


def test_a_layer_that_is_called_twice_counts_once_and_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    layer = nn.Linear(4, 4)
    text = printed(capsys, ours, nn.Sequential(layer, nn.ReLU(), layer), (4,))
    assert fields(text)["Total params"] == str(4 * 4 + 4)
    assert text.splitlines()[5].split() == ["Linear-3", "[-1,", "4]", "(shared)"]


def test_weights_that_two_layers_share_count_once_and_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    lines = printed(capsys, ours, model, (4,)).splitlines()
    assert lines[3].endswith(f" {4 * 4}")
    assert lines[4].endswith(" 4"), "only the bias is new"
    assert "Total params: 20" in lines


def test_a_layer_that_is_not_used_is_counted_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(3, 2), nn.Linear(7, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    found = fields(printed(capsys, ours, Spare(), (3,)))
    spare = 7 * 5 + 5
    assert found["Total params"] == str(3 * 2 + 2 + spare)
    assert found["Unused params"] == f"{spare} (spare)"


def test_all_parameters_of_a_layer_count_not_only_weight_and_bias(capsys: pytest.CaptureFixture[str]) -> None:
    class Cls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.zeros(1, 1, 8))
            self.lstm = nn.LSTM(8, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(torch.cat([self.token.expand(len(x), 1, 8), x], 1))[0]

    lstm = 4 * 4 * (8 + 4) + 2 * 4 * 4
    text = printed(capsys, ours, Cls(), (6, 8))
    assert text.splitlines()[3].endswith(f" {lstm}")
    assert fields(text)["Total params"] == str(lstm + 8)
    assert fields(text)["Params of no layer above"] == "8 (token)"


def test_a_bias_that_is_trained_beside_a_frozen_weight_is_trainable(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 3))
    model[0].weight.requires_grad_(False)
    found = fields(printed(capsys, ours, model, (4,)))
    assert (found["Trainable params"], found["Non-trainable params"]) == ("3", "12")


class Outputs(nn.Module):
    def __init__(self, wrap: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.wrap = wrap

    def forward(self, x: torch.Tensor) -> Any:
        return self.wrap(x)


@pytest.mark.parametrize(
    ("wrap", "shape"),
    [
        (lambda x: x, "[7, 3]"),
        (lambda x: (x, x[:, :2]), "[[7, 3], [7, 2]]"),
        (lambda x: {"a": x, "b": None}, "[[7, 3]]"),
        (lambda x: [(x, x), x], "[[[7, 3], [7, 3]], [7, 3]]"),
        (lambda x: x.sum(), "[]"),
        (lambda x: "text", "None"),
    ],
)
def test_any_result_can_be_shown(
    capsys: pytest.CaptureFixture[str], wrap: Callable[[torch.Tensor], Any], shape: str
) -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Outputs(wrap)

        def forward(self, x: torch.Tensor) -> Any:
            return self.inner(x)

    lines = printed(capsys, ours, Root(), (3,), batch_size=7).splitlines()
    assert lines[3] == f"{'Outputs-1':>20}  {shape:>25} {'0':>15}"


def test_layers_called_with_keywords_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    class Keyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(input=x)

    assert "Linear-1" in printed(capsys, ours, Keyword(), (3,))


def test_the_model_is_left_as_it_was() -> None:
    model = net().train()
    before = copy.deepcopy(model.state_dict())
    ours.summary(model, (3, 31, 31))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
