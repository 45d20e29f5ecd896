"""What Core ML's operators mean. Arguments have names in the file, those that `nodes.operators` has for them.

Layers of neural networks are read as such operators too; their tensors end in channels, height and width.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, Extent, Mismatch, Unknown, axis_of, known, reshaped, times  # fmt: skip
from opcost.frontends.nodes import results
from opcost.frontends.nodes.meaning import NodeCall, OperatorMeaning, OperatorTable, Out
from opcost.frontends.nodes.operators import add_functions, add_rows
from opcost.frontends.nodes.results import like, numel, one, with_bias

TABLE = OperatorTable()
handles = TABLE.handles

add_rows(TABLE, "\n".join(f"{name}: {name}" for name in (
    "transpose flatten2d squeeze expand_dims concat stack split pad tile broadcast_to gather gather_along_axis gather_nd "
    "one_hot fill fill_like range_1d matmul einsum"
).split()))  # fmt: skip
add_rows(TABLE, """
reshape: reshape zero_copies=1
depth_to_space pixel_shuffle: depth_to_space block_size<upscale_factor
space_to_depth pixel_unshuffle: space_to_depth block_size<downscale_factor
reverse reverse_sequence band_part: copy
space_to_batch batch_to_space sliding_windows permute_sequences: copy_declared
shape: shape out_dtype=int32
random_normal random_uniform random_bernoulli random_categorical: random
reduce_sum reduce_log_sum: reduce fn=sum
reduce_mean: reduce fn=mean
reduce_max: reduce fn=max
reduce_min: reduce fn=min
reduce_prod: reduce fn=prod
reduce_l1_norm reduce_l2_norm reduce_sum_square: reduce fn=norm
reduce_log_sum_exp: reduce fn=logsumexp
reduce_argmax: reduce_arg axis=-1 fn=argmax out_dtype=int32
reduce_argmin: reduce_arg axis=-1 fn=argmin out_dtype=int32
cumsum: same kind=reduce fn=cumsum
softmax: same kind=softmax fn=softmax
log_softmax: same kind=softmax fn=log_softmax
topk: topk k=1 out_dtype=int32
""")  # fmt: skip

_COMPUTED = {
    "real_div": "div", "floor_div": "floordiv", "maximum": "max", "minimum": "min", "not_equal": "notequal",
    "greater_equal": "greaterorequal", "less_equal": "lessorequal", "logical_and": "and", "logical_or": "or",
    "logical_not": "not",
}  # fmt: skip
"""How contents are computed, where it is not the operator's own name."""

add_functions(
    TABLE,
    {
        **{name: name for name in (
            "abs acos asin atan ceil cos cosh elu erf exp exp2 floor leaky_relu log neg relu relu6 round rsqrt sigmoid sign silu "
            "sin sinh softplus softsign sqrt square tan tanh threshold atanh asinh acosh"
        ).split()},
        "inverse": "reciprocal", "logical_not": "logical", "clip": "clamp", "clamped_relu": "clamp", "scaled_tanh": "tanh",
        "sigmoid_hard": "hardsigmoid", "linear_activation": "fma", "thresholded_relu": "threshold",
        "softplus_parametric": "softplus",
    },
    _COMPUTED, inputs=("x",),
)  # fmt: skip
add_functions(
    TABLE,
    {
        "add": "add", "sub": "sub", "mul": "mul", "real_div": "div", "floor_div": "floor_divide", "pow": "pow",
        "mod": "remainder", "maximum": "max", "minimum": "min",
        **dict.fromkeys("logical_and logical_or logical_xor".split(), "logical"),
        **dict.fromkeys("equal not_equal greater greater_equal less less_equal".split(), "compare"),
    },
    _COMPUTED, inputs=("x", "y"),
)  # fmt: skip
add_functions(TABLE, {"select": "where"}, {"select": "where"}, inputs=("cond", "a", "b"))


# Operators of one expression each
handles("prelu")(lambda call: like(call["x"], "elementwise", {"fn": "prelu"}, [call["x"], call["alpha"]]))
handles("cast")(lambda call: results.converted(call["x"], call.out_dtype))
handles("reshape_like")(lambda call: results.viewed(call["x"], None))
handles("slice_update")(lambda call: like(call["x"], "scatter", NO_ATTRS, [call["x"], call["begin"], call["update"]]))
handles("non_zero")(lambda call: one("gather", NO_ATTRS, (None, len(call["x"].dims)), "int32", [call["x"]]))


@handles("gelu")
def _gelu(call: NodeCall) -> OperatorMeaning:
    fns = {"EXACT": "gelu", "0": "gelu", "TANH_APPROXIMATION": "gelu_tanh", "1": "gelu_tanh"}  # networks have numbers
    fn = fns.get(call.text("mode", "EXACT"), "quick_gelu")
    return results.pointwise(fn, [call["x"]])


