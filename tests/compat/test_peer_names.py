"""What public code imports from a peer, and how it uses it: changing the import is enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from opcost.compat import deepspeed
from opcost.compat.fvcore import FlopCountAnalysis, flop_count
from opcost.compat.fvcore.jit_handles import FLOP_HANDLES, conv_flop_count, elementwise_flop_counter, get_shape
from opcost.compat.mmengine import get_model_complexity_info
from opcost.compat.ptflops import get_model_complexity_info as ptflops_info
from opcost.compat.thop import profile
from opcost.compat.thop.vision import basic_hooks
from opcost.compat.torchinfo import clear_cached_forward_pass
from opcost.compat.torchinfo import summary as torchinfo_summary
from opcost.compat.torchsummary import summary, summary_string

HANDLES = (
    "addmm_flop_jit batchnorm_flop_jit bmm_flop_jit conv_flop_count conv_flop_jit einsum_flop_jit "
    "elementwise_flop_counter generic_activation_jit get_shape linear_flop_jit matmul_flop_jit norm_flop_counter"
).split()
NAMES = {
    "fvcore.jit_handles": HANDLES,
    "fvcore.jit_analysis": ["JitModelAnalysis", "_IGNORED_OPS"],
    "fvcore.flop_count": ["_DEFAULT_SUPPORTED_OPS", "FlopCountAnalysis", "flop_count"],
    "fvcore.activation_count": ["_DEFAULT_SUPPORTED_OPS", "ActivationCountAnalysis", "activation_count"],
    "fvcore.print_model_statistics": ["_format_size", "flop_count_str", "flop_count_table"],
    "mmengine.jit_handles": HANDLES,
    "mmengine.jit_analysis": ["JitModelAnalysis", "_IGNORED_OPS"],
    "mmengine.print_helper": ["_format_size", "get_model_complexity_info"],
    "torchinfo.enums": ["ColumnSettings", "Verbosity"],
    "torchinfo.formatting": ["FormattingOptions", "HEADER_TITLES"],
    "torchinfo.layer_info": ["LayerInfo"],
    "torchinfo.model_statistics": ["ModelStatistics"],
    "torchinfo.torchinfo": ["summary", "clear_cached_forward_pass"],
    "torchsummary.torchsummary": ["summary", "summary_string"],
    "torch_summary.torchsummary": ["summary"],
    "torch_summary.model_statistics": ["ModelStatistics"],
    "torchsummaryX.torchsummaryX": ["summary"],
    "torchstat.statistics": ["stat", "ModelStat"],
    "torchstat.reporter": ["report_format"],
    "torchstat.stat_tree": ["StatNode", "StatTree"],
    "torchprofile.profile": ["profile_macs"],
    "ptflops.flops_counter": ["get_model_complexity_info"],
    "calflops.flops_counter": ["calculate_flops"],
    "thop.profile": ["profile"],
    "thop.utils": ["clever_format"],
    "thop.vision.basic_hooks": ["count_convNd", "zero_ops"],
    "fvcore.parameter_count": ["parameter_count", "parameter_count_table"],
    "mmengine.complexity_analysis": ["_DEFAULT_SUPPORTED_FLOP_OPS", "_DEFAULT_SUPPORTED_ACT_OPS", "parameter_count"],
}


@pytest.mark.parametrize("module", NAMES)
def test_the_names_that_public_code_imports_are_there(module: str) -> None:
    found = import_module(f"opcost.compat.{module}")
    assert not [name for name in NAMES[module] if not hasattr(found, name)]


# -- functions with a backward of their own ---------------------------------------------------------------------------


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, times: int) -> torch.Tensor:
        return torch.matmul(x, weight) * times


class UsesDoubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(x, self.weight, 2)


def test_a_handle_counts_a_function_with_a_backward_of_its_own() -> None:
    shapes = []

    def handle(inputs: list[Any], outputs: list[Any]) -> int:
        shapes.append([get_shape(value) for value in (*inputs, *outputs)])
        return 42

    analysis = FlopCountAnalysis(UsesDoubled(), torch.ones(7, 3))
    analysis.set_op_handle("prim::PythonOp.Doubled", handle)
    assert analysis.by_operator() == {"PythonOp.Doubled": 42}
    assert shapes == [[[7, 3], [3, 5], [7, 5]]]


def test_without_a_handle_what_it_runs_is_counted() -> None:
    assert FlopCountAnalysis(UsesDoubled(), torch.ones(7, 3)).by_operator() == {"matmul": 7 * 3 * 5}


def test_a_handle_of_none_leaves_it_out() -> None:
    flops, unsupported = flop_count(UsesDoubled(), (torch.ones(7, 3),), {"prim::PythonOp.Doubled": None})
    assert dict(flops) == {}
    assert unsupported == Counter()


def test_apply_is_as_it_was() -> None:
    before = vars(torch.autograd.Function)["apply"]
    FlopCountAnalysis(UsesDoubled(), torch.ones(7, 3)).total()
    assert vars(torch.autograd.Function)["apply"] is before


@pytest.mark.parametrize(
    ("name", "function", "shapes", "flops"),
    [
        ("aten::mm", torch.mm, [(3, 4), (4, 5)], 3 * 4 * 5),
        ("aten::linear", nn.functional.linear, [(2, 3, 4), (5, 4)], 2 * 3 * 4 * 5),
        ("aten::_convolution", nn.functional.conv2d, [(1, 3, 8, 8), (4, 3, 3, 3)], 6 * 6 * 4 * 3 * 9),
        ("aten::einsum", lambda a, b: torch.einsum("nc,nchw->hw", a, b), [(3, 4), (3, 4, 2, 3)], 3 * 4 * 2 * 3),
        ("aten::layer_norm", lambda x, w: nn.functional.layer_norm(x, (4,), w), [(3, 4), (4,)], 5 * 3 * 4),
    ],
)
def test_handles_answer_operators_that_the_jit_traced(name: str, function: Any, shapes: Any, flops: int) -> None:
    graph = torch.jit.trace(function, tuple(map(torch.ones, shapes)), check_trace=False).graph
    node = next(node for node in graph.nodes() if node.kind() == name)
    found = FLOP_HANDLES[name](list(node.inputs()), list(node.outputs()))
    assert (sum(found.values()) if isinstance(found, Counter) else found) == flops


def test_convolutions_are_counted_from_shapes() -> None:
    x, weight, out = [2, 4, 9, 9], [8, 4, 3, 3], [2, 8, 7, 7]
    assert conv_flop_count(x, weight, out) == 2 * 8 * 4 * 9 * 7 * 7
    assert conv_flop_count(out, [8, 4, 3, 3], x, transposed=True) == 2 * 8 * 4 * 9 * 7 * 7


def test_elements_are_counted_by_scale() -> None:
    model = nn.Sequential(nn.MaxPool2d(2))
    analysis = FlopCountAnalysis(model, torch.ones(1, 1, 4, 4))
    analysis.set_op_handle("aten::max_pool2d", elementwise_flop_counter(1, 3))
    assert analysis.total() == 16 + 3 * 4


# -- models that decide by their values -------------------------------------------------------------------------------


class Decides(nn.Module):
    """Runs its layer once or twice, by the sign of a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        nn.init.ones_(self.linear.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        return self.linear(x) if (x * x).sum() > 0 else x


def test_models_that_decide_by_their_values_are_counted() -> None:
    macs = 2 * 3 * 3  # the layer runs twice
    assert FlopCountAnalysis(Decides(), torch.ones(1, 3)).total() == macs
    assert get_model_complexity_info(Decides(), (3,), show_table=False, show_arch=False)["flops"] == macs
    assert (
        ptflops_info(Decides(), (3,), print_per_layer_stat=False, as_strings=False)[0] == macs + 2 * 3 + 3
    )  # biases, x * x


# -- the rest ---------------------------------------------------------------------------------------------------------


class Array(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.numpy()


class GivesAnArray(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.array = Array()

    def forward(self, x: torch.Tensor) -> Any:
        return np.tanh(self.array(self.linear(x)))


@pytest.mark.parametrize("pooled", [1, 2])
def test_a_function_of_torch_that_was_replaced_is_counted_as_what_it_calls(
    pooled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = F.adaptive_avg_pool2d

    def replacement(x: torch.Tensor, size: int) -> torch.Tensor:
        return original(x, size)

    monkeypatch.setattr(F, "adaptive_avg_pool2d", replacement)
    net, x = nn.Sequential(nn.AdaptiveAvgPool2d(pooled)), torch.zeros(1, 3, 8, 8)
    assert FlopCountAnalysis(net, x).by_operator() == {"adaptive_avg_pool2d": x.numel()}
    macs, _ = ptflops_info(net, (3, 8, 8), as_strings=False, print_per_layer_stat=False)
    assert macs == x.numel()


def test_a_comparison_with_a_number_is_counted() -> None:
    class Compares(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() == x.numel() else x @ torch.ones(3, 4)

    assert FlopCountAnalysis(Compares(), torch.zeros(2, 3)).total() == 2 * 3 * 4


def test_a_module_may_give_an_array() -> None:
    found = torchinfo_summary(GivesAnArray(), input_size=(2, 3), verbose=0)
    assert found.total_params == 3 * 4 + 4
    assert found.total_mult_adds == 2 * (3 * 4 + 4)
    assert [info.output_size for info in found.summary_list] == [[2, 4]] * 3
    clear_cached_forward_pass()


def test_torchsummary_returns_and_prints_as_its_repository(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(2, 5), nn.ReLU())
    model[0].bias.requires_grad_(False)
    assert summary(model, (1, 2), device=torch.device("cpu")) == (2 * 5 + 5, 2 * 5)
    text, params = summary_string(model, (1, 2), device="cuda:0")
    assert params == (15, 10)
    assert capsys.readouterr().out == text + "\n"


def test_torchsummary_lists_a_model_that_is_one_layer() -> None:
    text, params = summary_string(nn.Linear(2, 5), (1, 2), device="cpu")
    assert params == (15, 15)
    assert "Linear-1" in text


class Embeds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 3)

    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return x + self.table(tokens)


def test_torchsummary_takes_element_types() -> None:
    types = [torch.FloatTensor, torch.LongTensor]
    text, params = summary_string(Embeds(), [(4, 3), (4,)], device="cpu", dtypes=types)
    assert params == (21, 21)
    assert "[-1, 4, 3]" in text


class MyConv(nn.Conv2d):
    pass


@pytest.mark.parametrize(
    ("module", "hook", "operations"),
    [
        (MyConv(2, 4, 3), basic_hooks.count_convNd, 4 * 6 * 6 * 2 * 9),
        (nn.ConvTranspose2d(2, 4, 3), basic_hooks.count_convNd, 2 * 8 * 8 * 4 * 9),
        (nn.Linear(8, 3), basic_hooks.count_linear, 2 * 8 * 3 * 8),
        (nn.BatchNorm2d(2), basic_hooks.count_normalization, 4 * 2 * 8 * 8),
        (nn.Softmax(dim=-1), basic_hooks.count_softmax, 3 * 128 - 16),
        (nn.AvgPool2d(2), basic_hooks.count_avgpool, 2 * 4 * 4),
        (nn.ReLU(), basic_hooks.zero_ops, 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_thops_rules_are_hooks_for_rules_of_ones_own(module: nn.Module, hook: Any, operations: int) -> None:
    kind = type("Mine", (type(module),), {})
    module.__class__ = kind
    found, _ = profile(nn.Sequential(module), (torch.ones(1, 2, 8, 8),), custom_ops={kind: hook}, verbose=False)
    assert found == operations


def test_torchstat_has_its_command_line(tmp_path: Path, module_as_program: Callable[..., Any]) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\ndef Net():\n    return nn.Sequential(nn.Conv2d(3, 4, 1))\n"
    )
    words = ("opcost.compat.torchstat", "-f", tmp_path / "net.py")
    done = module_as_program(*words, "-m", "Net", "-s", "3x5x6")
    assert "Total params: 16" in done.out
    assert "  3   5   6" in done.out
    failed = module_as_program(*words, "-m", "Missing")
    assert "Tried to import Missing from" in failed.out
    assert failed.code == 0


class Dotted(nn.Module):
    """A layer under a name with a dot in it, which only `_modules` takes."""

    def __init__(self) -> None:
        super().__init__()
        self._modules["a.b"] = nn.Linear(2, 5, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._modules["a.b"](x)  # type: ignore[misc, no-any-return]


def test_a_name_with_a_dot_in_it_is_a_name() -> None:
    net, x, macs = Dotted(), torch.zeros(3, 2), 3 * 2 * 5
    assert dict(FlopCountAnalysis(net, x).by_module()) == {"": macs, "a.b": macs}
    assert torchinfo_summary(net, input_data=x, verbose=0).total_mult_adds == macs
    assert ptflops_info(net, (2,), as_strings=False, print_per_layer_stat=False)[0] == macs // 3
    assert deepspeed.get_model_profile(net, args=(x,), print_profile=False, as_string=False)[1] == macs
