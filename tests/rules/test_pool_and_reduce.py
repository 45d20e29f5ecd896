from __future__ import annotations

from typing import Any

import pytest

from opcost.core.graph import Cost, TensorSpec
from opcost.rules.elementwise import REDUCTIONS

X, Y = (2, 3, 8, 8), (2, 3, 4, 4)
OUT = 2 * 3 * 4 * 4
WINDOW = 3 * 3


@pytest.mark.parametrize(
    ("fn", "per_output"),
    [
        ("max", WINDOW),
        ("avg", (WINDOW - 1) + 1),  # additions and one division
        ("adaptive_max", WINDOW),
        ("adaptive_avg", WINDOW),
        ("lp", 2 * WINDOW + 1),  # power and addition, one root
        ("unpool", 0),
    ],
)
def test_pooling_looks_at_every_element_of_the_window(cost: Any, fn: str, per_output: int) -> None:
    result = cost("pool", [X], [Y], fn=fn, window=WINDOW)
    assert (result.macs, result.flops) == (0, OUT * per_output)


def test_max_pooling_that_keeps_indices_writes_them(cost: Any) -> None:
    indices = TensorSpec(Y, "int64")
    assert cost("pool", [X], [Y, indices], fn="max", window=WINDOW) == Cost(
        flops=OUT * WINDOW, bytes_read=4 * 2 * 3 * 8 * 8, bytes_written=(4 + 8) * OUT
    )


GRADIENTS = [
    ("max", 1), ("adaptive_max", 1),  # added at the stored place
    ("avg", 1 + WINDOW), ("adaptive_avg", 1 + WINDOW),  # divided once, added at every place
    ("lp", 3 * WINDOW + 1),  # power, multiply, add; multiply
    ("unpool", 0),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "per_gradient"), GRADIENTS)
def test_the_gradient_of_pooling_spreads_each_output(cost: Any, fn: str, per_gradient: int) -> None:
    assert cost("pool", [Y, X], [X], fn=fn, window=WINDOW, grad=True).flops == OUT * per_gradient


@pytest.mark.parametrize("fn", ["sum", "prod", "max", "argmin", "any", "all"])
def test_a_reduction_is_one_operation_per_input(cost: Any, fn: str) -> None:
    n, m = 6, 10
    assert cost("reduce", [(n, m)], [(n,)], fn=fn) == Cost(flops=n * m, bytes_read=4 * n * m, bytes_written=4 * n)


@pytest.mark.parametrize("fn", ["cumsum", "cumprod", "cummax"])
def test_a_running_reduction_touches_every_element_once(cost: Any, fn: str) -> None:
    assert cost("reduce", [(16, 1000)], [(16, 1000)], fn=fn).flops == 16 * 1000


def test_a_mean_divides_once_per_output(cost: Any) -> None:
    n, m = 6, 10
    assert cost("reduce", [(n, m)], [(n,)], fn="mean").flops == n * m + n


def test_variance_deviation_norm_and_logsumexp_are_made_of_their_steps(cost: Any) -> None:
    n, m = 6, 10

    def flops(fn: str) -> int:
        return cost("reduce", [(n, m)], [(n,)], fn=fn).flops

    mean = flops("mean")
    subtract, square, add, divide, root = n * m, n * m, n * m, n, n
    assert flops("var") == mean + subtract + square + add + divide
    assert flops("std") == flops("var") + root
    assert flops("norm") == square + add + root
    maximum, exp, log, add_maximum = n * m, n * m, n, n
    assert flops("logsumexp") == maximum + subtract + exp + add + log + add_maximum


STEPS = {
    # for each input, and for each output after that
    **dict.fromkeys(("sum", "prod", "trace", "max", "min", "argmax", "argmin", "any", "all", "hash"), ("combine", "")),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), ("combine", "")),
    "mean": ("add", "divide"),
    "minmax": ("compare compare", ""),
    "nansum": ("check add", ""),
    "nanmean": ("check add", "divide"),
    "count_nonzero": ("compare add", ""),
    "equal": ("compare combine", ""),
    "norm": ("power add", "root"),
    "dot": ("multiply add", ""),
    "dist": ("subtract power add", "root"),
    **dict.fromkeys(("var", "var_mean"), ("add subtract square add", "divide divide")),
    **dict.fromkeys(("std", "std_mean"), ("add subtract square add", "divide divide root")),
    **dict.fromkeys(("logsumexp", "logcumsumexp"), ("compare subtract exp add", "log add")),
    "histogram": ("subtract divide add", ""),
}


@pytest.mark.parametrize("fn", REDUCTIONS)
def test_every_reduction_costs_its_steps(cost: Any, fn: str) -> None:
    n, m = 6, 10
    per_input, per_output = (len(steps.split()) for steps in STEPS[fn])
    assert cost("reduce", [(n, m)], [(n,)], fn=fn).flops == n * m * per_input + n * per_output


def test_complex_sums_add_both_parts(cost: Any) -> None:
    z, y = TensorSpec((6, 10), "complex64"), TensorSpec((6,), "complex64")
    assert cost("reduce", [z], [y], fn="sum").flops == 2 * 6 * 10
    assert cost("reduce", [z], [y], fn="mean").flops == 2 * 6 * 10 + 2 * 6


def test_a_list_operator_reduces_every_input(cost: Any) -> None:
    square, add, root = 1, 1, 1
    result = cost("reduce", [(3,), (5,)], [(), ()], fn="norm", each=True)
    assert result.flops == (3 + 5) * (square + add) + 2 * root


def test_an_answer_that_is_no_tensor_costs_its_inputs_only(cost: Any) -> None:
    compare, combine = 1, 1
    assert cost("reduce", [(7,), (7,)], [], fn="equal").flops == 7 * (compare + combine)
