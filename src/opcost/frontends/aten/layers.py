"""Normalisation, softmax, pooling, resizing and sampling, and torchvision's operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil, prod

from opcost.core.graph import Attr
from opcost.core.shapes import adaptive_windows
from opcost.frontends.aten.call import Call, Tensor, Translation, means, on, per_axis, type_name


def norm(call: Call, fn: str, *, training: bool | None = None) -> Translation:
    """The rule must know whether a weight and a bias are applied, since other tensors may be in their places."""
    return means("norm", fn=fn, affine=len(call.tensors("weight", "bias")), training=training)


def norm_grad(
    call: Call, fn: str, *, training: bool | None = None, first: tuple[str, str] = ("grad_out", "input")
) -> Translation:
    """Gradients of the input and, where the mask requests them, of weight and bias."""
    mask = call["output_mask"] if "output_mask" in call.args else (True, True, True)
    ins = call.tensors(*first, *(name for name in call.args if name not in first))
    return means("norm", ins, fn=fn, grad=True, affine=sum(map(bool, mask[1:])), training=training)


on("_native_batch_norm_legit_no_training", "_batch_norm_no_update", "batch_norm_elemt", "quantized_batch_norm")(
    partial(norm, fn="batch", training=False)
)
on("_batch_norm_with_update", "_batch_norm_with_update_functional")(partial(norm, fn="batch", training=True))
on("batch_norm_backward_elemt")(partial(norm_grad, fn="batch", training=True))
on("cudnn_batch_norm_backward", "miopen_batch_norm_backward")(
    partial(norm_grad, fn="batch", training=True, first=("grad_output", "input"))
)


@on(
    "batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_impl_index",
)  # fmt: skip
def _batch_norm(call: Call) -> Translation:
    return norm(call, "batch", training=bool(call["training"]))


on("native_batch_norm_backward")(lambda call: norm_grad(call, "batch", training=bool(call["train"])))


@on("_batch_norm_impl_index_backward")
def _batch_norm_backward_index(call: Call) -> Translation:
    return norm_grad(call, "batch", training=bool(call["train"]), first=("grad_output", "input"))


on("batch_norm_backward")(lambda call: norm_grad(call, "batch", training=bool(call["update"])))


@on("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts")
def _gather_stats(call: Call) -> Translation:
    """The input lends only its type; the ranks' statistics are combined."""
    ins = call.tensors("mean", "invstd", "running_mean", "running_var", "counts")
    return Translation("reduce", {"fn": "var"}, ins)


for _fn, _forward, _backward in (
    ("layer", ("native_layer_norm", "layer_norm"), "native_layer_norm_backward"),
    ("group", ("native_group_norm", "group_norm"), "native_group_norm_backward"),
    ("rms", ("rms_norm", "_fused_rms_norm"), "_fused_rms_norm_backward"),
):
    on(*_forward)(partial(norm, fn=_fn))
    on(_backward)(partial(norm_grad, fn=_fn))


on("instance_norm")(lambda call: norm(call, "instance", training=bool(call["use_input_stats"])))


@on("embedding_renorm")
def _embedding_renorm(call: Call) -> Translation:
    """Only the rows that the indices name are measured and scaled: square, add, multiply."""
    rows = call["indices"].numel() * call["self"].shape[-1]
    return Translation("elementwise", {"fn": "addcmul", "elements": rows})


# -- pooling over windows, adaptive pooling and unpooling


def pool(fn: str, window: int, *, grad: bool = False, **geometry: Attr) -> Translation:
    """A pooling with `window` elements under one output; the geometry gives the receptive field and no cost."""
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


on("max_unpool2d", "max_unpool3d")(lambda call: pool("unpool", 1))


# -- values at computed positions: resizing, grids, distances between points, transforms

_SUPPORT = {"bilinear": 1, "bicubic": 2, "lanczos": 3}  # Half the width of an interpolation kernel, in source elements


