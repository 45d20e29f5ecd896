"""What ONNX Runtime's optimizers make of several operators: each is taken apart into the kinds that it fuses.

The second half is about images as it lays them out on processors with wide vectors: channels in blocks of 8 or 16, padded with
zeros. Files that it saves at its default level hold such nodes (the domain com.microsoft.nchwc). They are read as the plain
operators that they replace: values have the shapes of the author's model, and weights lose their padding.
"""

from dataclasses import replace
from typing import Any

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, known, reduced, times
from opcost.frontends.nodes import results
from opcost.frontends.nodes.meaning import (
    GraphNode,
    Handler,
    NodeCall,
    NodeGraph,
    Operand,
    Operands,
    OperatorMeaning,
    Out,
)
from opcost.frontends.nodes.operators import matmul, read_by
from opcost.frontends.nodes.results import common, like, numel, one, with_bias
from opcost.frontends.nodes.windows import conv, then
from opcost.frontends.onnx.operators import stated

NCHWC = "com.microsoft.nchwc"

EXPRESSIONS: dict[str, Handler] = {
    "quantized_concat": lambda call: results.joined(call.given[2::3], call.whole("axis")),
    "dequantize_with_order": lambda call: like(call["x"], "quantize", dtype=stated(call, "to", "float32")),
    "all_finite": lambda call: one(
        "elementwise", {"fn": "nan_check", "elements": sum(numel(each.shape) for each in call.given)}, (), "bool"
    ),
    "ordered_norm": lambda call: like(
        call["x"], "norm", {"fn": "layer", "affine": 1 if call.at("beta") is None else 2}, call.given
    ),
    "torch_embedding": lambda call: one(
        "embedding", NO_ATTRS, (*call["indices"].dims, call["table"].dims[-1]), call["table"].dtype
    ),
    "restore_padding": lambda call: one(
        "scatter", NO_ATTRS, (*call["places"].dims, call["x"].dims[-1]), call["x"].dtype, call.given
    ),
}  # fmt: skip
"""Handlers of one expression each, by their names."""


# -- functions of each element -------------------------------------------------------------------------------------------


