"""calflops: DeepSpeed's convention, printed without latencies and with an estimate of the backward pass.

from opcost.compat.calflops import calculate_flops
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from opcost.compat import add_submodules
from opcost.compat._modules import parameter_elements, repr_with
from opcost.compat.accelerate import built
from opcost.compat.deepspeed import (
    ModuleCosts,
    arguments,
    count,
    flops_to_string,
    macs_to_string,
    number_to_string,
    params_to_string,
    share,
    total_line,
)

__all__ = [
    "calculate_flops", "calculate_flops_hf", "flops_to_string", "macs_to_string", "number_to_string", "params_to_string",
]  # fmt: skip
add_submodules(__name__, "flops_counter")

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
"""Batch and length of the tokenizer's output where no shape is given."""


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
        batch, length = input_shape or _TOKENS
        kwargs = transformer_tokenizer([""] * batch, padding="max_length", max_length=length, return_tensors="pt")
        input_shape = None
    given, named = arguments(model, input_shape, args, kwargs or {}, forward_mode)
    costs = count(model, given, named, ignore_modules or (), forward_mode)
    found = _Calculation(model, costs, compute_bp_factor, output_unit, output_precision)
    if print_results:
        print(found.text(detailed=print_detailed))
    return found.results(backward=include_backPropagation, as_string=output_as_string)


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

    Nothing is downloaded and no tokenizer is needed: `input_shape` is (batch, tokens). With `return_results` the text is
    returned too.
    """
    named = model_name if ":" in model_name else f"hf:{model_name}"
    model = built(named) if empty_model is None else empty_model
    tokens = torch.ones(input_shape or _TOKENS, dtype=torch.int64)
    given = arguments(model, None, (), {"input_ids": tokens, "attention_mask": tokens}, forward_mode)
    costs = count(model, *given, ignore_modules or (), forward_mode)
    found = _Calculation(model, costs, compute_bp_factor, output_unit, output_precision)
    text = found.text(detailed=print_detailed) if print_results or return_results else ""
    if print_results:
        print(text)
    results = found.results(backward=include_backPropagation, as_string=output_as_string)
    return (*results, f"{text}\n") if return_results else results


@dataclass(frozen=True, slots=True)
class _Calculation:
    """The costs of a model, and how they are written."""

    model: nn.Module
    costs: ModuleCosts
    backward_factor: float
    unit: str | None
    precision: int

    def results(self, *, backward: bool, as_string: bool) -> tuple[Any, Any, Any]:
        factor = 1 + self.backward_factor if backward else 1
        total, params = self.costs.of(""), parameter_elements(self.model, trainable=True)
        flops, macs = total.flops * factor, total.macs * factor
        if not as_string:
            return flops, macs, params
        texts = ((flops_to_string, flops), (macs_to_string, macs), (params_to_string, params))
        flops_text, macs_text, params_text = (write(number, self.unit, self.precision) for write, number in texts)
        return flops_text, macs_text, params_text

    def text(self, *, detailed: bool) -> str:
        macs, flops = self.costs.of("")
        params = parameter_elements(self.model, trainable=True)
        both = 1 + self.backward_factor
        as_written = (self.unit, self.precision)
        lines = [
            _HEAD.format(factor=self.backward_factor),
            total_line("Total Training Params: ", params_to_string(params)),
            total_line("fwd MACs: ", macs_to_string(macs, *as_written)),
            total_line("fwd FLOPs: ", flops_to_string(flops, *as_written)),
            total_line("fwd+bwd MACs: ", macs_to_string(macs * both, *as_written)),
            total_line("fwd+bwd FLOPs: ", flops_to_string(flops * both, *as_written)),
        ]
        if detailed:
            lines += [_DETAILED, repr_with(self.model, lambda name, own: self._words(name, own, params))]
        return "\n".join([*lines, _END])

    def _words(self, name: str, own: str, all_params: int) -> str:
        total, cost = self.costs.of(""), self.costs.of(name)
        params = parameter_elements(self.costs.names.modules[name], trainable=True)
        words = [
            f"{params_to_string(params)} = {share(params, all_params, self.precision)} Params",
            f"{macs_to_string(cost.macs)} = {share(cost.macs, total.macs, self.precision)} MACs",
            f"{flops_to_string(cost.flops)} = {share(cost.flops, total.flops, self.precision)} FLOPs",
        ]
        return ", ".join([*words, own] if own else words)
