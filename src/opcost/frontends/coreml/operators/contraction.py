"""Products: convolutions, matrices, attention, and recurrent layers."""

from __future__ import annotations

from typing import Any

from opcost.core.shapes import (
    Dims,
    Extent,
    Mismatch,
    Unknown,
    einsum,
    explicit,
    known,
    matmul,
    times,
)
from opcost.frontends.coreml.table import arg, args, flag, handles, integer, integers, need, word
from opcost.frontends.nodes.call import Call, Meaning, Out, numel
from opcost.frontends.nodes.windows import Window


def window(call: Call, kernel: Dims, space: Dims) -> Window:
    """The window of an operator, with Core ML's defaults."""
    way = word(call, "pad_type", "valid")
    pads = (integers(call, "pad") if way == "custom" else None) or ()
    return Window(
        kernel,
        space,
        stride=integers(call, "strides"),
        dilation=integers(call, "dilations"),
        pads=tuple(zip(pads[::2], pads[1::2], strict=False)),
        same=way in ("same", "same_lower"),
    )


@handles("conv")
def _conv(call: Call) -> Meaning:
    """Images may lack axes in front, as they do in neural networks."""
    x, weight, bias = need(call, "x"), need(call, "weight"), arg(call, "bias")
    rank = len(weight.dims) - 2
    over = window(call, weight.dims[2:], x.dims[-rank:])
    shape = (*x.dims[: -rank - 1], weight.dims[0], *over.swept())
    return Meaning("conv", over.geometry, [Out(shape, x.dtype)], [x, weight, bias])


@handles("conv_transpose")
def _conv_transpose(call: Call) -> Meaning:
    x, weight, bias = need(call, "x"), need(call, "weight"), arg(call, "bias")
    rank = len(weight.dims) - 2
    over = window(call, weight.dims[2:], x.dims[-rank:])
    target = integers(call, "output_shape")
    space = target[-rank:] if target else over.spread()
    shape = (*x.dims[: -rank - 1], times(weight.dims[1], integer(call, "groups", 1)), *space)
    return Meaning("conv", {"transposed": True, **over.geometry}, [Out(shape, x.dtype)], [x, weight, bias])


@handles("linear")
def _linear(call: Call) -> Meaning:
    """Of neural networks: the features may stand before two axes of extent 1."""
    x, weight, bias = need(call, "x"), need(call, "weight"), arg(call, "bias")
    width, depth = known(weight.dims)
    image = len(x.dims) > 2 and x.dims[-2:] == (1, 1) and x.dims[-3] == depth and depth != 1
    if x.dims[-1] is None and x.dims[-2:-1] in ((1,), (None,)) and x.dims[-3:-2] in ((depth,), (None,)):
        raise Unknown  # it may be either
    if not image and x.dims[-1:] not in ((depth,), (None,)):
        raise Mismatch(f"rows of {x.dims[-1:]} elements do not fit a weight of {depth}")
    shape = (*x.dims[:-3], width, 1, 1) if image else (*x.dims[:-1], width)
    attrs: dict[str, Any] = {"depth": depth, **({"bias": True} if bias is not None else {})}
    return Meaning("matmul", attrs, [Out(shape, x.dtype)], [x, weight, bias])


@handles("matmul")
def _matmul(call: Call) -> Meaning:
    a, b, bias = need(call, "x"), need(call, "y"), arg(call, "bias")
    turned = flag(call, "transpose_x"), flag(call, "transpose_y")
    shape = matmul(a.dims, b.dims, transpose_a=turned[0], transpose_b=turned[1])
    depth = known((a.dims[-2 if turned[0] and len(a.dims) > 1 else -1],))[0]
    attrs: dict[str, Any] = {"depth": depth, **({"bias": True} if bias is not None else {})}
    return Meaning("matmul", attrs, [Out(shape, a.dtype)], [a, b, bias])


@handles("einsum")
def _einsum(call: Call) -> Meaning:
    values = args(call, "values")
    equation = explicit(word(call, "equation"), [len(made.dims) for made in values])
    shape = einsum(equation, [made.dims for made in values])
    return Meaning("einsum", {"equation": equation}, [Out(shape, values[0].dtype)], values)


@handles("scaled_dot_product_attention")
def _attention(call: Call) -> Meaning:
    q, k, v, mask = need(call, "query"), need(call, "key"), need(call, "value"), arg(call, "attn_mask")
    return Meaning("attention", {}, [Out((*q.dims[:-1], v.dims[-1]), q.dtype)], [q, k, v, mask])


@handles("lstm", "gru", "rnn")
def _recurrent(call: Call) -> Meaning:
    """Sequences are (length, batch, features); every gate has one bias."""
    x, weight, state = need(call, "x"), need(call, "weight_ih"), need(call, "weight_hh")
    hidden = known(state.dims)[1]
    ways = 2 if word(call, "direction", "forward") == "bidirectional" else 1
    cell = {"lstm": "lstm", "gru": "gru"}.get(
        call.node.op, "rnn_relu" if "relu" in word(call, "activation") else "rnn_tanh"
    )
    length, batch = x.dims[0], x.dims[1]
    steps = numel((length, batch))
    attrs: dict[str, Any] = {"cell": cell, "steps": steps, "layers": ((known(weight.dims)[1], hidden, hidden),) * ways}
    biases = [made for name in ("bias", "bias_back", "input_bias") for made in args(call, name)]
    if biases:
        added = steps * sum(numel(made.shape) for made in biases)
        call.step("elementwise", {"fn": "add", "elements": added}, biases, [])
    first: Extent = length if flag(call, "output_sequence") else 1
    rest = x.dims[3:]
    state_shape = (*(1,) * bool(rest), batch, ways * hidden, *rest)  # in neural networks all tensors have five axes
    last = Out(state_shape, x.dtype)
    outs = [Out((first, batch, ways * hidden, *rest), x.dtype), last, last, last, last]  # two states of each direction
    return Meaning("recurrent", attrs, outs, [x, weight, state])
