"""opcost.compat.fvcore against fvcore itself where that is right, and against derived numbers where it is not."""

from __future__ import annotations

import functools
import logging
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import fvcore.nn as theirs
import pytest
import tabulate
import torch
import torch.nn.functional as F
from fvcore.nn import jit_handles
from fvcore.nn.jit_analysis import JitModelAnalysis as TheirAnalysis
from torch import nn

import opcost.compat.fvcore as ours

PAIRS = (
    (theirs.FlopCountAnalysis, ours.FlopCountAnalysis),
    (theirs.ActivationCountAnalysis, ours.ActivationCountAnalysis),
)


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


class Classifier(nn.Module):
    """Conv, norm in both modes, pooling to one pixel, dropout, a module that does nothing and one that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        )
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.skip = nn.Identity()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, 5)
        self.unused = nn.Conv2d(3, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = self.skip(x) + self.depthwise(x)
        x = F.max_pool2d(x, 2)
        return self.head(self.drop(self.pool(x).flatten(1)))


class Attention(nn.Module):
    """Products written as operators, softmax, layer norm, tokens of three dimensions."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.mlp = nn.ModuleList([nn.Linear(width, 4 * width), nn.Linear(4 * width, width)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * 0.5).softmax(-1)
        x = x + (weights @ v).transpose(1, 2).reshape(b, n, c)
        return x + self.mlp[1](F.gelu(self.mlp[0](x)))


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.group = nn.GroupNorm(2, 4)
        self.plain_group = nn.GroupNorm(2, 4, affine=False)
        self.instance = nn.InstanceNorm2d(4, affine=True)
        self.plain_batch = nn.BatchNorm2d(4, affine=False)
        self.stateless = nn.BatchNorm2d(4, track_running_stats=False)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = [part(x) for part in self.children()]
        grid = torch.zeros(x.shape[0], 5, 5, 2)
        return (
            *parts,
            F.interpolate(x, size=9),
            F.grid_sample(x, grid, align_corners=False),
            F.instance_norm(x),
            F.layer_norm(x, x.shape[1:]),
        )


class Shared(nn.Module):
    """One convolution under two names, called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1)
        self.tail = nn.Sequential(self.first, nn.ReLU())
        self.unused = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tail(self.first(self.first(x)))


class Visitor(nn.Module):
    """Calls a module that belongs to another one."""

    def __init__(self) -> None:
        super().__init__()
        self.owner = nn.Sequential(nn.Linear(6, 6))
        self.guest = Call(self.visit)

    def visit(self, x: torch.Tensor) -> torch.Tensor:
        return self.owner[0](x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.guest(x)


class Gate(nn.Module):
    """A block that is repeated: it squeezes the map to one pixel and scales it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x * self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1)).sigmoid()[:, :, None, None])


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.attention(x, x, x)


class DirectForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc.forward(x)


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "classifier": (lambda: Classifier().eval(), (2, 3, 16, 16)),
    "classifier in training": (lambda: Classifier().train(), (2, 3, 16, 16)),
    "attention": (Attention, (2, 7, 12)),
    "norms": (lambda: Norms().train(), (2, 4, 6, 6)),
    "norms in use": (lambda: Norms().eval(), (2, 4, 6, 6)),
    "identical blocks": (lambda: nn.Sequential(*(Gate() for _ in range(5))).eval(), (2, 4, 6, 6)),
    "shared": (Shared, (1, 4, 8, 8)),
    "visitor": (Visitor, (2, 6)),
    "one linear": (lambda: nn.Linear(3, 4), (1, 3)),
    "nested singles": (lambda: nn.Sequential(OrderedDict(a=nn.Sequential(OrderedDict(b=nn.Linear(30, 40))))), (2, 30)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 6, 3, stride=2, groups=3), (2, 3, 8, 8)),
    "convolution 1d": (lambda: nn.Conv1d(10, 3, 3, dilation=2), (5, 10, 15)),
    "convolution 3d": (lambda: nn.Conv3d(2, 4, 3), (1, 2, 5, 6, 7)),
    "multi-head attention": (SelfAttention, (5, 2, 8)),
    "lstm cell": (lambda: nn.LSTMCell(4, 5), (3, 4)),
    "data parallel": (lambda: nn.DataParallel(nn.Sequential(nn.Linear(4, 5), nn.ReLU())), (2, 4)),
    "direct forward": (DirectForward, (2, 4)),
}


@pytest.fixture(params=NETS)
def net(request: pytest.FixtureRequest) -> tuple[nn.Module, torch.Tensor]:
    make, shape = NETS[request.param]
    return make(), torch.randn(shape)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


