"""`calculate_flops`: DeepSpeed's convention, printed without latencies and with an estimate of the backward pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import torch
from torch import nn

from opcost.compat._layers.annotated import repr_with
from opcost.compat.accelerate.estimate import built
from opcost.compat.deepspeed.convention import Cost, Costs, arguments, count
from opcost.compat.deepspeed.numbers import flops_to_string, macs_to_string, params_to_string, share

_HEAD = """
------------------------------------- Calculate Flops Results -------------------------------------
Notations:
number of parameters (Params), number of multiply-accumulate operations(MACs),
number of floating-point operations (FLOPs), floating-point operations per second (FLOPS),
fwd FLOPs (model forward propagation FLOPs), bwd FLOPs (model backward propagation FLOPs),
default model backpropagation takes {factor:.2f} times as much computation as forward propagation.
"""
_DETAILED = """
-------------------------------- Detailed Calculated FLOPs Results --------------------------------
Each module caculated is listed after its name in the following order:\x20
params, percentage of total params, MACs, percentage of total MACs, FLOPS, percentage of total FLOPs

Note: 1. A module can have torch.nn.module or torch.nn.functional to compute logits (e.g. CrossEntropyLoss).\x20
 They are not counted as submodules in calflops and not to be printed out. However they make up the difference between a \
parent's MACs and the sum of its submodules'.
2. Number of floating-point operations is a theoretical estimation, thus FLOPS computed using that could be larger than the \
maximum system throughput.
"""
_END = "---------------------------------------------------------------------------------------------------"
_TOKENS = (1, 128)
"""Batch and length of what a tokenizer is asked for where no shape is given."""


def calculate_flops(
    model: nn.Module,
    input_shape: tuple[int, ...] | None = None,
    transformer_tokenizer: Any = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    forward_mode: str = "forward",
    include_backPropagation: bool = False,
    compute_bp_factor: float = 2.0,
    print_results: bool = True,
    print_detailed: bool = True,
    output_as_string: bool = True,
    output_precision: int = 2,
    output_unit: str | None = None,
    ignore_modules: Collection[type] | None = None,
) -> tuple[Any, Any, Any]:
    """Flops, multiply-accumulates and trainable parameters of a forward pass in evaluation mode, as text or as numbers.

    With a tokenizer, `input_shape` is (batch, tokens). `include_backPropagation` multiplies what is returned by one more than
    `compute_bp_factor`; for a count of the backward pass itself there is `opcost.count(backward=True)`.
    `forward_mode="generate"` counts a call of the model's `generate`.
    """
    if transformer_tokenizer is not None and not args and not kwargs:
        kwargs, input_shape = _tokens(transformer_tokenizer, input_shape), None
    given, named = arguments(model, input_shape, args, kwargs or {}, forward_mode)
    costs = count(model, given, named, ignore_modules or (), forward_mode)
    params = _trainable(model)
    if print_results:
        print(_text(model, costs, params, compute_bp_factor, output_unit, output_precision, detailed=print_detailed))
    factor = 1 + compute_bp_factor if include_backPropagation else 1
    flops, macs = costs.of("").flops * factor, costs.of("").macs * factor
    if not output_as_string:
        return flops, macs, params
    return (
        flops_to_string(flops, output_unit, output_precision),
        macs_to_string(macs, output_unit, output_precision),
        params_to_string(params, output_unit, output_precision),
    )


def calculate_flops_hf(
    model_name: str,
    empty_model: nn.Module | None = None,
    input_shape: tuple[int, ...] | None = None,
    trust_remote_code: bool = True,
    access_token: str = "",
    forward_mode: str = "forward",
    include_backPropagation: bool = False,
    compute_bp_factor: float = 2.0,
    print_results: bool = True,
    print_detailed: bool = True,
    output_as_string: bool = True,
    output_precision: int = 2,
    output_unit: str | None = None,
    ignore_modules: Collection[type] | None = None,
    return_results: bool = False,
) -> tuple[Any, ...]:
    """`calculate_flops` of a transformers model without weights, by the folder of its configuration or `hf:config.json`.

    Nothing is fetched and no tokenizer is needed: `input_shape` is (batch, tokens). With `return_results` the text comes too.
    """
    named = model_name if ":" in model_name else f"hf:{model_name}"
    model = built(named) if empty_model is None else empty_model
    tokens = torch.ones(input_shape or _TOKENS, dtype=torch.int64)
    printed = StringIO()
    with redirect_stdout(printed):
        results = calculate_flops(
            model,
            kwargs={"input_ids": tokens, "attention_mask": tokens},
            forward_mode=forward_mode,
            include_backPropagation=include_backPropagation,
            compute_bp_factor=compute_bp_factor,
            print_results=print_results or return_results,
            print_detailed=print_detailed,
            output_as_string=output_as_string,
            output_precision=output_precision,
            output_unit=output_unit,
            ignore_modules=ignore_modules,
        )
    if print_results:
        print(printed.getvalue(), end="")
    return (*results, printed.getvalue()) if return_results else results


def _tokens(tokenizer: Any, shape: tuple[int, ...] | None) -> dict[str, Any]:
    """What a tokenizer makes of empty texts, padded to the length that was asked for."""
    batch, length = shape or _TOKENS
    return dict(tokenizer([""] * batch, padding="max_length", max_length=length, return_tensors="pt"))


def _text(
    model: nn.Module, costs: Costs, params: int, factor: float, unit: str | None, precision: int, *, detailed: bool
) -> str:
    total = costs.of("")
    both = 1 + factor
    lines = [
        _HEAD.format(factor=factor),
        _line("Total Training Params: ", params_to_string(params)),
        _line("fwd MACs: ", macs_to_string(total.macs, unit, precision)),
        _line("fwd FLOPs: ", flops_to_string(total.flops, unit, precision)),
        _line("fwd+bwd MACs: ", macs_to_string(total.macs * both, unit, precision)),
        _line("fwd+bwd FLOPs: ", flops_to_string(total.flops * both, unit, precision)),
    ]
    if detailed:
        lines += [_DETAILED, repr_with(model, lambda name, own: _words(costs, name, own, params, total, precision))]
    return "\n".join([*lines, _END])


def _words(costs: Costs, name: str, own: str, params: int, total: Cost, precision: int) -> str:
    cost, held = costs.of(name), _trainable(costs.names.modules[name])
    words = [
        f"{params_to_string(held)} = {share(held, params, precision)} Params",
        f"{macs_to_string(cost.macs)} = {share(cost.macs, total.macs, precision)} MACs",
        f"{flops_to_string(cost.flops)} = {share(cost.flops, total.flops, precision)} FLOPs",
    ]
    return ", ".join([*words, own] if own else words)


def _trainable(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def _line(title: str, value: str) -> str:
    return f"{title:<70}  {value:<8}"
