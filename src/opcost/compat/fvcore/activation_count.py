"""Activations: the elements that contractions write."""

from opcost.compat.fvcore.jit_analysis import JitModelAnalysis, counter
from opcost.compat.fvcore.jit_handles import ACTIVATION_HANDLES, Handle, product_elements

_DEFAULT_SUPPORTED_OPS: dict[str, Handle] = dict(ACTIVATION_HANDLES)  # Public code imports and extends this table


class ActivationCountAnalysis(JitModelAnalysis):
    """Elements that the contractions of a model and its modules write."""

    _default_handles = _DEFAULT_SUPPORTED_OPS
    _default_otherwise = staticmethod(product_elements)


activation_count = counter(
    ActivationCountAnalysis, 1e6, "Millions of activations by operator, and how often unsupported operators ran."
)
