"""Modules of ONNX files, and the parts that stored tensors play in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx_making import Written, helper, integers, numpy_helper, onnx, tensor, weight

import opcost


def test_modules_inside_lists_repeat_the_name_of_the_list(written: Written) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "/layer1/layer1.0/act/Relu")]
    report = opcost.count(written(nodes, [tensor("x", 2)]))
    assert [module.path for module in report.modules] == ["", "layer1", "layer1.0", "layer1.0.act"]


def test_modules_come_from_what_the_newer_exporter_notes(written: Written) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], "node_relu")
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'body', 'body.0', 'relu']")
    assert opcost.count(written([node], [tensor("x", 2)])).modules[-1].path == "body.0"


def test_lists_in_lists_repeat_the_end_of_the_path(written: Written) -> None:
    """As HRNet's: the list `branches` is no scope of its own, its items and what is in them are."""
    names = [
        "/stage2/stage2.0/branches.0/branches.0.0/conv1/Relu",
        "/stage2/stage2.0/fuse_layers.0.1/fuse_layers.0.1.0/Relu",
    ]
    nodes = [helper.make_node("Relu", ["x"], [f"y{at}"], name) for at, name in enumerate(names)]
    report = opcost.count(written(nodes, [tensor("x", 2)]))
    assert [module.path for module in report.modules] == [
        "", "stage2", "stage2.0", "stage2.0.branches", "stage2.0.branches.0", "stage2.0.branches.0.0",
        "stage2.0.branches.0.0.conv1", "stage2.0.fuse_layers", "stage2.0.fuse_layers.0", "stage2.0.fuse_layers.0.1",
        "stage2.0.fuse_layers.0.1.0",
    ]  # fmt: skip
    assert {module.type for module in report.modules[1:3]} == {"2 × Relu"}
    assert {module.type for module in report.modules[3:]} == {"Relu"}


def test_a_group_has_the_type_of_what_is_in_it(written: Written) -> None:
    """Operators that multiply first, views and copies only where there is nothing else, and what a table has room for."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], "/down/turn/Transpose", perm=[0, 1, 3, 2]),
        helper.make_node("Relu", ["t"], ["a"], "/down/0/Relu"),
        helper.make_node("Conv", ["a", "w"], ["b"], "/down/1/Conv"),
        helper.make_node("Relu", ["b"], ["c"], "/down/2/Relu"),
        helper.make_node("Conv", ["c", "w"], ["d"], "/down/3/Conv"),
        helper.make_node("GlobalAveragePool", ["d"], ["e"], "/head/0/GlobalAveragePool"),
        helper.make_node("InstanceNormalization", ["e", "s", "s"], ["f"], "/head/1/InstanceNormalization"),
        helper.make_node("Add", ["f", "x"], ["y"], "/Add"),
    ]
    report = opcost.count(
        written(nodes, [tensor("x", 1, 2, 4, 4)], [weight("w", 2, 2, 1, 1), weight("s", 2)]),
    )
    assert [(module.path, module.type) for module in report.modules[1:]] == [
        ("down", "2 × Conv, 2 × Relu"), ("down.turn", "Transpose"), ("down.0", "Relu"), ("down.1", "Conv"),
        ("down.2", "Relu"), ("down.3", "Conv"), ("head", "GlobalAveragePool, …"),
        ("head.0", "GlobalAveragePool"), ("head.1", "InstanceNormalization"),
    ]  # fmt: skip
    cost = {group.key: group.stats.macs for group in report.by_type()}
    assert cost["Conv"] == 2 * 2 * 2 * 4 * 4
    assert sum(cost.values()) == report.totals.macs
    assert cost["2 × Conv, 2 × Relu"] == 0, "a group's operators are in the rows of its modules"


def test_the_type_of_a_loops_body_names_each_operator_once(written: Written) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Relu", ["v"], ["w"], "/cell/Relu"),
            helper.make_node("Identity", ["going"], ["still"], "/cell/Identity"),
        ],
        "body",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("going", 9, []), tensor("v", 2)],
        [helper.make_tensor_value_info("still", 9, []), tensor("w", 2)],
    )
    turns = numpy_helper.from_array(np.array(3, np.int64), "turns")
    going = numpy_helper.from_array(np.array(True), "start")
    nodes = [helper.make_node("Loop", ["turns", "start", "x"], ["y"], "/loop/Loop", body=body)]
    report = opcost.count(written(nodes, [tensor("x", 2)], [turns, going]))
    assert report.totals.flops == 3 * 2
    assert report.module("cell").type == "Relu"


def exported(path: Path, *signature: str, **scopes: tuple[list[str], list[str], str]) -> Path:
    """The file with what PyTorch's newer exporter notes: parameters, and by node its modules, their classes and its operator."""
    model = onnx.load(path)
    lines = (f"p_{name.replace('.', '_').lower()}: PARAMETER target='{name}'" for name in signature)
    noted = "\n# inputs\n" + "\n".join(lines)
    model.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=noted)
    for node in model.graph.node:
        paths, classes, called = scopes[node.name]
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str([*paths, "op"]))
        node.metadata_props.add(key="pkg.torch.onnx.class_hierarchy", value=str([*classes, "aten.op.default"]))
        node.metadata_props.add(
            key="pkg.torch.onnx.fx_node", value=f"%op : [num_users=1] = call_function(args = ({called}))"
        )
    path.write_bytes(model.SerializeToString())
    return path


