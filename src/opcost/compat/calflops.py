"""calflops: DeepSpeed's convention, printed without latencies and with an estimate of the backward pass.

from opcost.compat.calflops import calculate_flops
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from opcost.compat import add_submodules, deepspeed
from opcost.compat._modules import parameter_elements, repr_with
from opcost.compat.accelerate import built
from opcost.compat.deepspeed import ModuleCosts, flops_to_string, macs_to_string, number_to_string, params_to_string

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
_TOKENS = (1, 128)  # Batch and length of the tokenizer's output where no shape is given


def calculate_flops(
    model: nn.Module, input_shape: tuple[int, ...] | None = None, transformer_tokenizer: Any = None,
    args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, forward_mode: str = "forward",
    include_backPropagation: bool = False, compute_bp_factor: float = 2.0, print_results: bool = True,
    print_detailed: bool = True, output_as_string: bool = True, output_precision: int = 2,
    output_unit: str | None = None, ignore_modules: Collection[type] | None = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Flops, multiply-accumulates and trainable parameters of a forward pass in evaluation mode, as text or as numbers.

    With a tokenizer, `input_shape` is (batch, tokens). `include_backPropagation` multiplies what is returned by one more than
    `compute_bp_factor`; for a count of the backward pass itself there is `opcost.count(backward=True)`.
    `forward_mode="generate"` counts a call of the model's `generate`.
    """
    if transformer_tokenizer is not None and not args and not kwargs:
        batch, length = input_shape or _TOKENS
        kwargs = transformer_tokenizer([""] * batch, padding="max_length", max_length=length, return_tensors="pt")
        input_shape = None
    given = deepspeed.arguments(model, input_shape, args, kwargs or {}, forward_mode)
    costs = ModuleCosts.count(model, *given, ignore_modules or (), forward_mode)
    if print_results:
        print(_text(costs, compute_bp_factor, output_unit, output_precision, detailed=print_detailed))
    factor = 1 + compute_bp_factor if include_backPropagation else 1
    return _results(costs, factor, output_unit, output_precision, as_string=output_as_string)


def calculate_flops_hf(
    model_name: str, empty_model: nn.Module | None = None, input_shape: tuple[int, ...] | None = None,
    trust_remote_code: bool = True, access_token: str = "", forward_mode: str = "forward",
    include_backPropagation: bool = False, compute_bp_factor: float = 2.0, print_results: bool = True,
    print_detailed: bool = True, output_as_string: bool = True, output_precision: int = 2,
    output_unit: str | None = None, ignore_modules: Collection[type] | None = None, return_results: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """`calculate_flops` of a transformers model without weights, by the folder of its configuration or `hf:config.json`.

    Nothing is downloaded and no tokenizer is needed: `input_shape` is (batch, tokens). With `return_results` the text is
    returned too.
    """
    named = model_name if ":" in model_name else f"hf:{model_name}"
    model = built(named) if empty_model is None else empty_model
    tokens = torch.ones(input_shape or _TOKENS, dtype=torch.int64)
    given = deepspeed.arguments(model, None, (), {"input_ids": tokens, "attention_mask": tokens}, forward_mode)
    costs = ModuleCosts.count(model, *given, ignore_modules or (), forward_mode)
    text = _text(costs, compute_bp_factor, output_unit, output_precision, detailed=print_detailed)
    if print_results:
        print(text)
    factor = 1 + compute_bp_factor if include_backPropagation else 1
    results = _results(costs, factor, output_unit, output_precision, as_string=output_as_string)
    return (*results, f"{text}\n") if return_results else results


def _results(
    costs: ModuleCosts, factor: float, unit: str | None, precision: int, *, as_string: bool
) -> tuple[Any, Any, Any]:
    """Flops, multiply-accumulates and parameters."""
    macs, flops = costs.macs[""] * factor, costs.flops[""] * factor
    params = parameter_elements(costs.model, trainable=True)
    if not as_string:
        return flops, macs, params
    texts = flops_to_string(flops, unit, precision), macs_to_string(macs, unit, precision)
    return *texts, params_to_string(params, unit, precision)


def _text(costs: ModuleCosts, backward_factor: float, unit: str | None, precision: int, *, detailed: bool) -> str:
    macs, flops = costs.macs[""], costs.flops[""]
    params = parameter_elements(costs.model, trainable=True)

    def words(name: str, own: str) -> str:
        here = parameter_elements(costs.names.modules[name], trainable=True)
        shown = [
            f"{deepspeed.part_of(params_to_string, here, params, precision)} Params",
            f"{deepspeed.part_of(macs_to_string, costs.macs[name], macs, precision)} MACs",
            f"{deepspeed.part_of(flops_to_string, costs.flops[name], flops, precision)} FLOPs",
        ]
        return ", ".join(filter(None, [*shown, own]))

    totals = {"Total Training Params": params_to_string(params)}
    for title, times in (("fwd", 1), ("fwd+bwd", 1 + backward_factor)):
        totals[f"{title} MACs"] = macs_to_string(macs * times, unit, precision)
        totals[f"{title} FLOPs"] = flops_to_string(flops * times, unit, precision)
    modules = [_DETAILED, repr_with(costs.model, words)] if detailed else []
    return "\n".join([_HEAD.format(factor=backward_factor), *deepspeed.total_lines(totals), *modules, _END])
