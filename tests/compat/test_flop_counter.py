"""opcost.compat.flop_counter, torchprofile and lightning's measure_flops, beside torch's own counter and by derivation."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_net import Net
from torch import nn
from torch.utils.flop_counter import FlopCounterMode as Theirs

import opcost
from opcost.compat import calflops, deepspeed, ptflops, thop, torchinfo
from opcost.compat.flop_counter import FlopCounterMode, flop_registry, register_flop_formula
from opcost.compat.lightning import measure_flops
from opcost.compat.torchprofile import profile_macs
from opcost.core.graph import Cost
from opcost.errors import RuleError


def words(table: str) -> list[list[str]]:
    """Without blanks, which tabulate loses or keeps by its version, and without rules."""
    return [line.split() for line in table.splitlines() if "---" not in line]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_counts_and_tables_are_torchs(backward: bool, depth: int) -> None:
    net, x = Net(), torch.randn(2, 3, 9, 9)
    found = []
    for mode in (Theirs, FlopCounterMode):
        with mode(display=False, depth=depth) as counter:
            y = net(x)
            if backward:
                y.sum().backward()
        counts = {name: {str(op): n for op, n in ops.items()} for name, ops in counter.get_flop_counts().items()}
        found.append((counter.get_total_flops(), counts, words(counter.get_table())))
    assert found[0] == found[1]


def test_the_table_is_printed_as_torch_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    with FlopCounterMode():
        nn.Linear(30, 40)(torch.ones(2, 30))
    assert capsys.readouterr().out == (
        "Module           FLOP    % Total\n"
        "-------------  ------  ---------\n"
        "Linear         4.800K    100.00%\n"  # 2 * 2 * 30 * 40
        " - aten.addmm  4.800K    100.00%\n"
    ).replace("4.800K", "  4800")  # numbers of four digits have no unit


def test_attention_on_a_cpu_is_not_free() -> None:
    q = torch.randn(1, 2, 8, 4)
    with Theirs(display=False) as theirs:
        F.scaled_dot_product_attention(q, q, q)
    with FlopCounterMode(display=False) as ours:
        F.scaled_dot_product_attention(q, q, q)
    assert theirs.get_total_flops() == 0
    assert ours.get_total_flops() == 2 * 2 * (8 * 8 * 4 + 8 * 8 * 4)


def test_the_gradient_of_a_grouped_convolution_knows_its_groups() -> None:
    net = nn.Conv2d(8, 8, 3, groups=4)
    with FlopCounterMode(display=False) as counter:
        net(torch.ones(1, 8, 5, 5)).sum().backward()
    products = 3 * 3 * 8 * 2 * 9
    assert counter.get_total_flops() == 2 * products + 2 * products  # forward, and the gradient of the weight


def test_formulas_of_the_caller_replace_their_operators_cost() -> None:
    def formula(a: Any, b: Any, *_: Any, out_shape: Any, **__: Any) -> int:
        assert (tuple(a), tuple(b), tuple(out_shape)) == ((2, 3), (3, 4), (2, 4))
        return 7

    for mode in (Theirs, FlopCounterMode):
        with mode(display=False, custom_mapping={torch.ops.aten.mm: formula}) as counter:
            torch.ones(2, 3) @ torch.ones(3, 4)
        assert counter.get_flop_counts() == {"Global": {torch.ops.aten.mm: 7}}


@pytest.fixture
def operators() -> Iterator[Any]:
    """`with_formula` has a formula of its author's in torch's registry, `without_formula` has none."""
    library = torch.library.Library("opcost_formulas", "DEF")
    for name in ("with_formula", "without_formula"):
        library.define(f"{name}(Tensor x, int n) -> Tensor")
        library.impl(name, lambda x, n: x.clone(), "CompositeExplicitAutograd")
    found = torch.ops.opcost_formulas

    @register_flop_formula(found.with_formula)
    def formula(x_shape: Any, n: int, *, out_shape: Any, **_: Any) -> int:
        assert tuple(x_shape) == tuple(out_shape) == (3, 5)
        return 9000 + n

    yield found
    del flop_registry[found.with_formula]
    library._destroy()


def test_formulas_registered_with_torch_are_used(operators: Any) -> None:
    x = torch.ones(3, 5)
    for mode in (Theirs, FlopCounterMode):
        with mode(display=False) as counter:
            operators.with_formula(x, 1)
        assert counter.get_flop_counts() == {"Global": {operators.with_formula: 9001}}
    report = opcost.count(lambda x: operators.with_formula(x, 1), x)
    assert report.coverage.complete
    element = 3 * 5 * 4
    assert report.rows[0].cost == Cost(macs=9001 // 2, flops=9001, bytes_read=element, bytes_written=element)


def test_a_formula_that_raises_is_named(operators: Any) -> None:
    with pytest.raises(
        RuleError, match=r"FLOP formula registered for opcost_formulas.with_formula.* raised AssertionError"
    ):
        opcost.count(lambda x: operators.with_formula(x, 1), torch.ones(2))


def test_every_call_warns_of_an_operator_without_cost(operators: Any) -> None:
    class Uncosted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return operators.without_formula(x, 1)  # type: ignore[no-any-return]

    net, x = Uncosted(), torch.ones(3, 5)

    def block() -> None:
        with FlopCounterMode(display=False):
            net(x)

    calls = {
        "flop_counter": block,
        "torchinfo": lambda: torchinfo.summary(net, input_data=x, verbose=0),
        "thop": lambda: thop.profile(net, (x,), verbose=False),
        "ptflops": lambda: ptflops.get_model_complexity_info(
            net, (5,), print_per_layer_stat=False, input_constructor=lambda _: {"x": x}
        ),
        "deepspeed": lambda: deepspeed.get_model_profile(net, args=(x,), print_profile=False),
        "calflops": lambda: calflops.calculate_flops(net, args=(x,), print_results=False),
        "torchprofile": lambda: profile_macs(net, x),
    }
    for name, call in calls.items():
        with pytest.warns(UserWarning, match="opcost_formulas::without_formula") as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__], name


def test_a_formula_of_the_callers_own_needs_no_warning(operators: Any) -> None:
    with (
        warnings.catch_warnings(),
        FlopCounterMode(display=False, custom_mapping={operators.without_formula: lambda *_, **__: 3}) as counter,
    ):
        warnings.simplefilter("error")
        operators.without_formula(torch.ones(2), 1)
    assert counter.get_total_flops() == 3


def test_nothing_counted_is_a_total_of_zero() -> None:
    with FlopCounterMode(display=False) as ours:
        torch.ones(2) + 1
    with Theirs(display=False) as theirs:
        torch.ones(2) + 1
    assert words(ours.get_table()) == words(theirs.get_table())
    assert ours.get_total_flops() == 0


def test_lightning_measures_forward_and_backward() -> None:
    net, x = nn.Linear(3, 4), torch.ones(2, 3)
    assert measure_flops(net, lambda: net(x)) == 2 * 2 * 3 * 4
    both = measure_flops(net, lambda: net(x), lambda y: y.sum())
    assert both == 2 * 2 * 3 * 4 + 2 * 2 * 3 * 4  # the gradient of the weight; the input needs none
    assert net.weight.grad is not None


# -- torchprofile -----------------------------------------------------------------------------------------------------


def test_macs_are_torchprofiles() -> None:
    net = Net().eval()
    stem = 9 * 9 * 8 * 3 * 9 + 9 * 9 * 8  # convolution, norm
    assert profile_macs(net, torch.randn(1, 3, 9, 9)) == stem + 4 * 4 * 8 * 8 * 9 + 8 + 8 * 5  # down, mean, head


def test_macs_by_operator() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU())
    found = profile_macs(net, torch.ones(2, 3), reduction=None)
    assert {(node.operator, node.scope): macs for node, macs in found.items()} == {
        ("aten::linear", "0"): 2 * 3 * 4,
        ("aten::leaky_relu", "1"): 2 * 4,
    }
    assert next(iter(found)).inputs[:2] == ([2, 3], [4, 3])


def test_macs_are_those_of_the_installed_torchprofile() -> None:
    theirs = pytest.importorskip("torchprofile")
    for net, x in (
        (Net().eval(), torch.randn(1, 3, 9, 9)),
        (nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4, bias=False), nn.Softmax(-1)), torch.randn(2, 3, 4)),
        (nn.Sequential(nn.AvgPool2d(2), nn.GroupNorm(1, 3)), torch.randn(1, 3, 8, 8)),
        (nn.LSTM(3, 4, bidirectional=True), torch.randn(5, 1, 3)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert profile_macs(net, x) == theirs.profile_macs(net, x)
