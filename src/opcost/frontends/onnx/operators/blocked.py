"""Images as ONNX Runtime lays them out on processors with wide vectors: channels in blocks of 8 or 16, padded with zeros.

Files that it saves at its default level hold such nodes (the domain com.microsoft.nchwc). They are read as the plain operators
that they stand for: values have the shapes of the author's model, and weights lose their padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from opcost.core.shapes import known
from opcost.frontends.nodes.call import Call, Made, Meaning, Out
from opcost.frontends.nodes.meanings import copied, turned
from opcost.frontends.nodes.model import Node, NodeGraph
from opcost.frontends.onnx.operators.contraction import then, window
from opcost.frontends.onnx.table import NCHWC, handles

ALIGNED = 4
"""ONNX Runtime reorders channels whose number is a multiple of this."""
WIDEST = 16
"""Channels in the largest block."""
_SCALING = ("_bn_nchwc", "_mul_nchwc")
"""In the name of a convolution that stands for a normalization or for a product with one number for each channel."""
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
            if node.op in _KEEPING or _by_channel(node, graph):
                behind.update((name, found) for name in node.inputs if name and name not in graph.stored)
            elif (node.domain, node.op) == (NCHWC, "Conv"):
                behind.update((name, found) for name in node.inputs[3:])
    return replace(graph, nodes=tuple(_with_channels(node, graph, behind) for node in graph.nodes))


def _with_channels(node: Node, graph: NodeGraph, behind: Mapping[str, int]) -> Node:
    if (node.domain, node.op) != (NCHWC, "Conv") or node.inputs[1] not in graph.stored:
        return node
    padded = graph.stored[node.inputs[1]].shape[0]
    found = behind.get(node.outputs[0]) or _declared(node, graph) or _before_zeros(node, graph, padded)
    return node._replace(attrs={**node.attrs, "channels": min(found, padded)}) if found else node


def _by_channel(node: Node, graph: NodeGraph) -> bool:
    """Whether it is a convolution of each channel with itself."""
    weight = graph.stored.get(node.inputs[1]) if len(node.inputs) > 1 else None
    return node.domain == NCHWC and weight is not None and weight.shape[:2] == (node.attrs.get("group", 1), 1)


def _declared(node: Node, graph: NodeGraph) -> int:
    """The channels that the file still declares of the value whose name the node has."""
    name = node.name.partition("_bn_nchwc")[0].partition("_mul_nchwc")[0].partition("_nchwc")[0]
    shape = declared.shape if (declared := graph.declared.get(name)) is not None else None
    found = shape[1] if shape is not None and len(shape) == 4 else None
    return found if isinstance(found, int) else 0


def _before_zeros(node: Node, graph: NodeGraph, padded: int) -> int:
    """The channels before the zeros at the end of the bias; 0 where that is all zeros, and says nothing."""
    bias = graph.stored.get(node.inputs[2]) if len(node.inputs) > 2 else None
    items = bias.content.items if bias is not None and bias.content is not None else ()
    zeros = next((place for place, item in enumerate(reversed(items)) if item), WIDEST)
    return padded - zeros // ALIGNED * ALIGNED if zeros < WIDEST else 0


@handles("ReorderInput", "ReorderOutput", domains=(NCHWC,))
def _reordered(call: Call) -> Meaning:
    x, last = call[0], call.flag("channels_last")
    if not last:
        return copied(x, x.shape)
    return turned(x, (0, 3, 1, 2) if call.node.op == "ReorderInput" else (0, 2, 3, 1))


@handles("Conv", domains=(NCHWC,))
def _conv(call: Call) -> Meaning:
    x, weight, bias, more = call[0], call[1], call.at(2), call.at(3)
    channels = call.whole("channels", known(weight.dims[:1])[0])
    if any(word in call.node.name for word in _SCALING):
        steps: list[tuple[str, list[Made | None]]] = [("mul" if bias is None else "fma", [weight, bias])]
        steps += [("add", [more])] if more is not None else []
        steps += [(str(fn), []) for fn in then(call).get("then", ())]  # type: ignore[union-attr]
        for fn, reads in steps[:-1]:
            x = call.step("elementwise", {"fn": fn}, [x, *reads], [Out(x.shape, x.dtype)])[0]
        fn, reads = steps[-1]
        return Meaning("elementwise", {"fn": fn}, [Out(x.shape, x.dtype)], [x, *reads])
    over = window(call, weight.dims[2:], x.dims[2:])
    attrs = {**over.geometry, **then(call)}
    if more is not None:
        attrs |= {"then": ("add", *attrs.get("then", ())), "bias": bias is not None}  # type: ignore[misc]
    out = Out((x.dims[0], channels, *over.swept()), x.dtype)
    return Meaning("conv", attrs, [out], [x, weight, bias, more])


def unpadded(node: Node, place: int, ins: Sequence[Made | None]) -> tuple[int, ...]:
    """The shape of a convolution's weight or bias without the channels that fill up its blocks."""
    x, made = ins[0], ins[place]
    shape = known(made.shape if made is not None else None)
    channels = int(node.attrs.get("channels", shape[0]))
    if place != 1:
        return (channels,)
    grouped = int(node.attrs.get("group", 1)) > 1
    deep = None if grouped or x is None or x.shape is None or len(x.shape) < 2 else x.shape[1]
    return (channels, shape[1] if deep is None else deep, *shape[2:])
