"""opcost.compat.torchinfo beside torchinfo itself: the same text and attributes where it is right, the right number where not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

from opcost.compat import torchinfo as ours

theirs = pytest.importorskip("torchinfo")

ALL_COLUMNS = ("kernel_size", "input_size", "output_size", "num_params", "params_percent", "mult_adds", "trainable")


class Digits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d(0.3)
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        return F.log_softmax(self.fc2(F.relu(self.fc1(x.flatten(1)))), dim=1)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, groups=2), nn.BatchNorm2d(channels), nn.ReLU()
        )
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale * self.body(x)


class Nested(nn.Module):
    """A list that is not called, a shared activation, a layer called twice, one never called, one frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.stem.weight.requires_grad = False
        self.blocks = nn.ModuleList([Residual(8), Residual(8)])
        self.twice = nn.Conv2d(8, 8, 1)
        self.spare = nn.Linear(7, 5)
        self.act = nn.PReLU(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.twice(self.act(self.twice(x)))


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        y, (h, _) = self.lstm(self.embedding(ids))
        return self.head(y[:, -1]), {"hidden": h, "all": y}


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(5, 3)

    def forward(self, a: torch.Tensor, b: torch.Tensor, *, negative: bool = False) -> dict[str, torch.Tensor]:
        left, right = self.left(a), self.right(b)
        return {"sum": left + right, "right": -right if negative else right}


def text_of(results: Any) -> str:
    """torchinfo 1.8 prints its unit as `Units.MEGABYTES` from Python 3.11 on, where `M` is meant."""
    return str(results).replace("Units.MEGABYTES", "M").replace("Units.GIGABYTES", "G").replace("Units.TERABYTES", "T")


def both(make: Callable[[], nn.Module], **options: Any) -> tuple[Any, Any]:
    options = {"verbose": 0, **options}
    torch.manual_seed(0)
    return ours.summary(make(), **options), theirs.summary(make(), **copy.deepcopy(options))


CASES = {
    "digits": (Digits, {"input_size": (16, 1, 28, 28)}),
    "digits, all columns": (Digits, {"input_size": (7, 1, 28, 28), "col_names": ALL_COLUMNS, "col_width": 20, "depth": 1}),
    "digits, names of variables": (Digits, {"input_size": (2, 1, 28, 28), "row_settings": ("var_names",)}),
    "digits, ascii": (Digits, {"input_size": (2, 1, 28, 28), "row_settings": ("ascii_only", "depth", "var_names")}),
    "digits, batch left out": (Digits, {"input_size": (1, 28, 28), "batch_dim": 0, "col_names": ALL_COLUMNS}),
    "digits, no input": (Digits, {}),
    "digits, in training": (Digits, {"input_data": torch.zeros(3, 1, 28, 28), "mode": "train"}),
    "nested": (Nested, {"input_size": (2, 3, 9, 9), "col_names": ALL_COLUMNS}),
    "nested, depth 1": (Nested, {"input_size": (2, 3, 9, 9), "depth": 1, "col_names": ("num_params", "trainable")}),
    "nested, depth 2": (Nested, {"input_size": (2, 3, 9, 9), "depth": 2, "col_names": ("num_params", "params_percent")}),
    "nested, ascii": (Nested, {"input_size": (2, 3, 9, 9), "row_settings": ("ascii_only", "depth")}),
    "nested, repetitions hidden": (Nested, {"input_size": (2, 3, 9, 9), "row_settings": ("depth", "hide_recursive_layers")}),
    "nested, no input": (Nested, {"row_settings": ("depth", "var_names")}),
    "tokens": (Tokens, {"input_size": (3, 5), "dtypes": [torch.long], "col_names": ALL_COLUMNS, "col_width": 18}),
    "keywords": (Named, {"input_data": {"a": torch.ones(2, 4), "b": torch.ones(2, 5)}, "negative": True}),
    "several inputs": (Named, {"input_size": [(2, 4), (2, 5)], "col_names": ("input_size", "output_size", "mult_adds")}),
    "one layer": (lambda: nn.Linear(2, 5), {"input_size": (1, 2)}),
    "nothing": (nn.Identity, {"input_size": (1, 2)}),
    "activations only": (lambda: nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh())), {"input_size": (1, 2)}),
    "one activation, three places": (lambda: nn.Sequential(*[nn.ReLU(inplace=True)] * 3), {"input_size": (1, 2)}),
    "lazy layers": (lambda: nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d()), {"input_size": (2, 3)}),
    "depthwise 1d": (lambda: nn.Conv1d(4, 4, 3, groups=4), {"input_size": (2, 4, 9), "col_names": ALL_COLUMNS}),
    "conv 3d": (lambda: nn.Conv3d(2, 3, 2, dilation=2), {"input_size": (2, 2, 5, 5, 5), "col_names": ALL_COLUMNS}),
}  # fmt: skip


@pytest.mark.parametrize(("make", "options"), CASES.values(), ids=CASES)
def test_the_table_is_torchinfos_to_the_character(make: Callable[[], nn.Module], options: dict[str, Any]) -> None:
    mine, original = both(make, **options)
    if make is Nested and "input_size" in options:
        # Parameters that no layer's row shows have bytes too: see the test on the size of parameters.
        mine.total_param_bytes = original.total_param_bytes
    assert str(mine) == text_of(original)


