"""Normalisation, softmax, pooling, resizing and sampling, and torchvision's operators."""

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from opcost.core.shapes import adaptive_windows, windows
from opcost.frontends.aten.call import AtenCall, Translation, means, per_axis, rows
from opcost.frontends.aten.results import OUTPUTS, RESERVED, Results, like, made, only
from opcost.frontends.aten.tensor import AtenTensor, Described, type_name

_NORMS = ("batch", "layer", "group", "instance", "rms")
_TRAINING = ("training", "train", "update", "use_input_stats")


def _norm(call: AtenCall, *, training: bool | None = None) -> Translation:
    """The name says which, and whether it is the gradient: that of the input and, as the mask requests, of weight and bias.

    The rule must know whether a weight and a bias are applied, since other tensors may be in their places.
    """
    fn = next(word for word in _NORMS if word in call.base)
    training = next((bool(call[name]) for name in _TRAINING if name in call.args), training)
    if "backward" not in call.base:
        return means("norm", fn=fn, affine=len(call.tensors("weight", "bias")), training=training)
    mask = call["output_mask"] if "output_mask" in call.args else (True, True, True)
    first = ("grad_out", "grad_output", "input")
    ins = call.tensors(*first, *(name for name in call.args if name not in first))
    return means("norm", ins, fn=fn, grad=True, affine=sum(map(bool, mask[1:])), training=training)


rows(
    {
        "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional cudnn_batch_norm "
        "miopen_batch_norm _batch_norm_impl_index": lambda call: _norm(call),
        "native_batch_norm_backward batch_norm_backward _batch_norm_impl_index_backward": lambda call: _norm(call),
        "native_layer_norm layer_norm native_layer_norm_backward quantized::layer_norm": lambda call: _norm(call),
        "native_group_norm group_norm native_group_norm_backward quantized::group_norm": lambda call: _norm(call),
        "rms_norm _fused_rms_norm _fused_rms_norm_backward": lambda call: _norm(call),
        "instance_norm quantized::instance_norm": lambda call: _norm(call),
        "_native_batch_norm_legit_no_training _batch_norm_no_update batch_norm_elemt quantized_batch_norm "
        "quantized::batch_norm quantized::batch_norm_relu quantized::batch_norm1d quantized::batch_norm1d_relu "
        "quantized::batch_norm2d quantized::batch_norm2d_relu quantized::batch_norm3d quantized::batch_norm3d_relu":
            lambda call: _norm(call, training=False),
        "_batch_norm_with_update _batch_norm_with_update_functional batch_norm_backward_elemt "
        "cudnn_batch_norm_backward miopen_batch_norm_backward": lambda call: _norm(call, training=True),
        # only the rows that the indices name are measured and scaled: square, add, multiply
        "embedding_renorm": lambda self, indices: means(
            "elementwise", fn="addcmul", elements=indices.numel() * self.shape[-1],
        ),
    }
)  # fmt: skip


# -- pooling over windows, adaptive pooling and unpooling


def _axes(call: AtenCall) -> int:
    """The rank of the window: the digit in the operator's name."""
    return int(next(c for c in call.base if c.isdigit()))


def _pool(fn: str, window: int, *, grad: bool, **geometry: Any) -> Translation:
    """A pooling with `window` elements under one output; the geometry gives the receptive field and no cost."""
    return means("pool", fn=fn, window=window, **{"grad": True} if grad else geometry)


def _windowed(call: AtenCall, kernel_size: Any, stride: Any = (), dilation: Any = None) -> Translation:
    axes = _axes(call)
    kernel = per_axis(kernel_size, axes)
    geometry: dict[str, Any] = {}
    if "stride" in call.args:
        geometry = {"kernel": kernel, "stride": per_axis(stride or kernel, axes)}
    if dilation is not None:
        geometry["dilation"] = per_axis(dilation, axes)
    fn = "avg" if "avg" in call.base else "max"
    return _pool(fn, prod(kernel), grad=call.base.endswith("_backward"), **geometry)