def _resize(call: Call) -> Translation:
    """`upsample_bilinear2d` and its relatives; the method is in the name."""
    method = call.base.removeprefix("_").removeprefix("upsample_")
    grad = method.endswith("_backward")
    method = method.removesuffix("_backward")
    fn = next(m for m in _METHODS if method.startswith(m))
    taps = _antialiased_taps(call, fn, grad=grad) if method.endswith("_aa") else None
    return means("resize", fn=fn, grad=grad or None, taps=taps)


_METHODS = ("nearest", "linear", "bilinear", "trilinear", "bicubic", "lanczos")

on(
    *(
        f"{name}{gradient}"
        for name in (
            "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
            "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
            "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa",
        )
        for gradient in ("", "_backward")
    )
)(_resize)  # fmt: skip


def _antialiased_taps(call: Call, method: str, *, grad: bool) -> int:
    """Source elements under the kernel, which widens with the reduction."""
    if grad:
        small, large = call["grad_output"].shape[-2:], call["input_size"][-2:]
    else:
        small, large = call.outs[0].shape[-2:], call.get("self", "input").shape[-2:]
    return prod(ceil(2 * _SUPPORT[method] * max(1.0, n / m)) for n, m in zip(large, small, strict=True))


_TAPS = {0: {2: 4, 3: 8}, 1: {2: 1, 3: 1}, 2: {2: 16, 3: 64}}
"""Source elements per value by interpolation mode (linear, nearest, cubic) and rank."""


@on(
    "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "_grid_sampler_2d_cpu_fallback",
    "grid_sampler_2d_backward", "grid_sampler_3d_backward", "_grid_sampler_2d_cpu_fallback_backward",
)  # fmt: skip
def _grid_sampler(call: Call) -> Translation:
    grid: Tensor = call["grid"]
    return _sample(call, taps=_TAPS[call["interpolation_mode"]][grid.shape[-1]])


on("cudnn_grid_sampler", "cudnn_grid_sampler_backward")(lambda call: _sample(call, taps=4))


def _sample(call: Call, *, taps: int) -> Translation:
    grad = call.base.endswith("_backward")
    ins = call.tensors("grad_output", "input", "self", "grid") if grad else None
    return means("sample", ins, taps=taps, grad=grad or None)


@on("_fft_c2c", "_fft_r2c")
def _fft(call: Call) -> Translation:
    x: Tensor = call["self"]
    return means("fft", lengths=tuple(x.shape[d] for d in call["dim"]), real=call.base == "_fft_r2c" or None)


@on("_fft_c2r")
def _fft_to_real(call: Call) -> Translation:
    """The last transformed axis holds only half of the spectrum; its length is that of the result."""
    x: Tensor = call["self"]
    *dims, _ = call["dim"]
    return Translation("fft", {"lengths": (*(x.shape[d] for d in dims), call["last_dim_size"]), "real": True})


@on(*(f"fft_{kind}{suffix}" for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for suffix in ("", "2", "n")))
def _fft_public(call: Call) -> Translation:
    """The public functions pad or cut the axes to the requested lengths, then transform them."""
    name = call.base.removeprefix("fft_")
    x: Tensor = call["self"]
    y = call.outs[0]
    wanted, dims = call.get("n", "s"), call["dim"]
    if dims is None:
        dims = tuple(range(-len(wanted), 0)) if wanted is not None else tuple(range(x.dim()))
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    to_real = name.rstrip("2n") in ("irfft", "hfft")
    whole = y if to_real else x
    lengths = tuple(whole.shape[d] for d in dims) if wanted is None else per_axis(wanted, len(dims))
    return means("fft", lengths=lengths, real=to_real or name.rstrip("2n") in ("rfft", "ihfft") or None)


@on("stft")
def _stft(call: Call) -> Translation:
    """Frames of the signal, each transformed; a real signal has half of a spectrum."""
    real = not type_name(call["self"]).startswith("complex")
    return means("fft", lengths=(call["n_fft"],), real=real or None)


on("istft")(lambda call: Translation("fft", {"lengths": (call["n_fft"],), "real": True}))


# -- torchvision's own operators

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
    return means("sample", taps=taps, grad=call.base.endswith("_backward") or None)


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
