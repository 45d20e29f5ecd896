from __future__ import annotations

from typing import Any

import pytest

from opcost.core.graph import Cost

MEAN, VARIANCE = 1, 3  # add; subtract, square, add
CENTRE, SCALE, WEIGHT, BIAS = 1, 1, 1, 1
X = (2, 6, 5, 5)
NUMEL = 2 * 6 * 5 * 5
C = (6,)


def test_batch_norm_in_use_only_applies_stored_statistics(cost: Any) -> None:
    assert cost("norm", [X, C, C, C, C], [X], fn="batch") == Cost(
        flops=NUMEL * (CENTRE + SCALE + WEIGHT + BIAS), bytes_read=4 * (NUMEL + 4 * 6), bytes_written=4 * NUMEL
    )


def test_batch_norm_in_training_computes_its_statistics(cost: Any) -> None:
    in_use = cost("norm", [X, C, C, C, C], [X], fn="batch")
    training = cost("norm", [X, C, C, C, C], [X], fn="batch", training=True)
    assert training.flops - in_use.flops == NUMEL * (MEAN + VARIANCE)


def test_running_statistics_are_not_taken_for_weight_and_bias(cost: Any) -> None:
    assert cost("norm", [X, C, C], [X], fn="batch", affine=0).flops == NUMEL * (CENTRE + SCALE)


@pytest.mark.parametrize("fn", ["layer", "group", "instance"])
def test_norms_over_one_sample_always_compute_their_statistics(cost: Any, fn: str) -> None:
    bare = NUMEL * (MEAN + VARIANCE + CENTRE + SCALE)
    assert cost("norm", [X], [X], fn=fn).flops == bare
    assert cost("norm", [X, C], [X], fn=fn).flops == bare + NUMEL * WEIGHT
    assert cost("norm", [X, C, C], [X], fn=fn).flops == bare + NUMEL * (WEIGHT + BIAS)


def test_rms_norm_has_no_mean(cost: Any) -> None:
    square, add = 1, 1
    assert cost("norm", [X, (5,)], [X], fn="rms").flops == NUMEL * (square + add + SCALE + WEIGHT)


def test_weight_norm_squares_adds_and_scales(cost: Any) -> None:
    v, g = (8, 4), (8, 1)
    assert cost("norm", [v, g], [v, g], fn="weight").flops == 8 * 4 * 3


def test_local_response_norm_adds_its_window(cost: Any) -> None:
    window = 3
    square, multiply, add, power, divide = 1, 1, 1, 1, 1
    per_element = square + window + multiply + add + power + divide
    assert cost("norm", [X], [X], fn="local_response", window=window).flops == NUMEL * per_element


@pytest.mark.parametrize("fn", ["batch", "layer", "group", "instance", "rms", "weight", "lp", "local_response"])
def test_every_norm_has_a_gradient_that_costs_more_than_its_use(cost: Any, fn: str) -> None:
    forward = cost("norm", [X, C, C], [X], fn=fn, affine=2)
    backward = cost("norm", [X, X, C], [X, C, C], fn=fn, affine=2, grad=True)
    assert backward.flops > forward.flops > 0
    assert backward.macs == 0


X_HAT = CENTRE + SCALE
CENTRED = X_HAT + 1 + 2 + 5  # Σ g; Σ g x̂: multiply, add; (g w - mean - x̂ mean) × rstd
GRADIENTS = {
    # and, where there are weight and bias: multiply and add for the one, add for the other
    "batch": (CENTRED, 0),  # whose sums are theirs
    **dict.fromkeys(("layer", "group", "instance"), (CENTRED, 2 + 1)),
    "rms": (SCALE + 3 + 3, 2),  # x̂; Σ g w x̂: two products, add; (g w - x̂ mean) × rstd; no bias
    **dict.fromkeys(("weight", "lp"), (2 + 1 + 2, 0)),  # Σ g v: multiply, add; subtract, two products
}


@pytest.mark.parametrize("fn", GRADIENTS)
def test_the_gradient_of_a_norm_costs_its_steps(cost: Any, fn: str) -> None:
    own, of_weight_and_bias = GRADIENTS[fn]
    options = {"fn": fn, "grad": True, "training": True}
    assert cost("norm", [X, X], [X], **options).flops == NUMEL * own
    assert cost("norm", [X, X, C], [X, C, C], **options).flops == NUMEL * (own + of_weight_and_bias)


def test_a_norm_by_powers_raises_adds_and_divides(cost: Any) -> None:
    power, add, divide = 1, 1, 1
    assert cost("norm", [X], [X], fn="lp").flops == NUMEL * (power + add + divide)


def test_the_gradient_of_a_local_response_norm_repeats_it_and_has_as_much_of_its_own(cost: Any) -> None:
    usual_window = 5
    forward = cost("norm", [X], [X], fn="local_response", window=usual_window).flops
    assert cost("norm", [X], [X], fn="local_response").flops == forward
    assert cost("norm", [X, X], [X], fn="local_response", grad=True).flops == 2 * forward


def test_the_gradient_with_stored_statistics_has_no_term_for_them(cost: Any) -> None:
    x_hat, sum_g, sum_g_x, product = 2, 1, 2, 1
    fixed = cost("norm", [X, X, C], [X, C, C], fn="batch", grad=True)
    assert fixed.flops == NUMEL * (x_hat + sum_g + sum_g_x + product)
    assert cost("norm", [X, X, C], [X, C, C], fn="batch", grad=True, training=True).flops > fixed.flops


def test_softmax_is_five_operations_per_element(cost: Any) -> None:
    maximum, subtract, exp, add, divide = 1, 1, 1, 1, 1
    per_element = maximum + subtract + exp + add + divide
    assert cost("softmax", [X], [X]) == Cost(flops=NUMEL * per_element, bytes_read=4 * NUMEL, bytes_written=4 * NUMEL)
    assert cost("softmax", [X], [X], fn="log_softmax").flops == NUMEL * per_element


def test_the_gradient_of_softmax_is_four_operations_per_element(cost: Any) -> None:
    multiply, add, subtract, multiply_again = 1, 1, 1, 1
    result = cost("softmax", [X, X], [X], grad=True)
    assert result.flops == NUMEL * (multiply + add + subtract + multiply_again)
