"""mmengine.analysis: the complexity of a model as a dictionary with numbers, texts, a table and an architecture.

    from opcost.compat.mmengine import get_model_complexity_info

The numbers are fvcore's convention, one multiply-add is one flop; the differences are listed in docs/compat.md.
"""

import sys
from typing import Any

import torch
from torch import nn

from opcost.compat import add_submodules, fvcore
from opcost.compat._tables import box_table
from opcost.compat.fvcore import activation_count, flop_count, jit_analysis, jit_handles, parameter_count
from opcost.compat.fvcore import print_model_statistics as statistics
from opcost.compat.fvcore.print_model_statistics import _format_size

__all__ = [
    "ActivationAnalyzer", "FlopAnalyzer", "activation_count", "complexity_stats_str", "complexity_stats_table",
    "flop_count", "get_model_complexity_info", "parameter_count", "parameter_count_table",
]  # fmt: skip
add_submodules(__name__, "complexity_analysis", "print_helper")
sys.modules[f"{__name__}.jit_analysis"] = jit_analysis
sys.modules[f"{__name__}.jit_handles"] = jit_handles

# Public code imports these tables
_DEFAULT_SUPPORTED_FLOP_OPS = dict(jit_handles.FLOP_HANDLES)
_DEFAULT_SUPPORTED_ACT_OPS = dict(jit_handles.ACTIVATION_HANDLES)


class FlopAnalyzer(fvcore.FlopCountAnalysis):
    """Flops of a model and its modules."""


class ActivationAnalyzer(fvcore.ActivationCountAnalysis):
    """Elements that the contractions of a model and its modules write."""


def parameter_count_table(model: nn.Module, max_depth: int = 3) -> str:
    """The parameters of a model as a boxed table."""
    title = f"parameter count of {type(model).__name__}"
    return box_table(statistics.HEADERS, statistics.parameter_rows(model, max_depth), title)


def complexity_stats_table(
    flops: FlopAnalyzer, max_depth: int = 3, activations: ActivationAnalyzer | None = None,
    show_param_shapes: bool = True,
) -> str:  # fmt: skip
    """Parameters, flops and, if given, activations per module as a boxed table."""
    return box_table(*statistics.complexity_rows(flops, activations, max_depth, show_param_shapes=show_param_shapes))


complexity_stats_str = statistics.flop_count_str


def get_model_complexity_info(
    model: nn.Module, input_shape: tuple[int, ...] | tuple[tuple[int, ...], ...] | None = None, inputs: Any = None,
    show_table: bool = True, show_arch: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Flops, activations and parameters of a model, as numbers and as text, with a table and an architecture.

    `input_shape` is the shape of one input, or a tuple of shapes, always without the batch, which is 1; `inputs`
    are the arguments themselves.
    """
    if input_shape is None and inputs is None:
        raise ValueError('One of "input_shape" and "inputs" should be set.')
    if input_shape is not None and inputs is not None:
        raise ValueError('"input_shape" and "inputs" cannot be both set.')
    if inputs is None:
        # Tensors without data, of the model's own floating type, with a batch of one
        shapes: Any = (input_shape,) if _is_shape(input_shape) else input_shape
        if not isinstance(shapes, tuple) or not all(map(_is_shape, shapes)):
            raise ValueError(
                '"input_shape" should be either a `tuple of int` (to construct one input tensor) or a '
                "`tuple of tuple of int` (to construct multiple input tensors)."
            )
        dtype = next((p.dtype for p in model.parameters() if p.dtype.is_floating_point), torch.get_default_dtype())
        inputs = tuple(torch.empty((1, *shape), dtype=dtype, device="meta") for shape in shapes)
    flops = FlopAnalyzer(model, inputs)
    activations = ActivationAnalyzer(model, inputs).share_run(flops)
    params = statistics.count_elements(statistics.parameter_shapes(flops.model, flops.report))[""]
    totals = {"flops": flops.total(), "activations": activations.total(), "params": params}
    found: dict[str, Any] = {}
    for name, total in totals.items():
        found |= {name: total, f"{name}_str": _format_size(total)}
    table = complexity_stats_table(flops, activations=activations) if show_table else ""
    arch = complexity_stats_str(flops, activations) if show_arch else ""
    return {**found, "out_table": table and f"\n{table}", "out_arch": arch and f"\n{arch}"}


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, tuple) and all(isinstance(extent, int) for extent in shape)