@pytest.mark.parametrize(("make", "options"), CASES.values(), ids=CASES)
def test_the_attributes_are_torchinfos(make: Callable[[], nn.Module], options: dict[str, Any]) -> None:
    mine, original = both(make, **options)
    for name in ("total_params", "trainable_params", "total_mult_adds", "total_output_bytes", "input_size"):
        assert getattr(mine, name) == getattr(original, name), name
    assert len(mine.summary_list) == len(original.summary_list)
    for row, other in zip(mine.summary_list, original.summary_list, strict=True):
        for name in (
            "class_name", "var_name", "depth", "depth_index", "is_leaf_layer", "is_recursive", "executed", "input_size",
            "output_size", "output_bytes", "kernel_size", "num_params", "trainable_params", "param_bytes", "trainable",
        ):  # fmt: skip
            assert getattr(row, name) == getattr(other, name), (str(row), name)
        if row.is_leaf_layer:
            assert row.macs == other.macs, row
        assert len(row.children) == len(other.children)


def test_parameters_of_every_layer_are_listed_with_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    for make, options in (
        (Tokens, {"input_size": (3, 5), "dtypes": [torch.long]}),
        (Digits, {"input_size": (1, 1, 28, 28)}),
    ):
        printed = []
        for tool in (ours, theirs):
            tool.summary(make(), verbose=2, col_names=("kernel_size", "output_size", "num_params"), **options)
            printed.append(text_of(capsys.readouterr().out))
        assert printed[0] == printed[1]
        assert "weight" in printed[0]


def test_it_prints_once_and_returns_what_it_printed(capsys: pytest.CaptureFixture[str]) -> None:
    results = ours.summary(Digits(), (1, 1, 28, 28), verbose=1)
    assert capsys.readouterr().out == f"{results}\n"
    ours.summary(Digits(), (1, 1, 28, 28), verbose=0)
    assert not capsys.readouterr().out


def test_enums_and_strings_say_the_same() -> None:
    columns, rows = ours.ColumnSettings, ours.RowSettings
    by_enum = ours.summary(
        Digits(), (1, 1, 28, 28), verbose=ours.Verbosity.QUIET, mode=ours.Mode.EVAL,
        col_names=(columns.OUTPUT_SIZE, columns.MULT_ADDS), row_settings={rows.DEPTH, rows.ASCII_ONLY},
    )  # fmt: skip
    by_word = ours.summary(
        Digits(), (1, 1, 28, 28), verbose=0, mode="eval",
        col_names=("output_size", "mult_adds"), row_settings=("depth", "ascii_only"),
    )  # fmt: skip
    assert str(by_enum) == str(by_word)


@pytest.mark.parametrize(
    "options",
    [
        {"input_size": (1, 2), "col_width": 0},
        {"input_size": (1, 2), "verbose": 3},
        {"input_size": (1, 2), "input_data": torch.ones(1, 2)},
        {"col_names": ("output_size",)},
        {"input_size": (1, 2), "col_names": ("ouput_size",)},
        {"input_size": (1, 2), "row_settings": ("deep",)},
        {"input_size": (1, 2), "mode": "test"},
        {"input_size": (1, -2)},
        {"input_size": {"x": 1}},
        {"input_size": (3, 7)},
    ],
    ids=str,
)
def test_what_torchinfo_refuses_is_refused_with_the_same_error(options: dict[str, Any]) -> None:
    errors = []
    for tool in (ours, theirs):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is, is what is compared
            tool.summary(nn.Linear(2, 5), **{"verbose": 0, **options})
        errors.append(type(caught.value))
    assert errors[0] is errors[1]


@pytest.mark.parametrize("number", [0, 999, 10**6, 1_234_567, 10**9, 5 * 10**12])
def test_numbers_get_torchinfos_units(number: int) -> None:
    mine, original = ours.ModelStatistics, theirs.ModelStatistics
    assert mine.to_megabytes(number) == original.to_megabytes(number)
    assert mine.float_to_megabytes(number) == original.float_to_megabytes(number)
    for name in ("AUTO", "NONE", "MEGABYTES", "GIGABYTES", "TERABYTES"):
        unit, value = mine.to_readable(number, ours.Units[name])
        other_unit, other_value = original.to_readable(number, theirs.Units[name])
        assert (unit.value, value) == (other_unit.value, other_value)


# -- where torchinfo is wrong -----------------------------------------------------------------------------------------


def test_pruned_weights_are_left_out_as_torchinfo_does() -> None:
    model, other = Digits(), Digits()
    for net in (model, other):
        for module in (net.conv1, net.conv2, net.fc1, net.fc2):
            prune.l1_unstructured(module, "weight", 0.5)
    mine, original = ours.summary(model, (16, 1, 28, 28), verbose=0), theirs.summary(other, (16, 1, 28, 28), verbose=0)
    assert str(mine) == text_of(original)
    assert mine.total_mult_adds == original.total_mult_adds