@handles("quantize", "dequantize")
def _quantize(call: NodeCall) -> OperatorMeaning:
    x = call["input"]
    return like(x, "quantize", NO_ATTRS, [x, call.at("scale"), call.at("zero_point")], call.out_dtype)


# -- products ------------------------------------------------------------------------------------------------------------


def _window(call: NodeCall, kernel: Dims, space: Dims) -> results.SlidingWindow:
    """The window of an operator, with Core ML's defaults."""
    mode = call.text("pad_type", "valid")
    pads = (call.integers("pad") if mode == "custom" else None) or ()
    pairs = tuple(zip(pads[::2], pads[1::2], strict=False))
    stride, dilation = call.integers("strides"), call.integers("dilations")
    same = mode in ("same", "same_lower")
    return results.SlidingWindow(kernel, space, stride=stride, dilation=dilation, pads=pairs, same=same)


@handles("conv", "conv_transpose")
def _conv(call: NodeCall) -> OperatorMeaning:
    """Images may lack axes in front, as they do in neural networks."""
    x, weight = call["x"], call["weight"]
    rank = len(weight.dims) - 2
    over = _window(call, weight.dims[2:], x.dims[-rank:])
    attrs, channels, target = over.geometry, weight.dims[0], None
    if call.node.op == "conv":
        space = over.swept()
    else:
        attrs = {"transposed": True, **attrs}
        target = call.integers("output_shape")
        space = target[-rank:] if target else over.spread()
        channels = times(weight.dims[1], call.whole("groups", 1))
    return one("conv", attrs, (*x.dims[: -rank - 1], channels, *space), x.dtype, [x, weight, call.at("bias")])


@handles("linear")
def _linear(call: NodeCall) -> OperatorMeaning:
    """In neural networks the features may come before two axes of extent 1."""
    x, weight, bias = call["x"], call["weight"], call.at("bias")
    width, depth = known(weight.dims)
    image = len(x.dims) > 2 and x.dims[-2:] == (1, 1) and x.dims[-3] == depth and depth != 1
    if x.dims[-1] is None and x.dims[-2:-1] in ((1,), (None,)) and x.dims[-3:-2] in ((depth,), (None,)):
        raise Unknown  # it may be either
    if not image and x.dims[-1:] not in ((depth,), (None,)):
        raise Mismatch(f"rows of {x.dims[-1:]} elements do not fit a weight of {depth}")
    shape = (*x.dims[:-3], width, 1, 1) if image else (*x.dims[:-1], width)
    return one("matmul", with_bias(bias, depth=depth), shape, x.dtype, [x, weight, bias])


@handles("scaled_dot_product_attention")
def _attention(call: NodeCall) -> OperatorMeaning:
    q, k, v = call["query"], call["key"], call["value"]
    return one("attention", NO_ATTRS, (*q.dims[:-1], v.dims[-1]), q.dtype, [q, k, v, call.at("attn_mask")])


@handles("lstm", "gru", "rnn")
def _recurrent(call: NodeCall) -> OperatorMeaning:
    """Sequences are (length, batch, features); every gate has one bias."""
    x, weight, state = call["x"], call["weight_ih"], call["weight_hh"]
    hidden = known(state.dims)[1]
    directions = 2 if call.text("direction", "forward") == "bidirectional" else 1
    rnn = "rnn_relu" if "relu" in call.text("activation") else "rnn_tanh"
    length, batch = x.dims[0], x.dims[1]
    steps = numel((length, batch))
    layers = ((known(weight.dims)[1], hidden, hidden),) * directions
    attrs: dict[str, Any] = {"cell": rnn if call.node.op == "rnn" else call.node.op, "steps": steps, "layers": layers}
    biases = [each for name in ("bias", "bias_back", "input_bias") for each in call.several(name)]
    if biases:
        elements = steps * sum(numel(each.shape) for each in biases)
        call.step("elementwise", {"fn": "add", "elements": elements}, biases, [])
    first: Extent = length if call.flag("output_sequence") else 1
    rest = x.dims[3:]  # in neural networks all tensors have five axes
    last = Out((*(1,) * bool(rest), batch, directions * hidden, *rest), x.dtype)
    outs = [Out((first, batch, directions * hidden, *rest), x.dtype), *[last] * 4]  # two states of each direction
    return OperatorMeaning("recurrent", attrs, outs, [x, weight, state])


# -- elements in other places --------------------------------------------------------------------------------------------


