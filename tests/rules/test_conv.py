from __future__ import annotations

from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.core.graph import Cost, TensorSpec
from opcost.rules.contractions import conv
from opcost.rules.registry import OpView

SIZE = st.integers(1, 6)


def test_a_convolution_counts_every_kernel_position_of_every_output(cost: Any) -> None:
    n, cin, cout, k, h, out = 2, 3, 8, 5, 12, 8
    macs = n * cout * out * out * cin * k * k
    assert cost("conv", [(n, cin, h, h), (cout, cin, k, k)], [(n, cout, out, out)]) == Cost(
        macs=macs,
        flops=2 * macs,
        bytes_read=4 * (n * cin * h * h + cout * cin * k * k),
        bytes_written=4 * n * cout * out * out,
    )


def test_a_bias_is_flops_and_not_macs(cost: Any) -> None:
    n, cin, cout, k, out = 2, 3, 8, 3, 10
    plain = cost("conv", [(n, cin, 12, 12), (cout, cin, k, k)], [(n, cout, out, out)])
    biased = cost("conv", [(n, cin, 12, 12), (cout, cin, k, k), (cout,)], [(n, cout, out, out)])
    assert biased.macs == plain.macs
    assert biased.flops - plain.flops == n * cout * out * out
    assert biased.bytes_read - plain.bytes_read == 4 * cout


