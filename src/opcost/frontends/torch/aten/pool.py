"""Pooling over windows, adaptive pooling and unpooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from opcost.core.graph import Attr
from opcost.frontends.torch.aten.call import Call, Translation, on, per_axis


def pool(fn: str, window: int, *, grad: bool = False) -> Translation:
    attrs: dict[str, Attr] = {"fn": fn, "window": window}
    if grad:
        attrs["grad"] = True
    return Translation("pool", attrs)


def _axes(call: Call) -> int:
    """The rank of the window: the digit in the operator's name."""
    return int(next(c for c in call.base if c.isdigit()))


def _windowed(call: Call) -> Translation:
    fn = "avg" if "avg" in call.base else "max"
    return pool(fn, prod(per_axis(call["kernel_size"], _axes(call))), grad=call.base.endswith("_backward"))


on(*(
    f"{name}{axes}d{suffix}"
    for name, suffixes in {
        "max_pool": ("", "_with_indices", "_with_indices_backward"),
        "avg_pool": ("", "_backward"),
        "mkldnn_max_pool": ("", "_backward"),
        "quantized_max_pool": ("",),
        "quantized::max_pool": ("",),
        "fractional_max_pool": ("", "_backward"),
    }.items()
    for suffix in suffixes
    for axes in (1, 2, 3)
))(_windowed)  # fmt: skip
on("max_pool2d_backward")(_windowed)


def _adaptive(call: Call) -> Translation:
    fn = "adaptive_avg" if "avg" in call.base else "adaptive_max"
    axes = _axes(call)
    grad = call.base.endswith("_backward")
    large: torch.Tensor = call["self"]
    small: Sequence[int] = call["grad_output"].shape if grad else call.outs[0].shape
    window = prod(-(-n // m) for n, m in zip(large.shape[-axes:], small[-axes:], strict=True) if m)
    return pool(fn, window, grad=grad)


on(*(
    f"{name}{axes}d{suffix}"
    for name in ("adaptive_avg_pool", "_adaptive_avg_pool", "adaptive_max_pool", "mkldnn_adaptive_avg_pool")
    for axes in (1, 2, 3)
    for suffix in ("", "_backward")
))(_adaptive)  # fmt: skip


@on("max_unpool2d", "max_unpool3d")
def _unpool(call: Call) -> Translation:
    return pool("unpool", 1)
