"""TensorFlow Lite files: what a converter writes, and what the runtime makes of it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from tflite_making import Net, Op, Tensor, model, weight

import opcost
from opcost.errors import InputError, UnknownName

DATA = Path(__file__).resolve().parents[2] / "data" / "tflite" / "operators.zip"
DEPENDS_ON_DATA = {"where", "unique", "segment", "keras_lstm_float", "keras_bilstm_float"}
"""Nets in which some shape does, so that not all of it can be counted."""

with zipfile.ZipFile(DATA) as _archive:
    EXPECTED = json.loads(_archive.read("expected.json"))


@pytest.fixture
def net(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return unpacked(tmp_path, request.param)


def unpacked(folder: Path, name: str) -> Path:
    with zipfile.ZipFile(DATA) as archive:
        (folder / f"{name}.tflite").write_bytes(archive.read(f"{name}.tflite"))
    return folder / f"{name}.tflite"


@pytest.mark.parametrize("net", EXPECTED, indirect=True)
def test_shapes_are_those_of_the_runtime_with_the_shapes_of_the_file_and_with_others(net: Path) -> None:
    for case in EXPECTED[net.stem]:
        report = opcost.count(net, shapes=[tuple(shape) for shape in case["inputs"]])
        for spec, true in zip(report.outputs, case["outputs"], strict=True):
            assert spec.shape is not None
            assert len(spec.shape) == len(true)
            assert all(mine in (None, extent) for mine, extent in zip(spec.shape, true, strict=True))
            assert net.stem in DEPENDS_ON_DATA or list(spec.shape) == true
        assert (net.stem in DEPENDS_ON_DATA) == bool(report.coverage.uncounted)


@pytest.mark.parametrize(
    ("net", "macs"),
    [
        ("conv_same", 6 * 5 * 8 * 3 * 3 * 4),
        ("conv_valid_dilated", 8 * 6 * 8 * 3 * 3 * 4),
        ("conv_grouped", 12 * 10 * 8 * 3 * 3 * 2),
        ("depthwise", 12 * 10 * 8 * 3 * 3),
        ("transpose_conv", 12 * 10 * 4 * 3 * 3 * 5),
        ("conv3d", 4 * 5 * 4 * 6 * 2 * 3 * 3 * 4),
        ("conv3d_transpose", 5 * 4 * 3 * 4 * 2 * 2 * 2 * 3),
        ("dense", 1 * 7 * 5),
        ("dense3", 2 * 6 * 7 * 5),
        ("batch_matmul", 2 * 3 * 4 * 6 * 5),
        ("if", 2 * 4 * 4 + 2 * 4 * 6),
        ("while", 7 * 2 * 4 * 4),
        ("while_data", 2 * 4 * 4),
        ("keras_lstm_float", 5 * 4 * 6 * (3 + 6)),
        ("keras_gru_float", 5 * 3 * 6 * (3 + 6)),
        ("keras_cnn_float", 8 * 8 * 8 * (3 * 3 * 3 + 3 * 3) + 8 * 10),
        ("keras_cnn_int8", 8 * 8 * 8 * (3 * 3 * 3 + 3 * 3) + 8 * 10),
        ("keras_cnn_float16", 8 * 8 * 8 * (3 * 3 * 3 + 3 * 3) + 8 * 10),
    ],
    indirect=["net"],
)
def test_macs_follow_from_the_shapes(net: Path, macs: int) -> None:
    assert opcost.count(net).totals.macs == macs


def test_a_quantized_net_has_the_parameters_of_the_plain_one_each_in_a_byte(tmp_path: Path) -> None:
    """The converter leaves out biases that are zero."""
    plain, small = (opcost.count(unpacked(tmp_path, f"keras_mlp_{how}")) for how in ("float", "int8"))
    assert plain.totals.params == small.totals.params == 5 * 8 + 8 * 3
    assert small.totals.param_bytes == 5 * 8 + 8 * 3
    assert plain.totals.param_bytes == 4 * small.totals.param_bytes


def test_modules_are_the_scopes_in_the_names(tmp_path: Path) -> None:
    report = opcost.count(unpacked(tmp_path, "keras_cnn_float"))
    own = {module.path.rpartition(".")[2]: module.own.macs for module in report.modules}
    assert own["stem_1"] == 8 * 8 * 8 * 3 * 3 * 3
    assert own["dw_1"] == 8 * 8 * 8 * 3 * 3
    assert own["head_1"] == 8 * 10


def test_weights_in_float16_leave_the_modules_as_they_are(tmp_path: Path) -> None:
    plain, half = (opcost.count(unpacked(tmp_path, f"keras_cnn_{how}")) for how in ("float", "float16"))
    modules = [[(m.path, m.type, m.own.macs, m.own.params) for m in report.modules] for report in (plain, half)]
    assert modules[0] == modules[1]
    assert half.totals.param_bytes * 2 == plain.totals.param_bytes


@pytest.mark.parametrize(("dtype", "scale"), [("float16", ()), ("int8", (0.5,))])
def test_a_layer_is_named_by_the_weight_that_is_widened_for_it(
    tmp_path: Path, dtype: str, scale: tuple[float, ...]
) -> None:
    tensors = [
        Tensor("x", (1, 6)),
        weight("net/first/MatMul", 5, 6, dtype=dtype, scale=scale), Tensor("tfl.dequantize", (5, 6)),
        weight("net/second/MatMul", 4, 5, dtype=dtype, scale=scale), Tensor("tfl.dequantize1", (4, 5)),
        weight("arith.constant", 5, dtype="float16"), Tensor("tfl.dequantize2", (5,)),
        Tensor("call:0", (1, 5)), Tensor("call:1", (1, 4)),
    ]  # fmt: skip
    ops = [
        Op("DEQUANTIZE", (3,), (4,)), Op("DEQUANTIZE", (1,), (2,)), Op("DEQUANTIZE", (5,), (6,)),
        Op("FULLY_CONNECTED", (0, 2, 6), (7,)), Op("FULLY_CONNECTED", (7, 4, -1), (8,)),
    ]  # fmt: skip
    path = tmp_path / "half.tflite"
    path.write_bytes(model(Net(tensors, ops, (0,), (8,))))
    modules = {m.path: (m.type, m.own.macs, m.own.params) for m in opcost.count(path).modules}
    assert [*modules] == ["", "net", "net.first", "net.second"]
    assert modules["net.first"] == ("FULLY_CONNECTED", 5 * 6, 5 * 6 + 5)
    assert modules["net.second"] == ("FULLY_CONNECTED", 4 * 5, 4 * 5)


def test_an_open_size_is_one_unless_it_is_given_by_name(tmp_path: Path) -> None:
    path = unpacked(tmp_path, "dense")
    assert opcost.count(path).totals.macs == 7 * 5
    assert any("x[0]" in note.text for note in opcost.count(path).notes)
    assert opcost.count(path, options={"dim": "x[0]=9"}).totals.macs == 9 * 7 * 5
    assert opcost.count(path, batch=9).totals.macs == 9 * 7 * 5


def test_a_signature_is_chosen_by_its_name(tmp_path: Path) -> None:
    path = unpacked(tmp_path, "signatures")
    first = opcost.count(path, shapes={"x": (3, 4)})
    assert first.totals.macs == 3 * 4 * 4
    assert any("encode, train" in note.text for note in first.notes)
    other = opcost.count(path, options={"signature": "train"})
    assert other.totals.macs == 2 * 2 * 4 * 4
    assert not any("signature" in note.text for note in other.notes)
    with pytest.raises(UnknownName, match="did you mean 'train'"):
        opcost.count(path, options={"signature": "trian"})


def test_an_input_may_also_be_called_as_its_tensor_is(tmp_path: Path) -> None:
    path = unpacked(tmp_path, "keras_mlp_float")
    names = [name for name, _ in opcost.count(path).inputs]
    assert opcost.count(path, shapes={f"serving_default_{names[0]}:0": (1, 5)}).totals.macs == 64


def test_a_shape_that_does_not_fit_is_an_error_that_names_the_operator(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"CONV_2D.*does not fit 3"):
        opcost.count(unpacked(tmp_path, "conv_valid_dilated"), shapes=[(1, 3, 3, 4)])
