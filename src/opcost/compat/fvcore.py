"""fvcore.nn's flop, activation and parameter counts: one fused multiply-add is one flop.

    from opcost.compat.fvcore import FlopCountAnalysis, flop_count_table

Where fvcore misses a contraction (attention, recurrent layers, custom functions) it is counted here, and what differs is
listed in docs/compat.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from torch import nn

from opcost.compat._analysis import JitModelAnalysis
from opcost.compat._grid import pipe_table
from opcost.compat._handles import ACTIVATION_HANDLES, FLOP_HANDLES, Handle, macs, product_elements
from opcost.compat._overview import complexity_repr, complexity_rows
from opcost.compat._statistics import parameter_count as count_parameters
from opcost.compat._statistics import parameter_rows, parameter_shapes

__all__ = [
    "ActivationCountAnalysis", "FlopCountAnalysis", "Handle", "JitModelAnalysis", "activation_count", "flop_count",
    "flop_count_str", "flop_count_table", "parameter_count", "parameter_count_table",
]  # fmt: skip


class FlopCountAnalysis(JitModelAnalysis):
    """Flops of a model and its modules: multiply-adds of contractions, and fvcore's estimates for norms, pooling, resizing."""

    def __init__(self, model: nn.Module, inputs: Any = (), *, kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(model, inputs, kwargs=kwargs)
        self.set_op_handle(**FLOP_HANDLES)
        self._otherwise = macs


class ActivationCountAnalysis(JitModelAnalysis):
    """Elements that the contractions of a model and its modules write."""

    def __init__(self, model: nn.Module, inputs: Any = (), *, kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(model, inputs, kwargs=kwargs)
        self.set_op_handle(**ACTIVATION_HANDLES)
        self._otherwise = product_elements


def flop_count(
    model: nn.Module, inputs: tuple[Any, ...], supported_ops: Mapping[str, Handle | None] | None = None
) -> tuple[defaultdict[str, float], Counter[str]]:
    """Gigaflops by operator, and how often unsupported operators ran."""
    return _scaled(FlopCountAnalysis(model, inputs).set_op_handle(**(supported_ops or {})), 1e9)


def activation_count(
    model: nn.Module, inputs: tuple[Any, ...], supported_ops: Mapping[str, Handle | None] | None = None
) -> tuple[defaultdict[str, float], Counter[str]]:
    """Millions of activations by operator, and how often unsupported operators ran."""
    return _scaled(ActivationCountAnalysis(model, inputs).set_op_handle(**(supported_ops or {})), 1e6)


def _scaled(analysis: JitModelAnalysis, unit: float) -> tuple[defaultdict[str, float], Counter[str]]:
    counts = {operator: number / unit for operator, number in analysis.by_operator().items()}
    return defaultdict(float, counts), analysis.unsupported_ops()


def parameter_count(model: nn.Module) -> defaultdict[str, int]:
    """Elements of every parameter and of every module, by name; "" is the whole model."""
    return defaultdict(int, count_parameters(parameter_shapes(model)))


def parameter_count_table(model: nn.Module, max_depth: int = 3) -> str:
    """The parameters of a model as a Markdown table."""
    return pipe_table(["name", "#elements or shape"], parameter_rows(model, max_depth))


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
