"""A loss costs the steps of its formula for each element, and so does its gradient."""

from __future__ import annotations

from typing import Any

import pytest

from opcost.core.graph import TensorSpec

N, C = 4, 6

STEPS = {
    # the elements before they are added up; the slope times the incoming gradient
    "mse": ("sub square", "sub mul mul"),
    "l1": ("sub abs", "sub sign mul"),
    "smooth_l1": ("sub abs compare square mul select", "sub compare mul select mul"),
    "huber": ("sub abs compare square mul select", "sub compare mul select mul"),
    "bce": ("log log sub sub mul mul add neg", "sub sub mul div mul"),  # (x - t) / (x (1 - x)) g
    "bce_with_logits": ("min abs neg exp log1p sub mul sub", "neg exp add div sub mul"),  # logsigmoid; sigmoid
    "kl_div": ("log sub mul", "neg mul"),
    "soft_margin": ("mul neg exp log1p", "mul exp add div mul mul"),
    "multi_margin": ("sub add max", "compare select mul"),
    "hinge": ("sub add max", "compare select mul"),
    "poisson_nll": ("exp mul sub", "exp sub mul"),
    "cross_entropy": ("compare sub exp add sub", "compare sub exp add div sub mul"),  # log_softmax; softmax
}


@pytest.mark.parametrize("fn", STEPS)
def test_a_loss_costs_its_steps_and_one_addition_where_it_is_reduced(cost: Any, fn: str) -> None:
    forward = len(STEPS[fn][0].split())
    assert cost("loss", [(N, C), (N, C)], [(N, C)], fn=fn).flops == N * C * forward
    assert cost("loss", [(N, C), (N, C)], [()], fn=fn).flops == N * C * (forward + 1)


@pytest.mark.parametrize("fn", STEPS)
def test_the_gradient_of_a_loss_costs_the_steps_of_its_slope(cost: Any, fn: str) -> None:
    backward = len(STEPS[fn][1].split())
    assert cost("loss", [(), (N, C), (N, C)], [(N, C)], fn=fn, grad=True).flops == N * C * backward


@pytest.mark.parametrize("batch", [(), (N,)])
def test_the_margins_of_many_labels_are_those_of_all_pairs_of_classes(cost: Any, batch: tuple[int, ...]) -> None:
    x, target = (*batch, C), TensorSpec((*batch, C), "int64")
    pairs = C * C * (N if batch else 1)
    forward, backward = (len(steps.split()) for steps in STEPS["multi_margin"])
    assert cost("loss", [x, target], [()], fn="multilabel_margin").flops == pairs * (forward + 1)
    assert cost("loss", [(), x, target], [x], fn="multilabel_margin", grad=True).flops == pairs * backward


def test_the_loss_of_one_number_has_one_pair(cost: Any) -> None:
    forward = len(STEPS["multi_margin"][0].split())
    assert cost("loss", [(), TensorSpec((), "int64")], [()], fn="multilabel_margin").flops == forward


@pytest.mark.parametrize("batch", [(), (3,)])
def test_the_paths_of_ctc_run_through_the_labels_and_the_blanks_around_them(cost: Any, batch: tuple[int, ...]) -> None:
    time, labels, classes = 7, 5, 11
    x, target = (time, *batch, classes), TensorSpec((*batch, labels), "int64")
    states = (2 * labels + 1) * (3 if batch else 1)
    log_sum_exp_of_three = len("max max sub sub sub exp exp exp add add log".split())
    step = log_sum_exp_of_three + len(["add"])  # the input of the state
    assert cost("loss", [x, target], [batch], fn="ctc").flops == time * states * (step + 1)
    from_the_end, joined = step, step
    backward = cost("loss", [(), x, target], [x], fn="ctc", grad=True).flops
    assert backward == time * states * (from_the_end + joined)


def test_a_class_alone_is_looked_up(cost: Any) -> None:
    target = TensorSpec((N,), "int64")
    negate, weigh = 1, 1
    assert cost("loss", [(N, C), target], [(N,)], fn="nll").flops == N * (negate + weigh)
    assert cost("loss", [(), (N, C), target], [(N, C)], fn="nll", grad=True).flops == N * weigh
