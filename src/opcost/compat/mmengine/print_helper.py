"""What mmengine tells of a model: a dictionary with numbers, texts, a boxed table and an architecture."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from opcost.compat._grid import box_table
from opcost.compat.fvcore.overview import complexity_repr, complexity_rows
from opcost.compat.fvcore.print_model_statistics import _format_size
from opcost.compat.fvcore.statistics import format_size, parameter_shapes
from opcost.compat.fvcore.statistics import parameter_count as count_parameters
from opcost.compat.mmengine.complexity_analysis import ActivationAnalyzer, FlopAnalyzer

__all__ = ["_format_size", "complexity_stats_str", "complexity_stats_table", "get_model_complexity_info"]


def complexity_stats_table(
    flops: FlopAnalyzer,
    max_depth: int = 3,
    activations: ActivationAnalyzer | None = None,
    show_param_shapes: bool = True,
) -> str:
    """Parameters, flops and, if given, activations per module as a boxed table."""
    return box_table(*complexity_rows(flops, activations, max_depth, show_param_shapes=show_param_shapes))


def complexity_stats_str(flops: FlopAnalyzer, activations: ActivationAnalyzer | None = None) -> str:
    """The repr of the model with parameters, flops and, if given, activations at every module."""
    return complexity_repr(flops, activations)


def get_model_complexity_info(
    model: nn.Module,
    input_shape: tuple[int, ...] | tuple[tuple[int, ...], ...] | None = None,
    inputs: Any = None,
    show_table: bool = True,
    show_arch: bool = True,
) -> dict[str, Any]:
    """Flops, activations and parameters of a model, as numbers and as text, with a table and an architecture.

    `input_shape` is the shape of one input, or a tuple of shapes, always without the batch, which is 1; `inputs`
    are the arguments themselves.
    """
    if input_shape is None and inputs is None:
        raise ValueError('One of "input_shape" and "inputs" should be set.')
    if input_shape is not None and inputs is not None:
        raise ValueError('"input_shape" and "inputs" cannot be both set.')
    if inputs is None:
        inputs = _inputs_of(input_shape, model)
    flops = FlopAnalyzer(model, inputs)
    activations = ActivationAnalyzer(model, inputs).share_run(flops)
    params = count_parameters(parameter_shapes(flops.model, flops.report))[""]
    totals = {"flops": flops.total(), "activations": activations.total(), "params": params}
    found: dict[str, Any] = {}
    for name, total in totals.items():
        found |= {name: total, f"{name}_str": format_size(total)}
    table = complexity_stats_table(flops, activations=activations) if show_table else ""
    arch = complexity_stats_str(flops, activations) if show_arch else ""
    return {**found, "out_table": table and f"\n{table}", "out_arch": arch and f"\n{arch}"}


def _inputs_of(input_shape: Any, model: nn.Module) -> tuple[torch.Tensor, ...]:
    """Tensors without data, of the model's own floating type, with a batch of one."""
    shapes = (input_shape,) if _is_shape(input_shape) else input_shape
    if not isinstance(shapes, tuple) or not all(map(_is_shape, shapes)):
        raise ValueError(
            '"input_shape" should be either a `tuple of int` (to construct one input tensor) or a '
            "`tuple of tuple of int` (to construct multiple input tensors)."
        )
    dtype = next((p.dtype for p in model.parameters() if p.dtype.is_floating_point), torch.get_default_dtype())
    return tuple(torch.empty((1, *shape), dtype=dtype, device="meta") for shape in shapes)


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, tuple) and all(isinstance(extent, int) for extent in shape)