@handles("identity", "read_state")
def _identity(call: NodeCall) -> OperatorMeaning:
    x = call.at("x") or call["input"]
    return results.viewed(x, x.shape)


@handles("coreml_update_state", "write_state")
def _update_state(call: NodeCall) -> OperatorMeaning:
    value = call["value"]
    return OperatorMeaning("copy", NO_ATTRS, [Out(value.shape, value.dtype)] * len(call.node.outputs), [value])


def _begins_or_ends(call: NodeCall, name: str, rank: int) -> Dims:
    """Places that are known or left open, one for each axis."""
    try:
        return call.extents(name) or (0,) * rank
    except Unknown:
        return (None,) * rank


@handles("slice_by_index")
def _slice(call: NodeCall) -> OperatorMeaning:
    x = call["x"]
    rank = len(x.dims)
    begins, ends = (_begins_or_ends(call, name, rank) for name in ("begin", "end"))
    steps = call.integers("stride") or (1,) * rank
    masks = [call.numbers(f"{name}_mask") or (False,) * rank for name in ("begin", "end", "squeeze")]
    cuts = []
    for begin, end, step, whole, over, gone in zip(begins, ends, steps, *masks, strict=True):
        sure = (begin is not None or bool(whole)) and (end is not None or bool(over))
        first, last = None if whole and not gone else begin, None if over else end
        cuts.append(results.Cut(first, last, step, sure=begin is not None if gone else sure, gone=bool(gone)))
    out = results.cut(x, cuts)
    return results.copied(x, out.shape, out.content)


@handles("slice_by_size")
def _slice_by_size(call: NodeCall) -> OperatorMeaning:
    x = call["x"]
    begins = _begins_or_ends(call, "begin", len(x.dims))
    shape: list[Extent] = []
    for n, size, begin in zip(x.dims, call.extents("size") or (), begins, strict=True):
        rest = None if n is None or begin is None else n - begin
        shape.append(rest if size == -1 else size)
    return results.copied(x, tuple(shape))


@handles("crop")
def _crop(call: NodeCall) -> OperatorMeaning:
    x = call["x"]
    edges = call.integers("edges")  # as neural networks have them
    pairs = [edges[:2], edges[2:4]] if edges else [call.integers(f"crop_{side}") or () for side in ("height", "width")]
    space = [None if n is None else n - sum(pair) for n, pair in zip(x.dims[-2:], pairs, strict=True)]
    return results.copied(x, (*x.dims[:-2], *space))


_SCATTERED = {"add": "add", "sub": "add", "mul": "mul", "div": "mul", "max": "max", "min": "min"}


@handles("scatter", "scatter_along_axis", "scatter_nd")
def _scatter(call: NodeCall) -> OperatorMeaning:
    fn = _SCATTERED.get(call.text("mode", "add"))
    reads = [call["data"], call["indices"], call["updates"]]
    return like(call["data"], "scatter", {"fn": fn} if fn else NO_ATTRS, reads)


@handles("make_list", "list_read", "list_write", "list_gather", "list_scatter", "list_length")
def _list(call: NodeCall) -> OperatorMeaning:
    """A list of tensors of one shape: what is read or written is moved; shapes are those that the file declares."""
    return OperatorMeaning("copy", NO_ATTRS, [Out(None, call.out_dtype)] * len(call.node.outputs))


@handles("reshape_image")
def _reshape_image(call: NodeCall) -> OperatorMeaning:
    x, wanted = call["x"], call.integers("shape") or ()
    front = x.dims[: max(len(x.dims) - 3, 0)]
    if len(wanted) > 3:  # the axis of sequences, too
        return results.viewed(x, reshaped(x.dims, wanted))
    return results.viewed(x, (*front, *reshaped(x.dims[len(front) :], wanted)))


@handles("transpose_image")
def _transpose_image(call: NodeCall) -> OperatorMeaning:
    x, order = call["x"], call.integers("perm") or ()
    front = len(x.dims) - 3
    if front < 0:
        raise Unknown
    return results.turned(x, (*range(front), *[front + axis for axis in order]))


@handles("concat_image")
def _concat_image(call: NodeCall) -> OperatorMeaning:
    values = call.several("values")
    return results.joined(values, max(-5 if call.flag("sequence") else -3, -len(values[0].dims)))


@handles("slice_image")
def _slice_image(call: NodeCall) -> OperatorMeaning:
    x, end = call["x"], call.whole("end")
    axis = axis_of(max(call.whole("axis") - 3, -len(x.dims)), len(x.dims))
    return results.sliced(x, [axis], [call.whole("begin")], [None if end == -1 else end], [call.whole("stride") or 1])


