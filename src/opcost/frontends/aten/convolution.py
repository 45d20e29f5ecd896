"""Convolutions in all their spellings, and their gradients."""

from __future__ import annotations

from typing import Any

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, on
from opcost.frontends.aten.strides import has_channels_last

_GRADS = ("input", "weight", "bias")


def conv(call: Call, *, transposed: bool = False, then: tuple[str, ...] = (), added: str = "") -> Translation:
    """A convolution whose arguments go by one of the names that torch uses for them."""
    attrs: dict[str, Attr] = {}
    if transposed:
        attrs["transposed"] = True
    if then:
        attrs["then"] = then
    for name in ("stride", "dilation"):  # no cost depends on them; the receptive field does
        if name in call.args:
            attrs[name] = tuple(call[name])
    x = next(name for name in ("input", "self", "X", "qx") if name in call.args)
    if has_channels_last(call[x]):
        attrs["channels_last"] = True
    weight = next(name for name in ("weight", "W", "qw") if name in call.args)
    bias = next((name for name in ("bias", "B") if name in call.args), "")
    return Translation("conv", attrs, call.tensors(x, weight, bias, added))


@on(
    "conv1d", "conv2d", "conv3d", "_convolution_mode", "thnn_conv2d", "slow_conv3d", "slow_conv3d_forward",
    "_slow_conv2d_forward", "slow_conv_dilated2d", "slow_conv_dilated3d", "_conv_depthwise2d", "conv_depthwise3d",
    "cudnn_convolution", "miopen_convolution", "miopen_depthwise_convolution", "mkldnn_convolution",
    "_nnpack_spatial_convolution", "_mps_convolution",
)  # fmt: skip
def _conv(call: Call) -> Translation:
    return conv(call)


@on("convolution", "_convolution", "convolution_overrideable")
def _convolution(call: Call) -> Translation:
    return conv(call, transposed=bool(call["transposed"]))


@on(
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "slow_conv_transpose2d", "slow_conv_transpose3d",
    "cudnn_convolution_transpose", "miopen_convolution_transpose", "_mps_convolution_transpose",
)  # fmt: skip
def _conv_transpose(call: Call) -> Translation:
    return conv(call, transposed=True)


@on("cudnn_convolution_relu", "miopen_convolution_relu")
def _conv_relu(call: Call) -> Translation:
    return conv(call, then=("relu",))


@on("cudnn_convolution_add_relu", "miopen_convolution_add_relu")
def _conv_add_relu(call: Call) -> Translation:
    # the rule counts one addition for whatever stands after the weight
    then = ("relu",) if call["bias"] is None else ("add", "relu")
    return conv(call, then=then, added="z")


@on("conv_tbc")
def _conv_tbc(call: Call) -> Translation:
    """Time, batch and channels last, the weight as (kernel, in, out): a product over kernel and input channels."""
    kernel, channels, _ = call["weight"].shape
    return Translation("matmul", {"depth": kernel * channels, "bias": True}, call.tensors("self", "weight", "bias"))


@on("conv_tbc_backward")
def _conv_tbc_backward(call: Call) -> Translation:
    kernel, channels, _ = call["weight"].shape
    macs = 2 * call["self"].numel() * kernel * channels
    return Translation("matmul", {"depth": kernel * channels, "macs": macs}, call.tensors("self", "input", "weight"))


def conv_backward(call: Call, x: str, mask: Any, *, transposed: bool = False) -> Translation:
    """Gradients of a convolution: those that the mask asks for."""
    grads = tuple(name for name, wanted in zip(_GRADS, mask, strict=False) if wanted)
    attrs: dict[str, Attr] = {"grads": grads}
    if transposed:
        attrs["transposed"] = True
    if has_channels_last(call[x]):
        attrs["channels_last"] = True
    return Translation("conv", attrs, call.tensors("grad_output", x, "weight"))


@on("convolution_backward", "convolution_backward_overrideable")
def _convolution_backward(call: Call) -> Translation:
    return conv_backward(call, "input", call["output_mask"], transposed=bool(call["transposed"]))


@on("_slow_conv2d_backward", "mps_convolution_backward")
def _self_backward(call: Call) -> Translation:
    # the overload with three destinations computes all three
    mask = call["output_mask"] if "output_mask" in call.args else (True, True, True)
    return conv_backward(call, "self", mask)


@on("mps_convolution_transpose_backward")
def _mps_transpose_backward(call: Call) -> Translation:
    return conv_backward(call, "self", call["output_mask"], transposed=True)
