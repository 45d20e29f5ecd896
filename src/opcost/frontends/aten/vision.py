"""torchvision's own operators."""

from __future__ import annotations

from math import prod

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, on
from opcost.frontends.aten.tensor import Tensor

_BILINEAR_TAPS = 4


@on("torchvision::nms")
def _nms(call: Call) -> Translation:
    """Boxes are sorted by score, then compared with the ones kept: pairs depend on the data, the sort does not."""
    return Translation("sort", {"length": call["dets"].shape[0]}, call.tensors("scores", "dets"))


@on("torchvision::roi_align", "torchvision::_roi_align_backward")
def _roi_align(call: Call) -> Translation:
    """Each output averages `sampling_ratio`² bilinear samples; an adaptive ratio is taken as two."""
    ratio = call["sampling_ratio"] if call["sampling_ratio"] > 0 else 2
    return _sampled(call, _BILINEAR_TAPS * ratio * ratio)


@on("torchvision::ps_roi_align", "torchvision::_ps_roi_align_backward")
def _ps_roi_align(call: Call) -> Translation:
    ratio = call["sampling_ratio"] if call["sampling_ratio"] > 0 else 2
    return _sampled(call, _BILINEAR_TAPS * ratio * ratio)


@on("torchvision::roi_pool", "torchvision::ps_roi_pool")
def _roi_pool(call: Call) -> Translation:
    """Boxes lie in data; a window is taken as its share of the whole image."""
    fn = "adaptive_avg" if call.base == "ps_roi_pool" else "adaptive_max"
    x: Tensor = call["input"]
    window = prod(-(-n // m) for n, m in zip(x.shape[-2:], call.outs[0].shape[-2:], strict=True) if m)
    return Translation("pool", {"fn": fn, "window": window})


@on("torchvision::_roi_pool_backward", "torchvision::_ps_roi_pool_backward")
def _roi_pool_backward(call: Call) -> Translation:
    fn = "adaptive_avg" if "ps_" in call.base else "adaptive_max"
    grad: Tensor = call["grad"]
    window = prod(-(-n // m) for n, m in zip(call.outs[0].shape[-2:], grad.shape[-2:], strict=True) if m)
    return Translation("pool", {"fn": fn, "window": window, "grad": True})


def _sampled(call: Call, taps: int) -> Translation:
    attrs: dict[str, Attr] = {"taps": taps}
    if call.base.endswith("_backward"):
        attrs["grad"] = True
    return Translation("sample", attrs)


@on("torchvision::deform_conv2d")
def _deform_conv2d(call: Call) -> Translation:
    """A convolution over bilinear samples: `taps` of them are worked out for every element under the kernel."""
    return Translation("conv", {"sampled": _BILINEAR_TAPS}, call.tensors("input", "weight", "bias", "offset", "mask"))


@on("torchvision::_deform_conv2d_backward")
def _deform_conv2d_backward(call: Call) -> Translation:
    return Translation(
        "conv",
        {"grads": ("input", "weight", "bias"), "sampled": _BILINEAR_TAPS},
        call.tensors("grad", "input", "weight", "offset", "mask"),
    )
