"""Products of TensorFlow Lite: convolutions, matrices, StableHLO's general forms of both, and recurrent layers.

Weights of convolutions are (out, *kernel, in).
"""

from math import prod
from typing import Any

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, Extent, Mismatch, divided, known, product, times, total
from opcost.frontends.nodes.meaning import NodeCall, Operand, OperatorMeaning, Out
from opcost.frontends.nodes.results import numel, one, with_bias
from opcost.frontends.nodes.windows import SlidingWindow, then
from opcost.frontends.tflite.operators import swept


def _depthwise(call: NodeCall) -> OperatorMeaning:
    """The weight is (1, *kernel, out), or (*kernel, in, out): each element of the result meets all but its last axis."""
    x, weight, bias = call[0], call[1], call.at(2)
    flat = call.node.op == "DEPTHWISE_CONV_2D"
    over = SlidingWindow.of(call, weight.dims[1:-1] if flat else weight.dims[:3], x.dims[1:-1])
    shape = (x.dims[0], *over.swept(), weight.dims[-1])
    macs = numel(shape) * prod(known(weight.dims[1 if flat else 0 : -1]))
    attrs = with_bias(bias, macs=macs, **over.geometry, **then(call))
    return one("conv", attrs, shape, x.dtype, [x, weight, bias])


def _transposed(call: NodeCall) -> OperatorMeaning:
    """Each element of x meets the kernel, for every channel of the result; the shape of the result is an input."""
    target, weight, x, bias = call["shape"], call["weight"], call["x"], call.at("bias")
    flat = call.node.op == "TRANSPOSE_CONV"
    kernel, channels = (weight.dims[1:-1], weight.dims[0]) if flat else (weight.dims[:3], weight.dims[3])
    shape: Dims = target.integers if target.content is not None else _spread(call, x, kernel, channels)
    attrs = with_bias(bias, macs=numel(x.shape) * prod(known((*kernel, channels)))) | then(call)
    return one("conv", attrs, shape, x.dtype, [x, weight, bias])


def _spread(call: NodeCall, x: Operand, kernel: Dims, channels: Extent) -> Dims:
    """The shape that follows from x alone, where the one that is given depends on data."""
    strides = [call.whole(f"stride_{axis}", 1) for axis in ("dhw" if len(kernel) > 2 else "hw")]
    space = [times(n, s) for n, s in zip(x.dims[1:-1], strides, strict=True)]
    if call.whole("padding") != 0:
        axes = zip(space, kernel, strides, strict=True)
        space = [None if n is None or k is None else n + max(k - s, 0) for n, k, s in axes]
    return (x.dims[0], *space, channels)


def _fully_connected(call: NodeCall) -> OperatorMeaning:
    x, weight, bias = call[0], call[1], call.at(2)
    width, depth = known(weight.dims)
    if call.flag("keep_num_dims"):
        if x.dims[-1] not in (None, depth):
            raise Mismatch(f"rows of {x.dims[-1]} elements do not fit a weight of {depth}")
        shape: Dims = (*x.dims[:-1], width)
    else:
        shape = (divided(product(x.dims), depth, "elements", "rows") if depth else None, width)
    return one("matmul", with_bias(bias, depth=depth, **then(call)), shape, x.dtype, [x, weight, bias])


def _dot_general(call: NodeCall) -> OperatorMeaning:
    a, b, at = call[0], call[1], call.attrs
    batch, summed = at["batch_a"], at["summed_a"]
    rows = [n for axis, n in enumerate(a.dims) if axis not in (*batch, *summed)]
    columns = [n for axis, n in enumerate(b.dims) if axis not in (*at["batch_b"], *at["summed_b"])]
    depth = prod(known(tuple(a.dims[axis] for axis in summed)))
    return one("matmul", {"depth": depth}, (*[a.dims[axis] for axis in batch], *rows, *columns), a.dtype)


def _convolution(call: NodeCall) -> OperatorMeaning:
    """Axes are where the options put them; an element of the result meets the kernel of one group."""
    x, weight, at = call[0], call[1], call.attrs
    kernel, space = [weight.dims[axis] for axis in at["kernel_space"]], [x.dims[axis] for axis in at["in_space"]]
    counts = swept(space, kernel, *[at[name] for name in ("strides", "dilations", "spread", "padding")])
    shape: list[Extent] = [None] * (len(kernel) + 2)
    shape[at["out_batch"]] = x.dims[at["in_batch"]]
    shape[at["out_channels"]] = weight.dims[at["kernel_out"]]
    for axis, count in zip(at["out_space"], counts, strict=True):
        shape[axis] = count
    macs = numel(tuple(shape)) * prod(known((*kernel, weight.dims[at["kernel_in"]])))
    return one("conv", {"macs": macs}, tuple(shape), x.dtype, [x, weight])


