from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F

aten = torch.ops.aten
B, CIN, COUT, GROUPS, KERNEL, SIZE = 2, 4, 8, 2, 3, 7


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_convolution_has_its_input_weight_and_bias_in_order(axes: int, record: Any, meta: Any) -> None:
    x = meta(B, CIN, *[SIZE] * axes)
    weight = meta(COUT, CIN // GROUPS, *[KERNEL] * axes)
    (seen,) = record(lambda: getattr(F, f"conv{axes}d")(x, weight, meta(COUT), groups=GROUPS))
    out = SIZE - KERNEL + 1
    assert seen.kind == "conv"
    assert seen.ins == (tuple(x.shape), tuple(weight.shape), (COUT,))
    assert seen.cost.macs == B * COUT * out**axes * (CIN // GROUPS) * KERNEL**axes


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_transposed_convolution_says_so(axes: int, record: Any, meta: Any) -> None:
    x = meta(B, CIN, *[SIZE] * axes)
    weight = meta(CIN, COUT // GROUPS, *[KERNEL] * axes)
    (seen,) = record(lambda: getattr(F, f"conv_transpose{axes}d")(x, weight, stride=2, groups=GROUPS))
    assert seen.attrs == {"transposed": True, "stride": (2,) * axes, "dilation": (1,) * axes}
    assert seen.cost.macs == B * CIN * SIZE**axes * (COUT // GROUPS) * KERNEL**axes


@pytest.mark.parametrize("groups", [1, GROUPS, CIN])
@pytest.mark.parametrize("transposed", [False, True])
def test_each_gradient_of_a_convolution_costs_the_forward_once(groups: int, transposed: bool, record: Any) -> None:
    layer = (torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d)(CIN, COUT, KERNEL, groups=groups)
    x = torch.randn(B, CIN, SIZE, SIZE, requires_grad=True)
    forward, backward = [s for s in record(lambda: layer(x).sum().backward()) if s.kind == "conv"]
    assert backward.attrs["grads"] == ("input", "weight", "bias")
    assert backward.cost.macs == 2 * forward.cost.macs
    side = SIZE if transposed else SIZE - KERNEL + 1
    assert forward.cost.macs == B * CIN * COUT // groups * side**2 * KERNEL**2


def test_the_first_layer_has_no_input_gradient(record: Any) -> None:
    layer = torch.nn.Conv2d(CIN, COUT, KERNEL)
    x = torch.randn(B, CIN, SIZE, SIZE)
    forward, backward = [s for s in record(lambda: layer(x).sum().backward()) if s.kind == "conv"]
    assert backward.attrs["grads"] == ("weight", "bias")
    assert backward.ins == (forward.outs[0], forward.ins[0], forward.ins[1])
    assert backward.cost.macs == forward.cost.macs


@pytest.mark.parametrize(
    "operator",
    [
        aten._slow_conv2d_forward.default,
        aten.thnn_conv2d.default,
        aten.slow_conv_dilated2d.default,
        aten._conv_depthwise2d.default,
    ],
    ids=str,
)
def test_the_kernels_below_a_convolution_are_convolutions(operator: Any, translated: Any, meta: Any) -> None:
    x, weight, bias = meta(B, CIN, SIZE, SIZE), meta(COUT, CIN, KERNEL, KERNEL), meta(COUT)
    pairs = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1]}
    names = {argument.name for argument in operator._schema.arguments}
    seen = translated(
        operator, x, weight, [KERNEL, KERNEL], bias,
        outs=((B, COUT, 5, 5),), **{name: value for name, value in pairs.items() if name in names},
    )  # fmt: skip
    assert (seen.kind, seen.ins) == ("conv", (tuple(x.shape), tuple(weight.shape), (COUT,)))


@pytest.mark.parametrize(
    "operator", [aten.cudnn_convolution_relu.default, aten.miopen_convolution_relu.default], ids=str
)
def test_a_fused_relu_is_named(operator: Any, translated: Any, meta: Any) -> None:
    x, weight = meta(B, CIN, SIZE, SIZE), meta(COUT, CIN, KERNEL, KERNEL)
    y = (B, COUT, 5, 5)
    seen = translated(operator, x, weight, meta(COUT), [1, 1], [0, 0], [1, 1], 1, outs=(y,))
    assert seen.attrs == {"then": ("relu",), "stride": (1, 1), "dilation": (1, 1)}
    assert seen.cost.flops == 2 * seen.cost.macs + 2 * prod(y)


@pytest.mark.parametrize("biased", [False, True])
def test_a_fused_addition_is_counted_once(biased: bool, translated: Any, meta: Any) -> None:
    x, weight, z = meta(B, CIN, SIZE, SIZE), meta(COUT, CIN, KERNEL, KERNEL), meta(B, COUT, 5, 5)
    bias = meta(COUT) if biased else None
    seen = translated(
        aten.cudnn_convolution_add_relu.default,
        x,
        weight,
        z,
        1.0,
        bias,
        [1, 1],
        [0, 0],
        [1, 1],
        1,
        outs=((B, COUT, 5, 5),),
    )
    assert tuple(z.shape) in seen.ins
    assert seen.cost.flops - 2 * seen.cost.macs == z.numel() * (3 if biased else 2)


def test_a_time_first_convolution_sums_over_kernel_and_channels(record: Any, meta: Any) -> None:
    (seen,) = record(lambda: torch.conv_tbc(meta(SIZE, B, CIN), meta(KERNEL, CIN, COUT), meta(COUT)))
    assert seen.cost.macs == (SIZE - KERNEL + 1) * B * COUT * KERNEL * CIN
