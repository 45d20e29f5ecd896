"""Flops: one for a multiply-add, and fvcore's estimates for norms, pooling and resizing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from torch import nn

from opcost.compat.fvcore.jit_analysis import JitModelAnalysis, scaled
from opcost.compat.fvcore.jit_handles import FLOP_HANDLES, Handle, macs

_DEFAULT_SUPPORTED_OPS: dict[str, Handle] = dict(FLOP_HANDLES)
"""Public code imports and extends this table."""


class FlopCountAnalysis(JitModelAnalysis):
    """Flops of a model and its modules: multiply-adds of contractions, and fvcore's estimates for norms, pooling, resizing."""

    def __init__(self, model: nn.Module, inputs: Any = (), *, kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(model, inputs, kwargs=kwargs)
        self.set_op_handle(**_DEFAULT_SUPPORTED_OPS)
        self._otherwise = macs


def flop_count(
    model: nn.Module, inputs: tuple[Any, ...], supported_ops: Mapping[str, Handle | None] | None = None
) -> tuple[defaultdict[str, float], Counter[str]]:
    """Gigaflops by operator, and how often unsupported operators ran."""
    return scaled(FlopCountAnalysis(model, inputs).set_op_handle(**(supported_ops or {})), 1e9)
