"""mmengine.analysis.jit_handles: fvcore's handles under mmengine's name."""

from __future__ import annotations

from opcost.compat.fvcore.jit_handles import (
    Handle,
    addmm_flop_jit,
    batchnorm_flop_jit,
    bmm_flop_jit,
    conv_flop_count,
    conv_flop_jit,
    einsum_flop_jit,
    elementwise_flop_counter,
    generic_activation_jit,
    get_shape,
    linear_flop_jit,
    matmul_flop_jit,
    norm_flop_counter,
)

__all__ = [
    "Handle", "addmm_flop_jit", "batchnorm_flop_jit", "bmm_flop_jit", "conv_flop_count", "conv_flop_jit",
    "einsum_flop_jit", "elementwise_flop_counter", "generic_activation_jit", "get_shape", "linear_flop_jit",
    "matmul_flop_jit", "norm_flop_counter",
]  # fmt: skip
