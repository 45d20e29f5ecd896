"""Symbols of every dialect, and files that are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.errors import SourceError, UnknownSource
from opcost.frontends.mxnet.roles import upgraded
from opcost.frontends.mxnet.symbol import parse_symbol, read_symbol


def nodes_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = content["nodes"]
    return listed


CONV = {"kernel": "(3, 3)", "num_filter": "8", "no_bias": "True"}


def file_of(style: str) -> dict[str, Any]:
    """One convolution with a batch norm behind, as different versions write it."""
    entry = (lambda node: [node, 0]) if style == "0.8" else lambda node: [node, 0, 0]
    key = {"0.8": "param", "0.9": "attr", "1.x": "attrs"}[style]

    def made(op: str, name: str, inputs: list[int], attrs: dict[str, str]) -> dict[str, Any]:
        return {"op": op, "name": name, "inputs": [entry(place) for place in inputs], key: attrs}

    nodes = [
        made("null", "data", [], {}),
        made("null", "conv_weight", [], {}),
        made("Convolution", "conv", [0, 1], CONV),
        made("null", "bn_gamma", [], {}),
        made("null", "bn_beta", [], {}),
    ]
    states = []
    if style != "0.8":
        nodes += [made("null", "bn_moving_mean", [], {}), made("null", "bn_moving_var", [], {})]
        states = [5, 6]
    nodes.append(made("BatchNorm", "bn", [2, 3, 4, *states], {"fix_gamma": "False"}))
    content: dict[str, Any] = {"nodes": nodes, "heads": [entry(len(nodes) - 1)]}
    if style == "1.x":
        content["attrs"] = {"mxnet_version": ["int", 10500]}
    return content


@pytest.mark.parametrize("style", ["0.8", "0.9", "1.x"])
def test_all_dialects_say_the_same(style: str, count: Callable[..., Any]) -> None:
    report = count(file_of(style), shapes={"data": (2, 3, 10, 10)})
    assert report.totals.macs == 2 * 8 * 8 * 8 * 3 * 9
    assert report.totals.params == 8 * 3 * 9 + 2 * 8
    assert report.totals.buffers == 2 * 8


def test_states_that_an_old_file_leaves_out_are_before_their_operator() -> None:
    symbol = upgraded(parse_symbol(json.dumps(file_of("0.8"))))
    names = [node.name for node in symbol.nodes]
    assert names[-3:] == ["bn_moving_mean", "bn_moving_var", "bn"]
    assert symbol.nodes[-1].inputs == ((2, 0), (3, 0), (4, 0), (5, 0), (6, 0))
    assert symbol.heads == ((7, 0),)


def test_old_names_of_operators_are_todays() -> None:
    old = ("_Plus", "_MulScalar", "Softmax", "_Not_Equal", "_RDivScalar", "ElementWiseSum")
    variables = [{"op": "null", "name": name, "inputs": []} for name in "xy"]
    nodes = [*variables, *({"op": name, "name": name, "inputs": [[0, 0], [1, 0]]} for name in old)]
    symbol = upgraded(parse_symbol(json.dumps({"nodes": nodes, "heads": [[7, 0]]})))
    assert [node.op for node in symbol.nodes[2:]] == [
        "elemwise_add", "_mul_scalar", "SoftmaxOutput", "_not_equal", "_rdiv_scalar", "add_n",
    ]  # fmt: skip


def test_a_learning_rate_of_zero_freezes_a_weight_wherever_an_old_file_puts_it(count: Callable[..., Any]) -> None:
    on_variable, on_operator = file_of("0.8"), file_of("0.8")
    nodes_of(on_variable)[1]["attr"] = {"lr_mult": "0"}
    nodes_of(on_operator)[2]["attr"] = {"weight_lr_mult": "0.0"}
    for content in (on_variable, on_operator):
        report = count(content, shapes={"data": (1, 3, 10, 10)})
        assert report.totals.params - report.totals.trainable_params == 8 * 3 * 9


def test_an_axis_of_minus_one_meant_all_of_them_before_it_could_be_absent(count: Callable[..., Any]) -> None:
    nodes = [
        {"op": "null", "name": "data", "inputs": []},
        {"op": "argmax", "name": "best", "attr": {"axis": "-1"}, "inputs": [[0, 0, 0]]},
    ]
    for version, shape in ((904, (1,)), (905, (4,))):
        content = {"nodes": nodes, "heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", version]}}
        assert count(content, shapes={"data": (4, 6)}).outputs[0].dims == shape


def test_keys_in_any_order_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    content = file_of("1.x")
    content["arg_nodes"] = list(range(3000))
    path = tmp_path / "net-symbol.json"
    path.write_text("\ufeff" + json.dumps(content, sort_keys=True), encoding="utf-8")
    assert opcost.count(str(path), shapes=(1, 3, 10, 10)).totals.macs == 8 * 8 * 8 * 3 * 9


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.pop("nodes"), "missing required field `nodes`"),
        (lambda c: c.update(nodes=[]), r"length >= 1 - at `\$\.nodes`"),
        (lambda c: c.pop("heads"), "missing required field `heads`"),
        (lambda c: c.update(heads=[]), r"length >= 1 - at `\$\.heads`"),
        (lambda c: c.update(heads=[[99, 0, 0]]), "heads name node 99"),
        (lambda c: c.update(heads=[[0, 3, 0]]), "a variable has only one"),
        (lambda c: nodes_of(c)[2].update(inputs=[[2, 0, 0]]), "node 2: its inputs name node 2"),
        (lambda c: nodes_of(c)[2].update(inputs=[[0, -1, 0]]), "output -1"),
        (lambda c: nodes_of(c)[2].update(inputs=[[0]]), r"length >= 2 - at `\$\.nodes\[2\]\.inputs"),
        (lambda c: nodes_of(c)[2].update(inputs="data"), "got `str` - at .*inputs"),
        (lambda c: nodes_of(c)[2].update(op=7), "Expected `str`, got `int` - at .*op"),
        (lambda c: nodes_of(c)[2].update(attrs=[]), "got `array` - at .*attrs"),
        (lambda c: nodes_of(c)[2].update(attrs={"kernel": [3, 3]}), "got `array` - at .*attrs"),
        (lambda c: nodes_of(c).__setitem__(0, "data"), "Expected `object`, got `str` - at"),
        (lambda c: nodes_of(c)[1].update(inputs=[[0, 0, 0]]), "a variable cannot read"),
        (lambda c: nodes_of(c)[2].update(subgraphs=[{}]), "missing required field `nodes` - at .*subgraphs"),
    ],
)
def test_a_malformed_symbol_is_refused_and_the_place_is_named(change: Callable[[Any], Any], says: str) -> None:
    content = file_of("1.x")
    change(content)
    with pytest.raises(SourceError, match=says):
        parse_symbol(json.dumps(content), "net-symbol.json")


def test_a_symbol_cut_short_or_too_deep_is_refused(tmp_path: Path) -> None:
    text = json.dumps(file_of("1.x"))
    path = tmp_path / "net-symbol.json"
    path.write_text(text[: len(text) // 2])
    with pytest.raises(SourceError, match=r"not valid JSON.*\n.*cut short"):
        opcost.count(str(path), shapes=(1, 3, 10, 10))
    with pytest.raises(SourceError, match="nested too deeply"):
        parse_symbol("[" * 100_000)
    path.write_bytes(b'{"nodes": "\xff\xfe"}')
    with pytest.raises(SourceError, match="not UTF-8"):
        read_symbol(path)


def test_graphs_nested_without_end_are_refused() -> None:
    inner = file_of("1.x")
    for _ in range(20):
        outer = file_of("1.x")
        nodes_of(outer)[2]["subgraphs"] = [inner]
        inner = outer
    with pytest.raises(SourceError, match="nested more than"):
        parse_symbol(json.dumps(inner))


def test_a_file_larger_than_any_symbol_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "net-symbol.json"
    with path.open("wb") as file:
        file.write(b'{"nodes": [')
        file.truncate(3 << 30)
    with pytest.raises(SourceError, match="which no MXNet symbol has"):
        opcost.count(str(path))


def test_a_pointer_of_git_lfs_is_called_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "net-symbol.json"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(UnknownSource, match="Git LFS pointer"):
        opcost.count(str(path))


def test_a_graph_that_tvm_compiled_is_called_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    nodes = [{"op": "null", "name": f"p{i}", "inputs": []} for i in range(200)]
    nodes.append({"op": "tvm_op", "name": "fused_nn_dense", "attrs": {}, "inputs": [[0, 0, 0]]})
    path.write_text(json.dumps({"nodes": nodes, "heads": [[200, 0, 0]]}))
    with pytest.raises(SourceError, match="TVM"):
        opcost.count(str(path))


def test_names_need_not_be_unique(count: Callable[..., Any]) -> None:
    pool = {"kernel": "(2, 2)", "stride": "(2, 2)", "pool_type": "max"}
    report = count(
        {"op": "null", "name": "data", "inputs": []},
        {"op": "Pooling", "name": "pool_fwd", "attrs": pool, "inputs": [[0, 0, 0]]},
        {"op": "Pooling", "name": "pool_fwd", "attrs": pool, "inputs": [[1, 0, 0]]},
        shapes={"data": (1, 2, 16, 16)},
    )
    assert [row.outs[0].dims for row in report.rows] == [(1, 2, 8, 8), (1, 2, 4, 4)]
    assert report.module("pool").calls == 2