def test_a_grouped_convolution_counts_only_its_group(cost: Any) -> None:
    n, cin, cout, groups, k, out = 2, 8, 16, 4, 3, 14
    result = cost("conv", [(n, cin, 16, 16), (cout, cin // groups, k, k)], [(n, cout, out, out)])
    assert result.macs == n * cout * out * out * (cin // groups) * k * k


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions_of_every_rank_count_alike(cost: Any, axes: int) -> None:
    n, cin, cout, k, out = 2, 3, 4, 3, 6
    result = cost("conv", [(n, cin, *[8] * axes), (cout, cin, *[k] * axes)], [(n, cout, *[out] * axes)])
    assert result.macs == n * cout * out**axes * cin * k**axes


def test_an_unbatched_convolution_is_a_batch_of_one(cost: Any) -> None:
    cin, cout, k, out = 3, 4, 3, 6
    weight = (cout, cin, k, k)
    single = cost("conv", [(cin, 8, 8), weight], [(cout, out, out)])
    assert single == cost("conv", [(1, cin, 8, 8), weight], [(1, cout, out, out)])


def test_a_transposed_convolution_counts_every_input_element(cost: Any) -> None:
    n, cin, cout, groups, k, h, out = 2, 8, 12, 2, 4, 5, 10
    result = cost("conv", [(n, cin, h, h), (cin, cout // groups, k, k)], [(n, cout, out, out)], transposed=True)
    assert result.macs == n * cin * h * h * (cout // groups) * k * k


def test_a_fused_activation_adds_its_flops(cost: Any) -> None:
    n, cin, cout, k, out = 1, 3, 4, 3, 6
    shapes = [(n, cin, 8, 8), (cout, cin, k, k)], [(n, cout, out, out)]
    assert cost("conv", *shapes, then=("add", "relu")).flops - cost("conv", *shapes).flops == 2 * n * cout * out * out
    negate_exp_add_divide = 4
    sigmoid = cost("conv", *shapes, then=("sigmoid",)).flops - cost("conv", *shapes).flops
    assert sigmoid == negate_exp_add_divide * n * cout * out * out


@pytest.mark.parametrize(
    ("grads", "products"), [(("input",), 1), (("weight",), 1), (("input", "weight"), 2), (("bias",), 0)]
)
def test_each_gradient_that_is_computed_has_the_forward_macs_once(
    cost: Any, grads: tuple[str, ...], products: int
) -> None:
    n, cin, cout, groups, k, h, out = 2, 8, 16, 4, 3, 16, 14
    x, weight, y = (n, cin, h, h), (cout, cin // groups, k, k), (n, cout, out, out)
    forward = n * cout * out * out * (cin // groups) * k * k
    outs = {"input": x, "weight": weight, "bias": (cout,)}
    result = cost("conv", [y, x, weight], [outs[g] for g in grads], grads=grads)
    assert result.macs == products * forward
    assert result.flops == 2 * products * forward + ("bias" in grads) * n * cout * out * out


def test_a_gradient_reads_only_what_it_needs(cost: Any) -> None:
    n, cin, cout, k, h, out = 2, 3, 4, 3, 8, 6
    x, weight, y = TensorSpec((n, cin, h, h)), TensorSpec((cout, cin, k, k)), TensorSpec((n, cout, out, out))
    read = {g: cost("conv", [y, x, weight], [x], grads=g).bytes_read for g in (("input",), ("weight",), ("bias",))}
    assert read == {
        ("input",): y.nbytes + weight.nbytes,
        ("weight",): y.nbytes + x.nbytes,
        ("bias",): y.nbytes,
    }


def test_the_gradient_of_a_transposed_convolution_counts_input_elements(cost: Any) -> None:
    n, cin, cout, k, h, out = 2, 6, 4, 2, 5, 10
    x, weight, y = (n, cin, h, h), (cin, cout, k, k), (n, cout, out, out)
    result = cost("conv", [y, x, weight], [x, weight], grads=("input", "weight"), transposed=True)
    assert result.macs == 2 * n * cin * h * h * cout * k * k


def test_a_packed_weight_brings_the_exact_number(cost: Any) -> None:
    n, cin, cout, k, out = 1, 3, 4, 3, 6
    macs, y = n * cout * out * out * cin * k * k, n * cout * out * out
    result = cost("conv", [(n, cin, 8, 8)], [(n, cout, out, out)], macs=macs, bias=True, then=("relu",))
    assert (result.macs, result.flops) == (macs, 2 * macs + y + y)
    assert cost("conv", [(n, cin, 8, 8)], [(n, cout, out, out)], macs=macs).flops == 2 * macs


def test_a_deformable_convolution_interpolates_every_element_under_its_kernel(cost: Any) -> None:
    n, cin, cout, groups, k, h, out, taps = 2, 4, 6, 2, 3, 8, 6, 4
    x, weight, y = (n, cin, h, h), (cout, cin // groups, k, k), (n, cout, out, out)
    plain, sampled = cost("conv", [x, weight], [y]), cost("conv", [x, weight], [y], sampled=taps)
    sampling = n * out * out * cin * k * k * taps * 2  # a product and an addition each
    assert (sampled.macs, sampled.flops) == (plain.macs, plain.flops + sampling)
    grads = ("input", "weight")
    gradient = cost("conv", [y, x, weight], [x, weight], grads=grads, sampled=taps)
    assert gradient.flops == cost("conv", [y, x, weight], [x, weight], grads=grads).flops + 2 * sampling


@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_weight_with_an_axis_of_groups_samples_and_multiplies_by_its_kernel(
    cost: Any, batch: tuple[int, ...]
) -> None:
    groups, cin, cout, k, h, out, taps = 2, 3, 5, 3, 8, 6, 4
    x, y = (*batch, groups * cin, h, h), (*batch, groups * cout, out, out)
    result = cost("conv", [x, (groups, cout, cin, k, k)], [y], grouped=True, sampled=taps)
    n = prod(batch)
    macs = n * groups * cout * out * out * cin * k * k
    assert (result.macs, result.flops) == (macs, 2 * macs + n * out * out * groups * cin * k * k * taps * 2)


def test_the_gradient_of_a_deformable_convolution_reads_its_positions_too(cost: Any) -> None:
    n, cin, cout, k, h, out = 2, 3, 4, 3, 8, 6
    x, weight, y = TensorSpec((n, cin, h, h)), TensorSpec((cout, cin, k, k)), TensorSpec((n, cout, out, out))
    positions = TensorSpec((n, 2 * k * k, out, out))
    result = cost("conv", [y, x, weight, positions], [x, weight], grads=("input", "weight"))
    assert result.macs == 2 * n * cout * out * out * cin * k * k
    assert result.bytes_read == y.nbytes + x.nbytes + weight.nbytes + positions.nbytes


def test_the_gradient_of_a_complex_bias_adds_both_parts(cost: Any) -> None:
    x, weight, y = (TensorSpec(shape, "complex64") for shape in ((2, 3, 8), (4, 3, 3), (2, 4, 6)))
    result = cost("conv", [y, x, weight], [TensorSpec((4,), "complex64")], grads=("bias",))
    assert (result.macs, result.flops) == (0, 2 * 2 * 4 * 6)


def test_a_complex_mac_is_one_mac_and_eight_flops(cost: Any) -> None:
    n, cin, cout, k, out = 1, 3, 4, 3, 6

    def c64(*shape: int) -> TensorSpec:
        return TensorSpec(shape, "complex64")

    result = cost("conv", [c64(n, cin, 8, 8), c64(cout, cin, k, k), c64(cout)], [c64(n, cout, out, out)])
    macs = n * cout * out * out * cin * k * k
    assert (result.macs, result.flops) == (macs, 8 * macs + 2 * n * cout * out * out)


@given(n=SIZE, cin=SIZE, cout=SIZE, groups=SIZE, k=SIZE, h=SIZE, out=SIZE)
def test_the_input_gradient_of_a_convolution_is_its_transposed_convolution(
    n: int, cin: int, cout: int, groups: int, k: int, h: int, out: int
) -> None:
    x = TensorSpec((n, cin * groups, h))
    y = TensorSpec((n, cout * groups, out))
    weight = TensorSpec((cout * groups, cin, k))
    gradient = conv(OpView("conv", ins=(y, x, weight), outs=(x,), attrs={"grads": ("input",)}))
    transposed = conv(OpView("conv", ins=(y, weight), outs=(x,), attrs={"transposed": True}))
    assert gradient == transposed
