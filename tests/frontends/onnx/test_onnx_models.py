"""ONNX models made here, with the numbers that follow from their shapes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_making import Written, helper, numpy_helper, onnx, tensor, weight

import opcost
from opcost.core.report import Report
from opcost.errors import InputError, SourceError


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


# -- quantized and fused ------------------------------------------------------------------------------------------------------


def test_weights_of_few_bits_are_counted_by_their_unpacked_elements(written: Written) -> None:
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


def test_an_unknown_operator_is_reported_and_never_zero(written: Written) -> None:
    report = opcost.count(written([helper.make_node("Wonder", ["x"], ["y"], domain="own")], [tensor("x", 2)]))
    assert report.totals.uncounted == 1
    assert "own::Wonder" in report.render("text")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x08\x07", "there is no graph in it"),
        (b"\x08\x07\x3a\xff\xff\xff\xff\x0f", "and 0 are left"),
        (b"\x08" + b"\xff" * 12, "more than 64 bits"),
        (b"\x08\x07\x3a\x03\x0a\x01\xff", "ends inside of a number"),
        (b"\x08\x07\x3b", "written in the way 3"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=message):
        opcost.count(path)


def test_a_value_that_no_node_makes_is_named(written: Written) -> None:
    with pytest.raises(SourceError, match="'ghost' is read and never made"):
        opcost.count(written([helper.make_node("Relu", ["ghost"], ["y"])], [tensor("x", 2)]))


def test_shapes_that_do_not_fit_name_the_node(written: Written) -> None:
    path = written(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "/fc/MatMul")], [tensor("x", 2, 5)], [weight("w", 4, 3)]
    )
    with pytest.raises(InputError, match=r"MatMul '/fc/MatMul': rows of 5 elements do not fit columns of 4"):
        opcost.count(path)


@pytest.mark.parametrize("options", [{"backward": True}, {"mode": "train"}, {"real": True}])
def test_options_that_need_a_run_are_refused_for_a_file(written: Written, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="read and not run"):
        opcost.count(written([helper.make_node("Relu", ["x"], ["y"])], [tensor("x", 2)]), **options)


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


def test_a_size_that_data_decides_is_reported_as_such(written: Written) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["a"]), helper.make_node("Cast", ["a"], ["y"], to=1)]
    report = opcost.count(written(nodes, [tensor("x", 4)]))
    assert {each.reason for each in report.coverage.uncounted} == {"its shape depends on data"}


# -- FusedMatMul ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [0, 1])
def test_batches_between_rows_and_columns_are_read(turned: int, written: Written) -> None:
    """transBatchA: the first axis is the rows, and the batch comes between; transA then swaps the last two."""
    batch, rows, depth, columns = (2, 3), 5, 7, 11
    a = (depth if turned else rows, *batch, rows if turned else depth)
    b = (columns if turned else depth, *batch, depth if turned else columns)
    attrs = {"transBatchA": 1, "transBatchB": 1, "transA": turned, "transB": turned}
    node = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", **attrs)
    report = opcost.count(written([node], [tensor("a", *a), tensor("b", *b)]))
    assert report.totals.macs == 2 * 3 * rows * depth * columns
    assert report.outputs[0].shape == (*batch, rows, columns)


def test_an_attribute_that_is_not_supported_is_named(written: Written) -> None:
    node = helper.make_node("Rfft", ["x"], ["y"], domain="com.microsoft", signal_ndim=2, normalized=0, onesided=1)
    (missed,) = opcost.count(written([node], [tensor("x", 4, 8)])).coverage.uncounted
    assert missed.reason == "its attribute signal_ndim=2 is not supported"


def test_the_runtimes_own_format_is_named(tmp_path: Path) -> None:
    """A flatbuffer whose identifier, behind the offset of its root, is ORTM."""
    path = tmp_path / "net.ort"
    path.write_bytes(b"\x18\0\0\0ORTM" + bytes(64))
    with pytest.raises(
        SourceError, match=r"ONNX Runtime's own format \(\.ort\)(.|\n)*the \.onnx file from which it was made"
    ):
        opcost.count(path)
