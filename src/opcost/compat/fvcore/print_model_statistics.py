"""What fvcore prints of a model: a Markdown table, or the model's repr with numbers in it."""

from __future__ import annotations

from opcost.compat._grid import pipe_table
from opcost.compat.fvcore.activation_count import ActivationCountAnalysis
from opcost.compat.fvcore.flop_count import FlopCountAnalysis
from opcost.compat.fvcore.overview import complexity_repr, complexity_rows
from opcost.compat.fvcore.statistics import format_size


def _format_size(x: float, sig_figs: int = 3, hide_zero: bool = False) -> str:
    """A number with a unit; public code imports it by this name."""
    return "" if hide_zero and not x else format_size(x, sig_figs)


def flop_count_table(
    flops: FlopCountAnalysis,
    max_depth: int = 3,
    activations: ActivationCountAnalysis | None = None,
    show_param_shapes: bool = True,
) -> str:
    """Parameters, flops and, if given, activations per module as a Markdown table."""
    return pipe_table(*complexity_rows(flops, activations, max_depth, show_param_shapes=show_param_shapes))


def flop_count_str(flops: FlopCountAnalysis, activations: ActivationCountAnalysis | None = None) -> str:
    """The repr of the model with parameters, flops and, if given, activations at every module."""
    return complexity_repr(flops, activations)
