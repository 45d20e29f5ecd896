"""onnx-tool's table, compared with what onnx-tool 1.0.1 itself wrote (tests/data/compat/onnx_tool)."""

from __future__ import annotations

import csv
import subprocess
import sys
from math import prod
from pathlib import Path

import numpy as np
import pytest
from onnx_making import helper, onnx, tensor, weight
from onnx_tool_model import make

from opcost.compat.onnx_tool import EXP, TANH, Model, NoMacsOps, loadmodel, model_profile
from opcost.errors import InputError, SourceError, UnknownName

DATA = Path(__file__).parents[1] / "data" / "compat" / "onnx_tool"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
FIRST_READERS = {
    "Conv",
    "Plain",
    "LayerNormalization",
    "Expand",
    "Tile",
    "BatchNormalization",
    "InstanceNormalization",
} | {f"Reduce{name}" for name in ("Mean", "Sum", "Max", "Min", "Prod", "L2")}
"""Nodes that share stored tensors: which of them is the first differs from run to run of onnx-tool."""


def written(model: object, tmp_path: Path, **more: object) -> dict[str, list[str]]:
    model_profile(model, save_profile=tmp_path / "found.csv", **more)
    return rows(tmp_path / "found.csv")


def rows(path: Path) -> dict[str, list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return {row[0]: row[1:] for row in csv.reader(file)}


@pytest.mark.parametrize("name", ["light_shufflenet", "light_resnet50"])
def test_nets_have_the_rows_that_onnx_tool_writes(name: str, tmp_path: Path) -> None:
    assert written(LIGHT / f"{name}.onnx", tmp_path) == rows(DATA / f"{name}.csv")


def test_operators_cost_what_they_cost_there(tmp_path: Path) -> None:
    mine, theirs = written(make(), tmp_path), rows(DATA / "many.csv")
    assert list(mine) != sorted(mine)  # in the order of the graph
    assert mine.keys() == theirs.keys()
    assert len(mine) > 60
    for name, (op, macs, share, memory, _, params, _, ins, outs) in theirs.items():
        found = mine[name]
        assert (found[0], found[1], found[2], found[7]) == (op, macs, share, ins), name
        if name not in FIRST_READERS | {"Round", "Clip", "Total"}:
            assert (found[3], found[5], found[8]) == (memory, params, outs), name


def test_the_printed_table_is_the_same_but_for_the_order_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    model_profile(str(LIGHT / "light_squeezenet.onnx"))
    mine = capsys.readouterr().out.splitlines()
    theirs = (DATA / "light_squeezenet.txt").read_text(encoding="utf-8").splitlines()
    assert mine[:2] == theirs[:2]
    assert mine[-1] == theirs[-1]
    assert sorted(mine) == sorted(theirs)


Shapes = dict[str, tuple[int, ...]]


def model_of(op: str, ins: Shapes, stored: Shapes, **attrs: object) -> object:
    node = helper.make_node(op, [*ins, *stored], ["out0"], "node", **attrs)
    graph = helper.make_graph(
        [node],
        "g",
        [tensor(name, *shape) for name, shape in ins.items()],
        [helper.make_empty_tensor_value_info("out0")],
        [weight(name, *shape) for name, shape in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_both_directions_have_gates(tmp_path: Path) -> None:
    steps, batch, width, units, both = 5, 2, 8, 3, 2
    stored = {"w": (both, 4 * units, width), "r": (both, 4 * units, units), "b": (both, 8 * units)}
    model = model_of("LSTM", {"x": (steps, batch, width)}, stored, hidden_size=units, direction="bidirectional")
    products = steps * batch * (prod(stored["w"]) + prod(stored["r"]))
    biases = steps * batch * prod(stored["b"])
    gates = steps * batch * both * units * (4 + 3 * EXP + 2 * TANH + 4)
    assert written(model, tmp_path)["node"][1] == str(products + biases + gates)


def test_a_transposed_convolution_costs_what_it_multiplies(tmp_path: Path) -> None:
    model = model_of("ConvTranspose", {"x": (1, 4, 5, 5)}, {"w": (4, 6, 3, 3), "b": (6,)}, strides=[2, 2])
    side = (5 - 1) * 2 + 3
    assert written(model, tmp_path)["node"][1] == str(5 * 5 * 4 * 6 * 3 * 3 + 6 * side * side)


def test_what_onnx_tool_does_not_know_has_its_multiply_adds_or_a_warning(tmp_path: Path) -> None:
    steps, batch, width, units = 5, 2, 8, 3
    stored = {"w": (1, units, width), "r": (1, units, units)}
    model = model_of("RNN", {"x": (steps, batch, width)}, stored, hidden_size=units)
    assert written(model, tmp_path)["node"][1] == str(steps * batch * (units * width + units * units))
    with pytest.warns(UserWarning, match="no cost is known for Mystery"):
        assert written(model_of("Mystery", {"x": (2, 3)}, {}, domain="third_party"), tmp_path)["node"][1] == "0"


def test_open_sizes_are_shapes_or_arrays(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "node")],
        "g",
        [tensor("x", "batch", 4)],
        [helper.make_empty_tensor_value_info("y")],
        [weight("w", 4, 3)],
    )
    (tmp_path / "net.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    for given in ((7, 4), np.zeros((7, 4), "float32")):
        found = written(tmp_path / "net.onnx", tmp_path, dynamic_shapes={"x": given})
        assert found["node"][1] == str(7 * 4 * 3)
        assert found["node"][7:] == ["7x4", "7x3"]


def test_excluded_operators_are_left_out(tmp_path: Path) -> None:
    net = LIGHT / "light_squeezenet.onnx"
    everything = written(net, tmp_path, hidden_ops=None)
    assert {"Constant", "ConstantOfShape"} & {row[0] for row in everything.values()}
    fewer = written(net, tmp_path, exclude_ops=["Relu", "Conv"])
    assert not {"Relu", "Conv", "Constant"} & {row[0] for row in fewer.values()}
    assert int(fewer["Total"][1]) == sum(int(row[1]) for name, row in fewer.items() if name not in ("Name", "Total"))


def test_what_cannot_be_done_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x07\x3a\xff")
    with pytest.raises(SourceError, match=r"bad\.onnx is not an ONNX model"):
        model_profile(tmp_path / "bad.onnx")
    with pytest.raises(InputError, match="writes no models"):
        model_profile(tmp_path / "bad.onnx", save_model="x.onnx")


def test_neither_onnx_nor_onnx_tool_is_needed() -> None:
    code = (
        "import sys; from opcost.compat.onnx_tool import model_profile; "
        f"model_profile({str(LIGHT / 'light_squeezenet.onnx')!r}); "
        "print({'onnx', 'onnx_tool', 'numpy', 'torch', 'tabulate'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


# -- Model and Graph, as its first page uses them --------------------------------------------------------------------------


def test_a_graph_is_profiled_in_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Model(str(LIGHT / "light_resnet50.onnx"))
    assert (model.modelname, model.valid) == ("light_resnet50", True)
    graph = model.graph
    with pytest.warns(UserWarning, match="shape_infer"):
        graph.profile()
    with pytest.warns(UserWarning, match="profile"):
        graph.print_node_map()
    graph.graph_reorder_nodes()
    graph.shape_infer(None)
    graph.profile(exclude_ops=NoMacsOps)
    theirs = rows(DATA / "light_resnet50.csv")
    assert [graph.macs[0], graph.memory, graph.params] == [int(theirs["Total"][at]) for at in (1, 3, 5)]
    for name in theirs.keys() - {"Name", "Total"}:
        node = graph.nodemap[name]
        assert [node.op_type, str(node.macs[0]), "x".join(map(str, node.outshape))] == [
            *theirs[name][:2],
            theirs[name][8],
        ]
    graph.print_node_map(tmp_path / "flops.csv", metric="FLOPs", exclude_ops=NoMacsOps)
    doubled = rows(tmp_path / "flops.csv")
    assert doubled["Name"][1] == "Forward_FLOPs"
    assert int(doubled["Total"][1]) == 2 * graph.macs[0]
    graph.print_node_map()
    assert f"{graph.macs[0]:,}" in capsys.readouterr().out
    with pytest.raises(UnknownName, match="unknown metric 'FLOPS'; did you mean 'FLOPs'"):
        graph.print_node_map(metric="FLOPS")


def test_what_is_no_model_is_refused_and_none_is_written() -> None:
    assert not Model(3).valid
    with pytest.raises(InputError, match="an object of type int is not an ONNX model"):
        loadmodel(3)
    with pytest.raises(InputError, match="opcost writes no models"):
        Model(make()).save_model("x.onnx")
