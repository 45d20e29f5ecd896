"""opcost.compat.flop_counter, torchprofile and lightning's measure_flops, beside torch's own counter and by derivation."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_net import Net
from torch import nn
from torch.utils.flop_counter import FlopCounterMode as Theirs

from opcost.compat.flop_counter import FlopCounterMode
from opcost.compat.lightning import measure_flops
from opcost.compat.torchprofile import profile_macs


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


def test_prices_of_the_callers_own_stand_for_their_operator() -> None:
    def price(a: Any, b: Any, *_: Any, out_shape: Any, **__: Any) -> int:
        assert (tuple(a), tuple(b), tuple(out_shape)) == ((2, 3), (3, 4), (2, 4))
        return 7

    for mode in (Theirs, FlopCounterMode):
        with mode(display=False, custom_mapping={torch.ops.aten.mm: price}) as counter:
            torch.ones(2, 3) @ torch.ones(3, 4)
        assert counter.get_flop_counts() == {"Global": {torch.ops.aten.mm: 7}}


def test_nothing_counted_is_told_as_nothing() -> None:
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
    assert both == 2 * 2 * 3 * 4 + 2 * 2 * 3 * 4  # the gradient of the weight; the input asks for none
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