# -- recurrent layers ------------------------------------------------------------------------------------------------------


class _RecurrentDirection:
    """One direction of a recurrent layer, with the sizes of its input, of its cell and of its result."""

    def __init__(self, call: NodeCall, first: int, aux: int | None, *, lstm: bool) -> None:
        # The inputs of an LSTM in their order: weights, states' weights, peepholes, biases, projection, its bias
        given = [*call.ins[first : first + (17 if lstm else 1)], *[None] * 17][:17]
        self.weights, self.peepholes = given[:4], given[8:11]
        self.biases = [*given[11:15], given[16]] if lstm else [call.at(first + 2)]
        hidden, width = known(next(weight for weight in reversed(self.weights) if weight is not None).dims)
        if aux is not None and (other := call.at(aux)) is not None:
            width += known(other.dims)[-1]
        self.sizes = width, hidden, hidden if given[15] is None else known(given[15].dims)[0]


def _with_one_weight(call: NodeCall) -> OperatorMeaning:
    """A step of an LSTM with one weight for input and state, and one state behind the other."""
    x, weight, state = call[0], call[2], call[4]
    depth, width = known(weight.dims)
    gates = call.one("matmul", {"depth": width, "bias": True}, [x, weight, call[3]], (x.dims[0], depth))
    outs = [Out(state.shape, x.dtype), Out(state.shape, x.dtype)]
    outs += [Out((x.dims[0], width), x.dtype), Out(gates.shape, x.dtype, home=gates)]
    return OperatorMeaning("elementwise", {"fn": "lstm_cell", "elements": numel(state.shape)}, outs, [gates, state])


def _recurrent(call: NodeCall) -> OperatorMeaning:
    """All steps of a layer in its directions; biases and gates that the rule does not have are operators of their own."""
    x, name = call[0], call.node.op
    lstm, both = name.endswith("LSTM"), name.startswith("BI")
    if name == "LSTM" and call.whole("kernel") == 1:
        return _with_one_weight(call)
    front = x.dims[: 2 if "SEQUENCE" in name else 1]
    steps = numel(front)
    # Where the inputs of each direction begin, and its second input
    places = [(1, None)] if not both else [(1, 41), (18, 45)] if lstm else [(1, 10), (5, 11)]
    layers = [_RecurrentDirection(call, first, aux, lstm=lstm) for first, aux in places]
    for layer in layers:
        for fn, vectors in (("add", layer.biases), ("fma", layer.peepholes)):
            if given := [vector for vector in vectors if vector is not None]:
                elements = steps * sum(numel(vector.shape) for vector in given)
                call.step("elementwise", {"fn": fn, "elements": elements}, given, [])
    for scale in filter(None, call.ins[20:24] if lstm and not both else ()):  # gates may be normalized
        shape = (steps, *known(scale.dims))
        (gate,) = call.step("view", NO_ATTRS, [x], [Out(shape, scale.dtype, home=x)])
        call.step("norm", {"fn": "layer"}, [gate, scale], [Out(shape, scale.dtype)])
    sizes = tuple(layer.sizes for layer in layers)
    widths: list[Any] = [out for _, _, out in sizes]
    outs = [Out((*front, width), x.dtype) for width in ([total(widths)] if call.flag("merge_outputs") else widths)]
    if lstm and layers[0].weights[0] is None:  # the input gate is what the forget gate leaves
        macs = sum(3 * cells * (width + out) + (cells * out if out != cells else 0) for width, cells, out in sizes)
        units = steps * sum(cells for _, cells, _ in sizes)
        call.step("elementwise", {"fn": "lstm_cell", "elements": units}, [x], [])
        return OperatorMeaning("matmul", {"macs": steps * macs}, outs)
    cell = "lstm" if lstm else "rnn_tanh" if call.whole("fused") == 4 else "rnn_relu"
    return OperatorMeaning("recurrent", {"cell": cell, "steps": steps, "layers": sizes}, outs)


def _svdf(call: NodeCall) -> OperatorMeaning:
    """Each filter is a product along the features, then one along the steps that are remembered; ranks are added up."""
    x, features, time, bias = call[0], call[1], call[2], call.at(3)
    batch, filters, memory = x.dims[0], known(features.dims)[0], known(time.dims)[1]
    rank = call.whole("rank") or 1
    units = divided(filters, rank, "filters", "of a rank")
    shape: Dims = (batch, units)
    macs = known((times(batch, filters),))[0] * (known(features.dims)[1] + memory)
    if rank > 1:
        call.step("elementwise", {"fn": "add", "elements": numel(shape) * (rank - 1)}, [x], [])
    return one("matmul", with_bias(bias, macs=macs, **then(call)), shape, x.dtype)
