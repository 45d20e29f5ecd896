"""Core ML files: what coremltools writes of programs and of PyTorch nets."""

from __future__ import annotations

import json
import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import opcost
from opcost.errors import OpcostError, SourceError, UnknownName
from opcost.frontends.coreml.model import read_model
from opcost.frontends.coreml.walk import graph_of
from opcost.frontends.options import CountOptions

DATA = Path(__file__).resolve().parents[2] / "data" / "coreml" / "models.zip"

with zipfile.ZipFile(DATA) as _archive:
    EXPECTED = json.loads(_archive.read("expected.json"))
    MODELS = {name: _archive.read(f"{name}.mlmodel") for name in EXPECTED}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("hidden", [False, True], ids=["declared", "hidden"])
def test_shapes_are_those_that_coremltools_infers_also_with_its_statements_hidden(name: str, hidden: bool) -> None:
    model = read_model(MODELS[name])
    if hidden:
        graphs = {
            key: replace(graph, declared={each: value._replace(shape=None) for each, value in graph.declared.items()})
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
        ("torch_gru_neuralnetwork", 5 * 2 * 3 * 6 * (3 + 6)),
        ("mil_gru", 5 * 2 * 3 * 6 * (3 + 6)),
        ("mil_conv_custom", 8 * 8 * 8 * 2 * 9),
    ],
)
def test_the_more_expensive_branch_counts_and_a_loop_as_often_as_it_turns(tmp_path: Path, name: str, macs: int) -> None:
    assert counted(tmp_path, name).totals.macs == macs


@pytest.mark.parametrize(("name", "bits"), [("affine_int8", 8), ("lut4", 4)])
def test_a_weight_of_few_bits_has_all_its_elements_and_few_bytes(tmp_path: Path, name: str, bits: int) -> None:
    report = counted(tmp_path, f"mil_{name}")
    assert report.totals.params == 4 * 6 + 4  # and a bias of plain zeros
    assert report.totals.param_bytes == 4 * 6 * bits // 8 + 4 * 4
    assert report.totals.macs == 2 * 4 * 6


# -- networks inside of layers, written field by field --------------------------------------------------------------------


def field(number: int, value: int | str | bytes) -> bytes:
    """A field of a message: a number, or a length and N bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def layer(name: str, ins: str, outs: str, kind: int, *parameters: bytes) -> bytes:
    """A layer of a network."""
    ends = b"".join([*(field(2, each) for each in ins.split()), *(field(3, each) for each in outs.split())])
    return field(1, field(1, name) + ends + field(kind, b"".join(parameters)))


def linear(ins: str, outs: str, width: int) -> bytes:
    """A product with four features."""
    weight = struct.pack(f"<{4 * width}f", *[0.5] * (4 * width))
    return layer(f"fc_{outs}_{width}", ins, outs, 140, field(1, 4), field(2, width), field(20, field(1, weight)))


def constant(name: str, value: float) -> bytes:
    return layer(name, "", name, 1070, field(1, b"\x01"), field(2, field(1, struct.pack("<f", value))))


def plus(ins: str, outs: str, value: float) -> bytes:
    return layer(f"plus_{outs}", ins, outs, 230, b"\x0d" + struct.pack("<f", value))


def network(folder: Path, layers: bytes) -> opcost.Report:
    """The count of a network that makes y from x and from a scalar c."""

    def described(number: int, name: str, *shape: int) -> bytes:
        array = b"".join(field(1, extent) for extent in shape) + field(2, 65568)
        return field(number, field(1, name) + field(3, field(5, array)))

    description = described(1, "x", 2, 4) + described(1, "c", 1) + described(10, "y", 2, 4)
    path = folder / "net.mlmodel"
    path.write_bytes(field(1, 5) + field(2, description) + field(500, layers + field(5, 1)))
    return opcost.count(path)


SMALL, LARGE = 2 * 4 * 4, 2 * 4 * 6


def test_of_a_branch_layer_the_more_expensive_network_counts(tmp_path: Path) -> None:
    branches = field(1, linear("x", "h", 4)), field(2, linear("x", "w", 6) + linear("x", "h", 4))
    report = network(tmp_path, layer("if", "c", "", 605, *branches) + linear("h", "y", 4))
    assert report.totals.macs == LARGE + SMALL + SMALL
    assert [note.code for note in report.notes] == ["branch"]
    assert report.outputs[0].shape == (2, 4)


def test_of_a_branch_layer_whose_condition_is_known_the_one_that_is_taken_counts(tmp_path: Path) -> None:
    branches = field(1, linear("x", "h", 4)), field(2, linear("x", "w", 6) + linear("x", "h", 4))
    report = network(tmp_path, constant("yes", 1.0) + layer("if", "yes", "", 605, *branches) + linear("h", "y", 4))
    assert report.totals.macs == SMALL + SMALL
    assert not report.notes


COUNTING = layer("copy_i", "zero", "i", 600) + layer("copy_x", "x", "h", 600)
TURN = linear("h", "g", 4) + plus("i", "next", 1.0) + layer("keep_i", "next", "i", 600) + layer("keep_h", "g", "h", 600)


@pytest.mark.parametrize(
    ("most", "end", "turns", "notes"),
    [
        (0, 7.0, 7, []),  # as often as the counter says
        (3, 7.0, 3, []),  # and no more often than this
        (3, None, 3, ["loop"]),  # data may end it before
        (0, None, 1, ["loop"]),  # unknown
        (5, "", 5, []),  # without a condition
    ],
)
def test_a_loop_layer_counts_as_often_as_it_turns(
    tmp_path: Path, most: int, end: float | str | None, turns: int, notes: list[str]
) -> None:
    condition = b""
    if end is None:
        condition = field(2, "going") + field(3, layer("going", "i c", "going", 825))
    elif end:
        condition = field(2, "going") + field(3, constant("end", float(end)) + layer("going", "i end", "going", 825))
    loop = layer("loop", "", "", 615, field(1, most) * (most > 0), condition, field(4, TURN))
    report = network(tmp_path, constant("zero", 0.0) + COUNTING + loop + linear("h", "y", 4))
    assert report.totals.macs == (turns + 1) * SMALL
    assert [note.code for note in report.notes] == notes
    assert report.outputs[0].shape == (2, 4)


def test_a_loop_layer_may_be_left_by_a_branch(tmp_path: Path) -> None:
    leave = layer("if", "c", "", 605, field(1, layer("leave", "", "", 620)), field(2, linear("h", "h", 4)))
    loop = layer("loop", "", "", 615, field(1, 4), field(4, TURN + leave))
    report = network(tmp_path, constant("zero", 0.0) + COUNTING + loop + linear("h", "y", 4))
    assert report.totals.macs == (4 * 2 + 1) * SMALL
    assert {note.code for note in report.notes} == {"branch", "loop"}


def test_networks_nested_without_end_are_refused(tmp_path: Path) -> None:
    inner = linear("x", "h", 4)
    for _ in range(40):
        inner = layer("if", "c", "", 605, field(1, inner), field(2, linear("x", "h", 4)))
    with pytest.raises(SourceError, match="more than 32 deep"):
        network(tmp_path, inner + linear("h", "y", 4))


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