@pytest.fixture
def _indented(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """fvcore indents its cells and makes tabulate keep that by a switch that newer releases have as an argument."""

    class Tabulate:
        PRESERVE_WHITESPACE = True
        tabulate = staticmethod(functools.partial(tabulate.tabulate, preserve_whitespace=True))

    for module in ("print_model_statistics", "parameter_count"):
        monkeypatch.setattr(sys.modules[f"fvcore.nn.{module}"], "tabulate", Tabulate)
    return


# -- the same answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["owner", "caller"])
@pytest.mark.parametrize("pair", PAIRS, ids=["flops", "activations"])
def test_every_number_is_that_of_fvcore(net: tuple[nn.Module, torch.Tensor], pair: Any, mode: str) -> None:
    their, our = (make(*net).ancestor_mode(mode) for make in pair)
    assert our.total() == their.total()
    assert our.by_operator() == their.by_operator()
    assert our.by_module() == their.by_module()
    assert our.by_module_and_operator() == their.by_module_and_operator()
    assert our.uncalled_modules() == their.uncalled_modules()


@pytest.mark.parametrize("name", ["classifier", "attention", "shared", "visitor", "one linear"])
def test_unsupported_operators_are_those_of_fvcore(name: str) -> None:
    make, shape = NETS[name]
    model, x = make(), torch.randn(shape)
    their, our = theirs.FlopCountAnalysis(model, x), ours.FlopCountAnalysis(model, x)
    their.total()
    for module in our.by_module():
        assert our.unsupported_ops(module) == their.unsupported_ops(module)


@pytest.mark.usefixtures("_indented")
def test_the_texts_are_those_of_fvcore(net: tuple[nn.Module, torch.Tensor]) -> None:
    model, x = net
    their, our = theirs.FlopCountAnalysis(model, x), ours.FlopCountAnalysis(model, x)
    their_acts, our_acts = theirs.ActivationCountAnalysis(model, x), ours.ActivationCountAnalysis(model, x)
    assert ours.flop_count_str(our) == theirs.flop_count_str(their)
    assert ours.flop_count_str(our, our_acts) == theirs.flop_count_str(their, their_acts)
    assert ours.flop_count_table(our) == theirs.flop_count_table(their)
    assert ours.flop_count_table(our, 1, our_acts, False) == theirs.flop_count_table(their, 1, their_acts, False)
    assert ours.parameter_count(model) == theirs.parameter_count(model)
    assert ours.parameter_count_table(model, 2) == theirs.parameter_count_table(model, 2)


def test_counts_by_operator_come_in_giga_and_mega() -> None:
    model, x = nn.Conv2d(3, 4, 3), torch.randn(1, 3, 8, 8)
    out = 4 * 6 * 6
    flops, skipped = ours.flop_count(model, (x,))
    assert (flops, skipped) == ({"conv": out * 3 * 9 / 1e9}, Counter())
    assert flops["nothing"] == 0.0
    assert ours.activation_count(model, (x,))[0] == {"conv": out / 1e6}


def test_a_shared_layer_has_its_parameters_once_and_its_compute_per_use() -> None:
    model = Shared()
    flops = ours.FlopCountAnalysis(model, torch.randn(1, 4, 8, 8))
    once = 4 * 8 * 8 * 4 * 9
    assert flops.by_operator() == {"conv": 3 * once}
    assert flops.total("first") == flops.total("tail.0") == 3 * once
    assert flops.canonical_module_name("tail.0") == "first"
    assert flops.uncalled_modules() == {"unused"}
    assert ours.parameter_count(model)[""] == (4 * 4 * 9 + 4) + (6 * 6 + 6)


# -- handles and settings -----------------------------------------------------------------------------------------


def test_a_handle_counts_an_operator_that_has_none() -> None:
    def sigmoid(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
        rows, columns = inputs[0].type().sizes()
        return Counter({"sigmoid": 4 * rows * columns})

    model = nn.Sequential(nn.Linear(5, 4), nn.Sigmoid())
    flops, skipped = ours.flop_count(model, (torch.randn(10, 5),), {"aten::sigmoid": sigmoid})
    assert flops == {"linear": 10 * 5 * 4 / 1e9, "sigmoid": 4 * 10 * 4 / 1e9}
    assert not skipped


def test_a_handle_that_returns_a_number_counts_under_the_operators_name() -> None:
    flops = ours.FlopCountAnalysis(nn.Linear(5, 4), torch.randn(10, 5)).set_op_handle(
        "aten::linear", lambda i, o: 400_000
    )
    assert flops.by_operator() == {"linear": 400_000}


@pytest.mark.parametrize("name", NETS)
def test_handles_written_for_fvcore_work_unchanged(name: str) -> None:
    """fvcore's own handles read shapes, constants and lists from jit values."""
    make, shape = NETS[name]
    handles = {
        "aten::_convolution": jit_handles.conv_flop_jit,
        "aten::linear": jit_handles.linear_flop_jit,
        "aten::matmul": jit_handles.matmul_flop_jit,
        "aten::bmm": jit_handles.bmm_flop_jit,
        "aten::batch_norm": jit_handles.batchnorm_flop_jit,
        "aten::layer_norm": jit_handles.norm_flop_counter(2),
        "aten::relu_": jit_handles.elementwise_flop_counter(1, 2),
        "aten::softmax": jit_handles.generic_activation_jit("soft"),
    }
    model, x = make(), torch.randn(shape)
    their = TheirAnalysis(model, x).set_op_handle(**handles)
    our = ours.JitModelAnalysis(model, x).set_op_handle(**handles)
    assert our.by_module_and_operator() == their.by_module_and_operator()


def test_a_handle_sees_the_tensors_of_a_list() -> None:
    model = Call(lambda a, b: torch.einsum("ij,jk->ik", a, b))
    handles = {"aten::einsum": jit_handles.einsum_flop_jit}
    inputs = torch.randn(3, 4), torch.randn(4, 5)
    assert ours.JitModelAnalysis(model, inputs).set_op_handle(**handles).total() == 3 * 4 * 5


def test_none_ignores_an_operator_that_has_a_handle() -> None:
    model, x = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)).eval(), torch.randn(10, 5)
    flops = ours.FlopCountAnalysis(model, x).set_op_handle("aten::batch_norm", None)
    assert flops.by_operator() == {"linear": 10 * 5 * 4}
    assert not flops.unsupported_ops()


