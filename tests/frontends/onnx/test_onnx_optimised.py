"""Files as ONNX Runtime saves them: at every level of its optimiser a model has the MACs that its author's shapes give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_making import FLOAT, helper, numpy_helper, onnx, tensor

import opcost
from opcost.errors import SourceError
from opcost.frontends.nodes.meaning import DeclaredValue, GraphNode, NodeGraph, StoredValue
from opcost.frontends.onnx.runtime import with_channels

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_LAYOUT", "ORT_ENABLE_ALL")


class Net:
    """A model as its nodes are added; each method returns the name of the result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.stored: list[Any] = []
        self._random = np.random.default_rng(0)

    def __call__(self, op: str, *ins: str, **attrs: Any) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(ins), [out], f"n{len(self.nodes)}", **attrs))
        return out

    def array(self, *shape: int) -> str:
        return self.keep((self._random.standard_normal(shape) * 0.1).astype("float32"))

    def keep(self, array: Any) -> str:
        self.stored.append(numpy_helper.from_array(np.asarray(array), f"w{len(self.stored)}"))
        return self.stored[-1].name

    def conv(self, x: str, cin: int, cout: int, kernel: int, group: int = 1, stride: int = 1) -> str:
        ends = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": group}
        return self("Conv", x, self.array(cout, cin // group, kernel, kernel), self.array(cout), **ends)

    def norm(self, x: str, width: int) -> str:
        variance = self.keep(np.ones(width, "float32"))
        ins = [self.array(width), self.array(width), self.array(width), variance]
        return self("BatchNormalization", x, *ins, epsilon=1e-5)

    def linear(self, x: str, depth: int, width: int) -> str:
        return self("Add", self("MatMul", x, self.array(depth, width)), self.array(width))

    def pooled(self, x: str) -> str:
        return self("Flatten", self("GlobalAveragePool", x))

    def save(self, path: Path, out: str, *shape: Any) -> Path:
        ends = [helper.make_tensor_value_info(out, FLOAT, None)]
        graph = helper.make_graph(self.nodes, "net", [tensor("x", *shape)], ends, self.stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())
        return path


def plain(net: Net) -> tuple[str, tuple[int, ...], int]:
    """Channels that are no multiple of 8 or 16 are padded where the layout changes: 20, 24 and 12."""
    x = net("Relu", net.conv("x", 3, 20, 3))
    x = net("MaxPool", net("Relu", net.norm(net.conv(x, 20, 24, 3), 24)), kernel_shape=[2, 2], strides=[2, 2])
    x = net.conv(x, 24, 12, 1)
    macs = 8 * 8 * (20 * 3 * 9 + 24 * 20 * 9) + 4 * 4 * 12 * 24 + 12 * 10
    return net("Gemm", net.pooled(x), net.array(12, 10), net.array(10)), (1, 3, 8, 8), macs


def residual(net: Net) -> tuple[str, tuple[int, ...], int]:
    x = net("Relu", net.conv("x", 3, 16, 3, stride=2))
    y = net.conv(net("Relu", net.conv(x, 16, 16, 3)), 16, 16, 3)
    x = net("Relu", net("Add", y, x))
    y = net("Relu", net("Add", net.conv(x, 16, 32, 3, stride=2), net.conv(x, 16, 32, 1, stride=2)))
    macs = 4 * 4 * (16 * 3 * 9 + 2 * 16 * 16 * 9) + 2 * 2 * (32 * 16 * 9 + 32 * 16)
    return net.pooled(y), (1, 3, 8, 8), macs


def depthwise(net: Net) -> tuple[str, tuple[int, ...], int]:
    """As MobileNet does it, with a batch of two, and an activation that is a clip."""
    low, high = net.keep(np.float32(0)), net.keep(np.float32(6))
    x = net("Clip", net.conv("x", 3, 16, 3, stride=2), low, high)
    y = net("Clip", net.conv(x, 16, 96, 1), low, high)
    y = net("Clip", net.conv(y, 96, 96, 3, group=96), low, high)
    y = net.conv(y, 96, 24, 1)
    z = net("Clip", net.conv(net("Clip", net.conv(y, 24, 40, 1), low, high), 40, 40, 3, group=40), low, high)
    y = net("Add", net.conv(z, 40, 24, 1), y)
    macs = 2 * 16 * (16 * 27 + 96 * 16 + 96 * 9 + 24 * 96 + 40 * 24 + 40 * 9 + 24 * 40)
    return net.pooled(y), (2, 3, 8, 8), macs


def grouped(net: Net) -> tuple[str, tuple[int, ...], int]:
    x = net("Relu", net.conv("x", 3, 32, 3))
    x = net("Relu", net.conv(x, 32, 32, 3, group=2))
    x = net.conv(x, 32, 24, 3, group=8)
    return net.pooled(x), (1, 3, 6, 6), 36 * (32 * 3 * 9 + 32 * 16 * 9 + 24 * 4 * 9)


def u_net(net: Net) -> tuple[str, tuple[int, ...], int]:
    """Halved and doubled again, by interpolation and by a transposed convolution, with what was there before beside it."""
    a = net("Relu", net.conv("x", 3, 16, 3))
    b = net("Relu", net.conv(net("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), 16, 32, 3))
    scales = net.keep(np.array([1, 1, 2, 2], "float32"))
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    up = net("Resize", b, "", scales, **nearest)
    c = net("Relu", net.conv(net("Concat", up, a, axis=1), 48, 16, 3))
    turned = net("ConvTranspose", b, net.array(32, 16, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    out = net.conv(net("Add", c, turned), 16, 4, 1)
    macs = 64 * (16 * 27 + 16 * 48 * 9 + 4 * 16) + 16 * (32 * 16 * 9 + 32 * 16 * 4)
    return out, (1, 3, 8, 8), macs


def squeezed(net: Net) -> tuple[str, tuple[int, ...], int]:
    """As EfficientNet does it: channels are weighed by what their means give."""
    x = net.conv("x", 3, 32, 3)
    x = net("Mul", x, net("Sigmoid", x))
    y = net("Relu", net.conv(net("GlobalAveragePool", x), 32, 8, 1))
    y = net("Sigmoid", net.conv(y, 8, 32, 1))
    x = net.conv(net("Mul", x, y), 32, 16, 1)
    return net.pooled(x), (1, 3, 4, 4), 16 * (32 * 27 + 16 * 32) + 2 * 32 * 8


def dense(net: Net) -> tuple[str, tuple[int, ...], int]:
    """As DenseNet does it: what is normalized comes out of a join, so that no convolution can take the norm in."""
    x = net.conv("x", 3, 16, 3)
    y = net("Concat", x, net.conv(x, 16, 16, 3), axis=1)
    y = net.conv(net("Relu", net.norm(y, 32)), 32, 16, 1)
    y = net("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2])
    return net("Flatten", net("GlobalMaxPool", y)), (1, 3, 4, 4), 16 * (16 * 27 + 16 * 16 * 9 + 16 * 32)


def last(net: Net) -> tuple[str, tuple[int, ...], int]:
    """Channels come last, as in models that were converted from TensorFlow."""
    x = net("Transpose", "x", perm=[0, 3, 1, 2])
    x = net("Relu", net.conv(net("Relu", net.conv(x, 16, 20, 3)), 20, 16, 3))
    x = net("Transpose", x, perm=[0, 2, 3, 1])
    return net.linear(x, 16, 5), (1, 6, 6, 16), 36 * (20 * 16 * 9 + 16 * 20 * 9 + 5 * 16)


def transformer(net: Net) -> tuple[str, tuple[int, ...], int]:
    """Attention of 2 heads with 8 elements each, and a block of two layers with GELU; scores of batch and heads turned."""
    length, width, wide, heads = 6, 16, 32, 2
    split = net.keep(np.array([1, length, heads, width // heads], "int64"))
    q, k, v = (
        net("Transpose", net("Reshape", net.linear("x", width, width), split), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = net("Softmax", net("Div", net("MatMul", q, k), net.keep(np.float32(8**0.5))), axis=-1)
    mixed = net("Transpose", net("MatMul", scores, v), perm=[0, 2, 1, 3])
    y = net.linear(net("Reshape", mixed, net.keep(np.array([1, length, width], "int64"))), width, width)
    y = net("LayerNormalization", net("Add", y, "x"), net.array(width), net.array(width), axis=-1)
    z = net.linear(y, width, wide)
    half = net("Mul", z, net("Add", net("Erf", net("Div", z, net.keep(np.float32(2**0.5)))), net.keep(np.float32(1))))
    z = net.linear(net("Mul", half, net.keep(np.float32(0.5))), wide, width)
    z = net("LayerNormalization", net("Add", z, y), net.array(width), net.array(width), axis=-1)
    # A product whose batch is behind the matrices, which the optimiser writes with transBatchA and transBatchB.
    a, b = net("Transpose", "x", perm=[1, 0, 2]), net("Transpose", z, perm=[1, 2, 0])
    macs = length * (4 * width * width + 2 * width * wide) + 2 * length * length * width + length * width
    return net("MatMul", a, b), (1, length, width), macs


def recurrent(net: Net) -> tuple[str, tuple[int, ...], int]:
    """An LSTM in both directions, of which the last state goes on."""
    length, width, hidden = 5, 8, 12
    gates = [net.array(2, 4 * hidden, width), net.array(2, 4 * hidden, hidden), net.array(2, 8 * hidden)]
    out = ["all", "h", "c"]
    attrs = {"hidden_size": hidden, "direction": "bidirectional"}
    net.nodes.append(helper.make_node("LSTM", ["x", *gates], out, "lstm", **attrs))
    state = net("Reshape", net("Transpose", "h", perm=[1, 0, 2]), net.keep(np.array([1, 2 * hidden], "int64")))
    return (
        net.linear(state, 2 * hidden, 3),
        (length, 1, width),
        2 * length * 4 * hidden * (width + hidden) + 2 * hidden * 3,
    )


def quantized(net: Net) -> tuple[str, tuple[int, ...], int]:
    """Eight bits, written as pairs of QuantizeLinear and DequantizeLinear around a convolution, a sum and a product."""
    scale, zero = net.keep(np.float32(0.1)), net.keep(np.int8(0))

    def brought(x: str) -> str:
        return net("DequantizeLinear", net("QuantizeLinear", x, scale, zero), scale, zero)

    def small(*shape: int) -> str:
        return net("DequantizeLinear", net.keep(np.ones(shape, "int8")), scale, zero)

    def conv(x: str, cin: int, cout: int) -> str:
        bias = net(
            "DequantizeLinear", net.keep(np.ones(cout, "int32")), net.keep(np.float32(0.01)), net.keep(np.int32(0))
        )
        return brought(net("Conv", x, small(cout, cin, 3, 3), bias, kernel_shape=[3, 3], pads=[1] * 4))

    x = conv(brought("x"), 3, 16)
    x = brought(net("Add", conv(x, 16, 16), x))
    x = brought(net("Flatten", brought(net("GlobalAveragePool", x))))
    x = brought(net("MatMul", x, small(16, 10)))
    return x, (1, 3, 4, 4), 16 * (16 * 27 + 16 * 16 * 9) + 16 * 10


MODELS: list[Callable[[Net], tuple[str, tuple[int, ...], int]]] = [
    plain, residual, depthwise, grouped, u_net, squeezed, dense, last, transformer, recurrent, quantized,
]  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_a_file_has_the_same_macs_at_every_level(model: Any, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    net = Net()
    out, shape, macs = model(net)
    path = net.save(tmp_path / "net.onnx", out, *shape)
    found = {}
    for level in LEVELS:
        options = runtime.SessionOptions()
        options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(tmp_path / f"{level}.onnx")
        options.log_severity_level = 4
        runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        report = opcost.count(tmp_path / f"{level}.onnx")
        found[level] = (report.totals.macs, report.coverage.uncounted)
    assert found == dict.fromkeys(LEVELS, (macs, ()))


# -- channels in blocks: what ONNX Runtime writes on x86-64 ---------------------------------------------------------------------

DOMAIN = "com.microsoft.nchwc"


class Blocked(Net):
    """The same model as ONNX Runtime's NchwcTransformer rewrites it, for blocks of 8 (AVX2) or 16 (AVX-512) channels."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block
        self.channels: dict[str, int] = {}
        """Values in blocks, with the author's number of channels."""
        self.declared: list[Any] = []
        """What the file still declares of values that the optimiser replaced."""

    def padded(self, channels: int) -> int:
        return -(-channels // self.block) * self.block

    def added(self, op: str, ins: list[str], channels: int, word: str = "", **attrs: Any) -> str:
        """A node whose result is in blocks; it is named after the value that it replaces."""
        place = len(self.nodes)
        out = f"reorder_{place}"
        self.nodes.append(helper.make_node(op, ins, [out], f"v{place}{word}_nchwc", domain=DOMAIN, **attrs))
        self.declared.append(tensor(f"v{place}", "n", channels, "h", "w"))
        self.channels[out] = channels
        return out

    def back(self, name: str, **attrs: Any) -> str:
        """The value in the author's layout."""
        if name not in self.channels:
            return name
        out = f"v{len(self.nodes)}"
        ends = {"channels": self.channels[name], **attrs}
        self.nodes.append(helper.make_node("ReorderOutput", [name], [out], "ReorderOutput", domain=DOMAIN, **ends))
        return out

    def maker(self, name: str) -> Any:
        """The convolution in blocks that makes a value and takes more in; None: it is made by something else."""
        node = next((node for node in self.nodes if node.output[0] == name), None)
        if node is None or node.op_type != "Conv" or any(each.name == "activation" for each in node.attribute):
            return None
        return node if name in self.channels else None

    def filled(self, array: str, *shape: int) -> str:
        """A stored array with zeros behind it, up to this shape."""
        (at,) = [place for place, each in enumerate(self.stored) if each.name == array]
        true = numpy_helper.to_array(self.stored.pop(at))
        return self.keep(np.pad(true, [(0, more - have) for have, more in zip(true.shape, shape, strict=True)]))

    def keep(self, array: Any) -> str:
        self._kept = getattr(self, "_kept", -1) + 1
        self.stored.append(numpy_helper.from_array(np.asarray(array), f"w{self._kept}"))
        return self.stored[-1].name

    def conv(self, x: str, cin: int, cout: int, kernel: int, group: int = 1, stride: int = 1) -> str:
        deep, by_channel, direct = cin // group, group == cout == cin > 1, group == 1 and cin < self.block
        if group > 1 and not by_channel and (deep % self.block or cout // group % self.block):
            return super().conv(x, cin, cout, kernel, group, stride)
        if not by_channel and not direct and (deep % 4 or cout % 4):
            return super().conv(x, cin, cout, kernel, group, stride)
        if direct:
            x = self.back(x)
        elif x not in self.channels:
            made = next((node for node in self.nodes if node.output[0] == x), None)
            first = made is not None and made.op_type == "Transpose"
            if first:
                self.nodes.remove(made)
            attrs = {"channels_last": 1} if first else {}
            self.nodes.append(
                helper.make_node("ReorderInput", [made.input[0] if first else x], [f"in_{x}"], domain=DOMAIN, **attrs)
            )
            x, self.channels[f"in_{x}"] = f"in_{x}", cin
        wide = self.padded(cout)
        shape = (wide, deep if direct or group > 1 else self.padded(cin), kernel, kernel)
        weight = self.filled(self.array(cout, deep, kernel, kernel), *shape)
        ends = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4, "strides": [stride] * 2}
        ends["group"] = wide if by_channel else group
        return self.added("Conv", [x, weight, self.filled(self.array(cout), wide)], cout, **ends)

    def norm(self, x: str, width: int) -> str:
        if x not in self.channels:
            return super().norm(x, width)
        scale, shift = self.filled(self.array(width, 1, 1, 1), self.padded(width), 1, 1, 1), self.array(width)
        return self.added(
            "Conv", [x, scale, self.filled(shift, self.padded(width))], width, "_bn", group=self.padded(width)
        )

    def __call__(self, op: str, *ins: str, **attrs: Any) -> str:
        channels = self.channels.get(ins[0], 0)
        whole = channels > 0 and not channels % self.block
        if op in ("Relu", "Clip") and (node := self.maker(ins[0])) is not None:
            node.attribute.append(helper.make_attribute("activation", op))
            return ins[0]
        if op in ("Add", "Mul") and all(name in self.channels for name in ins):
            if op == "Add" and (node := self.maker(ins[0])) is not None and len(node.input) < 4:
                node.input.append(ins[1])
                self.nodes.remove(node)  # it runs when the other is there
                self.nodes.append(node)
                return ins[0]
        elif op in ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool") and whole:
            return self.added(op, list(ins), channels, **attrs)
        elif op == "Resize" and channels:
            return self.added("Upsample", list(ins[:1]), channels, scales=[1, 1, 2, 2])
        elif op == "Transpose" and channels and attrs["perm"] == [0, 2, 3, 1]:
            return self.back(ins[0], channels_last=1)
        elif op == "Concat" and all(not self.channels.get(name, 1) % self.block for name in ins):
            channels = sum(self.channels[name] for name in ins)
        elif not (op in ("Relu", "Sigmoid") and channels):
            return super().__call__(op, *map(self.back, ins), **attrs)
        out = super().__call__(op, *ins, **attrs)
        self.channels[out] = channels
        return out


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("declares", [True, False])
@pytest.mark.parametrize("model", MODELS[:8])
def test_channels_in_blocks_count_as_the_author_wrote_them(
    model: Any, block: int, *, declares: bool, tmp_path: Path
) -> None:
    """Without declarations the zeros behind a bias show where its channels end."""
    true, net = Net(), Blocked(block)
    out, shape, macs = model(true)
    before = opcost.count(true.save(tmp_path / "before.onnx", out, *shape))
    out, *_ = model(net)
    out = net.back(out)
    graph = helper.make_graph(
        net.nodes,
        "net",
        [tensor("x", *shape)],
        [helper.make_empty_tensor_value_info(out)],
        net.stored,
        value_info=net.declared if declares else [],
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    (tmp_path / "after.onnx").write_bytes(helper.make_model(graph, opset_imports=domains).SerializeToString())
    after = opcost.count(tmp_path / "after.onnx")
    assert sum(node.domain == DOMAIN for node in net.nodes) > 2
    assert (after.totals.macs, after.coverage.uncounted, after.notes) == (macs, (), ())
    assert after.totals.params == before.totals.params
    assert after.outputs == before.outputs


def in_blocks(net: Blocked, out: str, *shape: Any) -> bytes:
    ends = [helper.make_empty_tensor_value_info(net.back(out))]
    graph = helper.make_graph(net.nodes, "net", [tensor("x", *shape)], ends, net.stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()  # type: ignore[no-any-return]


def test_channels_that_no_bias_and_no_declaration_show_are_counted_with_their_padding_and_noted(tmp_path: Path) -> None:
    net = Blocked(8)
    first = net.conv("x", 4, 12, 1)
    net.filled(net.nodes[0].input[2], 16)
    net.nodes[0].input[2] = net.keep(np.zeros(16, "float32"))
    path = tmp_path / "net.onnx"
    path.write_bytes(in_blocks(net, net.conv(first, 12, 8, 1), 1, 4, 2, 2))
    report = opcost.count(path)
    assert report.totals.macs == 4 * (16 * 4 + 8 * 16)
    (note,) = report.notes
    assert note.code == "padded-channels"
    assert "blocks of 8 or 16" in note.text


def test_channels_are_those_of_the_nodes_behind_and_of_declared_values() -> None:
    """Back through an activation, a sum and a convolution of each channel; else by the value whose name a node has."""

    def conv(name: str, out: str, *ins: str, **attrs: int) -> GraphNode:
        return GraphNode("Conv", DOMAIN, name, ins, (out,), attrs)

    nodes = (
        conv("", "a", "x", "full"), conv("", "b", "a", "each", group=16), conv("", "c", "x", "full", "", "b"),
        GraphNode("Relu", "", "", ("c",), ("d",)), GraphNode("ReorderOutput", DOMAIN, "", ("d",), ("y",), {"channels": 12}),
        conv("v_bn_nchwc", "e", "x", "full"), conv("v_mul_nchwc", "f", "x", "full"), conv("v_nchwc", "g", "x", "full"),
        conv("flat_nchwc", "h", "x", "full"), conv("open_nchwc", "i", "x", "full"), conv("none_nchwc", "j", "x", "full"),
    )  # fmt: skip
    stored = {
        "full": StoredValue("full", (16, 4, 1, 1), "float32"),
        "each": StoredValue("each", (16, 1, 3, 3), "float32"),
    }
    shapes = {"v": (1, 8, 3, 5), "flat": (1, 8, 3), "open": (1, "channels", 3, 5), "none": None}
    declared = {name: DeclaredValue(name, "float32", shape) for name, shape in shapes.items()}  # type: ignore[arg-type]
    found = with_channels(NodeGraph("", nodes, stored, (), (), declared)).nodes
    channels = [node.attrs.get("channels") for node in found if node.op == "Conv"]
    assert channels == [12, 12, 12, 8, 8, 8, None, None, None]


def test_sums_of_images_whose_size_is_open_are_made_in_blocks(tmp_path: Path) -> None:
    """ONNX Runtime splits off the blocks before such a sum: a Reshape to (0, -1, 0, 0, 8)."""
    net = Blocked(8)
    a, b = net.conv("x", 4, 12, 1), net.conv("x", 4, 12, 1)
    split, joined = net.keep(np.array([0, -1, 0, 0, 8])), net.keep(np.array([0, -1, 0, 0]))
    names = [a, b, "pa", "pb", "sum", "y"]
    net.nodes += [
        helper.make_node("Reshape", [a, split], ["pa"]),
        helper.make_node("Reshape", [b, split], ["pb"]),
        helper.make_node("Add", ["pa", "pb"], ["sum"]),
        helper.make_node("Reshape", ["sum", joined], ["y"]),
    ]
    net.channels |= dict.fromkeys(names, 12)
    path = tmp_path / "net.onnx"
    path.write_bytes(in_blocks(net, net.conv("y", 12, 8, 1), 1, 4, "h", "w"))
    report = opcost.count(path, options={"dim": "h=3,w=5"})
    assert report.totals.macs == 15 * (2 * 12 * 4 + 8 * 12)
    assert report.outputs[0].shape == (1, 8, 3, 5)


def test_a_normalization_in_blocks_costs_a_product_and_a_sum_of_each_element(tmp_path: Path) -> None:
    net = Blocked(8)
    path = tmp_path / "net.onnx"
    path.write_bytes(in_blocks(net, net("Relu", net.norm(net.conv("x", 4, 12, 1), 12)), 1, 4, 2, 2))
    report = opcost.count(path)
    conv = 4 * 12 * 4
    assert report.totals.macs == conv
    assert report.totals.flops == 2 * conv + 4 * 12 + 4 * 12 * (2 + 1)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("ReorderOutput", [], ["y"], domain=DOMAIN, channels=4),
        helper.make_node("ReorderOutput", ["x"], ["y"], domain=DOMAIN),
        helper.make_node("ReorderInput", ["x"], [], domain=DOMAIN),
        helper.make_node("Conv", ["x"], ["y"], domain=DOMAIN),
        helper.make_node("Conv", ["x", "scalar"], ["y"], domain=DOMAIN),
    ],
)
def test_a_damaged_node_in_blocks_is_one_clear_error(node: Any, written: Any) -> None:
    ends = [helper.make_empty_tensor_value_info("x")]
    path = written([node], [tensor("x", 1, 4, 2, 2)], [numpy_helper.from_array(np.float32(1), "scalar")], ends)
    with pytest.raises(SourceError, match=r"not what such|do not fit"):
        opcost.count(path)


def test_weights_behind_an_unknown_operator_keep_their_inputs_in_blocks(written: Any) -> None:
    nodes = [
        helper.make_node("Wonder", ["x"], ["u"], domain="own"),
        helper.make_node("Conv", ["u", "w"], ["y"], domain=DOMAIN, kernel_shape=[1, 1]),
        helper.make_node("ReorderOutput", ["y"], ["z"], domain=DOMAIN, channels=12),
    ]
    stored = [numpy_helper.from_array(np.ones((16, 8, 1, 1), "float32"), "w")]
    report = opcost.count(written(nodes, [tensor("x", 1, 8, 2, 2)], stored))
    assert report.totals.params == 12 * 8
    assert ("com.microsoft.nchwc::Conv", 1) in [(each.raw, each.count) for each in report.coverage.uncounted]