def _adaptive(call: AtenCall, self: AtenTensor) -> Translation:
    axes, grad = _axes(call), call.base.endswith("_backward")
    small: Sequence[int] = call["grad_output"].shape if grad else call.outs[0].shape
    kernel, stride = adaptive_windows(self.shape[-axes:], small[-axes:])
    fn = "adaptive_avg" if "avg" in call.base else "adaptive_max"
    return _pool(fn, prod(kernel), grad=grad, kernel=kernel, stride=stride)


rows(
    {
        "max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices "
        "max_pool2d_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool1d avg_pool2d "
        "avg_pool3d avg_pool2d_backward avg_pool3d_backward mkldnn_max_pool2d mkldnn_max_pool3d "
        "mkldnn_max_pool2d_backward mkldnn_max_pool3d_backward quantized_max_pool1d quantized_max_pool2d "
        "quantized_max_pool3d quantized::max_pool1d quantized::max_pool2d fractional_max_pool2d fractional_max_pool3d "
        "fractional_max_pool2d_backward fractional_max_pool3d_backward": _windowed,
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_avg_pool3d_backward _adaptive_avg_pool2d "
        "_adaptive_avg_pool3d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward adaptive_max_pool1d "
        "adaptive_max_pool2d adaptive_max_pool3d adaptive_max_pool2d_backward adaptive_max_pool3d_backward "
        "mkldnn_adaptive_avg_pool2d mkldnn_adaptive_avg_pool2d_backward": _adaptive,
        "max_unpool2d max_unpool3d": lambda: means("pool", fn="unpool", window=1),
    }
)  # fmt: skip


# -- values at computed positions: resizing, grids, distances between points, transforms

_SUPPORT = {"bilinear": 1, "bicubic": 2, "lanczos": 3}  # Half the width of an interpolation kernel, in source elements
_METHODS = ("nearest", "linear", "bilinear", "trilinear", "bicubic", "lanczos")
_RESIZED = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_lanczos2d_aa"
)
_TAPS = {0: {2: 4, 3: 8}, 1: {2: 1, 3: 1}, 2: {2: 16, 3: 64}}
"""Source elements per value by interpolation mode (linear, nearest, cubic) and rank."""


def _resize(call: AtenCall) -> Translation:
    """The method is in the name: `upsample_bilinear2d`. An antialiasing kernel widens with the reduction."""
    name = call.base.removeprefix("_").removeprefix("upsample_")
    method, grad = name.removesuffix("_backward"), name.endswith("_backward")
    fn = next(m for m in _METHODS if method.startswith(m))
    taps = None
    if method.endswith("_aa"):
        small = (call["grad_output"] if grad else call.outs[0]).shape[-2:]
        large = call["input_size"][-2:] if grad else call.get("self", "input").shape[-2:]
        taps = prod(ceil(2 * _SUPPORT[fn] * max(1.0, n / m)) for n, m in zip(large, small, strict=True))
    return means("resize", fn=fn, grad=grad or None, taps=taps)


def _sample(call: AtenCall, taps: int) -> Translation:
    grad = call.base.endswith("_backward")
    ins = call.tensors("grad_output", "input", "self", "grid") if grad else None
    return means("sample", ins, taps=taps, grad=grad or None)


def _fft(shape: Sequence[int], dims: Sequence[int], *, real: bool) -> Translation:
    return means("fft", lengths=tuple(shape[d] for d in dims), real=real or None)


def _fft_public(call: AtenCall, self: AtenTensor, dim: Any) -> Translation:
    """The public functions pad or cut the axes to the requested lengths, then transform them."""
    name = call.base.removeprefix("fft_").rstrip("2n")
    wanted = call.get("n", "s")
    if dim is None:
        dim = range(-len(wanted), 0) if wanted is not None else range(self.dim())
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    whole = call.outs[0] if name in ("irfft", "hfft") else self
    lengths = tuple(whole.shape[d] for d in dims) if wanted is None else per_axis(wanted, len(dims))
    return means("fft", lengths=lengths, real=name in ("irfft", "hfft", "rfft", "ihfft") or None)