def _bias_split_gelu(call: NodeCall) -> OperatorMeaning:
    total = call.elementwise("add", *call.given)
    *rest, width = total.dims
    gate = call.one("elementwise", {"fn": "gelu"}, [total], (*rest, None if width is None else width // 2))
    return like(gate, "elementwise", {"fn": "mul"}, [total, gate])


def _bias_softmax(call: NodeCall) -> OperatorMeaning:
    """The bias is stretched by rules of its own, to the shape of what it is added to."""
    total = call.one("elementwise", {"fn": "add"}, [call[0], call[1]])
    return like(total, "softmax", {"fn": "softmax"}, [total])


def _bias_dropout(call: NodeCall) -> OperatorMeaning:
    """In use nothing is dropped: a bias and a residual are added, where there are such."""
    x = call[0]
    others = [each for each in (call.at("bias"), call.at("residual")) if each is not None]
    for other in others[:-1]:
        x = call.elementwise("add", x, other)
    mask = Out((-(-numel(x.shape) // 32),), "uint32") if call.flag("bits") else Out(x.shape, "bool")
    if not others:
        return OperatorMeaning("view", NO_ATTRS, [Out(x.shape, x.dtype, home=x), mask], [x])
    attrs: dict[str, Any] = {"fn": "add", "elements": numel(x.shape)}
    return OperatorMeaning("elementwise", attrs, [Out(x.shape, x.dtype), mask], [x, others[-1]])


def _mul_integer(call: NodeCall) -> OperatorMeaning:
    pairs = ((call["a"], call.at("a_zero")), (call["b"], call.at("b_zero")))
    a, b = (call.elementwise("sub", each, zero) if zero else each for each, zero in pairs)
    return one("elementwise", {"fn": "mul"}, common([a, b]), "int32", [a, b])


def _quantized_function(call: NodeCall) -> OperatorMeaning:
    """Computed on small whole numbers by their scales; only the function itself is counted."""
    ins = read_by(call)
    return one("elementwise", {"fn": call.text("fn")}, common(ins), ins[-1].dtype, call.given)


def _gemma_rotary(call: NodeCall) -> OperatorMeaning:
    """Sine and cosine of the angles, by which queries and keys and their turned halves are multiplied."""
    angles, q, k = call[0], call[1], call[3]
    turns = [call.elementwise("sin", angles), call.elementwise("cos", angles)]
    outs = [Out(each.shape, each.dtype) for each in (q, k)]
    return OperatorMeaning("elementwise", {"fn": "mul_mul_add"}, outs, [*call.given[1:], *turns])


# -- normalizations ------------------------------------------------------------------------------------------------------


def _summed(call: NodeCall, parts: Operands) -> Operand:
    ins = [each for each in parts if each is not None]
    return call.step("elementwise", results.added(ins), ins, [Out(common(ins), ins[0].dtype)])[0]


def _skip_norm(call: NodeCall) -> OperatorMeaning:
    """The sum of two tensors, and a bias, normalized."""
    x = call["x"]
    total = _summed(call, [x, call["skip"], call.at("bias")])
    kept = Out(reduced(x.dims, (-1,), keepdims=True), "float32")
    outs = [Out(x.shape, x.dtype), kept, kept, Out(x.shape, x.dtype, home=total)]
    reads = [total, call.at("gamma"), call.at("beta")]
    return OperatorMeaning("norm", {"fn": call.text("fn")}, outs, reads)


def _embed_norm(call: NodeCall) -> OperatorMeaning:
    """Rows of up to three tables looked up, added and normalized."""
    words, table = call[0], call[2]
    shape = (*words.dims, table.dims[-1])
    parts = []
    for each, rows in ((table, words), (call.at(3), words), (call.at(4), call.at(1))):
        if each is not None and rows is not None:
            parts.append(call.one("embedding", NO_ATTRS, [each, rows], shape))
    total = _summed(call, parts)
    outs = [Out(shape, table.dtype), Out((words.dims[0],), "int32"), Out(shape, table.dtype, home=total)]
    return OperatorMeaning("norm", {"fn": "layer"}, outs, [total, call.at(5), call.at(6)])


def _gated_norm(call: NodeCall) -> OperatorMeaning:
    normed = call.one("norm", {"fn": "rms"}, [call[0], call[1]])
    gate = call.elementwise("sigmoid" if call.text("activation", "silu") == "sigmoid" else "silu", call[2])
    return like(call[0], "elementwise", {"fn": "mul"}, [normed, gate])


def _skip_group_norm(call: NodeCall) -> OperatorMeaning:
    x = total = call[0]
    for other in (call[3], call.at(4)):  # the skip may lack the axes of the image
        if other is not None:
            total = call.one("elementwise", {"fn": "add"}, [total, other])
    normed = call.one("norm", {"fn": "group"}, [total, call[1], call[2]])
    outs = [Out(x.shape, x.dtype), Out(x.shape, x.dtype, home=total)]
    if not call.flag("activation"):
        return OperatorMeaning("view", NO_ATTRS, [outs[0]._replace(home=normed), *outs[1:]], [normed])
    return OperatorMeaning("elementwise", {"fn": "silu", "elements": numel(x.shape)}, outs, [normed])


# -- products ------------------------------------------------------------------------------------------------------------


def _block_quantized(call: NodeCall) -> OperatorMeaning:
    """The weight is (out, in), of four bits two in a byte; with a scale of its own the first operand becomes one byte."""
    a, weight, bias, scale = call["x"], call["weight"], call.at("bias"), call.at("quantized_by")
    if scale is not None:
        a = call.one("quantize", NO_ATTRS, [a, scale], dtype="float8_e4m3fn")
    depth = known((times(weight.dims[1], call.whole("pack", 1)),))[0]
    reads = [a, weight, bias, *[each for each in call.given[2:] if each not in (bias, scale)]]
    return one("matmul", with_bias(bias, depth=depth), (*a.dims[:-1], weight.dims[0]), call["x"].dtype, reads)


def _matmul_four(call: NodeCall) -> OperatorMeaning:
    """The weight is a run of bytes; its shape is an input."""
    depth, width = call["shape"].integers
    return one("matmul", {"depth": depth}, (*call["x"].dims[:-1], width), call["x"].dtype, [call["x"], call["weight"]])


def _ordered_matmul(call: NodeCall) -> OperatorMeaning:
    """Order 0 of the second operand, by columns, means that it is transposed; other orders permute memory."""
    found = matmul(call)
    return found if call.at("more") is None else found._replace(attrs={**found.attrs, "then": ("fma",)})


def _quantized_block(call: NodeCall) -> OperatorMeaning:
    """A normalization, maybe of a sum, and products with packed weights: gate and up, or queries, keys and values."""
    gated = call.node.op == "MatMulNBitsMlp"
    x, skip, scale = call[0], call.at(1), call.at(2)
    total = call.elementwise("add", x, skip) if skip is not None else x
    normed = call.step("norm", {"fn": "rms"}, [total, scale], [Out(x.shape, x.dtype)])[0] if scale is not None else x
    widths = [call.whole("N")] * 2 if gated else [call.whole("Nq"), *[call.whole("Nkv")] * 2]
    made = []
    for place, width in enumerate(widths):
        weight, scales, bias = (call.at(3 + 3 * place + at) for at in range(3))
        attrs = with_bias(bias, depth=call.whole("K"))
        made.append(call.one("matmul", attrs, [normed, weight, bias, scales], (*x.dims[:-1], width), x.dtype))
    summed = Out(x.shape, x.dtype, home=total)
    if not gated:
        outs = [Out(each.shape, each.dtype, home=each) for each in made]
        return OperatorMeaning("view", NO_ATTRS, [*outs, summed], made)
    fn = {"gelu": "gelu", "relu": "relu"}.get(call.text("activation").lower(), "silu")
    gate, up = call.elementwise(fn, made[0]), made[1]
    attrs = {"fn": "mul", "elements": numel(up.shape)}
    return OperatorMeaning("elementwise", attrs, [Out(up.shape, up.dtype), summed], [gate, up])


def _streams_before(call: NodeCall) -> OperatorMeaning:
    """Streams side by side are added up with weights before a block."""
    x, count = call["x"], call.whole("num_branches")
    attrs: dict[str, Any] = {"depth": count or known(x.dims[-2:-1])[0]}
    if float(call.attrs.get("reduction_scale", 1.0)) != 1.0:
        attrs["then"] = ("mul",)
    features = known(x.dims[-1:])[0] // (count or 1)
    return one("matmul", attrs, (*(x.dims[:-1] if count else x.dims[:-2]), features), x.dtype, [x, call["weights"]])


def _streams_after(call: NodeCall) -> OperatorMeaning:
    """After the block they are mixed and given its result."""
    x, mix = call["x"], call.at("mix")
    if mix is not None:
        x = call.one("matmul", {"depth": call.whole("num_branches") or known(x.dims[-2:-1])[0]}, [x, mix])
    return like(x, "elementwise", {"fn": "fma"}, [x, call["gate"], call["block"]])


# -- in other places -----------------------------------------------------------------------------------------------------


def _unfold(call: NodeCall) -> OperatorMeaning:
    """All windows along an axis, each as a last axis of its own."""
    x, size = call[0], call.whole("size", 1)
    axis = call.whole("dim", -1) % len(x.dims)
    count = (known((x.dims[axis],))[0] - size) // call.whole("step", 1) + 1
    shape: Dims = (*x.dims[:axis], count, *x.dims[axis + 1 :], size)
    return results.copied(x, shape)


# -- images in blocks of channels ----------------------------------------------------------------------------------------

ALIGNED = 4  # ONNX Runtime reorders channels whose number is a multiple of this
WIDEST = 16  # Channels in the largest block
_KEEPING = frozenset(
    "Relu Sigmoid Tanh HardSigmoid Gelu QuickGelu Clip LeakyRelu Add Sum Mul Reshape MaxPool AveragePool GlobalMaxPool "
    "GlobalAveragePool Upsample".split()
)
"""Operators whose result has the channels of their inputs."""


def with_channels(graph: NodeGraph) -> NodeGraph:
    """The graph with the author's number of channels as an attribute of each convolution in blocks."""
    if not any(node.domain == NCHWC for node in graph.nodes):
        return graph
    behind: dict[str, int] = {}  # by name of a value: what nodes behind it say of its channels
    for node in reversed(graph.nodes):
        if (node.domain, node.op) == (NCHWC, "ReorderOutput"):
            behind[node.inputs[0]] = int(node.attrs["channels"])
        elif (found := behind.get(node.outputs[0])) is not None:
            weight = graph.stored.get(node.inputs[1]) if node.domain == NCHWC and len(node.inputs) > 1 else None
            # A convolution of each channel with itself keeps their number.
            if node.op in _KEEPING or (weight is not None and weight.shape[:2] == (node.attrs.get("group", 1), 1)):
                behind.update((name, found) for name in node.inputs if name and name not in graph.stored)
            elif (node.domain, node.op) == (NCHWC, "Conv"):
                behind.update((name, found) for name in node.inputs[3:])
    nodes = [*graph.nodes]
    for place, node in enumerate(nodes):
        if (node.domain, node.op) == (NCHWC, "Conv") and node.inputs[1] in graph.stored:
            padded, channels = graph.stored[node.inputs[1]].shape[0], behind.get(node.outputs[0])
            if not channels:  # what the file still declares of the value whose name the node has
                name = node.name.partition("_bn_nchwc")[0].partition("_mul_nchwc")[0].partition("_nchwc")[0]
                shape = declared.shape if (declared := graph.declared.get(name)) is not None else None
                channels = shape[1] if shape and len(shape) == 4 and isinstance(shape[1], int) else 0
            if not channels:  # those before the zeros at the end of the bias, unless that is all zeros
                bias = graph.stored.get(node.inputs[2]) if len(node.inputs) > 2 else None
                items = bias.content.items if bias is not None and bias.content is not None else ()
                zeros = next((at for at, item in enumerate(reversed(items)) if item), WIDEST)
                channels = padded - zeros // ALIGNED * ALIGNED if zeros < WIDEST else 0
            if channels:
                nodes[place] = node._replace(attrs={**node.attrs, "channels": min(channels, padded)})
    return replace(graph, nodes=tuple(nodes))


def _reordered(call: NodeCall) -> OperatorMeaning:
    if not call.flag("channels_last"):
        return results.copied(call[0], call[0].shape)
    return results.turned(call[0], (0, 3, 1, 2) if call.node.op == "ReorderInput" else (0, 2, 3, 1))


def _blocked_conv(call: NodeCall) -> OperatorMeaning:
    """With some names it replaces a normalization or a product with one number for each channel."""
    if not any(word in call.node.name for word in ("_bn_nchwc", "_mul_nchwc")):
        return conv(call)
    x, weight, bias, added = call["x"], call["weight"], call.at("bias"), call.at("added")
    steps: list[tuple[Any, list[Operand | None]]] = [("mul" if bias is None else "fma", [weight, bias])]
    steps += [("add", [added])] if added is not None else []
    steps += [(fn, []) for fn in then(call).get("then", ())]
    for fn, reads in steps[:-1]:
        x = call.one("elementwise", {"fn": fn}, [x, *reads])
    fn, reads = steps[-1]
    return like(x, "elementwise", {"fn": fn}, [x, *reads])


def unpadded(node: GraphNode, place: int, ins: Operands) -> tuple[int, ...]:
    """The shape of a convolution's weight or bias without the channels that fill up its blocks."""
    x, made = ins[0], ins[place]
    shape = known(made.shape if made is not None else None)
    channels = int(node.attrs.get("channels", shape[0]))
    if place != 1:
        return (channels,)
    grouped = int(node.attrs.get("group", 1)) > 1
    deep = None if grouped or x is None or x.shape is None or len(x.shape) < 2 else x.shape[1]
    return (channels, shape[1] if deep is None else deep, *shape[2:])
