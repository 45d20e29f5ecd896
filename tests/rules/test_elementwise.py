from __future__ import annotations

from typing import Any

import pytest

from opcost.core.graph import Cost, TensorSpec
from opcost.rules.elementwise import COMPLEX_FLOPS_PER_ELEMENT, COMPLEX_TO_REAL, FLOPS_PER_ELEMENT

# Each composite function written out in elementary ones, or in composite ones that stand above it.
PARTS = {
    "sigmoid": "neg exp add div",
    "tanh": "mul exp sub add div",
    "silu": "sigmoid mul",
    "glu": "sigmoid mul",
    "gelu": "mul erf add mul mul",
    "gelu_tanh": "mul mul mul add mul tanh add mul mul",
    "quick_gelu": "mul sigmoid mul",
    "swiglu": "silu mul",
    "geglu": "gelu mul",
    "geglu_tanh": "gelu_tanh mul",
    "rotary": "mul mul add",
    "softplus": "mul exp log1p div compare",
    "mish": "exp log1p tanh mul",
    "logsigmoid": "min abs neg exp log1p sub",
    "softsign": "abs add div",
    "relu": "max",
    "relu6": "max min",
    "hardtanh": "max min",
    "clamp": "max min",
    "hardsigmoid": "add max min div",
    "hardswish": "hardsigmoid mul",
    "leaky_relu": "compare mul where",
    "elu": "compare expm1 mul where",
    "selu": "elu mul",
    "celu": "div elu",
    "tanhshrink": "tanh sub",
    "lerp": "sub mul add",
    "addcmul": "mul mul add",
    "addcdiv": "div mul add",
    "fma": "mul add",
    "remainder": "div floor mul sub",
    "floor_divide": "div floor",
    "frac": "trunc sub",
    "hypot": "square square add sqrt",
    "fake_quantize": "div add round clamp sub mul",
    "relu_grad": "compare where",
    "sigmoid_grad": "mul sub mul",
    "tanh_grad": "square sub mul",
    "silu_grad": "sigmoid sub mul add mul mul",
    "gelu_grad": "mul erf add mul square mul exp mul mul add mul",
    "mish_grad": "exp log1p tanh sigmoid square sub mul mul add mul",
    "logsigmoid_grad": "sigmoid mul",
    "lstm_cell": "add add add add sigmoid sigmoid sigmoid tanh mul mul add tanh mul",
    "gru_cell": "add add sigmoid sigmoid mul add tanh sub mul mul add",
    "lstm_cell_grad": "tanh mul mul mul mul mul mul add sigmoid_grad sigmoid_grad sigmoid_grad tanh_grad tanh_grad",
    "gru_cell_grad": "mul mul mul mul mul sub sub sigmoid_grad sigmoid_grad tanh_grad",
    "adamw_step": "adam_step mul sub",
}


@pytest.mark.parametrize("fn", PARTS)
def test_a_composite_function_costs_the_sum_of_its_parts(fn: str) -> None:
    assert FLOPS_PER_ELEMENT[fn] == sum(FLOPS_PER_ELEMENT[part] for part in PARTS[fn].split())


@pytest.mark.parametrize("fn", ["add", "mul", "div", "exp", "sqrt", "compare", "where", "max", "logical", "bitwise"])
def test_an_elementary_operation_is_one_flop_per_element(cost: Any, fn: str) -> None:
    n, m = 3, 5
    assert cost("elementwise", [(n, m), (n, m)], [(n, m)], fn=fn) == Cost(
        flops=n * m, bytes_read=4 * 2 * n * m, bytes_written=4 * n * m
    )


def test_every_constant_is_a_positive_whole_number() -> None:
    for table in (FLOPS_PER_ELEMENT, COMPLEX_FLOPS_PER_ELEMENT, COMPLEX_TO_REAL):
        assert all(isinstance(flops, int) and flops >= 1 for flops in table.values())


def test_the_complex_tables_name_only_known_functions() -> None:
    assert {*COMPLEX_FLOPS_PER_ELEMENT, *COMPLEX_TO_REAL} <= set(FLOPS_PER_ELEMENT)


def test_broadcast_operands_cost_one_operation_per_output(cost: Any) -> None:
    assert cost("elementwise", [(4, 1, 3), (5, 3)], [(4, 5, 3)], fn="add").flops == 4 * 5 * 3


def test_several_outputs_each_cost_theirs(cost: Any) -> None:
    assert cost("elementwise", [(4,), (6,)], [(4,), (6,)], fn="mul").flops == 4 + 6


def test_the_front_end_may_say_how_many_elements_are_computed(cost: Any) -> None:
    batch, hidden = 2, 5
    result = cost(
        "elementwise",
        [(batch, 4 * hidden)],
        [(batch, hidden), (batch, hidden)],
        fn="lstm_cell",
        elements=batch * hidden,
    )
    assert result.flops == FLOPS_PER_ELEMENT["lstm_cell"] * batch * hidden


def test_complex_arithmetic_is_counted_in_real_operations(cost: Any) -> None:
    n = 7
    z, r = TensorSpec((n,), "complex64"), TensorSpec((n,))
    assert cost("elementwise", [z, z], [z], fn="add").flops == 2 * n
    assert cost("elementwise", [z, z], [z], fn="mul").flops == (4 + 2) * n
    assert cost("elementwise", [z], [r], fn="abs").flops == FLOPS_PER_ELEMENT["hypot"] * n
    assert cost("elementwise", [z], [z], fn="exp").flops == 2 * n


def test_quantizing_divides_shifts_rounds_and_clamps(cost: Any) -> None:
    n = 12
    real, small = TensorSpec((n,)), TensorSpec((n,), "int8")
    divide, add, round_, clamp = 1, 1, 1, 2
    subtract, multiply = 1, 1
    assert cost("quantize", [real], [small]) == Cost(
        flops=n * (divide + add + round_ + clamp), bytes_read=4 * n, bytes_written=n
    )
    assert cost("quantize", [small], [real]) == Cost(flops=n * (subtract + multiply), bytes_read=n, bytes_written=4 * n)
    assert (
        cost("quantize", [real], [TensorSpec((n,), "float8_e4m3fn")]).flops == cost("quantize", [real], [small]).flops
    )


def test_a_drawn_value_is_one_operation(cost: Any) -> None:
    assert cost("random", [], [(3, 5)]) == Cost(flops=3 * 5, bytes_written=4 * 3 * 5)


def test_dropout_draws_compares_masks_and_scales(cost: Any) -> None:
    n = 15
    mask = TensorSpec((n,), "bool")
    assert cost("random", [(n,)], [(n,), mask], fn="dropout") == Cost(
        flops=4 * n, bytes_read=4 * n, bytes_written=4 * n + n
    )


def test_drawing_in_place_does_not_read_the_destination(cost: Any) -> None:
    n = 15
    assert cost("random", [(n,)], [(n,)], overwrites=True).bytes_read == 0
    assert cost("random", [(n,), (n,)], [(n,)], overwrites=True).bytes_read == 4 * n


def test_a_whole_number_as_wide_as_its_real_one_is_on_the_way_back(cost: Any) -> None:
    subtract, multiply = 1, 1
    assert cost("quantize", [TensorSpec((3, 5), "int32")], [(3, 5)]).flops == 3 * 5 * (subtract + multiply)
