"""Flops: one for a multiply-add, and fvcore's estimates for norms, pooling and resizing."""

from opcost.compat.fvcore.jit_analysis import JitModelAnalysis, counter
from opcost.compat.fvcore.jit_handles import FLOP_HANDLES, Handle, macs

_DEFAULT_SUPPORTED_OPS: dict[str, Handle] = dict(FLOP_HANDLES)  # Public code imports and extends this table


class FlopCountAnalysis(JitModelAnalysis):
    """Flops of a model and its modules: multiply-adds of contractions, and fvcore's estimates for norms, pooling, resizing."""

    _default_handles = _DEFAULT_SUPPORTED_OPS
    _default_otherwise = staticmethod(macs)


flop_count = counter(FlopCountAnalysis, 1e9, "Gigaflops by operator, and how often unsupported operators ran.")
