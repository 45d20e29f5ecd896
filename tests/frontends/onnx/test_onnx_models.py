"""ONNX models made here, with the numbers that follow from their shapes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_making import Written, helper, integers, numpy_helper, onnx, tensor, weight

import opcost
from opcost.core.report import Report
from opcost.errors import InputError, SourceError, UnknownName


def macs(report: Report) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in report.rows:
        if row.cost is not None and row.cost.macs and row.op.repeat:
            name = row.op.raw.partition("::")[2]
            found[name] = found.get(name, 0) + row.cost.macs * row.op.repeat
    return found


# -- weights and modules ------------------------------------------------------------------------------------------------


def test_a_net_has_the_parameters_macs_and_modules_of_its_author(written: Written) -> None:
    channels, filters, classes, side, kernel = 3, 8, 5, 16, 3
    out = side // 2
    nodes = [
        helper.make_node(
            "Conv", ["x", "stem.conv.weight", "stem.conv.bias"], ["a"], "/stem/conv/Conv", pads=[1] * 4, strides=[2, 2]
        ),
        helper.make_node("BatchNormalization", ["a", "s", "b", "mean", "var"], ["n"], "/stem/norm/BatchNormalization"),
        helper.make_node("Relu", ["n"], ["r"], "/stem/act/Relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "/pool/GlobalAveragePool"),
        helper.make_node("Flatten", ["p"], ["f"], "/Flatten"),
        helper.make_node("Gemm", ["f", "head.weight", "head.bias"], ["y"], "/head/Gemm", transB=1),
    ]
    stored = [
        weight("stem.conv.weight", filters, channels, kernel, kernel), weight("stem.conv.bias", filters),
        *[weight(name, filters) for name in ("s", "b", "mean", "var")],
        weight("head.weight", classes, filters), weight("head.bias", classes),
    ]  # fmt: skip
    report = opcost.count(written(nodes, [tensor("x", 1, channels, side, side)], stored))
    conv = out * out * filters * channels * kernel**2
    assert macs(report) == {"Conv": conv, "Gemm": classes * filters}
    assert report.totals.params == filters * channels * kernel**2 + 3 * filters + classes * filters + classes
    assert report.totals.buffers == 2 * filters
    assert [module.path for module in report.modules] == [
        "",
        "stem",
        "stem.conv",
        "stem.norm",
        "stem.act",
        "pool",
        "head",
    ]
    assert report.outputs[0].shape == (1, classes)


def test_modules_inside_lists_repeat_the_name_of_the_list(written: Written) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "/layer1/layer1.0/act/Relu")]
    report = opcost.count(written(nodes, [tensor("x", 2)]))
    assert [module.path for module in report.modules] == ["", "layer1", "layer1.0", "layer1.0.act"]


def test_modules_come_from_what_the_newer_exporter_notes(written: Written) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], "node_relu")
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'body', 'body.0', 'relu']")
    assert opcost.count(written([node], [tensor("x", 2)])).modules[-1].path == "body.0"


def test_lists_in_lists_repeat_the_end_of_the_path(written: Written) -> None:
    """As HRNet's: the list `branches` is no scope of its own, its items and what lies in them are."""
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
    assert {module.type for module in report.modules[1:]} == {"scope"}


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
        ("layer1.0.conv1", "scope", 9 * 4 * 4),
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


def test_a_weight_that_two_modules_read_counts_once_and_is_told(written: Written) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "/one/MatMul"),
        helper.make_node("MatMul", ["a", "w"], ["y"], "/two/MatMul"),
    ]
    report = opcost.count(written(nodes, [tensor("x", 2, 4)], [weight("w", 4, 4)]))
    assert report.totals.params == 4 * 4
    assert report.totals.macs == 2 * (2 * 4 * 4)
    assert [note.code for note in report.notes] == ["shared-weights"]


def test_weights_in_another_file_are_not_looked_for(written: Written) -> None:
    away = weight("w", 4, 6)
    away.ClearField("raw_data")
    away.data_location = onnx.TensorProto.EXTERNAL
    away.external_data.add(key="location", value="../../etc/passwd")
    report = opcost.count(written([helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor("x", 2, 4)], [away]))
    assert (report.totals.params, report.totals.macs) == (4 * 6, 2 * 4 * 6)


