"""mmengine.analysis.jit_analysis: fvcore's analysis under mmengine's name."""

from __future__ import annotations

from opcost.compat.fvcore.jit_analysis import _IGNORED_OPS, JitModelAnalysis, Statistics

__all__ = ["_IGNORED_OPS", "JitModelAnalysis", "Statistics"]
