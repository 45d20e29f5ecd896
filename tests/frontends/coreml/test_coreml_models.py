"""Core ML files: what coremltools writes of programs and of PyTorch nets."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import opcost
from opcost.errors import OpcostError, SourceError, UnknownName
from opcost.frontends.coreml.load import graph_of
from opcost.frontends.coreml.model import read_model
from opcost.frontends.options import CountOptions

DATA = Path(__file__).resolve().parents[2] / "data" / "coreml" / "models.zip"

with zipfile.ZipFile(DATA) as _archive:
    EXPECTED = json.loads(_archive.read("expected.json"))
    MODELS = {name: _archive.read(f"{name}.mlmodel") for name in EXPECTED}
STEERED = "torch_gru_neuralnetwork"
"""Its layer runs another network, which is refused."""


@pytest.mark.parametrize("name", [name for name in EXPECTED if name != STEERED])
@pytest.mark.parametrize("hidden", [False, True], ids=["declared", "hidden"])
def test_shapes_are_those_that_coremltools_infers_also_with_its_statements_hidden(name: str, hidden: bool) -> None:
    model = read_model(MODELS[name])
    if hidden:
        graphs = {
            key: replace(graph, declared={each: told._replace(shape=None) for each, told in graph.declared.items()})
            for key, graph in model.graphs.items()
        }
        model = model._replace(graphs=graphs)
    graph = graph_of(model, CountOptions(), name)
    graph.check()
    assert [list(graph.values[value].spec.shape or ()) for value in graph.outputs] == EXPECTED[name]["outputs"]
    assert not [op.raw for op in graph.ops if op.kind == "unknown"]


def counted(folder: Path, name: str) -> opcost.Report:
    path = folder / "net.mlmodel"
    path.write_bytes(MODELS[name])
    return opcost.count(path)


CNN = 8 * 8 * 8 * 3 * 9 + 8 * 8 * 8 * 9 + 4 * 4 * 4 * 8 + 4 * 10


@pytest.mark.parametrize(
    ("name", "macs", "params"),
    [
        # The converter has folded the BatchNorm of 8 channels into the convolution before it.
        ("torch_cnn", CNN, 8 * 3 * 9 + 8 + 8 * 9 + 8 + 4 * 8 + 4 + 10 * 4 + 10),
        ("torch_deconv", 7 * 9 * 4 * 6 * 9 + 28 * 36 * 2 * 6 * 9, 4 * 6 * 9 + 6 + 2 * 6 * 9 + 2),
        ("torch_conv3d", 3 * 4 * 4 * 6 * 4 * 27, 6 * 4 * 27 + 6),
        ("torch_lstm", 5 * 2 * 4 * 6 * (3 + 6), 4 * 6 * (3 + 6 + 1)),
        ("torch_embedding", 2 * 4 * 8 * 5, 20 * 8 + 8 * 5 + 5),
        ("torch_mlp", 4 * (7 * 16 + 16 * 3), 7 * 16 + 16 + 16 * 3 + 3),
        ("torch_attention", 2 * 5 * (8 * 24 + 8 * 8) + 2 * 2 * 2 * 5 * 5 * 4, 8 * 24 + 24 + 8 + 8 + 8 * 8 + 8),
    ],
)
@pytest.mark.parametrize("form", ["mlprogram", "neuralnetwork"])
def test_a_net_costs_the_same_as_a_program_and_as_a_neural_network(
    tmp_path: Path, name: str, macs: int, params: int, form: str
) -> None:
    report = counted(tmp_path, f"{name}_{form}")
    assert report.totals.macs == macs
    # In a neural network a layer loads an LSTM's first states, as it would load weights.
    assert report.totals.params == params + (2 * 2 * 6 if f"{name}_{form}" == "torch_lstm_neuralnetwork" else 0)
    assert not report.coverage.uncounted


@pytest.mark.parametrize(
    ("name", "macs"),
    [
        ("mil_cond", 2 * 4 * 4 + 2 * 4 * 6),
        ("mil_while", 7 * 2 * 4 * 4),
        ("torch_gru_mlprogram", 5 * 2 * 3 * 6 * (3 + 6)),
        ("mil_gru", 5 * 2 * 3 * 6 * (3 + 6)),
        ("mil_conv_custom", 8 * 8 * 8 * 2 * 9),
    ],
)
def test_the_dearer_branch_counts_and_a_loop_as_often_as_it_turns(tmp_path: Path, name: str, macs: int) -> None:
    assert counted(tmp_path, name).totals.macs == macs


@pytest.mark.parametrize(("name", "bits"), [("affine_int8", 8), ("lut4", 4)])
def test_a_weight_of_few_bits_has_all_its_elements_and_few_bytes(tmp_path: Path, name: str, bits: int) -> None:
    report = counted(tmp_path, f"mil_{name}")
    assert report.totals.params == 4 * 6 + 4  # and a bias of plain zeros
    assert report.totals.param_bytes == 4 * 6 * bits // 8 + 4 * 4
    assert report.totals.macs == 2 * 4 * 6


def packaged(folder: Path, inside: str = "com.apple.CoreML/model.mlmodel") -> Path:
    """A package as Core ML writes it."""
    package = folder / "net.mlpackage"
    target = package / "Data" / "com.apple.CoreML" / "model.mlmodel"
    target.parent.mkdir(parents=True)
    target.write_bytes(MODELS["torch_mlp_mlprogram"])
    manifest = {"fileFormatVersion": "1.0.0", "itemInfoEntries": {"A": {"path": inside}}, "rootModelIdentifier": "A"}
    (package / "Manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return package


def test_a_package_is_counted_as_the_model_in_it(tmp_path: Path) -> None:
    report = opcost.count(str(packaged(tmp_path)))
    assert report.totals.macs == 4 * (7 * 16 + 16 * 3)
    assert report.meta["source"] == "net.mlpackage"
    assert opcost.count(tmp_path / "net.mlpackage", shapes={"x0": (9, 7)}).totals.macs == 9 * (7 * 16 + 16 * 3)


@pytest.mark.parametrize("inside", ["../../secret.mlmodel", "/etc/passwd", "com.apple.CoreML/other.mlmodel"])
def test_a_package_names_no_file_outside_of_itself(tmp_path: Path, inside: str) -> None:
    with pytest.raises(SourceError, match=r"outside|is not there"):
        opcost.count(str(packaged(tmp_path, inside)))


def test_a_function_is_chosen_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "net.mlmodel"
    path.write_bytes(MODELS["torch_mlp_mlprogram"])
    with pytest.raises(UnknownName, match="did you mean 'main'"):
        opcost.count(path, options={"function": "mian"})


def test_a_model_of_another_kind_is_refused_by_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "net.mlmodel"
    path.write_bytes(
        b"\x08\x01\x12\x02\x0a\x00\x92\x19\x00"
    )  # a version, a description with an input, an empty field 402
    with pytest.raises(SourceError, match="ensemble of trees"):
        opcost.count(path)
    path.write_bytes(MODELS[STEERED])
    with pytest.raises(SourceError, match=r"while_loop_0.*runs other networks"):
        opcost.count(path)


@pytest.mark.parametrize("name", ["torch_cnn_mlprogram", "torch_cnn_neuralnetwork"])
def test_a_file_that_is_cut_anywhere_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "net.mlmodel"
    for length in range(2, len(MODELS[name]) - 1, 97):
        path.write_bytes(MODELS[name][:length])
        with pytest.raises(OpcostError):
            opcost.count(path)


def test_a_layer_without_inputs_is_refused(tmp_path: Path) -> None:
    layer = b"\x0a\x02fc\xe2\x08\x00"  # its name, and an empty field 140: an inner product
    network = b"\x0a" + bytes((len(layer),)) + layer
    path = tmp_path / "net.mlmodel"
    path.write_bytes(b"\x08\x01\x12\x02\x0a\x00\xa2\x1f" + bytes((len(network),)) + network)
    with pytest.raises(SourceError, match="layer 'fc' is not what such a layer must be"):
        opcost.count(path)
