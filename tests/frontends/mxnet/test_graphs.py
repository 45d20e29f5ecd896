"""The graph that comes out: modules from names, shared weights, views, loops and fused operators."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
from work import calls

import opcost
from opcost.frontends.mxnet.build import paths_of
from opcost.frontends.mxnet.infer import infer
from opcost.frontends.mxnet.load import load_graph, open_file, work_out
from opcost.frontends.mxnet.symbol import parse_symbol, read_symbol
from opcost.frontends.options import CountOptions

Make = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        (["stage1_conv0_fwd", "stage1_bn0_fwd", "stage2_conv0_fwd"], ["stage1.conv0", "stage1.bn0", "stage2_conv0"]),
        (["net_conv0_fwd", "net_conv0_relu_fwd"], ["net_conv0", "net_conv0.relu"]),
        (["_plus0", "_plus1"], ["_plus0", "_plus1"]),
        (["s1__plus0", "s1_conv"], ["s1._plus0", "s1.conv"]),
        (["a/b/c", "a/b/d"], ["a.b.c", "a.b.d"]),
        (["x.y.z"], ["x.y.z"]),
        (["fc", "fc"], ["fc", "fc"]),
        (["relu5_3", "conv"], ["relu5_3", "conv"]),
        ([""], ["unnamed"]),
    ],
)
def test_shared_beginnings_of_names_become_modules(names: list[str], paths: list[str]) -> None:
    assert paths_of(names, [()] * len(names)) == paths


def test_where_operators_have_no_names_their_weights_give_the_block() -> None:
    names, weights = ["node_0", "node_1", "node_2"], [["features.0.weight", "features.0.bias"], [], ["out.weight"]]
    assert paths_of(names, weights) == ["features.0", "node_1", "out"]


def test_a_module_owns_the_weights_that_its_operator_reads(node: Make, var: Make, count: Callable[..., Any]) -> None:
    report = count(
        var("data"), var("net_conv0_weight"), var("net_conv0_bias"),
        node("Convolution", "net_conv0_fwd", 0, 1, 2, kernel=(3, 3), num_filter=8),
        node("Activation", "net_relu0_fwd", 3, act_type="relu"), shapes=(1, 3, 9, 9),
    )  # fmt: skip
    conv = report.module("net.conv0")
    assert conv.type == "Convolution"
    assert conv.parameters == ("net.conv0.weight", "net.conv0.bias")
    assert conv.own.params == 8 * 3 * 9 + 8
    assert conv.outputs[0].dims == (1, 8, 7, 7)
    assert "kernel=(3, 3)" in conv.extra
    assert report.module("net").total.params == report.totals.params


def test_a_shared_weight_counts_once_and_costs_at_every_use(node: Make, var: Make, count: Callable[..., Any]) -> None:
    report = count(
        var("data"), var("w"), node("FullyConnected", "one", 0, 1, num_hidden=6, no_bias=1),
        node("FullyConnected", "two", 2, 1, num_hidden=6, no_bias=1), shapes=(2, 6),
    )  # fmt: skip
    assert report.totals.params == 36
    assert report.totals.macs == 2 * 2 * 36
    assert report.shared[0].names == ("one.w", "two.w")


def test_reshaping_is_free_and_moves_nothing(node: Make, var: Make, count: Callable[..., Any]) -> None:
    report = count(
        var("data"), node("Reshape", "r", 0, shape="(0, -1)"), node("expand_dims", "e", 1, axis=1), node("Dropout", "d", 2),
        node("BlockGrad", "b", 3), node("transpose", "t", 4, axes="(0, 2, 1)"), shapes=(2, 3, 4),
    )  # fmt: skip
    assert [row.op.kind for row in report.rows] == ["view"] * 4 + ["copy"]
    assert report.totals.activations == 24
    assert report.totals.bytes_written == 24 * 4


@pytest.fixture
def loop(node: Make, var: Make) -> dict[str, Any]:
    """Seven steps, each a product with a weight that is the same in all of them, added to a state."""
    body = {
        "nodes": [
            var("step"), var("w"), node("FullyConnected", "fc", 0, 1, num_hidden=4, no_bias=1), var("state"),
            node("elemwise_add", "next", 2, 3), node("_copy", "out", 4),
        ],
        "heads": [[4, 0, 0], [5, 0, 0]],
    }  # fmt: skip
    outer = node(
        "_foreach", "loop", 0, 1, 2, in_data_locs="[0]", in_state_locs="[2]", remain_locs="[1]", num_args=4,
        num_out_data=1, num_outputs=2,
    )  # fmt: skip
    outer["subgraphs"] = [body]
    return {"nodes": [var("data"), var("init"), var("w"), outer], "heads": [[3, 0, 0], [3, 1, 0]]}


def test_a_loop_costs_as_often_as_it_runs(loop: dict[str, Any], count: Callable[..., Any]) -> None:
    steps, batch, features, hidden = 7, 2, 3, 4
    report = count(loop, shapes={"data": (steps, batch, features), "init": (batch, hidden)})
    assert report.totals.macs == steps * batch * features * hidden
    assert report.totals.params == features * hidden
    assert [spec.dims for spec in report.outputs] == [(steps, batch, hidden), (batch, hidden)]
    products = [row for row in report.rows if row.op.kind == "matmul"]
    assert [row.op.repeat for row in products] == [steps]
    assert report.totals.activations == steps * 2 * batch * hidden


def test_a_loop_in_a_loop_multiplies(loop: dict[str, Any], node: Make, var: Make, count: Callable[..., Any]) -> None:
    outer = node("_foreach", "outer", 0, 1, 2, in_data_locs="[0]", in_state_locs="[1]", remain_locs="[2]", num_out_data=1,
                 num_outputs=2, num_args=4)  # fmt: skip
    outer["subgraphs"] = [loop]
    content = {"nodes": [var("data"), var("init"), var("w"), outer], "heads": [[3, 0, 0]]}
    report = count(content, shapes={"data": (5, 7, 2, 3), "init": (2, 4)})
    assert report.totals.macs == 5 * 7 * 2 * 3 * 4
    assert report.outputs[0].dims == (5, 7, 2, 4)


def test_a_loop_whose_steps_do_not_agree_is_refused(loop: dict[str, Any], count: Callable[..., Any]) -> None:
    body = loop["nodes"][3]["subgraphs"][0]
    body["nodes"][3] = {"op": "null", "name": "state", "inputs": [], "attrs": {}}
    loop["nodes"][3]["attrs"].update(in_data_locs="[0, 2]", in_state_locs="[]")
    with pytest.raises(opcost.OpcostError, match="both 7 and 2 steps"):
        count(loop, shapes={"data": (7, 2, 3), "init": (2, 4)})


@pytest.mark.parametrize(
    ("folder", "raw", "because"),
    [("cond", "mxnet::_cond", "which branch"), ("custom_op", "mxnet::Custom:mycustom", "Python code")],
)
def test_what_a_file_does_not_say_is_unknown_and_noted(folder: str, raw: str, because: str, data: Path) -> None:
    report = opcost.count(str(data / "adv" / folder / "model"), shapes={"data": (2, 3)})
    assert raw in [missed.raw for missed in report.coverage.uncounted]
    assert any(because in note.text for note in report.notes)


def test_the_weights_inside_branches_are_counted(data: Path) -> None:
    report = opcost.count(str(data / "adv/cond/model"), shapes={"data": (2, 3)})
    assert report.totals.params == 2 * (4 * 3 + 4)


@pytest.mark.parametrize("name", ["squeezenet1.1", "mobilenet1.0_int8"])
def test_fused_operators_have_mxnets_shapes_and_types(name: str, data: Path) -> None:
    expected = json.loads((data / f"fused/{name}.expected.json").read_text())
    path = data / f"fused/{name}-symbol.json"
    opened = open_file(path, CountOptions(shapes={key: tuple(shape) for key, shape in expected["inputs"].items()}))
    worked = work_out(opened.symbol, opened.options, opened.saved)
    assert [shape for outputs in worked.inferred.shapes for shape in outputs] == [
        tuple(shape) for _, shape in expected["outputs"]
    ]
    assert [dtype for outputs in worked.inferred.types for dtype in outputs] == expected["types"]


def test_a_fused_net_costs_what_the_plain_one_does(data: Path) -> None:
    shapes = {"data": (1, 3, 224, 224)}
    fused = opcost.count(str(data / "fused/squeezenet1.1-symbol.json"), shapes=shapes)
    plain = opcost.count(str(data / "zoo/squeezenet1_1/model-symbol.json"), shapes=shapes)
    assert fused.coverage.complete
    assert fused.totals.macs == plain.totals.macs
    assert fused.totals.flops == plain.totals.flops
    assert fused.totals.params == plain.totals.params


def test_an_eight_bit_net_has_the_multiply_adds_of_its_layers(data: Path) -> None:
    report = opcost.count(str(data / "fused/mobilenet1.0_int8-symbol.json"), shapes={"data": (1, 3, 224, 224)})
    plain = opcost.count(str(data / "zoo/mobilenet1_0/model-symbol.json"), shapes={"data": (1, 3, 224, 224)})
    assert report.totals.macs == plain.totals.macs
    assert report.coverage.complete


def test_every_graph_agrees_with_itself(case: Any) -> None:
    load_graph(case.open()).check()


def test_a_node_of_the_largest_symbol_is_no_more_work_than_one_of_a_small_one(data: Path) -> None:
    largest = max(data.glob("*/*/model-symbol.json"), key=lambda path: path.stat().st_size)
    small = data / "zoo/alexnet/model-symbol.json"
    opcost.count(str(small), shapes=(1, 3, 224, 224))  # loads the rules
    each = [
        calls(lambda: opcost.count(str(path), shapes={"data": (1, 3, 416, 416)})) / len(read_symbol(path).nodes)  # noqa: B023
        for path in (small, largest)
    ]
    assert each[1] < min(1.5 * each[0], 600), "a node of the largest takes some 270 calls"


def test_a_thousand_layers_are_worked_out_in_one_sweep(node: Make, var: Make) -> None:
    nodes = [var("data")]
    for layer in range(1500):
        nodes += [
            var(f"w{layer}"),
            node("FullyConnected", f"fc{layer}", len(nodes) - 1, len(nodes), num_hidden=8, no_bias=1),
        ]
    content = json.dumps({"nodes": nodes, "heads": [[len(nodes) - 1, 0, 0]]})
    start = time.process_time()
    found = infer(parse_symbol(content), {0: (2, 8)}, {})
    assert time.process_time() - start < 1.0
    assert sum(prod(shape[0] or ()) for shape in found.shapes if shape[0]) == 1501 * 16 + 1500 * 64


def test_hidden_layers_of_growing_numbers_do_not_grow_without_end(
    node: Make, var: Make, count: Callable[..., Any]
) -> None:
    nodes = [var("data"), *(node("tile", f"t{place}", place, reps="(1000000,)") for place in range(40))]
    with pytest.raises(opcost.OpcostError, match="more than memory can address"):
        count(*nodes, shapes=(2,))
