"""Sizes that ONNX files leave open or fix, and shapes that models compute."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_making import Written, helper, integers, numpy_helper, onnx, tensor, weight

import opcost
from opcost.errors import InputError, UnknownName


def test_the_size_of_an_image_replaces_the_declared_one(written: Written) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"])
    path = written([conv], [tensor("x", 1, 3, 8, 8)], [weight("w", 5, 3, 3, 3)])
    assert opcost.count(path, image=10).totals.macs == 8 * 8 * 5 * 3 * 9


def test_open_sizes_are_required_by_name_and_a_batch_is_one(written: Written) -> None:
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
    with pytest.raises(InputError, match="batch is given as 3 and as 2"):
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
    sizes = report.render("text").splitlines()[2]
    assert sizes.startswith(
        f"sizes   {names[0]} and {names[1]} are taken as {side}: {why}; for other sizes --dim {names[0]}=N"
    )
    sized = opcost.count(path, options={"dim": f"{names[0]}=10,{names[1]}=12"})
    assert sized.totals.macs == 8 * 10 * 8 * 3 * 9
    assert opcost.count(path, image=10).totals.macs == 8 * 8 * 8 * 3 * 9
    assert "taken as" not in sized.render("text").splitlines()[1]


def test_images_with_channels_last_are_open_in_the_middle(written: Written) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    report = opcost.count(written(nodes, [tensor("x", "N", "H", "W", 3)], [weight("w", 3, 2)]))
    assert report.totals.macs == 224 * 224 * 3 * 2


def test_open_sounds_have_a_second_and_texts_some_tokens(written: Written) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"], strides=[4])
    report = opcost.count(written([conv], [tensor("x", "batch", 1, "samples")], [weight("w", 8, 1, 10)]))
    assert report.totals.macs == ((16_000 - 10) // 4 + 1) * 8 * 10
    assert "samples is taken as 16,000: one second of sound at 16 kHz" in report.render("text").splitlines()[2]
    nodes = [helper.make_node("Gather", ["t", "ids"], ["e"]), helper.make_node("MatMul", ["e", "w"], ["y"])]
    ids = [tensor("ids", "batch", "length", kind=onnx.TensorProto.INT64)]
    assert opcost.count(written(nodes, ids, [weight("t", 9, 4), weight("w", 4, 3)])).totals.macs == 128 * 4 * 3


def test_lengths_of_a_cache_are_required(written: Written) -> None:
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