def test_a_gigabyte_of_weights_is_skipped(tmp_path: Path) -> None:
    """The bytes of a tensor are a field of its message, and its name comes after them."""
    size = 1 << 30
    named = b"\x42\x01w"  # name
    raw = b"\x4a" + varint(size)  # raw_data
    head = b"\x08" + varint(16384) + b"\x08" + varint(16384) + b"\x10\x01"
    body = len(head) + len(raw) + size + len(named)
    node = helper.make_node("MatMul", ["x", "w"], ["y"]).SerializeToString()
    x, y = tensor("x", 1, 16384).SerializeToString(), helper.make_empty_tensor_value_info("y").SerializeToString()
    after = b"\x5a" + varint(len(x)) + x + b"\x62" + varint(len(y)) + y
    before = b"\x0a" + varint(len(node)) + node + b"\x2a" + varint(body)
    opset = helper.make_opsetid("", 18).SerializeToString()
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.write(
            b"\x08\x0a\x42"
            + varint(len(opset))
            + opset
            + b"\x3a"
            + varint(len(before) + body + len(after))
            + before
            + head
            + raw
        )
        file.seek(size, 1)
        file.write(named + after)
    script = f"import opcost; from peak_memory import peak; print(opcost.count({str(path)!r}).totals.macs, peak())"
    search = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=search, capture_output=True, text=True, check=True)
    counted, peak = map(int, done.stdout.split())
    assert counted == 16384 * 16384
    assert peak < 200 << 20


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def test_reading_loads_neither_onnx_nor_torch(written: Written) -> None:
    path = written([helper.make_node("Relu", ["x"], ["y"])], [tensor("x", 2)])
    foreign = "{'onnx', 'torch', 'numpy', 'google.protobuf'}"
    script = f"import sys, opcost; opcost.count({str(path)!r}); print({foreign} & {{*sys.modules}})"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "set()\n"
    )


# -- sizes ------------------------------------------------------------------------------------------------------------------


def test_the_size_of_an_image_replaces_the_declared_one(written: Written) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"])
    path = written([conv], [tensor("x", 1, 3, 8, 8)], [weight("w", 5, 3, 3, 3)])
    assert opcost.count(path, image=10).totals.macs == 8 * 8 * 5 * 3 * 9


def test_open_sizes_are_asked_for_by_name_and_a_batch_is_one(written: Written) -> None:
    path = written(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor("x", "batch", "seq", 4)], [weight("w", 4, 3)]
    )
    with pytest.raises(InputError, match=r"leaves sizes open: seq of the input x \(batch x seq x 4\)\n.*--dim seq=N"):
        opcost.count(path)
    report = opcost.count(path, options={"dim": "seq=5"})
    assert report.totals.macs == 5 * 4 * 3
    (note,) = report.notes
    assert note.text == "batch is taken as 1; for another size --dim batch=N"
    assert opcost.count(path, options={"dim": "batch=2,seq=5"}).totals.macs == 2 * 5 * 4 * 3
    assert opcost.count(path, options={"dim": ["batch=2", "seq=5"]}).totals.macs == 2 * 5 * 4 * 3
    assert opcost.count(path, shapes={"x": (2, 7, 4)}).totals.macs == 2 * 7 * 4 * 3
    with pytest.raises(InputError, match="given as 2 and as 3"):
        opcost.count(path, options={"dim": ["batch=2", "batch=3"]})
    batched = opcost.count(path, batch=2, options={"dim": "seq=5"})
    assert batched.totals.macs == 2 * 5 * 4 * 3
    assert not batched.notes
    with pytest.raises(InputError, match="batch was asked to be 3 and 2"):
        opcost.count(path, batch=2, options={"dim": "batch=3"})
    with pytest.raises(InputError, match="no input of the file has a size for image"):
        opcost.count(path, image=8)
    with pytest.raises(InputError, match="not a str"):
        opcost.count(path, options={"dim": 2})
    with pytest.raises(InputError, match="is not a size"):
        opcost.count(path, options={"dim": "batch=²"})
    with pytest.raises(UnknownName, match="did you mean 'batch'"):
        opcost.count(path, options={"dim": "bacth=2"})
    with pytest.raises(InputError, match="has 3 axes"):
        opcost.count(path, shapes={"x": (2, 4)})


