"""`module_stats` of live PyTorch models: MegEngine's own numbers where they are right, and right ones where they are not."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import opcost
from opcost.compat.megengine import module_stats
from opcost.errors import InputError, UnknownName, UnknownSource

DATA = Path(__file__).resolve().parents[1] / "data/megengine/module_stats"
NORM = 7


class MLP(nn.Module):
    """The net of `mlp.json`."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.act1 = nn.ReLU()
        self.drop = nn.Dropout(0.5)
        self.fc2 = nn.Linear(128, 64, bias=False)
        self.fc3 = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.act1(self.fc1(x.flatten(1))))
        return F.softmax(self.fc3(F.relu(self.fc2(x))), 1)


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.downsample(x))


class ResNet18(nn.Module):
    """The net of `resnet18_slim_*.json`: relu, addition, the last pooling and flatten are functions."""

    def __init__(self, width: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        before = width
        for level in range(4):
            after = width << level
            blocks = nn.Sequential(Block(before, after, 2 if level else 1), Block(after, after, 1))
            setattr(self, f"layer{level + 1}", blocks)
            before = after
        self.fc = nn.Linear(before, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.avg_pool2d(x, 1).flatten(1))


@pytest.mark.parametrize(
    ("net", "golden", "shape"), [(MLP, "mlp", (1, 1, 28, 28)), (ResNet18, "resnet18_slim_bar10", (1, 3, 32, 32))]
)
def test_the_same_net_has_megengines_own_numbers(net: Any, golden: str, shape: tuple[int, ...]) -> None:
    expected = json.loads((DATA / f"{golden}.json").read_text())
    totals, details = module_stats(net(), input_shapes=[shape], logging_to_stdout=False)
    assert totals._asdict() == expected["total_stats"]
    for part, columns in {
        "params": (
            "name",
            "param_dim",
            "nbits",
            "size",
            "size_cum",
        ),  # MegEngine keeps (1, C, 1, 1) where torch has (C,)
        "flops": ("name", "class_name", "input_shapes", "output_shapes", "flops", "flops_cum", "percentage"),
        "activations": ("name", "class_name", "dtype", "shape", "act_dim", "size"),
    }.items():
        ours = [json.loads(json.dumps([line.get(column) for column in columns])) for line in getattr(details, part)]
        assert ours == [[line.get(column) for column in columns] for line in expected["details"][part]]


def stats(model: nn.Module, *shapes: tuple[int, ...], **options: Any) -> Any:
    return module_stats(model, input_shapes=[*shapes], logging_to_stdout=False, **options)


def flops(model: nn.Module, *shapes: tuple[int, ...]) -> int:
    return stats(model, *shapes)[0].flops


B, C, L, D, HEADS, T = 2, 4, 8, 6, 2, 5


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_adds_its_bias_to_every_output(bias: bool) -> None:
    y = (B, D, L // 2, L // 2)
    assert flops(nn.Conv2d(C, D, 3, 2, 1, groups=2, bias=bias), (B, C, L, L)) == prod(y) * (C // 2 * 9 + bias)
    assert flops(nn.Conv1d(C, D, 3, bias=bias), (B, C, L)) == B * D * (L - 2) * (C * 3 + bias)
    assert flops(nn.Conv3d(C, D, 3, bias=bias), (B, C, L, L, L)) == B * D * (L - 2) ** 3 * (C * 27 + bias)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_transposed_convolution_meets_every_input(axes: int) -> None:
    layer = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}[axes](C, D, 2, 2, groups=2)
    x, y = B * C * L**axes, B * D * (2 * L) ** axes
    assert flops(layer, (B, C, *[L] * axes)) == x * (D // 2) * 2**axes + y


def test_the_bias_of_a_linear_layer_counts_once_however_many_rows_there_are() -> None:
    assert flops(nn.Linear(D, C), (B, T, D)) == B * T * C * D + C
    assert flops(nn.Linear(D, C, bias=False), (B, T, D)) == B * T * C * D


@pytest.mark.parametrize("affine", [True, False])
def test_a_norm_costs_seven_for_each_element(affine: bool) -> None:
    image = (B, C, L, L)
    layers = [nn.BatchNorm2d(C, affine=affine), nn.GroupNorm(2, C, affine=affine), nn.InstanceNorm2d(C, affine=affine)]
    for layer in layers:
        assert flops(layer, image) == NORM * prod(image)
    assert flops(nn.LayerNorm(D, elementwise_affine=affine), (B, T, D)) == NORM * B * T * D


def test_pooling_costs_its_window_and_adaptive_pooling_too() -> None:
    assert flops(nn.MaxPool2d(3, 2), (B, C, 7, 7)) == B * C * 9 * 9
    assert flops(nn.AvgPool2d((2, 4)), (B, C, L, L)) == B * C * (L // 2) * (L // 4) * 8
    assert flops(nn.AvgPool1d(2), (B, C, L)) == B * C * (L // 2) * 2
    assert flops(nn.AdaptiveAvgPool2d(1), (B, C, L, L)) == B * C * L * L
    assert flops(nn.AdaptiveMaxPool2d(3), (B, C, 8, 8)) == B * C * 9 * 3 * 3
    assert flops(nn.AdaptiveAvgPool2d(2), (B, C, 2, 2)) == B * C * 4


def test_recurrent_layers_and_their_cells_are_counted_with_their_parameters() -> None:
    gates = 4
    totals, _ = stats(nn.LSTM(D, L, 2), (T, B, D))
    per_step = gates * L * (D + L) + gates * L * (L + L) + 2 * 2 * gates * L
    assert totals.flops == T * B * per_step
    assert totals.param_dims == gates * L * (D + L + L + L) + 2 * 2 * gates * L
    assert totals.act_dims == T * B * L
    assert flops(nn.GRU(D, L, bias=False), (T, B, D)) == T * B * 3 * L * (D + L)
    assert flops(nn.RNNCell(D, L), (B, D)) == B * (L * (D + L) + 2 * L)


def test_layers_that_megengine_crashes_on_have_parameters_and_cost_nothing() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, D)
            self.act = nn.PReLU(D)
            self.fc = nn.Linear(D, C)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.fc(self.act(self.table(tokens).flatten(0, 1)))

    totals, details = module_stats(Net(), inputs=np.zeros((B, T), "int64"), logging_to_stdout=False)
    assert totals.flops == B * T * D * C + C
    assert totals.param_dims == 50 * D + D + D * C + C
    assert [line["name"] for line in details.params] == ["table-w", "act-w", "fc-w", "fc-b", "total"]


def test_functions_with_multiply_adds_have_lines_and_others_are_free() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(D, C, 3, 3))
            self.fc = nn.Linear(D, D)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = F.max_pool2d(F.relu(F.conv2d(x, self.weight, padding=1)), 2).flatten(2).transpose(1, 2)
            scores = F.layer_norm(y, (D,)) @ y.transpose(1, 2)
            return F.linear(F.softmax(scores, -1) @ y, self.fc.weight, self.fc.bias)

    totals, details = stats(Net(), (B, C, L, L))
    n = (L // 2) ** 2
    expected = [B * D * L * L * C * 9, B * n * n * D, B * n * n * D, B * n * D * D + D]
    assert [line["flops_num"] for line in details.flops[:-1]] == expected
    assert totals.flops == sum(expected)
    assert totals.act_dims == B * D * L * L + B * n * n + 2 * B * n * D
    assert [line["name"] for line in details.params] == ["-w", "fc-w", "fc-b", "total"]


def test_attention_is_one_layer_with_all_its_products() -> None:
    totals, details = stats(nn.MultiheadAttention(D, HEADS, batch_first=True), (B, T, D), (B, T, D), (B, T, D))
    products = 4 * B * T * D * D + 2 * B * T * T * D
    assert 0 <= totals.flops - products <= 4 * D  # the biases, once for each product
    assert [line["class_name"] for line in details.flops[:-1]] == ["MultiheadAttention"]


def test_a_layer_that_is_called_twice_has_two_lines_and_its_parameters_once() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(D, D)
            self.again = self.f

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.again(self.f(x))

    totals, details = stats(Net(), (B, D))
    assert totals.param_dims == D * D + D
    assert [line["name"] for line in details.flops] == ["f", "f", "total"]


def test_parameters_of_any_name_count_and_unused_layers_do_not() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(D, D)
            self.scale = nn.Parameter(torch.ones(D))
            self.unused = nn.Linear(D, 100)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.f(x) * self.scale

    totals, details = stats(Net(), (B, D))
    assert totals.param_dims == D * D + D + D
    assert [line["name"] for line in details.params] == ["f-w", "f-b", "-scale", "total"]


def test_sizes_follow_the_element_type() -> None:
    totals, details = stats(nn.Linear(D, C).half(), (B, D))
    assert totals.param_size == 2 * (D * C + C)
    assert totals.act_size == 2 * B * C
    assert details.params[0]["nbits"] == 16


def test_means_and_deviations_are_those_of_the_data() -> None:
    layer = nn.Linear(D, C)
    x = np.random.default_rng(0).normal(size=(B, D)).astype("float32")
    _, details = module_stats(layer, inputs=x, logging_to_stdout=False)
    y = x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    assert details.activations[0]["mean"] == f"{y.mean():.3g}"
    assert details.activations[0]["std"] == f"{y.std():.3g}"
    assert details.params[0]["mean"] == f"{layer.weight.detach().numpy().mean():.3g}"
    assert details.params[0]["std"] == f"{layer.weight.detach().numpy().std():.3g}"
    _, details = stats(layer, (B, D))
    assert "mean" not in details.activations[0]


class Pair(NamedTuple):
    a: Any
    b: Any


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(D, C)

    def forward(self, given: Any) -> torch.Tensor:
        a, b = (given["a"], given["b"]) if isinstance(given, dict) else given
        return self.f(a) + self.f(b)


@pytest.mark.parametrize("given", [
    [{"a": np.zeros((B, D), "float32"), "b": np.zeros((B, D), "float32")}],
    [Pair(np.zeros((B, D), "float32"), torch.zeros(B, D))],
    [[np.zeros((B, D), "float32"), torch.zeros(B, D)]],
], ids=["dict", "namedtuple", "list"])  # fmt: skip
def test_inputs_may_be_nested(given: Any) -> None:
    totals, details = module_stats(Nested(), inputs=given, logging_to_stdout=False)
    assert totals.flops == 2 * (B * C * D + C)
    assert len(details.flops) == 3


@pytest.mark.parametrize("shapes", [(B, D), [B, D], [(B, D)], [[B, D]]], ids=str)
def test_one_shape_may_be_written_in_four_ways(shapes: Any) -> None:
    assert module_stats(nn.Linear(D, C), input_shapes=shapes, logging_to_stdout=False)[0].flops == B * C * D + C


def test_without_inputs_there_is_an_error_that_says_so() -> None:
    for nothing in ({}, {"input_shapes": []}):
        with pytest.raises(InputError, match="neither inputs nor input_shapes"):
            module_stats(nn.Linear(D, C), **nothing)
    with pytest.raises(InputError, match="is not a shape"):
        module_stats(nn.Linear(D, C), input_shapes=[("a", 1)])
    with pytest.raises(UnknownSource, match="dict"):
        module_stats({}, input_shapes=(1,))
    with pytest.raises(UnknownName, match="megengine"):
        module_stats(nn.Linear(D, C), input_shapes=(B, D), convention="megenigne")


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(D, D)
        self.bn = nn.BatchNorm1d(D).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.bn(self.f(x))
        raise ValueError("no")


@pytest.mark.parametrize(
    "given", [{"input_shapes": (B, D)}, {"inputs": np.ones((B, D), "float32")}], ids=["shapes", "data"]
)
def test_the_model_leaves_as_it_came_also_when_its_forward_raises(given: Any) -> None:
    for model in (Failing(), nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D))):
        model.train()
        model[1].eval() if isinstance(model, nn.Sequential) else model.bn.eval()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        flags = [module.training for module in model.modules()]
        if isinstance(model, Failing):
            with pytest.raises(ValueError, match="no"):
                module_stats(model, **given)
        else:
            module_stats(model, **given)
        assert [module.training for module in model.modules()] == flags
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
        assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_model_without_weights_in_memory_is_counted() -> None:
    with torch.device("meta"):
        model = ResNet18()
    assert stats(model, (1, 3, 32, 32))[0].param_dims == sum(p.numel() for p in ResNet18().parameters())


def test_opcosts_own_convention_lists_every_operator() -> None:
    model = ResNet18()
    report = opcost.count(model, shapes=(1, 3, 32, 32), mode="eval")
    totals, details = stats(model, (1, 3, 32, 32), convention="opcost")
    assert totals == (
        report.totals.param_bytes, report.totals.params, report.totals.flops, report.totals.activation_bytes,
        report.totals.activations,
    )  # fmt: skip
    assert len(details.flops) == len(report.rows) + 1
    assert details.flops[0]["receptive_field"] == (7, 7)


def test_what_is_switched_off_is_zero_and_not_listed() -> None:
    totals, details = stats(MLP(), (1, 1, 28, 28), cal_params=False, cal_activations=False)
    assert totals.flops > 0 == totals.param_dims == totals.param_size == totals.act_dims == totals.act_size
    assert not details.activations
    assert len(details.params) == 5  # unsummed, as MegEngine has it


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def test_a_registered_cost_counts_and_its_layer_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from opcost.compat.megengine import layer_costs, register_flops, register_hook_module

    monkeypatch.setattr(layer_costs, "_flops", {})
    monkeypatch.setattr(layer_costs, "_hooked", set())
    model = nn.Sequential(nn.Linear(D, D), Scaled())
    linear = B * D * D + D  # the bias counts once
    plain, _ = module_stats(model, input_shapes=(B, D), logging_to_stdout=False)
    assert plain.flops == linear

    @register_flops(Scaled)
    def flops_scaled(module: Any, inputs: Any, outputs: Any) -> int:
        assert inputs[0].shape == outputs[0].shape == (B, D)
        return module.weight.numel() * inputs[0].shape[0]

    register_hook_module([Scaled])
    totals, details = module_stats(model, input_shapes=(B, D), logging_to_stdout=False)
    assert totals.flops == linear + B * D
    assert [line["class_name"] for line in details.flops if line.get("class_name")][-1] == "Scaled"


def test_only_classes_are_registered() -> None:
    from opcost.compat.megengine.module_stats import register_hook_module

    with pytest.raises(TypeError, match="a class of modules"):
        register_hook_module([nn.Linear(2, 2)])  # type: ignore[list-item]
