"""Fused updates over lists of parameters. `_foreach_` operators are translated as the operator they repeat."""

from __future__ import annotations

from functools import partial

from opcost.frontends.aten.call import Call, Translation, on

_STATE = {
    "_fused_adam": ("self", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"),
    "_fused_adamw": ("self", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"),
    "_fused_sgd": ("self", "momentum_buffer_list"),
    "_fused_adagrad": ("self", "state_sums"),
}
"""What each step writes: the parameters and its own state."""


def _step(call: Call, fn: str) -> Translation:
    elements = sum(parameter.numel() for parameter in call["self"])
    outs = call.tensors(*_STATE[call.base]) if call.in_place else None
    return Translation("elementwise", {"fn": fn, "elements": elements}, outs=outs)


@on("_fused_sgd")
def _sgd(call: Call) -> Translation:
    return _step(call, "momentum_step" if call["momentum"] else "sgd_step")


for _step_name in ("adam", "adamw", "adagrad"):
    on(f"_fused_{_step_name}")(partial(_step, fn=f"{_step_name}_step"))


@on("_amp_foreach_non_finite_check_and_unscale")
def _unscale(call: Call) -> Translation:
    """Each gradient is checked and scaled."""
    elements = sum(gradient.numel() for gradient in call["self"])
    return Translation("elementwise", {"fn": "fma", "elements": elements})
