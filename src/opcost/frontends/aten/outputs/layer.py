"""Results of normalisation, pooling, resizing, recurrent layers and data movement, and of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import Call, Described, NotKnown, Tensor, per_axis, promoted, type_name
from opcost.frontends.aten.outputs.table import axis_of, default_type, like, made, on, on_each, only, replaced

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


def _pooled(call: Call) -> Described:
    return _over(call["self"], _windows(call, _axes(call)))


def _adaptive(call: Call) -> Described:
    return _over(call["self"], per_axis(call["output_size"], _axes(call)))


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
    """The requested extents, or the own ones times a factor, rounded down."""
    x = call.get("input", "self")
    if call["output_size"] is not None:
        return (_over(x, call["output_size"]),)
    factors = call["scale_factors"]
    return (_over(x, [int(n * factor) for n, factor in zip(x.shape[2:], factors, strict=True)]),)


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


on_each(
    {
        "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d mkldnn_max_pool2d mkldnn_max_pool3d "
        "quantized_max_pool1d quantized_max_pool2d": _pooled,
        "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices": lambda call: (
            _pooled(call),
            like(_pooled(call), "int64"),
        ),
        "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
        "mkldnn_adaptive_avg_pool2d": _adaptive,
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d": lambda call: (
            _adaptive(call),
            like(_adaptive(call), "int64"),
        ),
        " ".join(f"{name}_backward" for name in (*_RESIZED, *_ANTIALIASED)): lambda input_size, grad_output: made(
            input_size, type_name(grad_output)
        ),
        "_thnn_fused_gru_cell": lambda hx: (like(hx), made((hx.shape[0], 5 * hx.shape[1]), type_name(hx))),
        "_softmax_backward_data _log_softmax_backward_data": lambda call: (
            like(call["grad_output"], call["input_dtype"]),
        ),
        "max_unpool2d max_unpool3d": lambda call: (_over(call["self"], call["output_size"]),),
        "lstm_cell": lambda call: tuple(like(state) for state in call["hx"]),
    }
)


# -- results of lookups, gathers, scatters and copies, and of what fills new tensors


@on("embedding_bag")
def _embedding_bag(call: Call) -> tuple[Described, ...]:
    """The bags, to which bag each index belongs, how many there are in each, and where the largest elements were."""
    weight, bags = call["weight"], call["offsets"].shape[0] - bool(call["include_last_offset"])
    kept = 0 if call["mode"] == 0 else call["indices"].numel()
    y = made((bags, weight.shape[1]), type_name(weight))
    largest = made(y.shape if call["mode"] == 2 else (bags,), "int64")
    return (y, made((kept,), "int64"), made((bags,), "int64"), largest)


@on("cat")
def _cat(call: Call) -> tuple[Described, ...]:
    """A tensor of one axis without elements may stand beside any other, and adds nothing."""
    joined = [x for x in call["tensors"] if tuple(x.shape) != (0,)] or call["tensors"]
    types = {type_name(x) for x in call["tensors"]}
    if len(types) != 1 or "" in types:
        raise NotKnown("the element types in a list")
    axis = axis_of(joined[0], call["dim"])
    return (made(replaced(joined[0], axis, sum(x.shape[axis] for x in joined)), types.pop()),)


# -- put into a tensor, or beside it: as large as that ----------------------------------------------------------------


# -- copies -----------------------------------------------------------------------------------------------------------


@on("repeat", "tile")
def _repeat(call: Call) -> tuple[Described, ...]:
    x, repeats = call["self"], call.get("repeats", "dims")
    rank = max(x.dim(), len(repeats))
    times = (*(1,) * (rank - len(repeats)), *repeats)
    extents = (*(1,) * (rank - x.dim()), *x.shape)
    return (made((n * k for n, k in zip(extents, times, strict=True)), type_name(x)),)


@on("constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
    "replication_pad2d", "replication_pad3d")  # fmt: skip
def _pad(call: Call) -> tuple[Described, ...]:
    """Pairs of what is added before and behind, from the last axis on."""
    x, added = call["self"], call.get("pad", "padding") or ()
    shape = list(x.shape)
    for place in range(len(added) // 2):
        shape[-1 - place] += added[2 * place] + added[2 * place + 1]
    return (made(shape, type_name(x)),)


@on("rot90")
def _rot90(call: Call) -> tuple[Described, ...]:
    x = call["self"]
    shape = list(x.shape)
    if call["k"] % 2:
        a, b = call["dims"]
        shape[a], shape[b] = shape[b], shape[a]
    return (made(shape, type_name(x)),)


@on("im2col")
def _im2col(call: Call) -> tuple[Described, ...]:
    """A column for every place of the window, with all that lies under it."""
    x = call["self"]
    *batch, channels, height, width = x.shape
    settings = (per_axis(call[name], 2) for name in ("kernel_size", "dilation", "padding", "stride"))
    columns, under = 1, channels
    for n, k, d, p, s in zip((height, width), *settings, strict=True):
        columns *= (n + 2 * p - d * (k - 1) - 1) // s + 1
        under *= k
    return (made((*batch, under, columns), type_name(x)),)


@on("col2im")
def _col2im(call: Call) -> tuple[Described, ...]:
    x = call["self"]
    *batch, under, _ = x.shape
    down, across = per_axis(call["kernel_size"], 2)
    return (made((*batch, under // (down * across), *call["output_size"]), type_name(x)),)


@on("pixel_shuffle")
def _pixel_shuffle(call: Call) -> tuple[Described, ...]:
    (*batch, channels, height, width), factor = call["self"].shape, call["upscale_factor"]
    return (made((*batch, channels // factor**2, height * factor, width * factor), type_name(call["self"])),)


@on("pixel_unshuffle")
def _pixel_unshuffle(call: Call) -> tuple[Described, ...]:
    (*batch, channels, height, width), factor = call["self"].shape, call["downscale_factor"]
    return (made((*batch, channels * factor**2, height // factor, width // factor), type_name(call["self"])),)


@on("diag_embed")
def _diag_embed(call: Call) -> tuple[Described, ...]:
    """The last axis becomes the diagonal of two, at the requested axes."""
    x = call["self"]
    side = x.shape[-1] + abs(call["offset"])
    rank = x.dim() + 1
    shape = list(x.shape[:-1])
    for axis in sorted(axis % rank for axis in (call["dim1"], call["dim2"])):
        shape.insert(axis, side)
    return (made(shape, type_name(x)),)


@on("expand_copy")
def _expand_copy(call: Call) -> tuple[Described, ...]:
    x, wanted = call["self"], call["size"]
    own = (*(1,) * (len(wanted) - x.dim()), *x.shape)
    return (made((n if m == -1 else m for n, m in zip(own, wanted, strict=True)), type_name(x)),)


@on("transpose_copy", "t_copy")
def _transpose_copy(call: Call) -> tuple[Described, ...]:
    x = call["self"]
    shape = list(x.shape)
    if "dim0" in call.args:
        a, b = (axis_of(x, call[name]) for name in ("dim0", "dim1"))
        if x.dim():
            shape[a], shape[b] = shape[b], shape[a]
    else:
        shape.reverse()
    return (made(shape, type_name(x)),)


# -- tensors filled with something ------------------------------------------------------------------------------------


@on("arange")
def _arange(call: Call) -> tuple[Described, ...]:
    bounds = [call[name] for name in ("start", "end", "step") if name in call.args]
    start, step = (bounds[0] if "start" in call.args else 0), (bounds[-1] if "step" in call.args else 1)
    whole = all(isinstance(bound, int) for bound in bounds)
    return (made((max(0, ceil((call["end"] - start) / step)),), default_type(call, "int64" if whole else "float32")),)


@on("normal")
def _normal(call: Call) -> tuple[Described, ...]:
    """Drawn for each mean and deviation, or as many as requested."""
    if "size" in call.args:
        return (made(call["size"], default_type(call)),)
    parameters = [value for value in call.args.values() if isinstance(value, Tensor)]
    return (made(broadcast([x.shape for x in parameters]), type_name(parameters[0])),)


@on("native_dropout", "_fused_dropout")
def _dropout(call: Call) -> tuple[Described, ...]:
    """What is left, and which elements those are; without training nothing is drawn."""
    x = call.get("input", "self")
    if "train" in call.args and call["train"] is False:
        raise NotKnown("what a dropout that does nothing hands out")
    return like(x), like(x, "bool" if call.base == "native_dropout" else "uint8")


on_each(
    {
        "embedding": lambda weight, indices: made((*indices.shape, *weight.shape[1:]), type_name(weight)),
        "embedding_dense_backward": lambda grad_output, num_weights: made(
            (num_weights, grad_output.shape[-1]), type_name(grad_output)
        ),
        "index_select": lambda self, dim, index: made(replaced(self, dim, index.numel()), type_name(self)),
        "select_backward slice_backward diagonal_backward": lambda input_sizes, grad_output: made(
            input_sizes, type_name(grad_output)
        ),
        "_to_copy zeros_like ones_like full_like rand_like randn_like randint_like empty_like": lambda call, self: like(
            self, default_type(call, type_name(self))
        ),
        "permute_copy": lambda self, dims: made((self.shape[axis] for axis in dims), type_name(self)),
        "eye": lambda call, n: made((n, call["m"] if "m" in call.args else n), default_type(call)),
        "gather take": lambda call: (like(call["index"], type_name(call["self"])),),
        "nonzero_static": lambda call: (made((call["size"], call["self"].dim()), "int64"),),
        "unfold_backward": lambda call: (made(call["input_sizes"], type_name(call["grad_in"])),),
        "trace_backward": lambda call: (made(call["sizes"], type_name(call["grad"])),),
        "zeros ones rand randn _efficientzerotensor": lambda call: (made(call["size"], default_type(call)),),
        "full": lambda call: (made(call["size"], default_type(call, promoted(call["fill_value"]))),),
        "randint": lambda call: (made(call["size"], default_type(call, "int64")),),
        "randperm": lambda call: (made((call["n"],), default_type(call, "int64")),),
        "new_zeros new_ones new_full": lambda call: (made(call["size"], default_type(call, type_name(call["self"]))),),
        "scalar_tensor": lambda call: (made((), default_type(call)),),
        "linspace logspace": lambda call: (made((call["steps"],), default_type(call)),),
        "multinomial": lambda call: (made((*call["self"].shape[:-1], call["num_samples"]), "int64"),),
    }
)
