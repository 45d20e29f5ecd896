"""`get_model_profile`: the count, one timed run, what is printed and returned."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from opcost.compat._layers.duration import seconds_by_module
from opcost.compat.deepspeed.convention import arguments, count
from opcost.compat.deepspeed.numbers import macs_to_string, number_to_string, params_to_string
from opcost.compat.deepspeed.text import Profile
from opcost.core.writing import write_text


def get_model_profile(
    model: nn.Module,
    input_shape: tuple[int, ...] | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    print_profile: bool = True,
    detailed: bool = True,
    module_depth: int = -1,
    top_modules: int = 1,
    warm_up: int = 1,
    as_string: bool = True,
    output_file: str | None = None,
    ignore_modules: Collection[type] | None = None,
    mode: str = "forward",
) -> tuple[Any, Any, Any]:
    """Flops, multiply-accumulates and parameters of a forward pass in evaluation mode, as text or as numbers.

    With `mode="generate"`, of a call of the model's `generate`.

    The printed profile has the latency of every module in one real run after `warm_up` others; a model without data has none.
    """
    given, named = arguments(model, input_shape, args, kwargs or {}, mode)
    costs = count(model, given, named, ignore_modules or (), mode)
    params = sum(p.numel() for p in model.parameters())
    total = costs.of("")
    if print_profile:
        seconds = seconds_by_module(
            model, given, named, warm_up=warm_up, called=model.generate if mode == "generate" else None
        )
        profile = Profile(model, costs, params, seconds)
        text = profile.text(warm_up, module_depth, top_modules, detailed=detailed)
        if output_file:
            Path(output_file).resolve().parent.mkdir(parents=True, exist_ok=True)
            write_text(Path(output_file), text)
        else:
            sys.stdout.write(text)
    if as_string:
        return number_to_string(total.flops), macs_to_string(total.macs), params_to_string(params)
    return total.flops, total.macs, params