def test_a_convolution_into_which_a_norm_was_folded_is_named_by_its_weight(written: Written) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "layer1.0.conv1.weight"], ["a"], "conv"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("Add", ["r", "x"], ["y"], "add"),
    ]
    block = (["", "layer1", "layer1.0"], ["zoo.ResNet", "torch.nn.modules.container.Sequential", "zoo.BasicBlock"])
    norm = (
        [*block[0], "layer1.0.bn1"],
        [*block[1], "torch.nn.modules.batchnorm.BatchNorm2d"],
        "%conv2d, %p_layer1_0_bn1_weight",
    )
    act = ([*block[0], "layer1.0.act1"], [*block[1], "torch.nn.modules.activation.ReLU"], "%norm")
    path = exported(
        written(nodes, [tensor("x", 1, 4, 3, 3)], [weight("layer1.0.conv1.weight", 4, 4, 1, 1)]),
        "layer1.0.conv1.weight", "layer1.0.bn1.weight",
        conv=norm, relu=act, add=(*block, "%relu, %x"),
    )  # fmt: skip
    report = opcost.count(path)
    assert [(module.path, module.type, module.own.macs) for module in report.modules] == [
        ("", "ResNet", 0),
        ("layer1", "Sequential", 0),
        ("layer1.0", "BasicBlock", 0),
        ("layer1.0.bn1", "BatchNorm2d", 0),
        ("layer1.0.conv1", "Conv", 9 * 4 * 4),
        ("layer1.0.act1", "ReLU", 0),
    ]
    assert [parameter.name for parameter in report.parameters] == ["layer1.0.conv1.weight"]
    assert report.module("layer1.0.conv1").own.params == 4 * 4
    assert [note.text.rpartition(": ")[2] for note in report.notes] == ["layer1.0.bn1.weight"]


def test_weights_that_export_turned_are_found_by_the_module_around(written: Written) -> None:
    """As Mamba's: weight and bias of modules that are not called, and a matrix whose exponential was taken."""
    wide, states, kernel = 6, 2, 4
    nodes = [
        helper.make_node("Conv", ["x", "unsqueeze"], ["a"], "conv", group=wide),
        helper.make_node("Add", ["a", "unsqueeze_1"], ["b"], "bias"),
        helper.make_node("Unsqueeze", ["b", "axes"], ["c"], "more"),
        helper.make_node("Mul", ["c", "unsqueeze_3"], ["d"], "decay"),
        helper.make_node("Add", ["d", "zeros"], ["y"], "start"),
    ]
    stored = [
        weight("unsqueeze", wide, 1, kernel), weight("unsqueeze_1", wide, 1), weight("unsqueeze_3", 1, wide, 1, states),
        weight("zeros", 1, wide, 1, states), integers("axes", 3),
    ]  # fmt: skip
    mixer = (["", "mixer"], ["zoo.Mamba", "zoo.Mixer"])
    path = exported(
        written(nodes, [tensor("x", 1, wide, 8)], stored),
        "mixer.A_log", "mixer.conv1d.weight", "mixer.conv1d.bias", "mixer.dt_proj.bias",
        conv=(*mixer, "%x, %unsqueeze, %p_mixer_conv1d_bias"), bias=(*mixer, "%matmul, %unsqueeze_1"),
        more=(*mixer, "%add"), decay=(*mixer, "%unsqueeze_3, %unsqueeze_4"), start=(*mixer, "%mul, %zeros"),
    )  # fmt: skip
    report = opcost.count(path)
    assert {each.name: each.spec.shape for each in report.parameters} == {
        "mixer.conv1d.weight": (wide, 1, kernel),
        "mixer.dt_proj.bias": (wide, 1),
        "mixer.A_log": (1, wide, 1, states),
    }
    (note,) = report.notes
    assert note.text.endswith(": mixer.conv1d.bias")


def test_tables_that_an_optimiser_computed_are_no_parameters(written: Written) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "/fc/Transpose_output_0"], ["a"], "/fc/MatMul"),
        helper.make_node("Add", ["a", "/rotary/Cos_output_0"], ["y"], "/Add"),
    ]
    stored = [weight("/fc/Transpose_output_0", 4, 3), weight("/rotary/Cos_output_0", 2, 3)]
    report = opcost.count(written(nodes, [tensor("x", 2, 4)], stored))
    assert report.totals.params == 4 * 3
    (note,) = report.notes
    assert note.text == "computed before the file was saved, and no parameters: /rotary/Cos_output_0"


def test_a_bias_of_eight_bits_is_a_parameter(written: Written) -> None:
    scale = [numpy_helper.from_array(np.float32(0.1), name) for name in ("as", "bs", "cs")]
    zero = [numpy_helper.from_array(np.int8(0), name) for name in ("az", "bz", "cz")]
    names = ["x", "as", "az", "b", "bs", "bz", "cs", "cz"]
    node = helper.make_node("QLinearAdd", names, ["y"], domain="com.microsoft")
    stored = [*scale, *zero, weight("b", 7, dtype=np.int8)]
    assert opcost.count(written([node], [tensor("x", 2, 7, kind=onnx.TensorProto.INT8)], stored)).totals.params == 7


def test_a_weight_that_two_modules_read_counts_once_and_is_noted(written: Written) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "/one/MatMul"),
        helper.make_node("MatMul", ["a", "w"], ["y"], "/two/MatMul"),
    ]
    report = opcost.count(written(nodes, [tensor("x", 2, 4)], [weight("w", 4, 4)]))
    assert report.totals.params == 4 * 4
    assert report.totals.macs == 2 * (2 * 4 * 4)
    assert [note.code for note in report.notes] == ["shared-weights"]
