"""Flops, activations and parameters; the numbers are fvcore's convention, one multiply-add is one flop."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from torch import nn

from opcost.compat import fvcore
from opcost.compat._grid import box_table
from opcost.compat.fvcore.jit_handles import ACTIVATION_HANDLES, FLOP_HANDLES, Handle
from opcost.compat.fvcore.parameter_count import parameter_count
from opcost.compat.fvcore.statistics import parameter_rows

__all__ = [
    "ActivationAnalyzer", "FlopAnalyzer", "activation_count", "flop_count", "parameter_count", "parameter_count_table",
]  # fmt: skip

_DEFAULT_SUPPORTED_FLOP_OPS: dict[str, Handle] = dict(FLOP_HANDLES)
_DEFAULT_SUPPORTED_ACT_OPS: dict[str, Handle] = dict(ACTIVATION_HANDLES)
"""Public code imports these tables."""


class FlopAnalyzer(fvcore.FlopCountAnalysis):
    """Flops of a model and its modules."""


class ActivationAnalyzer(fvcore.ActivationCountAnalysis):
    """Elements that the contractions of a model and its modules write."""


def flop_count(
    model: nn.Module, inputs: tuple[Any, ...], supported_ops: Mapping[str, Handle | None] | None = None
) -> tuple[defaultdict[str, float], Counter[str]]:
    """Gigaflops by operator, and how often unsupported operators ran."""
    return fvcore.flop_count(model, inputs, supported_ops)


def activation_count(
    model: nn.Module, inputs: tuple[Any, ...], supported_ops: Mapping[str, Handle | None] | None = None
) -> tuple[defaultdict[str, float], Counter[str]]:
    """Millions of activations by operator, and how often unsupported operators ran."""
    return fvcore.activation_count(model, inputs, supported_ops)


def parameter_count_table(model: nn.Module, max_depth: int = 3) -> str:
    """The parameters of a model as a boxed table."""
    title = f"parameter count of {type(model).__name__}"
    return box_table(["name", "#elements or shape"], parameter_rows(model, max_depth), title)
