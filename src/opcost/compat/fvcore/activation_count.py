"""Activations: the elements that contractions write."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from torch import nn

from opcost.compat.fvcore.jit_analysis import JitModelAnalysis, scaled
from opcost.compat.fvcore.jit_handles import ACTIVATION_HANDLES, Handle, product_elements

_DEFAULT_SUPPORTED_OPS: dict[str, Handle] = dict(ACTIVATION_HANDLES)
"""Public code imports and extends this table."""


class ActivationCountAnalysis(JitModelAnalysis):
    """Elements that the contractions of a model and its modules write."""

    def __init__(self, model: nn.Module, inputs: Any = (), *, kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(model, inputs, kwargs=kwargs)
        self.set_op_handle(**_DEFAULT_SUPPORTED_OPS)
        self._otherwise = product_elements


def activation_count(
    model: nn.Module, inputs: tuple[Any, ...], supported_ops: Mapping[str, Handle | None] | None = None
) -> tuple[defaultdict[str, float], Counter[str]]:
    """Millions of activations by operator, and how often unsupported operators ran."""
    return scaled(ActivationCountAnalysis(model, inputs).set_op_handle(**(supported_ops or {})), 1e6)
