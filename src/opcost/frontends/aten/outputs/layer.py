"""Results of normalisation, pooling, resizing, recurrent layers and data movement, and of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from opcost.core import shapes
from opcost.frontends.aten.call import (
    AtenCall,
    AtenTable,
    AtenTensor,
    Described,
    NotKnown,
    per_axis,
    promoted,
    type_name,
)
from opcost.frontends.aten.outputs.table import OUTPUTS, Results, axis_of, like, made, only, replaced


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


def _axes(call: AtenCall) -> int:
    return int(next(letter for letter in call.base if letter.isdigit()))


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
        extents.append(shapes.windows(n, k, stride=s, padding=(p, p), dilation=d, last=last))  # type: ignore[arg-type]
    return _over(self, extents)


def _resize(
    call: AtenCall, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None = None
) -> Described:
    """The requested extents, or the own ones times a factor, rounded down."""
    x = call.get("input", "self")
    if output_size is None:
        output_size = [int(n * factor) for n, factor in zip(x.shape[2:], scale_factors or (), strict=True)]
    return _over(x, output_size)


def _recurrent(x: AtenTensor, states: Sequence[AtenTensor | None], bidirectional: Any) -> list[Described]:
    """What every step gives out, and the last states."""
    width = states[0].shape[-1] * (2 if bidirectional else 1)  # type: ignore[union-attr]
    return [made((*x.shape[:-1], width), x), *(made((0,), x) if state is None else like(state) for state in states)]


_RESIZED = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_lanczos2d_aa"
)
_RESERVED = ((0,), "uint8")  # What a library reserves for its gradient: only it knows how much, and it is not counted

OUTPUTS.rows(
    {
        # mean and deviation of each channel are kept where they were computed
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional miopen_batch_norm":
            lambda input, training: _normed(input, *(input.shape[1:2] if training else (0,))),
        "_batch_norm_with_update cudnn_batch_norm":
            lambda input: [*_normed(input, *input.shape[1:2]), made(*_RESERVED)],
        "native_batch_norm_backward batch_norm_backward native_group_norm_backward": _channel_norm_backward,
        "native_layer_norm": lambda input, normalized_shape: _of_rows(input, normalized_shape, 2),
        "_fused_rms_norm": lambda input, normalized_shape: _of_rows(input, normalized_shape, 1),
        "native_layer_norm_backward _fused_rms_norm_backward": _layer_norm_backward,
        "native_group_norm": lambda input, N, group: _normed(input, N, group),
        "_softmax _log_softmax _safe_softmax softmax log_softmax _masked_softmax":
            lambda self, half_to_float=False, dtype="": like(self, "float32" if half_to_float else dtype or ""),
        "_softmax_backward_data _log_softmax_backward_data":
            lambda grad_output, input_dtype: like(grad_output, input_dtype),
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
        _RESIZED: _resize,
        " ".join(f"{name}_backward" for name in _RESIZED.split()):
            lambda input_size, grad_output: made(input_size, grad_output),
        "grid_sampler grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback":
            lambda input, grid: made((*input.shape[:2], *grid.shape[1:-1]), input),
        "grid_sampler_2d_backward grid_sampler_3d_backward":
            lambda input, grid, output_mask: only((like(input), like(grid)), output_mask),
        "lstm gru rnn_tanh rnn_relu": lambda call, hx, bidirectional: _recurrent(
            call.get("input", "data"), tuple(hx) if isinstance(hx, list) else (hx,), bidirectional,
        ),
        "_cudnn_rnn":
            lambda input, hx, cx, bidirectional: [*_recurrent(input, (hx, cx), bidirectional), made(*_RESERVED)],
        "mkldnn_rnn_layer": lambda input, hx_, cx_, hidden_size: (
            made((*input.shape[:-1], hidden_size), input), like(hx_), like(cx_), made(*_RESERVED),
        ),
        "lstm_cell": lambda hx: [like(state) for state in hx],
        "_thnn_fused_gru_cell": lambda hx: (like(hx), made((hx.shape[0], 5 * hx.shape[1]), hx)),
    }
)  # fmt: skip


def _with_places(y: Described) -> Results:
    """The largest elements, and where each was."""
    return y, like(y, "int64")


# -- results of lookups, gathers, scatters and copies, and of what fills new tensors


def _embedding_bag(
    weight: AtenTensor, indices: AtenTensor, offsets: AtenTensor, include_last_offset: Any, mode: int
) -> Results:
    """The bags, to which bag each index belongs, how many there are in each, and where the largest elements were."""
    bags = offsets.shape[0] - bool(include_last_offset)
    y = made((bags, weight.shape[1]), weight)
    kept = 0 if mode == 0 else indices.numel()
    return y, made((kept,), "int64"), made((bags,), "int64"), made(y.shape if mode == 2 else (bags,), "int64")


def _cat(tensors: Sequence[AtenTensor], dim: int) -> Described:
    """A tensor of one axis without elements may be beside any other, and adds nothing."""
    joined = [x for x in tensors if tuple(x.shape) != (0,)] or tensors
    if not all(type_name(x) for x in tensors):
        raise NotKnown("the element types in a list")
    return made(shapes.concat([x.shape for x in joined], dim), promoted(*tensors))


def _pad(call: AtenCall, self: AtenTensor) -> Described:
    """Pairs of what is added before and behind, from the last axis on."""
    added = call.get("pad", "padding") or ()
    pairs = [added[at : at + 2] for at in range(0, len(added) - 1, 2)][::-1]
    return made(shapes.padded(self.shape, [(0, 0)] * (self.dim() - len(pairs)) + pairs), self)


def _im2col(self: AtenTensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Described:
    """A column for every position of the window, with all elements under it."""
    *batch, channels, height, width = self.shape
    settings = (per_axis(each, 2) for each in (kernel_size, dilation, padding, stride))
    columns, under = 1, channels
    for n, k, d, p, s in zip((height, width), *settings, strict=True):
        columns *= (n + 2 * p - d * (k - 1) - 1) // s + 1
        under *= k
    return made((*batch, under, columns), self)


def _col2im(self: AtenTensor, kernel_size: Any, output_size: Sequence[int]) -> Described:
    down, across = per_axis(kernel_size, 2)
    return made((*self.shape[:-2], self.shape[-2] // (down * across), *output_size), self)


def _shuffled(x: AtenTensor, channels: int, height: int, width: int) -> Described:
    return made((*x.shape[:-3], channels, height, width), x)


def _diag_embed(self: AtenTensor, offset: int, dim1: int, dim2: int) -> Described:
    """The last axis becomes the diagonal of two, at the requested axes."""
    side, rank = self.shape[-1] + abs(offset), self.dim() + 1
    shape: Any = self.shape[:-1]
    for axis in sorted(axis % rank for axis in (dim1, dim2)):
        shape = shapes.inserted(shape, axis, side)
    return made(shape, self)


def _expand_copy(self: AtenTensor, size: Sequence[int]) -> Described:
    own = (*(1,) * (len(size) - self.dim()), *self.shape)
    return made((n if m == -1 else m for n, m in zip(own, size, strict=True)), self)


def _arange(end: Any, start: Any = 0, step: Any = 1, dtype: str | None = None) -> Described:
    whole = all(isinstance(bound, int) for bound in (start, end, step))
    return made((max(0, ceil((end - start) / step)),), dtype or ("int64" if whole else "float32"))


def _normal(call: AtenCall, dtype: str | None = None) -> Described:
    """Drawn for each mean and deviation, or as many as requested."""
    if "size" in call.args:
        return made(call["size"], dtype or "float32")
    parameters = [value for value in call.args.values() if isinstance(value, AtenTensor)]
    return made(shapes.broadcast([x.shape for x in parameters]), parameters[0])


def _dropout(call: AtenCall, train: Any = True) -> Results:  # noqa: FBT002
    """What is left, and which elements those are; without training nothing is drawn."""
    if train is False:
        raise NotKnown("what a dropout that does nothing hands out")
    x = call.get("input", "self")
    return like(x), like(x, "bool" if call.base == "native_dropout" else "uint8")


OUTPUTS.rows(
    {
        "embedding": lambda weight, indices: made((*indices.shape, *weight.shape[1:]), weight),
        "embedding_dense_backward":
            lambda grad_output, num_weights: made((num_weights, grad_output.shape[-1]), grad_output),
        "embedding_bag": _embedding_bag,
        "cat": _cat,
        "index_select": lambda self, dim, index: made(replaced(self, dim, index.numel()), self),
        "gather take": lambda self, index: like(index, type_name(self)),
        "nonzero_static": lambda self, size: made((size, self.dim()), "int64"),
        "select_backward slice_backward diagonal_backward":
            lambda input_sizes, grad_output: made(input_sizes, grad_output),
        "unfold_backward": lambda input_sizes, grad_in: made(input_sizes, grad_in),
        "trace_backward": lambda sizes, grad: made(sizes, grad),
        # copies
        "repeat": lambda self, repeats: made(shapes.tiled(self.shape, repeats), self),
        "tile": lambda self, dims: made(shapes.tiled(self.shape, dims), self),
        "constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
        "replication_pad3d": _pad,
        "rot90": lambda self, k, dims: made(shapes.swapped(self.shape, *dims) if k % 2 else self.shape, self),
        "im2col": _im2col,
        "col2im": _col2im,
        "pixel_shuffle": lambda self, upscale_factor: _shuffled(
            self, self.shape[-3] // upscale_factor**2, self.shape[-2] * upscale_factor, self.shape[-1] * upscale_factor,
        ),
        "pixel_unshuffle": lambda self, downscale_factor: _shuffled(
            self, self.shape[-3] * downscale_factor**2, self.shape[-2] // downscale_factor,
            self.shape[-1] // downscale_factor,
        ),
        "diag_embed": _diag_embed,
        "expand_copy": _expand_copy,
        "permute_copy": lambda self, dims: made((self.shape[axis] for axis in dims), self),
        "transpose_copy":
            lambda self, dim0, dim1: made(shapes.swapped(self.shape, dim0, dim1) if self.dim() else (), self),
        "t_copy": lambda self: made(self.shape[::-1], self),
        # tensors filled with something
        "_to_copy zeros_like ones_like full_like rand_like randn_like randint_like empty_like":
            lambda self, dtype="": like(self, dtype or ""),
        "new_zeros new_ones new_full": lambda self, size, dtype: made(size, dtype or self),
        "zeros ones rand randn _efficientzerotensor": lambda size, dtype: made(size, dtype or "float32"),
        "full": lambda size, fill_value, dtype: made(size, dtype or promoted(fill_value)),
        "randint": lambda size, dtype: made(size, dtype or "int64"),
        "randperm": lambda n, dtype: made((n,), dtype or "int64"),
        "eye": lambda n, dtype, m=None: made((n, n if m is None else m), dtype or "float32"),
        "scalar_tensor": lambda dtype: made((), dtype or "float32"),
        "linspace logspace": lambda steps, dtype: made((steps,), dtype or "float32"),
        "arange": _arange,
        "normal": _normal,
        "multinomial": lambda self, num_samples: made((*self.shape[:-1], num_samples), "int64"),
        "native_dropout _fused_dropout": _dropout,
    }
)  # fmt: skip


# -- results of operators that only programs name whole: a profiler shows what they consist of

WHOLE_OUTPUTS: AtenTable[Results] = AtenTable()


def _index(self: AtenTensor, indices: Sequence[AtenTensor | None]) -> Described:
    """Indices broadcast; they are where the first of them was, or in front where others are between."""
    given = {at: index for at, index in enumerate(indices) if index is not None}
    if any(type_name(index) in ("bool", "uint8") for index in given.values()):
        raise NotKnown("how much a mask picks")
    rest = [n for at, n in enumerate(self.shape) if at not in given]
    first = min(given) if max(given) - min(given) < len(given) else 0
    return made((*rest[:first], *shapes.broadcast([index.shape for index in given.values()]), *rest[first:]), self)


def _meshgrid(tensors: Sequence[AtenTensor], indexing: str = "ij") -> Results:
    shape = [max(x.numel(), 1) for x in tensors]
    if indexing == "xy":
        shape[:2] = shape[:2][::-1]
    return [made(shape, x) for x in tensors]


def _repeat_interleave(self: AtenTensor, repeats: Any, dim: int | None) -> Described:
    if isinstance(repeats, AtenTensor):
        raise NotKnown("how often elements are repeated")
    return made(shapes.repeated(self.shape, repeats, dim), self)


def _diff(self: AtenTensor, n: int, dim: int, prepend: AtenTensor | None, append: AtenTensor | None) -> Described:
    axis = axis_of(self, dim)
    extent = sum(each.shape[axis] for each in (self, prepend, append) if each is not None)
    return made(replaced(self, axis, max(extent - n, 0)), self)


def _einsum(equation: str, tensors: Sequence[AtenTensor]) -> Described:
    written = shapes.explicit(equation, [x.dim() for x in tensors])
    return made(shapes.einsum(written, [tuple(x.shape) for x in tensors]), promoted(*tensors))


WHOLE_OUTPUTS.rows(
    {
        "concat": _cat,
        "stack": lambda tensors, dim: made(shapes.stack([x.shape for x in tensors], dim), promoted(*tensors)),
        "index": _index,
        "meshgrid": _meshgrid,
        "einsum": _einsum,
        "diff": _diff,
        "repeat_interleave": _repeat_interleave,
        "pad": _pad,
        "one_hot": lambda self, num_classes: made((*self.shape, num_classes), "int64"),
        "triu tril": lambda self: like(self),
    }
)
