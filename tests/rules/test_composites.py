"""The cost of a composite function is the number of its steps; a step that is composite itself brings its own."""

from __future__ import annotations

from typing import Any

import pytest

from opcost.core.graph import TensorSpec
from opcost.core.kinds import ELEMENTARY

STEPS = {
    "fma": "mul add",
    "mul_mul_add": "mul mul add",
    "mul_high": "mul shift",
    "clamp": "max min",
    "round_shift_clamp": "round shift clamp",
    "add_mul_round_shift_clamp": "add mul shift round_shift_clamp",
    "colour": "mul mul mul add add",
    "frac": "trunc sub",
    "ldexp": "exp2 mul",
    "floor_divide": "div floor",
    "remainder": "div floor mul sub",
    "lerp": "sub mul add",
    "addcmul": "mul mul add",
    "addcdiv": "div mul add",
    "hypot": "square square add sqrt",
    "sinh": "exp reciprocal sub div",
    "cosh": "exp reciprocal add div",
    "asinh": "square add sqrt add log",
    "acosh": "square sub sqrt add log",
    "atanh": "add sub div log div",
    "sinc": "mul sin div",
    "xlogy": "log mul",
    "entropy": "log mul neg",
    "logit": "sub div log",
    "logaddexp": "max sub abs exp log1p add",
    "heaviside": "compare where",
    "nan_to_num": "nan_check nan_check nan_check where where where",
    "polar": "cos sin mul mul",
    "cross": "mul mul sub",
    "relu": "max",
    "relu6": "max min",
    "add_relu": "add relu",
    "sigmoid": "neg exp add div",
    "tanh": "mul exp sub add div",
    "hardswish": "add max min div mul",
    "add_sigmoid": "add sigmoid",
    "add_tanh": "add tanh",
    "add_hardswish": "add hardswish",
    "threshold": "compare where",
    "leaky_relu": "compare mul where",
    "prelu": "compare mul where",
    "rrelu": "compare mul where",
    "hardshrink": "abs compare where",
    "softshrink": "abs sub max copysign",
    "smooth_l1": "abs compare square mul where",
    "dropout": "mul mul",
    "abs_grad": "sign mul",
    "asinh_grad": "square add sqrt div",
    "atanh_grad": "square sub div",
    "relu_grad": "compare where",
    "threshold_grad": "compare where",
    "hardtanh_grad": "compare compare where",
    "hardshrink_grad": "abs compare where",
    "softshrink_grad": "abs compare where",
    "leaky_relu_grad": "compare mul where",
    "rrelu_grad": "compare mul where",
    "prelu_grad": "compare mul where",
    "elu_grad": "compare add mul where",
    "logit_grad": "sub mul div",
    "softplus_grad": "mul exp add div mul compare",
    "hardsigmoid_grad": "compare compare mul where",
    "hardswish_grad": "compare compare mul add mul where",
    "dropout_grad": "mul mul",
    "fake_quantize_grad": "compare compare where",
    "sgd_step": "mul sub",
    "momentum_step": "mul add mul sub",
    "adagrad_step": "square add sqrt add div fused",
    "rmsprop_step": "square mul mul add sqrt add div mul sub",
    "lion_step": "mul mul add sign mul sub mul mul add",
    "adam_step": "mul mul add square mul mul add div div sqrt add div mul sub",
    "adamw_step": "adam_step mul sub",
    # with u = c (x + a x³): t = tanh u, 1 - t², u' = c (1 + 3a x²); (1 + t) / 2 + x / 2 × (1 - t²) × u', times g
    "gelu_tanh_grad": "square mul mul add mul tanh square sub mul add mul add mul mul mul mul add mul",
}


def steps(fn: str) -> int:
    return 1 if fn in ELEMENTARY or fn == "fused" else sum(map(steps, STEPS[fn].split()))


@pytest.mark.parametrize("fn", STEPS)
def test_a_composite_function_costs_its_steps(cost: Any, fn: str) -> None:
    assert cost("elementwise", [(3, 5)], [(3, 5)], fn=fn).flops == 3 * 5 * steps(fn)


def test_the_gradient_of_a_gated_unit_is_that_of_both_halves(cost: Any) -> None:
    first, second = "mul", "mul mul sub mul"  # g s, and g a s (1 - s)
    pair = steps("sigmoid") + len(f"{first} {second}".split())
    assert cost("elementwise", [(3, 5)], [(3, 10)], fn="glu_grad").flops == 3 * 10 * -(-pair // 2)


def test_mantissa_and_exponent_are_one_operation_each(cost: Any) -> None:
    outs = [(3, 5), TensorSpec((3, 5), "int32")]
    assert cost("elementwise", [(3, 5)], outs, fn="frexp").flops == 2 * 3 * 5


@pytest.mark.parametrize(
    ("fn", "products", "sums", "others"),
    [("mul", 4, 2, 0), ("square", 3, 2, 0), ("div", 6, 3, 2), ("reciprocal", 2, 1, 3), ("fma", 4, 4, 0),
     ("addcmul", 8, 6, 0), ("lerp", 4, 6, 0), ("conj", 0, 0, 1), ("where", 0, 0, 1), ("masked_fill", 0, 0, 1),
     ("compare", 0, 0, 2)],
)  # fmt: skip
def test_a_complex_function_costs_its_real_operations(
    cost: Any, fn: str, products: int, sums: int, others: int
) -> None:
    z = TensorSpec((7,), "complex64")
    assert cost("elementwise", [z, z], [z], fn=fn).flops == 7 * (products + sums + others)


@pytest.mark.parametrize("fn", ["sigmoid", "exp"])
def test_any_other_complex_function_does_its_steps_for_both_parts(cost: Any, fn: str) -> None:
    z = TensorSpec((7,), "complex64")
    assert cost("elementwise", [z], [z], fn=fn).flops == 7 * 2 * steps(fn)


@pytest.mark.parametrize(("fn", "of_complex"), [("abs", "square square add sqrt"), ("angle", "atan2"), ("compare", "")])
def test_a_real_number_made_of_a_complex_one_costs_its_steps(cost: Any, fn: str, of_complex: str) -> None:
    z = TensorSpec((7,), "complex64")
    plain = 1
    assert cost("elementwise", [z], [(7,)], fn=fn).flops == 7 * (len(of_complex.split()) or plain)
    assert cost("elementwise", [(7,)], [(7,)], fn=fn).flops == 7 * plain


@pytest.mark.parametrize("products", [4, 5])
def test_the_gradient_of_attention_has_flops_for_scores_and_for_delta(cost: Any, products: int) -> None:
    heads, length, source, e, ev = 2, 3, 5, 7, 11
    q, k, v, y = (heads, length, e), (heads, source, e), (heads, source, ev), (heads, length, ev)
    found = cost("attention", [y, q, k, v, y], [q, k, v], grad=True, products=products)  # the last is the output
    subtract_multiply_scale, scale_subtract_exp, multiply_add = 3, 3, 2
    again = products == 5
    macs = heads * length * source * ((2 + again) * e + 2 * ev)
    per_score = subtract_multiply_scale + again * scale_subtract_exp
    assert (found.macs, found.flops - 2 * macs) == (
        macs,
        heads * length * source * per_score + heads * length * ev * multiply_add,
    )
