"""A model with one node of many operators, for which onnx-tool's figures are recorded in tests/data/compat/onnx_tool.

`python tests/shared/onnx_tool_model.py FILE` writes it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnx_making import helper, integers, onnx, tensor

X = (2, 4, 6, 6)
"""An image, and a sequence below."""
SEQUENCE = (5, 2, 8)

UNARY = """
Abs Atan Ceil Cos Elu Erf Exp Floor HardSigmoid HardSwish LeakyRelu Log LogSoftmax Neg Not Reciprocal Relu Round Sigmoid Sign Sin
Softmax Softplus Sqrt Tanh Flatten GlobalAveragePool Transpose Identity
""".split()
BINARY = "Add Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Pow Sub".split()


def random(name: str, *shape: int) -> Any:
    """A weight without zeros: onnx-tool looks for them."""
    return onnx.numpy_helper.from_array(np.random.default_rng(0).normal(size=shape).astype("float32") + 3, name)


def make() -> Any:
    """The model."""
    nodes = [helper.make_node(op, ["bool" if op == "Not" else "x"], [f"{op}_out"], op) for op in UNARY]
    nodes += [
        helper.make_node(op, ["x", "y"], [f"{op}_out"], op, **({"fmod": 1} if op == "Mod" else {})) for op in BINARY
    ]
    pool = {"kernel_shape": [3, 3], "strides": [2, 2]}
    others = [
        ("MaxPool", ["x"], pool),
        ("AveragePool", ["x"], pool),
        ("Clip", ["x", "low", "high"], {}),
        ("CumSum", ["x", "axis"], {}),
        ("BatchNormalization", ["x", "scale", "shift", "mean", "variance"], {}),
        ("InstanceNormalization", ["x", "scale", "shift"], {}),
        ("LayerNormalization", ["x", "last", "last"], {"axis": -1}),
        ("LRN", ["x"], {"size": 3}),
        ("Conv", ["x", "kernel", "shift"], {"pads": [1, 1, 1, 1]}),
        ("ReduceMean", ["x", "axes"], {}),
        ("ReduceSum", ["x", "axes"], {}),
        ("ReduceMax", ["x", "axes"], {}),
        ("ReduceMin", ["x", "axes"], {}),
        ("ReduceProd", ["x", "axes"], {}),
        ("ReduceL2", ["x", "axes"], {}),
        ("PRelu", ["x", "slope"], {}),
        ("Where", ["bool", "x", "y"], {}),
        ("MatMul", ["x", "square"], {}),
        ("Gemm", ["Flatten_out", "wide", "bias"], {}),
        ("Expand", ["last", "shape"], {}),
        ("Tile", ["last", "times"], {}),
    ]
    nodes += [helper.make_node(op, ins, [f"{op}_out"], op, **attrs) for op, ins, attrs in others]
    nodes.append(helper.make_node("Conv", ["x", "kernel"], ["Plain_out"], "Plain", pads=[1, 1, 1, 1]))
    nodes.append(helper.make_node("Dropout", ["x"], ["Dropout_out", "mask"], "Dropout"))
    nodes.append(helper.make_node("LSTM", ["s", "lw", "lr", "lb"], ["LSTM_out", "h", "c"], "LSTM", hidden_size=3))
    nodes.append(helper.make_node("GRU", ["s", "gw", "gr", "gb"], ["GRU_out", "g"], "GRU", hidden_size=3))
    stored = [
        random("kernel", 8, 4, 3, 3), random("scale", 4), random("shift", 4), random("mean", 4), random("variance", 4),
        random("last", 6), random("square", 6, 5), random("wide", 144, 7), random("bias", 7), random("slope", 4, 1, 1),
        random("lw", 1, 12, 8), random("lr", 1, 12, 3), random("lb", 1, 24), random("gw", 1, 9, 8), random("gr", 1, 9, 3),
        random("gb", 1, 18), random("low"), random("high"), integers("axes", 2, 3), integers("axis", 1), integers("shape", 3, 6),
        integers("times", 4),
    ]  # fmt: skip
    inputs = [tensor("x", *X), tensor("y", *X), tensor("bool", *X, kind=onnx.TensorProto.BOOL), tensor("s", *SEQUENCE)]
    outputs = [helper.make_empty_tensor_value_info(name) for node in nodes for name in node.output[:1]]
    graph = helper.make_graph(nodes, "many", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(make().SerializeToString())
