"""opcost.compat.ptflops against ptflops itself where that is right, and against derived numbers where it is not."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import ptflops as theirs
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import opcost.compat.ptflops as ours


def both(make: Callable[[], nn.Module], *args: Any, **kwargs: Any) -> tuple[tuple[Any, str], tuple[Any, str]]:
    """Result and printed text of both tools, each on a model of its own: ptflops leaves traces on it."""
    answers = []
    for tool in (theirs, ours):
        out = io.StringIO()
        torch.manual_seed(0)
        answers.append((tool.get_model_complexity_info(make(), *args, ost=out, **kwargs), out.getvalue()))
    return answers[0], answers[1]


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def plain() -> nn.Module:
    """Nothing that ptflops counts twice."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.LeakyReLU(),
        nn.Conv2d(8, 8, 3, groups=8, bias=False),
        nn.GroupNorm(2, 8, affine=False),
        nn.Sequential(nn.ConvTranspose2d(8, 4, 2, stride=2), nn.InstanceNorm2d(4, affine=True)),
        nn.Flatten(2),
        nn.Dropout(),
        nn.LayerNorm(64),
        nn.Linear(64, 6),
    )


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


SAME: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "plain": (plain, (3, 14, 14)),
    "frozen": (lambda: nn.Sequential(nn.Linear(4, 5).requires_grad_(False), nn.Linear(5, 6)), (4,)),
    "list": (Chain, (8,)),
    "lstm": (lambda: nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True), (7, 4)),
    "gru": (lambda: nn.GRU(4, 5, bias=False, batch_first=True), (7, 4)),
    "rnn": (lambda: nn.RNN(4, 5, batch_first=True), (7, 4)),
    "lstm cell": (lambda: nn.LSTMCell(4, 5), (4,)),
    "gru cell": (lambda: nn.GRUCell(4, 5), (4,)),
    "rnn cell": (lambda: nn.RNNCell(4, 5), (4,)),
    "no parameters": (nn.Sigmoid, (3, 4)),
    "conv 1d": (lambda: nn.Conv1d(2, 3, 4, dilation=2), (2, 20)),
    "conv 3d": (lambda: nn.Conv3d(2, 3, 2), (2, 5, 5, 5)),
    "linear on many dimensions": (lambda: nn.Linear(3, 2, bias=False), (4, 5, 3)),
}


# The dispatcher takes recurrent layers apart before ptflops sees them, and it does not list what runs inside a list.
SAME_OPERATORS = sorted(SAME.keys() - {"lstm", "gru", "rnn", "list"})


@pytest.mark.parametrize("as_strings", [True, False])
@pytest.mark.parametrize(
    ("case", "backend"), [*((case, "pytorch") for case in SAME), *((case, "aten") for case in SAME_OPERATORS)]
)
def test_numbers_and_text_are_those_of_ptflops(case: str, backend: str, as_strings: bool) -> None:
    make, shape = SAME[case]
    their, our = both(make, shape, as_strings=as_strings, backend=backend)
    assert our == their


@pytest.mark.parametrize(
    "units", [{"flops_units": "GMac", "param_units": "M"}, {"flops_units": "KMac", "param_units": "B"}]
)
def test_units_and_precision_are_those_of_ptflops(units: dict[str, str]) -> None:
    their, our = both(plain, (3, 14, 14), output_precision=4, **units)
    assert our == their


@pytest.mark.parametrize("number", [0, 7, 999, 1000, 1_234_567, 9_876_543_210, 512.0])
def test_numbers_are_written_as_ptflops_writes_them(number: float) -> None:
    for units in (None, "GMac", "MMac", "KMac", "Mac"):
        assert ours.flops_to_string(number, units, 3) == theirs.flops_to_string(number, units, 3)
    for units in (None, "B", "M", "K", "k"):
        assert ours.params_to_string(int(number), units) == theirs.params_to_string(int(number), units)


# -- the rules ----------------------------------------------------------------------------------------------------


def macs(model: nn.Module, shape: tuple[int, ...], **options: Any) -> int:
    found, _ = ours.get_model_complexity_info(model, shape, as_strings=False, print_per_layer_stat=False, **options)
    assert isinstance(found, int)
    return found


def test_activations_and_pooling_count_once_as_the_lines_say() -> None:
    """ptflops adds the module's number and that of the function it calls; its lines do not add up to its total."""

    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Upsample(scale_factor=2))

    conv = 4 * 8 * 8 * (3 * 9 + 1)
    relu = pool_input = upsampled = 4 * 8 * 8
    (their_numbers, _), (our_numbers, text) = both(make, (3, 8, 8), as_strings=False)
    assert our_numbers == (conv + relu + pool_input + upsampled, 3 * 4 * 9 + 4)
    assert their_numbers[0] == conv + 2 * (relu + pool_input + upsampled)
    assert text.splitlines()[1].split(", ")[3] == "100.000% MACs"


FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "matmul operator": (lambda x: x @ x, 2 * 6 * 6 * 6),
    "einsum": (lambda x: torch.einsum("bcij,bcjk->bcik", x, x), 2 * 6 * 6 * 6),
    "linear": (lambda x: F.linear(x, torch.ones(5, 6), torch.ones(5)), 2 * 6 * 5 * (6 + 1)),
    "conv": (lambda x: F.conv2d(x, torch.ones(3, 2, 1, 1)), 3 * 6 * 6 * 2),
    "sum operator": (lambda x: x + x, 2 * 6 * 6),
    "sum in place": (lambda x: x.clone().add_(1), 2 * 6 * 6),
    "broadcast product": (lambda x: x[0, 0] * x, 2 * 6 * 6),
    "softmax": (lambda x: x.softmax(-1), 2 * 6 * 6),
    "relu6": (F.relu6, 2 * 6 * 6),
    "hardtanh": (F.hardtanh, 0),
    "adaptive pooling": (lambda x: F.adaptive_avg_pool2d(x, 1), 2 * 6 * 6),
    "interpolate": (lambda x: F.interpolate(x, (9, 10), mode="bilinear"), 2 * 9 * 10),
    "batch norm": (lambda x: F.batch_norm(x, torch.zeros(2), torch.ones(2)), 2 * 6 * 6),
    # products, softmax over the scores, scaling of the queries
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), 2 * (2 * 6 * 6 * 6 + 6 * 6 + 6 * 6)),
    "addmm": (lambda x: torch.addmm(torch.ones(6), x[0, 0], x[0, 1]), 6 * 6 * (6 + 1)),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_function_costs_what_its_module_would(case: str) -> None:
    function, expected = FUNCTIONS[case]
    assert macs(Call(function), (2, 6, 6)) == expected