def test_without_handles_everything_is_unsupported() -> None:
    flops = ours.FlopCountAnalysis(nn.Linear(5, 4), torch.randn(10, 5)).clear_op_handles()
    assert flops.total() == 0
    assert flops.unsupported_ops() == {"aten::linear": 1}


def test_unsupported_operators_can_be_the_first_query() -> None:
    assert ours.FlopCountAnalysis(nn.Sigmoid(), torch.randn(2)).unsupported_ops() == {"aten::sigmoid": 1}


def test_handles_come_in_pairs() -> None:
    with pytest.raises(TypeError, match="pairs"):
        ours.FlopCountAnalysis(nn.Sigmoid(), torch.randn(2)).set_op_handle("aten::sigmoid")


def test_a_handle_must_return_a_number() -> None:
    flops = ours.FlopCountAnalysis(nn.Sigmoid(), torch.randn(2)).set_op_handle(
        "aten::sigmoid", lambda i, o: {"x": "many"}
    )
    with pytest.raises(ValueError, match="Invalid type"):
        flops.total()


def test_a_copy_keeps_every_setting() -> None:
    flops = (
        ours.FlopCountAnalysis(Visitor(), torch.randn(2, 6)).ancestor_mode("caller").set_op_handle("aten::linear", None)
    )
    twin = flops.copy(new_inputs=torch.randn(5, 6))
    assert type(twin) is ours.FlopCountAnalysis
    assert twin.total() == 0
    assert twin.set_op_handle("aten::linear", lambda i, o: 7).by_module()["guest"] == 7
    assert flops.total() == 0


@pytest.mark.parametrize(("setting", "value"), [("ancestor_mode", "uncle"), ("tracer_warnings", "some")])
def test_an_unknown_mode_is_refused(setting: str, value: str) -> None:
    with pytest.raises(ValueError, match="Unrecognized"):
        getattr(ours.FlopCountAnalysis(nn.Sigmoid(), torch.randn(2)), setting)(value)


def test_an_unknown_module_is_refused() -> None:
    with pytest.raises(KeyError, match="not among the descendants"):
        ours.FlopCountAnalysis(nn.Sigmoid(), torch.randn(2)).total("backbone")


def test_unsupported_operators_and_uncalled_modules_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    model, x = Classifier().eval(), torch.randn(2, 3, 16, 16)
    ours.FlopCountAnalysis(model, x).total()
    assert "Unsupported operator aten::max_pool2d encountered 1 time(s)" in caplog.messages
    assert any(
        message.startswith("The following submodules") and message.endswith("\nunused") for message in caplog.messages
    )
    caplog.clear()
    ours.FlopCountAnalysis(model, x).unsupported_ops_warnings(False).uncalled_modules_warnings(False).total()
    assert not caplog.messages
