"""What Core ML's own operators mean. Arguments have names in the file, those that `nodes.operators` has for them.

Layers of neural networks are read as such operators too; their tensors end in channels, height and width.
"""

from collections.abc import Sequence
from typing import Any

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, Extent, Mismatch, Unknown, axis_of, known, reshaped, times, total
from opcost.frontends.nodes import results
from opcost.frontends.nodes.meaning import Handler, NodeCall, OperatorMeaning, Out
from opcost.frontends.nodes.operators import suppressed
from opcost.frontends.nodes.results import like, numel, one, with_bias

EXPRESSIONS: dict[str, Handler] = {
    "view_declared": lambda call: results.viewed(call["x"], None),  # in the shape that the file declares
    "non_zero": lambda call: one("gather", NO_ATTRS, (None, len(call["x"].dims)), "int32", [call["x"]]),
    "local_response_norm": lambda call: like(
        call["x"], "norm", {"fn": "local_response", "window": call.whole("size", 1)}, [call["x"]]
    ),
    "non_maximum_suppression": lambda call: suppressed(call, [Out(None, call["boxes"].dtype)] * len(call.node.outputs)),
    # A list of tensors of one shape: what is read or written is moved; shapes are those that the file declares
    "list": lambda call: OperatorMeaning("copy", NO_ATTRS, [Out(None, call.out_dtype)] * len(call.node.outputs)),
}
"""Handlers of one expression each, by their names."""


def _quantize(call: NodeCall) -> OperatorMeaning:
    x = call["input"]
    return like(x, "quantize", NO_ATTRS, [x, call.at("scale"), call.at("zero_point")], call.out_dtype)


# -- products ------------------------------------------------------------------------------------------------------------


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


def _identity(call: NodeCall) -> OperatorMeaning:
    x = call.at("x") or call["input"]
    return results.viewed(x, x.shape)


def _update_state(call: NodeCall) -> OperatorMeaning:
    value = call["value"]
    return OperatorMeaning("copy", NO_ATTRS, [Out(value.shape, value.dtype)] * len(call.node.outputs), [value])


def _places(call: NodeCall, name: str, rank: int) -> Dims:
    """Where a slice begins or ends along each axis; None where that is not known."""
    try:
        return call.extents(name) or (0,) * rank
    except Unknown:
        return (None,) * rank


def _slice_by_index(call: NodeCall) -> OperatorMeaning:
    x = call["x"]
    rank = len(x.dims)
    begins, ends = (_places(call, name, rank) for name in ("begin", "end"))
    steps = call.integers("stride") or (1,) * rank
    masks = [call.numbers(f"{name}_mask") or (False,) * rank for name in ("begin", "end", "squeeze")]
    cuts = []
    for begin, end, step, whole, over, gone in zip(begins, ends, steps, *masks, strict=True):
        sure = (begin is not None or bool(whole)) and (end is not None or bool(over))
        first, last = None if whole and not gone else begin, None if over else end
        cuts.append(results.Cut(first, last, step, sure=begin is not None if gone else sure, gone=bool(gone)))
    out = results.cut(x, cuts)
    return results.copied(x, out.shape, out.content)


def _slice_by_size(call: NodeCall) -> OperatorMeaning:
    x, sizes = call["x"], call.extents("size") or ()
    axes = zip(x.dims, _places(call, "begin", len(x.dims)), sizes, strict=True)
    rests = [total((n, times(begin, -1))) if size == -1 else size for n, begin, size in axes]
    return results.copied(x, tuple(rests))


def _crop(call: NodeCall) -> OperatorMeaning:
    x = call["x"]
    edges = call.integers("edges")  # as neural networks have them
    pairs = [edges[:2], edges[2:4]] if edges else [call.integers(f"crop_{side}") or () for side in ("height", "width")]
    space = [None if n is None else n - sum(pair) for n, pair in zip(x.dims[-2:], pairs, strict=True)]
    return results.copied(x, (*x.dims[:-2], *space))


def _reshape_image(call: NodeCall) -> OperatorMeaning:
    x, wanted = call["x"], call.integers("shape") or ()
    front = x.dims[: max(len(x.dims) - 3, 0)]
    if len(wanted) > 3:  # the axis of sequences, too
        return results.viewed(x, reshaped(x.dims, wanted))
    return results.viewed(x, (*front, *reshaped(x.dims[len(front) :], wanted)))


def _transpose_image(call: NodeCall) -> OperatorMeaning:
    x, order = call["x"], call.integers("perm") or ()
    front = len(x.dims) - 3
    if front < 0:
        raise Unknown
    return results.turned(x, (*range(front), *[front + axis for axis in order]))


def _concat_image(call: NodeCall) -> OperatorMeaning:
    values = call.several("values")
    return results.joined(values, max(-5 if call.flag("sequence") else -3, -len(values[0].dims)))


def _slice_image(call: NodeCall) -> OperatorMeaning:
    x, end = call["x"], call.whole("end")
    axis = axis_of(max(call.whole("axis") - 3, -len(x.dims)), len(x.dims))
    return results.sliced(x, [axis], [call.whole("begin")], [None if end == -1 else end], [call.whole("stride") or 1])


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


def _norm(call: NodeCall) -> OperatorMeaning:
    x, affine = call["x"], [call.at(name) for name in ("gamma", "beta")]
    attrs: dict[str, Any] = {"fn": call.text("fn")}
    if attrs["fn"] == "batch":
        attrs["affine"] = sum(each is not None for each in affine)
    return like(x, "norm", attrs, [x, *affine, call.at("mean"), call.at("variance")])


def _resize(call: NodeCall) -> OperatorMeaning:
    x, name = call["x"], call.node.op
    fn = "nearest" if "NEAREST" in call.text("interpolation_mode") else call.text("fn", "bilinear")
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
    return one("resize", {"fn": fn}, shape, x.dtype, [x])


def _sample(call: NodeCall) -> OperatorMeaning:
    """Four elements for each of the result; the shape is the one that the file declares."""
    x = call["x"]
    grids = (call.at(name) for name in ("coordinates", "roi", "boxes", "transform_matrix"))
    return one("sample", {"taps": 4}, None, x.dtype, [x, next(filter(None, grids), x)])


def _argsort(call: NodeCall) -> OperatorMeaning:
    x = call["x"]
    length = known((x.dims[axis_of(call.whole("axis", -1), len(x.dims))],))[0]
    return like(x, "sort", {"length": max(length, 1)}, [x], "int32")


def _classify(call: NodeCall) -> OperatorMeaning:
    """The greatest of the probabilities, and its name."""
    x = call["probabilities"]
    return OperatorMeaning("reduce", {"fn": "argmax"}, [Out((), "uint8"), Out(x.shape, x.dtype)], [x])