@pytest.mark.parametrize(
    ("shape", "kind", "more", "side", "why"),
    [
        (("n", 3, "height", "width"), onnx.TensorProto.FLOAT, {}, 224, "the usual size of images"),
        ((None, 3, None, None), onnx.TensorProto.FLOAT, {}, 224, "the usual size of images"),
        ((1, 3, "h", "w"), onnx.TensorProto.UINT8, {"nms": True}, 640, "the usual size of images for detectors"),
        ((1, 3, "h", "w"), onnx.TensorProto.FLOAT, {"task": "detect"}, 640, "the usual size of images for detectors"),
        ((1, 3, "h", "w"), onnx.TensorProto.FLOAT, {"imgsz": "[320, 320]"}, 320, "imgsz in the model's metadata"),
        (
            (1, 3, "h", "w"),
            onnx.TensorProto.FLOAT,
            {"input_size": "(3, 96, 96)"},
            96,
            "input_size in the model's metadata",
        ),
    ],
)
def test_an_open_image_has_the_size_of_the_metadata_or_the_usual_one(
    shape: Any, kind: int, more: dict[str, Any], side: int, why: str, tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=1),
        helper.make_node("Conv", ["c", "w"], ["y"], kernel_shape=[3, 3]),
    ]
    if more.pop("nms", False):
        nodes.append(helper.make_node("NonMaxSuppression", ["boxes", "scores"], ["chosen"]))
    inputs = [tensor("x", *shape, kind=kind), tensor("boxes", 1, 9, 4), tensor("scores", 1, 1, 9)]
    graph = helper.make_graph(
        nodes, "net", inputs, [helper.make_empty_tensor_value_info("y")], [weight("w", 8, 3, 3, 3)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    helper.set_model_props(model, more)
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    report = opcost.count(path)
    assert report.totals.macs == (side - 2) ** 2 * 8 * 3 * 9
    names = [name or f"x[{axis}]" for axis, name in enumerate(shape)][2:]
    second = report.render("text").splitlines()[1]
    assert second.startswith(
        f"assumed {names[0]} and {names[1]} are taken as {side}: {why}; for other sizes --dim {names[0]}=N"
    )
    sized = opcost.count(path, options={"dim": f"{names[0]}=10,{names[1]}=12"})
    assert sized.totals.macs == 8 * 10 * 8 * 3 * 9
    assert opcost.count(path, image=10).totals.macs == 8 * 8 * 8 * 3 * 9
    assert "assumed" not in sized.render("text").splitlines()[1]


def test_images_with_channels_last_are_open_in_the_middle(written: Written) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    report = opcost.count(written(nodes, [tensor("x", "N", "H", "W", 3)], [weight("w", 3, 2)]))
    assert report.totals.macs == 224 * 224 * 3 * 2


def test_open_sounds_have_a_second_and_texts_some_tokens(written: Written) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"], strides=[4])
    report = opcost.count(written([conv], [tensor("x", "batch", 1, "samples")], [weight("w", 8, 1, 10)]))
    assert report.totals.macs == ((16_000 - 10) // 4 + 1) * 8 * 10
    assert "samples is taken as 16,000: one second of sound at 16 kHz" in report.render("text").splitlines()[1]
    nodes = [helper.make_node("Gather", ["t", "ids"], ["e"]), helper.make_node("MatMul", ["e", "w"], ["y"])]
    ids = [tensor("ids", "batch", "length", kind=onnx.TensorProto.INT64)]
    assert opcost.count(written(nodes, ids, [weight("t", 9, 4), weight("w", 4, 3)])).totals.macs == 128 * 4 * 3


def test_lengths_of_a_cache_are_asked_for(written: Written) -> None:
    nodes = [helper.make_node("Concat", ["past_key", "key"], ["y"], axis=1)]
    inputs = [tensor("past_key", "batch", "past", 4), tensor("key", "batch", "new", 4)]
    with pytest.raises(InputError, match=r"past, new of the input past_key.*\n.*--dim past=N --dim new=N"):
        opcost.count(written(nodes, inputs))


def test_another_batch_than_the_fixed_one_is_refused(written: Written) -> None:
    """What is written in the file holds for the batch of 2 alone: such a Reshape would count half of the batch."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    path = written(nodes, [tensor("x", 2, 4)], [integers("shape", 2, -1, 2), weight("w", 2, 3)])
    assert opcost.count(path, batch=2).totals.macs == 2 * 2 * 2 * 3
    with pytest.raises(InputError, match="dimension 0 of the input 'x' is fixed at 2 in the file, not 4"):
        opcost.count(path, batch=4)


def test_a_batch_changes_open_dimensions_and_leaves_fixed_ones(written: Written) -> None:
    path = written([helper.make_node("MatMul", ["x", "t"], ["y"])], [tensor("x", "n", 4), tensor("t", 4, 9)])
    assert opcost.count(path, batch=3).totals.macs == 3 * 4 * 9


def test_sizes_are_set_one_by_one_or_with_commas_on_the_command_line(
    written: Written, opcost_command: Callable[..., Any]
) -> None:
    path = written(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor("x", "batch", "seq", 4)], [weight("w", 4, 3)]
    )
    for words in (("--dim", "batch=2", "--dim", "seq=5"), ("--dim", "batch=2,seq=5")):
        done = opcost_command("count", path, *words, "--view", "json")
        assert json.loads(done.out)["totals"]["macs"] == 2 * 5 * 4 * 3


def test_a_size_given_for_one_input_holds_for_others(written: Written) -> None:
    path = written([helper.make_node("Add", ["a", "b"], ["y"])], [tensor("a", "n", 4), tensor("b", "n", 4)])
    assert opcost.count(path, shapes={"a": (6, 4)}).outputs[0].shape == (6, 4)


def test_shapes_that_the_model_computes_are_followed(written: Written) -> None:
    """(batch, heads × width) is reshaped by its own shape, as exporters write it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"], axis=0),
        helper.make_node("Unsqueeze", ["batch", "axes"], ["first"]),
        helper.make_node("Concat", ["first", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    stored = [
        integers("axes", 0),
        integers("rest", 3, -1),
        weight("w", 4, 5),
        numpy_helper.from_array(np.array(0), "zero"),
    ]
    report = opcost.count(written(nodes, [tensor("x", "n", 12)], stored), shapes={"x": (7, 12)})
    assert report.outputs[0].shape == (7, 3, 5)
    assert report.totals.macs == 7 * 3 * 4 * 5
    assert report.totals.params == 4 * 5


def test_a_padding_that_the_model_computes_is_followed(written: Written) -> None:
    """As `max(0, 4 - width)` before and behind the last axis of two."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=1),
        helper.make_node("Sub", ["four", "shape"], ["missing"]),
        helper.make_node("Clip", ["missing", "least"], ["width"]),
        helper.make_node("Concat", ["none", "width", "none", "width"], ["pads"], axis=0),
        helper.make_node("Pad", ["x", "pads"], ["y"]),
    ]
    stored = [integers("four", 4), integers("none", 0), numpy_helper.from_array(np.array(0), "least")]
    path = written(nodes, [tensor("x", 2, "n")], stored)
    assert opcost.count(path, shapes={"x": (2, 3)}).outputs[0].shape == (2, 5)
    assert opcost.count(path, shapes={"x": (2, 9)}).outputs[0].shape == (2, 9)


# -- quantized and fused ------------------------------------------------------------------------------------------------------


def test_weights_of_few_bits_are_counted_by_what_they_stand_for(written: Written) -> None:
    depth, width, rows, block = 64, 24, 3, 32
    node = helper.make_node(
        "MatMulNBits",
        ["x", "w", "s"],
        ["y"],
        "/fc/MatMulNBits",
        domain="com.microsoft",
        K=depth,
        N=width,
        bits=4,
        block_size=block,
    )
    stored = [weight("w", width, depth // block, block // 2, dtype=np.uint8), weight("s", width * depth // block)]
    report = opcost.count(written([node], [tensor("x", rows, depth)], stored))
    assert report.totals.macs == rows * depth * width
    assert report.totals.params == width * depth
    assert report.totals.param_bytes == width * depth // 2
    assert report.outputs[0].shape == (rows, width)


def test_a_quantized_convolution_has_the_macs_of_a_plain_one(written: Written) -> None:
    scale = [numpy_helper.from_array(np.float32(0.1), name) for name in ("xs", "ws", "ys")]
    zero = [numpy_helper.from_array(np.uint8(0), name) for name in ("xz", "wz", "yz")]
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    stored = [*scale, *zero, weight("w", 6, 3, 3, 3, dtype=np.uint8), weight("b", 6, dtype=np.int32)]
    node = helper.make_node("QLinearConv", names, ["y"], pads=[1] * 4)
    report = opcost.count(written([node], [tensor("x", 1, 3, 8, 8, kind=onnx.TensorProto.UINT8)], stored))
    assert report.totals.macs == 8 * 8 * 6 * 3 * 3 * 3
    assert report.totals.params == 6 * 3 * 3 * 3 + 6
    assert report.totals.buffers == 6


def test_attention_with_its_projection_has_both_products(written: Written) -> None:
    batch, length, width, heads = 2, 5, 16, 4
    node = helper.make_node("Attention", ["x", "w", "b"], ["y"], domain="com.microsoft", num_heads=heads)
    report = opcost.count(
        written([node], [tensor("x", batch, length, width)], [weight("w", width, 3 * width), weight("b", 3 * width)])
    )
    projection = batch * length * width * 3 * width
    scores = batch * heads * length * length * 2 * (width // heads)
    assert report.totals.macs == projection + scores
    assert report.outputs[0].shape == (batch, length, width)


def test_grouped_queries_meet_every_key_of_the_cache(written: Written) -> None:
    batch, length, past, heads, groups, size = 1, 3, 7, 4, 2, 8
    names = ["q", "k", "v", "pk", "pv", "sl", "tl"]
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "nk", "nv"], domain="com.microsoft", num_heads=heads, kv_num_heads=groups
    )
    ins = [
        tensor("q", batch, length, heads * size), tensor("k", batch, length, groups * size),
        tensor("v", batch, length, groups * size),
        tensor("pk", batch, groups, past, size), tensor("pv", batch, groups, past, size),
        tensor("sl", batch, kind=onnx.TensorProto.INT32), tensor("tl", kind=onnx.TensorProto.INT32),
    ]  # fmt: skip
    report = opcost.count(written([node], ins))
    assert report.totals.macs == batch * heads * length * (past + length) * 2 * size


# -- faults ---------------------------------------------------------------------------------------------------------------------


def test_an_operator_that_nobody_knows_is_told_and_never_zero(written: Written) -> None:
    report = opcost.count(written([helper.make_node("Wonder", ["x"], ["y"], domain="own")], [tensor("x", 2)]))
    assert report.totals.uncounted == 1
    assert "own::Wonder" in report.render("text")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x08\x07", "there is no graph in it"),
        (b"\x08\x07\x3a\xff\xff\xff\xff\x0f", "and 0 are left"),
        (b"\x08" + b"\xff" * 12, "more than 64 bits"),
        (b"\x08\x07\x3a\x03\x0a\x01\xff", "ends inside of a number"),
        (b"\x08\x07\x3b", "written in the way 3"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=told):
        opcost.count(path)


def test_a_value_that_nobody_makes_is_told(written: Written) -> None:
    with pytest.raises(SourceError, match="'ghost' is read and never made"):
        opcost.count(written([helper.make_node("Relu", ["ghost"], ["y"])], [tensor("x", 2)]))


def test_shapes_that_do_not_fit_name_the_node(written: Written) -> None:
    path = written(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "/fc/MatMul")], [tensor("x", 2, 5)], [weight("w", 4, 3)]
    )
    with pytest.raises(InputError, match=r"MatMul '/fc/MatMul': rows of 5 elements do not fit columns of 4"):
        opcost.count(path)


@pytest.mark.parametrize("asked", [{"backward": True}, {"mode": "train"}, {"real": True}])
def test_what_a_file_cannot_tell_is_refused(written: Written, asked: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="read and not run"):
        opcost.count(written([helper.make_node("Relu", ["x"], ["y"])], [tensor("x", 2)]), **asked)


def test_what_comes_behind_an_unknown_operator_names_it_and_is_at_least(written: Written) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Wonder", ["a"], ["b"], domain="own"),
        helper.make_node("Identity", ["b"], ["i"]),
        helper.make_node("Conv", ["i", "w"], ["c"]),
        helper.make_node("Wonder", ["c"], ["d"], domain="own"),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    report = opcost.count(written(nodes, [tensor("x", 1, 3, 4, 4)], [weight("w", 8, 3, 1, 1)]))
    behind = "its inputs come from own::Wonder, which is not counted"
    assert {(each.raw, each.reason, each.count) for each in report.coverage.uncounted} == {
        ("own::Wonder", "no rule", 2),
        ("onnx::Conv", behind, 1),
        ("onnx::Relu", behind, 1),
    }
    assert report.totals.activations == 3 * 4 * 4
    text = report.render("text")
    marked = [line.split()[0] for line in text.splitlines() if ">=" in line.replace("≥", ">=")]
    assert {"activations", "peak", "MACs", "FLOPs"} <= {*marked}


def test_a_size_that_data_decides_is_told_as_such(written: Written) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["a"]), helper.make_node("Cast", ["a"], ["y"], to=1)]
    report = opcost.count(written(nodes, [tensor("x", 4)]))
    assert {each.reason for each in report.coverage.uncounted} == {"its shape depends on data"}
