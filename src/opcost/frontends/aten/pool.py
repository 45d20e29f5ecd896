"""Pooling over windows, adaptive pooling and unpooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opcost.core.graph import Attr
from opcost.core.shapes import adaptive_windows
from opcost.frontends.aten.call import Call, Translation, on, per_axis
from opcost.frontends.aten.tensor import Tensor


def pool(fn: str, window: int, *, grad: bool = False, **geometry: Attr) -> Translation:
    """A pooling with so many elements under one output; the geometry tells the receptive field and no cost."""
    attrs: dict[str, Attr] = {"fn": fn, "window": window}
    return Translation("pool", attrs | ({"grad": True} if grad else geometry))


def _axes(call: Call) -> int:
    """The rank of the window: the digit in the operator's name."""
    return int(next(c for c in call.base if c.isdigit()))


@on(
    "max_pool1d", "max_pool2d", "max_pool3d",
    "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices",
    "max_pool2d_backward", "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "avg_pool2d_backward", "avg_pool3d_backward",
    "mkldnn_max_pool2d", "mkldnn_max_pool3d", "mkldnn_max_pool2d_backward", "mkldnn_max_pool3d_backward",
    "quantized_max_pool1d", "quantized_max_pool2d", "quantized_max_pool3d",
    "quantized::max_pool1d", "quantized::max_pool2d",
    "fractional_max_pool2d", "fractional_max_pool3d", "fractional_max_pool2d_backward", "fractional_max_pool3d_backward",
)  # fmt: skip
def _windowed(call: Call) -> Translation:
    fn = "avg" if "avg" in call.base else "max"
    axes = _axes(call)
    kernel = per_axis(call["kernel_size"], axes)
    geometry: dict[str, Attr] = {}
    if "stride" in call.args:
        geometry = {"kernel": kernel, "stride": per_axis(call["stride"] or kernel, axes)}
    if "dilation" in call.args:
        geometry["dilation"] = per_axis(call["dilation"], axes)
    return pool(fn, prod(kernel), grad=call.base.endswith("_backward"), **geometry)


@on(
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_avg_pool3d_backward",
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward",
    "mkldnn_adaptive_avg_pool2d", "mkldnn_adaptive_avg_pool2d_backward",
)  # fmt: skip
def _adaptive(call: Call) -> Translation:
    fn = "adaptive_avg" if "avg" in call.base else "adaptive_max"
    axes = _axes(call)
    grad = call.base.endswith("_backward")
    large: Tensor = call["self"]
    small: Sequence[int] = call["grad_output"].shape if grad else call.outs[0].shape
    kernel, stride = adaptive_windows(large.shape[-axes:], small[-axes:])
    return pool(fn, prod(kernel), grad=grad, kernel=kernel, stride=stride)


@on("max_unpool2d", "max_unpool3d")
def _unpool(call: Call) -> Translation:
    return pool("unpool", 1)
