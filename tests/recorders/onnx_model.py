"""A small ONNX model, made here: a product, a sum and a rectifier."""

from __future__ import annotations

from pathlib import Path

ROWS, DEPTH, COLUMNS = 4, 8, 16


def write(path: Path, *, rows: int | str = ROWS) -> Path:
    """Write `relu(x @ w + b)` as an ONNX file; `rows` may be a name, for an extent left open."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((DEPTH, COLUMNS), np.float32), "w")
    bias = numpy_helper.from_array(np.ones((COLUMNS,), np.float32), "b")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"], name="/fc/MatMul"),
            helper.make_node("Add", ["product", "b"], ["sum"], name="/fc/Add"),
            helper.make_node("Relu", ["sum"], ["y"], name="/act/Relu"),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, COLUMNS])],
        [weight, bias],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path