class TwoParents(nn.Module):
    """One layer that two blocks hold, and lists whose layers are called in turns."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Linear(4, 4)
        self.first, self.second = nn.Sequential(shared), nn.Sequential(shared, nn.ReLU())
        self.a, self.b = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]), nn.ModuleList([nn.Tanh(), nn.Tanh()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(x))
        for a, b in zip(self.a, self.b, strict=True):
            x = b(a(x))
        return x


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_columns_add_up_to_the_totals_at_every_depth(depth: int) -> None:
    for make, size in ((TwoParents, (2, 4)), (Nested, (2, 3, 9, 9)), (Digits, (2, 1, 28, 28))):
        results = ours.summary(make(), size, verbose=0, depth=depth)
        params = macs = 0
        for row in results.summary_list:
            if row.depth <= depth:
                params += _number(row.num_params_to_str(row.depth == depth))
                macs += _number(row.macs_to_str(row.depth == depth))
        assert params == results.total_params == sum(p.numel() for p in make().parameters())
        assert macs == results.total_mult_adds


def _number(cell: str) -> int:
    digits = cell.strip("()").replace(",", "")
    return int(digits) if digits.isdigit() else 0


def test_a_layer_of_two_parents_is_listed_below_the_one_that_calls_it() -> None:
    rows = ours.summary(TwoParents(), (2, 4), verbose=0).summary_list
    linears = [row for row in rows if row.class_name == "Linear"]
    assert [row.parent_info.var_name for row in linears] == ["first", "second", "a", "a"]
    assert [row.is_recursive for row in linears] == [False, True, False, False]


def test_the_size_of_parameters_has_those_that_no_layer_shows() -> None:
    model = Nested()
    results = ours.summary(model, (2, 3, 9, 9), verbose=0)
    assert results.total_param_bytes == sum(p.numel() * p.element_size() for p in model.parameters())


def test_layers_that_are_not_used_are_named() -> None:
    assert ours.summary(Nested(), (2, 3, 9, 9), verbose=0).unused_layers == ("spare",)
    assert ours.summary(Digits(), (2, 1, 28, 28), verbose=0).unused_layers == ()


def test_the_size_of_the_input_is_that_of_its_tensors() -> None:
    data = {"a": torch.ones(2, 4), "b": torch.ones(2, 5)}
    assert ours.summary(Named(), input_data=data, verbose=0).total_input == (2 * 4 + 2 * 5) * 4
    assert ours.summary(Digits(), (1, 1, 28, 28), verbose=0).total_input == 28 * 28 * 4


def test_the_model_is_left_as_it_was_also_when_its_forward_fails() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    model.train()
    model[1].eval()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match="Failed to run torchinfo"):
        ours.summary(model, (2, 3, 8, 8), verbose=0, mode="train")
    ours.summary(model, (2, 3, 3, 3), verbose=0, mode="train")
    assert [module.training for module in model.modules()] == [True, True, False, True, True]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


# -- torchinfo's own golden outputs -----------------------------------------------------------------------------------

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "torchinfo.json").read_text(encoding="utf-8"))


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 300)
        self.encoder = nn.LSTM(300, 512, num_layers=2, dropout=0.5)
        self.decoder = nn.Linear(512, 20)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(self.embedding(ids))[0])


class ConvLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu, self.pool = nn.Conv1d(1, 1, 1), nn.ReLU(), nn.MaxPool1d(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(self.relu(self.conv(x)))


class ConvList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([ConvLayer() for _ in range(5)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def resnet18() -> nn.Module:
    from torchvision.models import resnet18 as build

    return build()


GOLDEN_MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "ascii_only": (resnet18, {"input_size": (1, 3, 64, 64)}),
    "cnn_module_list": (ConvList, {"input_size": [1, 1, 10]}),
    "groups": (lambda: nn.Conv2d(16, 32, 3, groups=4), {"input_size": (7, 16, 28, 28)}),
    "linear": (lambda: nn.Linear(8, 64), {"input_size": (32, 16, 8)}),
    "lstm_custom_batch_size": (LanguageModel, {"input_size": (100,), "dtypes": [torch.long], "batch_dim": 1}),
    "single_input_all_cols": (Digits, {"input_size": (7, 1, 28, 28)}),
    "string_result": (Digits, {"input_size": (16, 1, 28, 28)}),
    "training_mode": (lambda: nn.Linear(2, 5), {"input_size": (1, 2), "mode": "train"}),
}


@pytest.mark.parametrize("name", GOLDEN_MODELS)
def test_torchinfos_golden_totals_are_met(name: str) -> None:
    make, options = GOLDEN_MODELS[name]
    results, golden = ours.summary(make(), verbose=0, **options), GOLDEN[name]
    assert results.total_params == golden["total_params"]
    assert results.trainable_params == golden["trainable_params"]
    for count, printed in (
        (results.total_mult_adds, golden["mult_adds"]),
        (results.total_output_bytes, golden["forward_backward_size"]),
        (results.total_param_bytes, golden["params_size"]),
    ):
        value, unit = printed
        assert round(count / {"": 1, "k": 1e3, "M": 1e6}[unit], 2) == value
