"""How torch's jit tracer, whose words the peers use, names a call and orders its arguments."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

_CONVOLUTIONS = {
    f"conv{transposed}{n}d": bool(transposed) for transposed in ("", "_transpose") for n in (1, 2, 3)
}  # fmt: skip
_OPENED = frozenset({"lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"})
"""The tracer does not note these, but what they call."""
_RENAMED = {"zero_": "zeros_like", "fill_": "full_like"}
_ATTRIBUTES = {"T": "numpy_T", "mT": "mT", "H": "matrix_H", "mH": "mH", "real": "real", "imag": "imag"}
"""Attributes of a tensor that are operators."""
_SWITCHES = (False, False, True, True)
"""The last arguments of every convolution: benchmark, deterministic, cuDNN, TF32."""


@cache
def operator_name(func: Any) -> str | None:
    """The name of the operator behind a function; None for what the tracer does not note (indexing, attributes, sizes)."""
    name = _name(func)
    return None if name in _OPENED else name


def _name(func: Any) -> str | None:
    if isinstance(func, (OpOverload, OpOverloadPacket)):
        library, _, name = str(func).removesuffix(f".{getattr(func, '_overloadname', '')}").partition(".")
        return name if library == "aten" else None
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return _ATTRIBUTES.get(getattr(func.__self__, "__name__", ""))
    # Indexing is several operators, or none; they speak for themselves.
    is_operator = isinstance(getattr(torch.ops.aten, name, None), OpOverloadPacket)  # the namespace has an `__eq__` too
    return name if is_operator and name != "__getitem__" else None


def as_traced(name: str, arguments: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
    """The name and arguments under which a call is noted: every convolution is one operator there."""
    if name == "convolution":
        return "_convolution", (*arguments, *_SWITCHES)
    transposed = _CONVOLUTIONS.get(name)
    if transposed is None:
        return _RENAMED.get(name, name), arguments
    if transposed:
        x, weight, bias, stride, padding, output_padding, groups, dilation = arguments
    else:
        x, weight, bias, stride, padding, dilation, groups = arguments
        output_padding = 0
    return "_convolution", (x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *_SWITCHES)
