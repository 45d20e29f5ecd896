"""Results of normalisation, softmax, pooling, resizing, sampling and recurrent layers, and of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opcost.frontends.aten.call import Call, per_axis
from opcost.frontends.aten.outputs.table import default_type, like, made, on, on_each, only
from opcost.frontends.aten.tensor import Described, Tensor, type_name

_HALF = ("float16", "bfloat16")


def _kept_type(x: Tensor) -> str:
    """The type of statistics: those of half-precision numbers are kept in full."""
    return "float32" if type_name(x) in _HALF else type_name(x)


@on("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "miopen_batch_norm")
def _batch_norm(call: Call) -> tuple[Described, ...]:
    """Mean and deviation of each channel are kept where they were worked out."""
    x = call["input"]
    kept = made(x.shape[1:2] if call["training"] else (0,), _kept_type(x))
    return like(x), kept, like(kept)


@on("_batch_norm_with_update", "cudnn_batch_norm")
def _batch_norm_update(call: Call) -> tuple[Described, ...]:
    """The last result is what cuDNN reserves, whose size only it knows, and which is not counted."""
    x = call["input"]
    kept = made(x.shape[1:2], _kept_type(x))
    return like(x), kept, like(kept), made((0,), "uint8")


@on("native_batch_norm_backward", "batch_norm_backward", "native_group_norm_backward")
def _channel_norm_backward(call: Call) -> tuple[Any, ...]:
    x = call["input"]
    weight = call["weight"] if call["weight"] is not None else made(x.shape[1:2], type_name(x))
    return only((like(x), like(weight), like(weight)), call["output_mask"])


@on("native_layer_norm", "_fused_rms_norm")
def _layer_norm(call: Call) -> tuple[Described, ...]:
    x, axes = call["input"], len(call["normalized_shape"])
    kept = made((*x.shape[: x.dim() - axes], *(1,) * axes), _kept_type(x))
    return (like(x), kept) if call.base == "_fused_rms_norm" else (like(x), kept, like(kept))


@on("native_layer_norm_backward", "_fused_rms_norm_backward")
def _layer_norm_backward(call: Call) -> tuple[Any, ...]:
    grads = tuple(call[name] for name in ("input", "weight", "bias") if name in call.args)
    return tuple(like(x) for x in only(grads, call["output_mask"]) if x is not None)


@on("native_group_norm")
def _group_norm(call: Call) -> tuple[Described, ...]:
    x = call["input"]
    kept = made((call["N"], call["group"]), _kept_type(x))
    return like(x), kept, like(kept)


@on("_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax", "_masked_softmax")
def _softmax(call: Call) -> tuple[Described, ...]:
    x = call["self"]
    if "half_to_float" in call.args and call["half_to_float"]:
        return (like(x, "float32"),)
    return (like(x, default_type(call, type_name(x)) if "dtype" in call.args else ""),)


def _windows(call: Call, axes: int) -> tuple[int, ...]:
    """How many windows fit along each axis."""
    x = call["self"]
    kernel = per_axis(call["kernel_size"], axes)
    stride = per_axis(call["stride"] or kernel, axes)
    padding = per_axis(call["padding"], axes)
    dilation = per_axis(call["dilation"], axes) if "dilation" in call.args else (1,) * axes
    found = []
    for n, k, s, p, d in zip(x.shape[-axes:], kernel, stride, padding, dilation, strict=True):
        steps = n + 2 * p - d * (k - 1) - 1
        extent = (-(-steps // s) if call["ceil_mode"] else steps // s) + 1
        # A window that begins in the padding behind the input is left out.
        found.append(extent - 1 if call["ceil_mode"] and (extent - 1) * s >= n + p else extent)
    return tuple(found)


def _axes(call: Call) -> int:
    return int(next(letter for letter in call.base if letter.isdigit()))


def _over(x: Tensor, extents: Sequence[int]) -> Described:
    """The same channels over other extents."""
    return made((*x.shape[: -len(extents)], *extents), type_name(x))


@on("avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "mkldnn_max_pool2d",
    "mkldnn_max_pool3d", "quantized_max_pool1d", "quantized_max_pool2d")  # fmt: skip
def _pool(call: Call) -> tuple[Described, ...]:
    return (_over(call["self"], _windows(call, _axes(call))),)


@on("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d_with_indices")
def _pool_with_places(call: Call) -> tuple[Described, ...]:
    y = _over(call["self"], _windows(call, _axes(call)))
    return y, like(y, "int64")


@on("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "mkldnn_adaptive_avg_pool2d")  # fmt: skip
def _adaptive(call: Call) -> tuple[Described, ...]:
    return (_over(call["self"], per_axis(call["output_size"], _axes(call))),)


@on(
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
)
def _adaptive_with_places(call: Call) -> tuple[Described, ...]:
    y = _over(call["self"], per_axis(call["output_size"], _axes(call)))
    return y, like(y, "int64")


_RESIZED = tuple(
    f"{name}{axes}d"
    for name, ranks in (
        ("upsample_nearest", "123"), ("_upsample_nearest_exact", "123"), ("upsample_linear", "1"),
        ("upsample_bilinear", "2"), ("upsample_trilinear", "3"), ("upsample_bicubic", "2"),
    )
    for axes in ranks
)  # fmt: skip
_ANTIALIASED = ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa")


@on(*_RESIZED, *_ANTIALIASED)
def _resize(call: Call) -> tuple[Described, ...]:
    """The extents asked for, or the own ones times a factor, rounded down."""
    x = call.get("input", "self")
    if call["output_size"] is not None:
        return (_over(x, call["output_size"]),)
    factors = call["scale_factors"]
    return (_over(x, [int(n * factor) for n, factor in zip(x.shape[2:], factors, strict=True)]),)


@on(*(f"{name}_backward" for name in (*_RESIZED, *_ANTIALIASED)))
def _resize_backward(call: Call) -> tuple[Described, ...]:
    return (made(call["input_size"], type_name(call["grad_output"])),)


@on("grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "_grid_sampler_2d_cpu_fallback")
def _grid_sample(call: Call) -> tuple[Described, ...]:
    x = call["input"]
    return (made((*x.shape[:2], *call["grid"].shape[1:-1]), type_name(x)),)


@on("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def _grid_sample_backward(call: Call) -> tuple[Any, ...]:
    return only((like(call["input"]), like(call["grid"])), call["output_mask"])


@on("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(call: Call) -> tuple[Described, ...]:
    """What every step gives out, and the last states."""
    x = call.get("input", "data")
    hx = call["hx"]
    states = tuple(hx) if isinstance(hx, list) else (hx,)
    directions = 2 if call["bidirectional"] else 1
    y = made((*x.shape[:-1], states[0].shape[-1] * directions), type_name(x))
    return y, *(like(state) for state in states)


@on("_cudnn_rnn")
def _device_stack(call: Call) -> tuple[Described, ...]:
    """What every step gives out, the last states, and what cuDNN reserves, as above."""
    x, hx, cx = call["input"], call["hx"], call["cx"]
    directions = 2 if call["bidirectional"] else 1
    y = made((*x.shape[:-1], hx.shape[-1] * directions), type_name(x))
    return y, like(hx), made((0,), type_name(x)) if cx is None else like(cx), made((0,), "uint8")


@on("mkldnn_rnn_layer")
def _one_layer(call: Call) -> tuple[Described, ...]:
    """The fourth result is the library's own memory, as above."""
    x, hx, cx = call["input"], call["hx_"], call["cx_"]
    return made((*x.shape[:-1], call["hidden_size"]), type_name(x)), like(hx), like(cx), made((0,), "uint8")


@on("_thnn_fused_gru_cell")
def _gru_cell(call: Call) -> tuple[Tensor, ...]:
    rows, width = call["hx"].shape
    return like(call["hx"]), made((rows, 5 * width), type_name(call["hx"]))


on_each(
    {
        "_softmax_backward_data _log_softmax_backward_data": lambda call: (
            like(call["grad_output"], call["input_dtype"]),
        ),
        "max_unpool2d max_unpool3d": lambda call: (_over(call["self"], call["output_size"]),),
        "lstm_cell": lambda call: tuple(like(state) for state in call["hx"]),
    }
)