def test_multi_head_attention_counts_its_projections_products_softmax_and_scaling_once() -> None:
    width, heads, length = 8, 2, 5

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x)[0]

    projections = 4 * length * width * (width + 1)
    scores = heads * length * length
    products = 2 * scores * (width // heads)
    assert macs(Attention(), (length, width)) == projections + products + scores + length * width


def test_numbers_are_per_image() -> None:
    constructor = lambda shape: torch.ones(3, *shape)
    model = nn.Sequential(nn.Linear(8, 2), nn.ReLU())
    assert macs(model, (5, 8), input_constructor=constructor) == 5 * 2 * (8 + 1) + 5 * 2


def test_a_mapping_becomes_keyword_arguments_and_counts_as_one_image() -> None:
    class Keywords(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 2)

        def forward(self, *, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x)

    out = io.StringIO()
    found = ours.get_model_complexity_info(
        Keywords(), (5, 8), as_strings=False, ost=out, input_constructor=lambda shape: {"x": torch.ones(3, *shape)}
    )
    assert found == (3 * 5 * 2 * (8 + 1), 8 * 2 + 2)
    assert out.getvalue().startswith("Warning! No positional inputs found for a module, assuming batch size is 1.\n")


def test_projections_of_an_lstm_are_counted() -> None:
    """ptflops leaves out the product with the projection."""
    width, hidden, out, steps = 4, 6, 3, 7
    gates = 4 * hidden * (width + out) + 2 * 4 * hidden + 10 * hidden
    assert macs(nn.LSTM(width, hidden, proj_size=out, batch_first=True), (steps, width)) == steps * (
        gates + hidden * out
    )


# -- shared, unused, ignored, custom ------------------------------------------------------------------------------


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.tail = nn.Sequential(self.conv, nn.LeakyReLU())
        self.scale = nn.Parameter(torch.ones(3, 1, 1))
        self.unused = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tail(self.conv(self.conv(x))) * self.scale


def test_a_shared_layer_has_its_parameters_once_and_its_compute_per_use() -> None:
    out = io.StringIO()
    once, element = 3 * 8 * 8 * (3 * 9 + 1), 3 * 8 * 8
    found = ours.get_model_complexity_info(Shared(), (3, 8, 8), as_strings=False, ost=out)
    total, params = 3 * once + 2 * element, (3 * 3 * 9 + 3) + 3 + (9 + 3)
    assert found == (total, params)
    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert lines[1].startswith(f"{params}, 100.000% Params, {total / 1000:.2f} KMac, 100.000% MACs")
    assert lines[2].startswith(f"(conv): Conv2d(84, {84 / params:.3%} Params, {2 * once / 1000:.2f} KMac")
    assert lines[5].startswith(f"(0): Conv2d(84, {84 / params:.3%} Params, {once / 1000:.2f} KMac")
    assert lines[8].startswith(f"(unused): Linear(12, {12 / params:.3%} Params, 0.0 Mac, 0.000% MACs")


def test_ignored_classes_cost_nothing_and_hold_nothing() -> None:
    out = io.StringIO()
    element = 3 * 8 * 8
    found = ours.get_model_complexity_info(Shared(), (3, 8, 8), as_strings=False, ost=out, ignore_modules=[nn.Conv2d])
    assert found == (2 * element, 84 + 3 + 12)
    assert out.getvalue().splitlines()[2].strip().startswith("(conv): Conv2d(0, 0.000% Params, 0.0 Mac, 0.000% MACs")


def test_a_hook_says_what_its_modules_cost() -> None:
    def hook(module: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        module.__flops__ += 10 * output.numel() + len(inputs)

    model = Shared()
    element, once = 3 * 8 * 8, 3 * 8 * 8 * (3 * 9 + 1)
    assert macs(model, (3, 8, 8), custom_modules_hooks={nn.LeakyReLU: hook}) == 3 * once + 10 * element + 1 + element
    assert not any(module._forward_hooks or hasattr(module, "__flops__") for module in model.modules())


def test_what_no_torch_layer_runs_can_be_left_out() -> None:
    once, element = 3 * 8 * 8 * (3 * 9 + 1), 3 * 8 * 8
    found = macs(Shared(), (3, 8, 8), backend_specific_config={"count_functional": False})
    assert found == 3 * once + element


def test_classes_that_cost_nothing_are_named_with_verbose() -> None:
    out = io.StringIO()
    model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Tanh(), nn.Sigmoid())
    ours.get_model_complexity_info(model, (4,), ost=out, verbose=True, print_per_layer_stat=False)
    assert out.getvalue() == (
        "Warning: module Sigmoid is treated as a zero-op.\nWarning: module Tanh is treated as a zero-op.\n"
    )


# -- the aten backend ---------------------------------------------------------------------------------------------


def test_the_aten_backend_counts_fused_attention() -> None:
    model = Call(lambda x: F.scaled_dot_product_attention(x, x, x))
    assert macs(model, (2, 6, 5), backend="aten") == 2 * 6 * 6 * (5 + 5)


def test_the_aten_backend_counts_the_products_and_biases_of_recurrent_layers() -> None:
    """ptflops sees those of a GRU and of cells, one by one, and nothing of an LSTM."""
    steps, width, hidden = 7, 4, 5
    for layer, gates in ((nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)):
        expected = steps * gates * hidden * (width + hidden + 2)
        assert macs(layer(width, hidden, batch_first=True), (steps, width), backend="aten") == expected


def test_the_aten_backend_takes_operators_to_ignore_and_hooks_for_others() -> None:
    options: dict[str, Any] = {
        "backend": "aten",
        "ignore_modules": [torch.ops.aten.convolution],
        "custom_modules_hooks": {torch.ops.aten.relu: lambda inputs, outputs: 7 * outputs[0].numel()},
        "as_strings": False,
    }
    their, our = both(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Linear(6, 2)), (3, 8, 8), **options)
    assert our == their
    assert our[0][0] == 7 * 4 * 6 * 6 + 4 * 6 * 2 * (6 + 1)


# -- failures and traces ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["pytorch", "aten"])
def test_a_model_that_raises_gives_none_and_says_why(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    assert ours.get_model_complexity_info(model, (3, 2, 2), backend=backend) == (None, None)
    out, err = capsys.readouterr()
    assert out.startswith(
        "Flops estimation was not finished successfully because of the following exception: \n<class "
    )
    assert "Kernel size can't be greater than actual input size" in out
    assert "Traceback" in err


def test_the_model_stays_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    attributes = [set(vars(module)) for module in model.modules()]
    ours.get_model_complexity_info(model, (4,), ost=io.StringIO())
    assert all(module.training for module in model.modules())
    assert [set(vars(module)) for module in model.modules()] == attributes
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("wrong", [[3, 8, 8], (), 8])
def test_a_resolution_is_a_tuple(wrong: Any) -> None:
    with pytest.raises(Exception, match="input_res must be a tuple"):
        ours.get_model_complexity_info(nn.ReLU(), wrong)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="onnx"):
        ours.get_model_complexity_info(nn.ReLU(), (3,), backend="onnx")