@handles("embed")
def _embed(call: NodeCall) -> OperatorMeaning:
    """Rows of a table; an axis of extent 1 behind the indices is where the row goes."""
    table, indices = call["x"], call["indices"]
    shape = indices.dims
    if shape[-1:] == (None,):  # it may be 1
        raise Unknown
    if shape[-3:] == (1, 1, 1):
        shape = (*shape[:-3], table.dims[1], 1, 1)
    else:
        shape = (*(shape[:-1] if shape[-1:] == (1,) else shape), table.dims[1])
    return one("embedding", NO_ATTRS, shape, "float32", [table, indices])


# -- normalizations, pools, interpolations, sorting -----------------------------------------------------------------------

_NORMS = {"batch_norm": "batch", "instance_norm": "instance", "layer_norm": "layer", "l2_norm": "lp", "rms_norm": "rms"}


@handles(*_NORMS, "local_response_norm")
def _norm(call: NodeCall) -> OperatorMeaning:
    x = call["x"]
    if call.node.op == "local_response_norm":
        return like(x, "norm", {"fn": "local_response", "window": call.whole("size", 1)}, [x])
    affine = [call.at(name) for name in ("gamma", "beta")]
    attrs: dict[str, Any] = {"fn": _NORMS[call.node.op]}
    if call.node.op == "batch_norm":
        attrs["affine"] = sum(each is not None for each in affine)
    return like(x, "norm", attrs, [x, *affine, call.at("mean"), call.at("variance")])


_POOLS = {"max_pool": "max", "avg_pool": "avg", "l2_pool": "lp"}


@handles(*_POOLS)
def _pool(call: NodeCall) -> OperatorMeaning:
    x, kernel, fn = call["x"], call.integers("kernel_sizes") or (), _POOLS[call.node.op]
    rank = len(kernel)
    front, space = x.dims[:-rank], x.dims[-rank:]
    if call.flag("global"):
        attrs: dict[str, Any] = {"fn": f"adaptive_{fn}", "window": prod(known(space))}
        return one("pool", attrs, (*front, *(1,) * rank), x.dtype, [x])
    over = _window(call, kernel, space)
    attrs = {"fn": fn, "window": prod(kernel), **over.geometry}
    return one("pool", attrs, (*front, *over.swept(ceil=call.flag("ceil_mode"))), x.dtype, [x])


@handles("upsample_nearest_neighbor", "upsample_bilinear", "resize_nearest_neighbor", "resize_bilinear", "resize")
def _resize(call: NodeCall) -> OperatorMeaning:
    x, name = call["x"], call.node.op
    nearest = "nearest" in name or "NEAREST" in call.text("interpolation_mode")
    space: Sequence[Extent]
    if name.startswith("upsample"):
        factors = [call.numbers(f"scale_factor_{side}") or (1,) for side in ("height", "width")]
        axes = zip(x.dims[-2:], factors, strict=True)
        space = [None if n is None or factor[0] is None else int(n * factor[0]) for n, factor in axes]
    elif name == "resize":
        space = call.integers("shape") or ()
    else:
        space = [call.whole("target_size_height"), call.whole("target_size_width")]
    shape = (*x.dims[: len(x.dims) - len(space)], *space)
    return one("resize", {"fn": "nearest" if nearest else "bilinear"}, shape, x.dtype, [x])


@handles("crop_resize", "resample", "affine")
def _sample(call: NodeCall) -> OperatorMeaning:
    """Four elements for each of the result; the shape is the one that the file declares."""
    x = call["x"]
    grids = (call.at(name) for name in ("coordinates", "roi", "boxes", "transform_matrix"))
    return one("sample", {"taps": 4}, None, x.dtype, [x, next(filter(None, grids), x)])


@handles("argsort")
def _argsort(call: NodeCall) -> OperatorMeaning:
    x = call["x"]
    length = known((x.dims[axis_of(call.whole("axis", -1), len(x.dims))],))[0]
    return like(x, "sort", {"length": max(length, 1)}, [x], "int32")


@handles("non_maximum_suppression")
def _suppress(call: NodeCall) -> OperatorMeaning:
    """Boxes are sorted by their scores; the number of overlaps that are compared depends on data and is left out."""
    boxes = call["boxes"]
    outs = [Out(None, boxes.dtype)] * len(call.node.outputs)
    length = max(known((boxes.dims[-2],))[0], 1)
    return OperatorMeaning("sort", {"length": length}, outs, [call["scores"], boxes])


@handles("classify")
def _classify(call: NodeCall) -> OperatorMeaning:
    """The greatest of the probabilities, and its name."""
    x = call["probabilities"]
    return OperatorMeaning("reduce", {"fn": "argmax"}, [Out((), "uint8"), Out(x.shape, x.dtype)], [x])
