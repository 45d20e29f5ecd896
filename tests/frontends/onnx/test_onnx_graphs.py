"""Graphs inside the nodes of ONNX models: branches, loops and functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_making import BOOL, INT64, Written, helper, integers, numpy_helper, onnx, tensor, weight

import opcost
from opcost.errors import SourceError


def branch(name: str, width: int) -> Any:
    node = helper.make_node("MatMul", ["x", f"w{width}"], [name])
    return helper.make_graph(
        [node], name, [], [helper.make_empty_tensor_value_info(name)], [weight(f"w{width}", 4, width)]
    )


def test_of_two_branches_the_more_expensive_counts_and_both_are_shown(written: Written, tmp_path: Path) -> None:
    node = helper.make_node("If", ["c"], ["y"], "choose", then_branch=branch("t", 3), else_branch=branch("e", 5))
    report = opcost.count(written([node], [tensor("x", 2, 4), tensor("c", kind=BOOL)]))
    assert report.totals.macs == 2 * 4 * 5
    assert [row.op.repeat for row in report.rows if row.op.kind == "matmul"] == [0, 1]
    assert [note.code for note in report.notes] == ["branch"]
    assert report.outputs[0].shape == (2, None)
    assert (
        opcost.load_report_text(report.render("json")).totals == report.totals
        if hasattr(opcost, "load_report_text")
        else True
    )


def test_a_weight_that_two_branches_and_the_graph_around_read_counts_once(written: Written) -> None:
    """Each graph has its own names, and all see those around them."""

    def turned(op: str) -> Any:
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node(op, ["p"], [op])]
        return helper.make_graph(nodes, op, [], [helper.make_empty_tensor_value_info(op)])

    nodes = [
        helper.make_node("If", ["c"], ["a"], then_branch=turned("Relu"), else_branch=turned("Tanh")),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    report = opcost.count(written(nodes, [tensor("x", 2, 4), tensor("c", kind=BOOL)], [weight("w", 4, 4)]))
    assert report.totals.params == 4 * 4
    assert report.totals.macs == 2 * (2 * 4 * 4)


def test_a_branch_that_does_not_fit_the_inputs_is_left_out_and_noted(written: Written) -> None:
    narrow = helper.make_graph(
        [helper.make_node("MatMul", ["x", "n"], ["b"])],
        "narrow",
        [],
        [helper.make_empty_tensor_value_info("b")],
        [weight("n", 9, 2)],
    )
    nodes = [
        helper.make_node("If", ["c"], ["a"], then_branch=narrow, else_branch=branch("e", 4)),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    report = opcost.count(written(nodes, [tensor("x", 2, 4), tensor("c", kind=BOOL)], [weight("w", 4, 4)]))
    assert report.totals.macs == 2 * 4 * 4 + 2 * 4 * 4
    assert report.totals.params == 4 * 4 + 4 * 4
    assert "does not fit these inputs" in report.notes[0].text


def test_a_branch_that_is_known_is_the_only_one(written: Written) -> None:
    true = numpy_helper.from_array(np.array(True), "c")
    node = helper.make_node("If", ["c"], ["y"], "choose", then_branch=branch("t", 3), else_branch=branch("e", 5))
    report = opcost.count(written([node], [tensor("x", 2, 4)], [true]))
    assert report.totals.macs == 2 * 4 * 3
    assert len(report.rows) == 1


def loop(body_nodes: list[Any], stored: list[Any] = ()) -> Any:  # type: ignore[assignment]
    ins = [tensor("i", kind=INT64), tensor("going", kind=BOOL), helper.make_empty_tensor_value_info("h")]
    outs = [helper.make_empty_tensor_value_info(name) for name in ("going_on", "h_next", "kept")]
    nodes = [helper.make_node("Identity", ["going"], ["going_on"]), *body_nodes]
    body = helper.make_graph(nodes, "body", ins, outs, list(stored))
    return helper.make_node("Loop", ["trips", "", "x"], ["last", "all"], "turn", body=body)


def test_a_loop_is_counted_as_often_as_it_turns(written: Written) -> None:
    turns = 6
    body = [helper.make_node("MatMul", ["h", "w"], ["h_next"]), helper.make_node("Relu", ["h_next"], ["kept"])]
    path = written([loop(body, [weight("w", 4, 4)])], [tensor("x", 2, 4)], [integers("trips", turns)], [
        helper.make_empty_tensor_value_info(name) for name in ("last", "all")
    ])  # fmt: skip
    report = opcost.count(path)
    assert report.totals.macs == turns * 2 * 4 * 4
    assert [spec.shape for spec in report.outputs] == [(2, 4), (turns, 2, 4)]
    assert report.totals.params == 4 * 4


def test_a_loop_that_data_ends_is_counted_once_and_noted(written: Written) -> None:
    body = [helper.make_node("MatMul", ["h", "w"], ["h_next"]), helper.make_node("Relu", ["h_next"], ["kept"])]
    path = written([loop(body, [weight("w", 4, 4)])], [tensor("x", 2, 4), tensor("trips", kind=INT64)])
    report = opcost.count(path)
    assert report.totals.macs == 2 * 4 * 4
    assert [note.code for note in report.notes] == ["loop"]
    assert opcost.count(path, {"x": np.zeros((2, 4), "float32"), "trips": np.array(9)}).totals.macs == 9 * 2 * 4 * 4


def test_a_loop_that_data_may_end_before_its_last_turn_is_noted(written: Written) -> None:
    body = [helper.make_node("Relu", ["h"], ["h_next"]), helper.make_node("Relu", ["h"], ["kept"])]
    node = loop(body)
    node.attribute[0].g.node[0].CopyFrom(helper.make_node("ReduceMax", ["over"], ["going_on"], keepdims=0))
    node.attribute[0].g.node.insert(0, helper.make_node("Greater", ["h", "h"], ["over"]))
    report = opcost.count(written([node], [tensor("x", 2, 4)], [integers("trips", 3)]))
    assert ["data may end it before" in note.text for note in report.notes] == [True]


def test_shapes_that_settle_only_after_several_turns_are_found(written: Written) -> None:
    """Three tensors handed round, one of which grows: after three turns each may have any length."""
    names = ["p", "q", "r"]
    ins = [tensor("i", kind=INT64), tensor("going", kind=BOOL), *map(helper.make_empty_tensor_value_info, names)]
    nodes = [
        helper.make_node("Identity", ["going"], ["more"]),
        helper.make_node("Concat", ["r", "r"], ["p2"], axis=0),
        helper.make_node("Relu", ["p"], ["q2"]),
        helper.make_node("Relu", ["q"], ["r2"]),
    ]
    outs = [helper.make_empty_tensor_value_info(name) for name in ("more", "p2", "q2", "r2")]
    body = helper.make_graph(nodes, "body", ins, outs)
    ends = ["a", "b", "c"]
    node = helper.make_node("Loop", ["trips", "", "x", "x", "x"], ends, body=body)
    finals = [helper.make_empty_tensor_value_info(name) for name in ends]
    report = opcost.count(written([node], [tensor("x", 1, 4)], [integers("trips", 5)], finals))
    assert [spec.shape for spec in report.outputs] == [(None, 4)] * 3


def test_a_tensor_that_grows_in_every_turn_has_an_unknown_extent(written: Written) -> None:
    body = [helper.make_node("Concat", ["h", "more"], ["h_next"], axis=0), helper.make_node("Relu", ["more"], ["kept"])]
    path = written([loop(body, [weight("more", 1, 4)])], [tensor("x", 2, 4)], [integers("trips", 3)])
    assert opcost.count(path).outputs[0].shape == (None, 4)


def test_a_function_is_its_nodes_with_the_attributes_of_the_call(tmp_path: Path) -> None:
    inner = helper.make_node("Gemm", ["a", "b"], ["c"])
    turned = onnx.AttributeProto(name="transB", ref_attr_name="turned", type=onnx.AttributeProto.INT)
    inner.attribute.append(turned)
    function = helper.make_function(
        "own", "Product", ["a", "b"], ["c"], [inner], [helper.make_opsetid("", 18)], ["turned"]
    )
    node = helper.make_node("Product", ["x", "w"], ["y"], domain="own", turned=1)
    graph = helper.make_graph(
        [node], "net", [tensor("x", 2, 4)], [helper.make_empty_tensor_value_info("y")], [weight("w", 3, 4)]
    )
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    path = tmp_path / "f.onnx"
    path.write_bytes(helper.make_model(graph, functions=[function], opset_imports=domains).SerializeToString())
    report = opcost.count(path)
    assert report.totals.macs == 2 * 4 * 3
    assert report.outputs[0].shape == (2, 3)


@pytest.mark.parametrize("deep", [64, 65])
def test_functions_call_functions_up_to_a_depth(deep: int, tmp_path: Path) -> None:
    def call(name: str, given: str, out: str) -> onnx.NodeProto:
        return helper.make_node(name, [given], [out], domain="own")

    domains = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    insides = [*[call(f"f{at + 1}", "a", "b") for at in range(deep - 1)], helper.make_node("Relu", ["a"], ["b"])]
    functions = [
        helper.make_function("own", f"f{at}", ["a"], ["b"], [inner], domains) for at, inner in enumerate(insides)
    ]
    nodes = [call("f1", "x", "m"), call("f0", "m", "y")]
    graph = helper.make_graph(nodes, "net", [tensor("x", 2, 3)], [helper.make_empty_tensor_value_info("y")])
    path = tmp_path / "f.onnx"
    path.write_bytes(helper.make_model(graph, functions=functions, opset_imports=domains).SerializeToString())
    if deep > 64:
        with pytest.raises(SourceError, match="functions call each other without end"):
            opcost.count(path)
    else:
        assert opcost.count(path).totals.flops == 2 * 6
