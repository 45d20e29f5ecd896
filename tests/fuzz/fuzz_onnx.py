"""ONNX models: small nets with every way to nest a graph in another."""

from __future__ import annotations

from typing import Any


def models() -> list[bytes]:
    """As protobuf's own library writes them."""
    from onnx import TensorProto, helper

    def value(name: str, *shape: Any) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def stored(name: str, *shape: int) -> Any:
        count = 1
        for extent in shape:
            count *= extent
        return helper.make_tensor(name, TensorProto.FLOAT, shape, [0.5] * count)

    trips = helper.make_tensor("trips", TensorProto.INT64, (), [3])
    target = helper.make_tensor("target", TensorProto.INT64, (2,), [0, -1])
    flag = helper.make_tensor_value_info("going", TensorProto.BOOL, ())
    step = helper.make_tensor_value_info("i", TensorProto.INT64, ())
    turn = [helper.make_node("MatMul", ["h", "w"], ["out"]), helper.make_node("Identity", ["going"], ["more"])]
    ends = [helper.make_tensor_value_info("more", TensorProto.BOOL, ()), value("out", 2, 4)]
    body = helper.make_graph(turn, "body", [step, flag, value("h", 2, 4)], ends, [stored("w", 4, 4)])
    one, other = (
        helper.make_graph([helper.make_node(op, ["x"], [op])], op, [], [value(op, 2, 4)]) for op in ("Relu", "Tanh")
    )
    chosen = helper.make_tensor("c", TensorProto.BOOL, (), [1])
    recurrent = [stored("w", 1, 16, 3), stored("r", 1, 16, 4)]
    strided = {"pads": [1] * 4, "strides": [2, 2]}
    nets = [
        (helper.make_node("Conv", ["x", "w"], ["y"], "/a/conv/Conv", **strided), (1, 3, 8, 8), [stored("w", 4, 3, 3, 3)]),
        (helper.make_node("Reshape", ["x", "target"], ["y"]), ("n", 4, 3), [target]),
        (helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body), (2, 4), [trips]),
        (helper.make_node("If", ["c"], ["y"], then_branch=one, else_branch=other), (2, 4), [chosen]),
        (helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=4), (5, 1, 3), recurrent),
        (helper.make_node("Resize", ["x", "", "s"], ["y"]), (1, 1, 4, 4), [stored("s", 4)]),
    ]  # fmt: skip
    found = []
    for node, shape, weights in nets:
        graph = helper.make_graph(
            [node], "net", [value("x", *shape)], [helper.make_empty_tensor_value_info("y")], weights
        )
        found.append(helper.make_model(graph).SerializeToString())
    return found