rows(
    {
        " ".join(f"{name} {name}_backward" for name in _RESIZED.split()): _resize,
        "grid_sampler grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback grid_sampler_2d_backward "
        "grid_sampler_3d_backward _grid_sampler_2d_cpu_fallback_backward":
            lambda call, grid, interpolation_mode: _sample(call, _TAPS[interpolation_mode][grid.shape[-1]]),
        "cudnn_grid_sampler cudnn_grid_sampler_backward": lambda call: _sample(call, 4),
        "_fft_c2c _fft_r2c": lambda call, self, dim: _fft(self.shape, dim, real=call.base == "_fft_r2c"),
        # the last transformed axis holds only half of the spectrum; its length is that of the result
        "_fft_c2r": lambda self, dim, last_dim_size: means(
            "fft", lengths=(*(self.shape[d] for d in dim[:-1]), last_dim_size), real=True,
        ),
        " ".join(
            f"fft_{kind}{suffix}"
            for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for suffix in ("", "2", "n")
        ): _fft_public,
        # frames of the signal, each transformed; a real signal has half of a spectrum
        "stft": lambda self, n_fft: means(
            "fft", lengths=(n_fft,), real=None if type_name(self).startswith("complex") else True,
        ),
        "istft": lambda n_fft: means("fft", lengths=(n_fft,), real=True),
    }
)  # fmt: skip


# -- torchvision's own operators

_BILINEAR_TAPS = 4


def _roi_align(call: AtenCall, sampling_ratio: int) -> Translation:
    """Each output averages `sampling_ratio`² bilinear samples; an adaptive ratio is taken as two."""
    ratio = sampling_ratio if sampling_ratio > 0 else 2
    grad = call.base.endswith("_backward")
    return means("sample", taps=_BILINEAR_TAPS * ratio * ratio, grad=grad or None)


def _roi_pool(call: AtenCall, large: AtenTensor, small: AtenTensor, *, grad: bool = False) -> Translation:
    """Boxes are in data; a window is taken as its share of the whole image."""
    window = prod(-(-n // m) for n, m in zip(large.shape[-2:], small.shape[-2:], strict=True) if m)
    return _pool("adaptive_avg" if "ps_" in call.base else "adaptive_max", window, grad=grad)


rows(
    {
        # boxes are sorted by score, then compared with the ones kept: pairs depend on the data, the sort does not
        "torchvision::nms": lambda dets, scores: means("sort", (scores, dets), length=dets.shape[0]),
        "torchvision::roi_align torchvision::_roi_align_backward torchvision::ps_roi_align "
        "torchvision::_ps_roi_align_backward": _roi_align,
        "torchvision::roi_pool torchvision::ps_roi_pool": lambda call, input: _roi_pool(call, input, call.outs[0]),
        "torchvision::_roi_pool_backward torchvision::_ps_roi_pool_backward":
            lambda call, grad: _roi_pool(call, call.outs[0], grad, grad=True),
        # a convolution over bilinear samples: `taps` of them are computed for every element under the kernel
        "torchvision::deform_conv2d": lambda input, weight, bias, offset, mask: means(
            "conv", (input, weight, bias, offset, mask), sampled=_BILINEAR_TAPS,
        ),
        "torchvision::_deform_conv2d_backward": lambda grad, input, weight, offset, mask: means(
            "conv", (grad, input, weight, offset, mask), grads=("input", "weight", "bias"), sampled=_BILINEAR_TAPS,
        ),
    }
)  # fmt: skip


# -- results


def _normed(x: AtenTensor, *kept: int, statistics: int = 2) -> list[Described]:
    """The result and statistics; those of half-precision numbers are kept in full."""
    dtype = "float32" if type_name(x) in ("float16", "bfloat16") else type_name(x)
    return [like(x), *(made(kept, dtype) for _ in range(statistics))]


def _of_rows(input: AtenTensor, normalized_shape: Sequence[int], statistics: int) -> list[Described]:
    axes = len(normalized_shape)
    return _normed(input, *input.shape[: input.dim() - axes], *(1,) * axes, statistics=statistics)


def _channel_norm_backward(input: AtenTensor, weight: AtenTensor | None, output_mask: Any) -> Results:
    of_weight = made(input.shape[1:2], input) if weight is None else like(weight)
    return only((like(input), of_weight, of_weight), output_mask)


def _layer_norm_backward(call: AtenCall, output_mask: Any) -> Results:
    grads = tuple(call[name] for name in ("input", "weight", "bias") if name in call.args)
    return [like(x) for x in only(grads, output_mask) if x is not None]


def _over(x: AtenTensor, extents: Sequence[int]) -> Described:
    """The same channels over other extents."""
    return made((*x.shape[: -len(extents)], *extents), x)


def _pooled(
    call: AtenCall, self: AtenTensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1
) -> Described:
    """As many windows as fit along each axis; one that begins in the padding behind the input is left out."""
    axes = _axes(call)
    settings = [per_axis(each, axes) for each in (kernel_size, stride or kernel_size, padding, dilation)]
    extents: list[Any] = []
    for n, k, s, p, d in zip(self.shape[-axes:], *settings, strict=True):
        last = "begun" if call["ceil_mode"] else "whole"
        extents.append(windows(n, k, stride=s, padding=(p, p), dilation=d, last=last))  # type: ignore[arg-type]
    return _over(self, extents)


def _resized(
    call: AtenCall, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None = None
) -> Described:
    """The requested extents, or the own ones times a factor, rounded down."""
    x = call.get("input", "self")
    if output_size is None:
        output_size = [int(n * factor) for n, factor in zip(x.shape[2:], scale_factors or (), strict=True)]
    return _over(x, output_size)


OUTPUTS.rows(
    {
        # mean and deviation of each channel are kept where they were computed
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional miopen_batch_norm":
            lambda input, training: _normed(input, *(input.shape[1:2] if training else (0,))),
        "_batch_norm_with_update cudnn_batch_norm":
            lambda input: [*_normed(input, *input.shape[1:2]), made(*RESERVED)],
        "native_batch_norm_backward batch_norm_backward native_group_norm_backward": _channel_norm_backward,
        "native_layer_norm": lambda input, normalized_shape: _of_rows(input, normalized_shape, 2),
        "_fused_rms_norm": lambda input, normalized_shape: _of_rows(input, normalized_shape, 1),
        "native_layer_norm_backward _fused_rms_norm_backward": _layer_norm_backward,
        "native_group_norm": lambda input, N, group: _normed(input, N, group),
        "_softmax _log_softmax _safe_softmax softmax log_softmax _masked_softmax":
            lambda self, half_to_float=False, dtype="": like(self, "float32" if half_to_float else dtype or ""),
        "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d mkldnn_max_pool2d mkldnn_max_pool3d "
        "quantized_max_pool1d quantized_max_pool2d": _pooled,
        "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices":
            lambda call, self, kernel_size, stride, padding, dilation:
                _with_places(_pooled(call, self, kernel_size, stride, padding, dilation)),
        "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
        "mkldnn_adaptive_avg_pool2d":
            lambda call, self, output_size: _over(self, per_axis(output_size, _axes(call))),
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d":
            lambda call, self, output_size: _with_places(_over(self, per_axis(output_size, _axes(call)))),
        "max_unpool2d max_unpool3d": lambda self, output_size: _over(self, output_size),
        _RESIZED: _resized,
        "grid_sampler grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback":
            lambda input, grid: made((*input.shape[:2], *grid.shape[1:-1]), input),
        "grid_sampler_2d_backward grid_sampler_3d_backward":
            lambda input, grid, output_mask: only((like(input), like(grid)), output_mask),
    }
)  # fmt: skip


def _with_places(y: Described) -> Results:
    """The largest elements, and where each was."""
    return y, like(y, "int64")
