"""`visualize`: MegEngine's own totals for its dumps, opcost's for everything, and a log for TensorBoard."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import opcost
from opcost.compat.megengine import visualize
from opcost.compat.megengine.network_visualize import main
from opcost.compat.megengine.tables import _plainly, mean_and_std
from opcost.errors import InputError, UnknownName, UnknownSource

DATA = Path(__file__).resolve().parents[1] / "data/megengine"
GOLDEN = sorted(path.stem for path in (DATA / "network_visualize").glob("*.json"))
TOTALS: dict[str, list[int]] = json.loads((DATA / "network_visualize_totals.json").read_text())
DUMPS = sorted((DATA / "mge").glob("*.mge"))
NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.fc = nn.Linear(4, 5)

    def forward(self, image):
        return self.fc(torch.relu(self.up(self.conv(image))).mean((2, 3)))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, tokens, scale):
        return self.table(tokens) * scale
"""


def dump(name: str) -> Path:
    return DATA / f"mge/{name}.mge"


def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"network_visualize/{name}.json").read_text())
    return found


def quiet(path: Path | str, log_path: Path | None = None, **options: Any) -> Any:
    return visualize(path, log_path, logging_to_stdout=False, **options)


def frozen(value: Any) -> Any:
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value


def test_there_are_golden_dumps() -> None:
    assert len(GOLDEN) >= 25


@pytest.mark.parametrize("name", GOLDEN)
def test_the_five_totals_of_a_dump_are_megengines(name: str) -> None:
    totals, _ = quiet(dump(name))
    assert totals._asdict() == golden(name)["total_stats"]


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the dumps of single operators and packed nets."""
    folder = tmp_path_factory.mktemp("operators")
    with zipfile.ZipFile(DATA / "operators.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.parametrize("name", TOTALS)
def test_the_totals_of_every_operator_that_megengine_counts_are_the_same(name: str, operators: Path) -> None:
    path = next(folder / name for folder in (operators, DATA / "mge") if (folder / name).exists())
    assert list(quiet(path)[0]) == TOTALS[name]


def test_dumps_on_which_megengine_crashes_are_counted(operators: Path) -> None:
    crashing = [path for path in sorted(operators.glob("*.mge")) if path.name not in TOTALS]
    assert len(crashing) > 100
    for path in crashing:
        totals, details = quiet(path)
        assert len(details.activations) > 1, path.name
        assert totals.act_dims == sum(line["act_dim"] for line in details.activations[:-1] if line["act_dim"] != "?")


@pytest.mark.parametrize("name", GOLDEN)
def test_the_lines_of_a_dump_are_megengines(name: str) -> None:
    """Names apart, which MegEngine makes up when it loads a file; two inputs of a sum may stand the other way round."""
    _, details = quiet(dump(name))
    expected = golden(name)["details"]
    activations = ("class_name", "dtype", "shape", "act_dim", "nbits", "size", "size_cum", "percentage", "size_bar")
    for ours, theirs in zip(details.activations, expected["activations"], strict=True):
        assert [frozen(ours.get(c)) for c in activations] == [frozen(theirs.get(c)) for c in activations]
    flops = ("class_name", "output_shapes", "receptive_field", "stride", "flops", "flops_cum", "bar", "percentage")
    for ours, theirs in zip(details.flops, expected["flops"], strict=True):
        assert [frozen(ours.get(c)) for c in flops] == [frozen(theirs.get(c)) for c in flops]
        assert Counter(frozen(ours.get("input_shapes", []))) == Counter(frozen(theirs.get("input_shapes", [])))
    params = ("dtype", "shape", "std", "param_dim", "nbits", "size", "size_cum", "percentage", "size_bar")
    for ours, theirs in zip(details.params, expected["params"], strict=True):
        assert [frozen(ours.get(c)) for c in params] == [frozen(theirs.get(c)) for c in params]
        # MegEngine adds up in float32, so that its last digit may differ.
        mean, deviation = float(theirs.get("mean", 0)), float(theirs.get("std", 0))
        assert float(ours.get("mean", 0)) == pytest.approx(mean, rel=0.01, abs=1e-6 * max(deviation, 1e-30))


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
@pytest.mark.parametrize("convention", ["megengine", "opcost"])
def test_every_dump_is_counted_also_where_megengine_crashes(path: Path, convention: str) -> None:
    totals, details = quiet(path, convention=convention)
    assert sum(line["flops_num"] or 0 for line in details.flops[:-1]) == totals.flops
    assert details.activations[-1]["name"] == "total"


@pytest.mark.parametrize("name", ["mlp.v2", "dwnet_nogn.v1", "qnet_qint8.v2", "resnet18_slim.v2_noopt"])
def test_opcosts_convention_is_the_report(name: str) -> None:
    report = opcost.count(dump(name))
    totals, details = quiet(dump(name), convention="opcost")
    expected = report.totals
    assert totals == (
        expected.param_bytes, expected.params, expected.flops, expected.activation_bytes, expected.activations,
    )  # fmt: skip
    assert len(details.params) == sum(not parameter.buffer for parameter in report.parameters) + 1
    assert [line["name"] for line in details.params].count("total") == 1


def test_opcosts_receptive_field_knows_pooling_and_megengines_does_not() -> None:
    def last_convolution(convention: str) -> tuple[Any, Any]:
        _, details = quiet(dump("resnet18_slim.v2_noopt"), convention=convention)
        found = [line for line in details.flops if "Convolution" in line.get("class_name", "")]
        return found[-1]["receptive_field"], found[-1]["stride"]

    assert last_convolution("megengine") == ((219, 219), (16, 16))
    assert last_convolution("opcost") == ((435, 435), (32, 32))


def test_the_batch_is_one_unless_data_says_otherwise() -> None:
    name = "handlstm.v2"  # dumped with (5, 2, 16), of which the first is taken for the batch
    steps = golden(name)["total_stats"]["flops"]
    assert quiet(dump(name))[0].flops == steps
    images = np.zeros((4, 1, 28, 28), "float32")
    one, four = quiet(dump("mlp.v2"))[0].flops, quiet(dump("mlp.v2"), input=images)[0].flops
    assert four == 4 * one == quiet(dump("mlp.v2"), inp_dict={"data": images})[0].flops
    assert quiet(dump("mlp.v2"), input=images, convention="opcost")[0].flops > four


def test_data_must_be_for_the_inputs_that_there_are() -> None:
    image = np.zeros((1, 1, 28, 28), "float32")
    with pytest.raises(InputError, match=r"takes data, and data was given for image"):
        quiet(dump("mlp.v2"), inp_dict={"image": image})
    with pytest.raises(InputError, match="both input and inp_dict"):
        quiet(dump("mlp.v2"), input=image, inp_dict={"data": image})
    with pytest.raises(InputError, match=r"two_io.*data was given for one without a name"):
        quiet(dump("two_io.v2"), input=image)
    with pytest.raises(InputError, match="str is not an array"):
        quiet(dump("mlp.v2"), input="data.npy")


def test_shapes_that_depend_on_data_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    totals, details = visualize(dump("op_condtake.v2"), None)
    assert any(line["act_dim"] == "?" for line in details.activations)
    assert "#unknown" in capsys.readouterr().out
    assert totals.act_dims == sum(line["act_dim"] for line in details.activations[:-1] if line["act_dim"] != "?")


def test_any_source_is_counted_and_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "net.py"
    source.write_text(NET)
    image = np.zeros((2, 3, 6, 6))
    totals, _ = visualize(f"{source}:Net", tmp_path / "log", input=image)
    convolution, relu = 2 * 8 * 36 * (27 + 1), 2 * 4 * 144
    assert (
        totals.flops == convolution + relu + 2 * 5 * 4 + 2 * 5
    )  # transposed convolutions are free in MegEngine's rules
    assert totals.param_dims == 8 * 27 + 8 + 8 * 4 * 4 + 4 + 5 * 4 + 5
    assert totals.act_dims > totals.param_dims  # parameters are operators there, and operators have activations
    assert "param stats: " in capsys.readouterr().out
    graph = EventAccumulator(str(tmp_path / "log")).Reload().Graph()
    assert "conv/convolution" in {node.name for node in graph.node}
    report = opcost.count(f"{source}:Net", shapes=(2, 3, 6, 6))
    assert quiet(f"{source}:Net", input=image, convention="opcost")[0].flops == report.totals.flops


def test_integers_stay_integers_and_names_are_arguments(tmp_path: Path) -> None:
    source = tmp_path / "net.py"
    source.write_text(NET)
    given = {"tokens": np.zeros((2, 7), "int64"), "scale": np.ones(4)}
    totals, _ = quiet(f"{source}:Tokens", inp_dict=given)
    assert totals.flops == 2 * 7 * 4


def test_a_saved_report_is_shown(tmp_path: Path) -> None:
    report = opcost.count(dump("mlp.v2"))
    report.save(str(tmp_path / "mlp.json"))
    assert quiet(tmp_path / "mlp.json", convention="opcost")[0].flops == report.totals.flops


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(UnknownSource, match="nothing"):
        quiet("nothing.mge")
    with pytest.raises(UnknownName, match="opcost"):
        quiet(dump("mlp.v2"), convention="opcots")


def test_megengines_command_line_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    visualize(dump("mlp.v2"), None, bar_length_max=7)
    expected = capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    main([str(dump("mlp.v2")), "--all", "--bar_length_max", "7"])
    assert capsys.readouterr().out == expected
    assert EventAccumulator(str(tmp_path / "log")).Reload().Graph().node
    np.save("data.npy", np.zeros((2, 1, 28, 28)))
    main([str(dump("mlp.v2")), "--load_input_data", "data.npy", "--cal_flops"])
    printed = capsys.readouterr().out
    assert f"total_flops  {2 * golden('mlp.v2')['total_stats']['flops'] / 1000:.3f} KOPs" in printed
    assert "total_param_dims" not in printed
    with pytest.raises(SystemExit, match="2"):
        main(["nothing.mge"])
    assert "there is no file nothing.mge" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8", "int32"])
def test_mean_and_deviation_are_the_same_without_numpy(dtype: str) -> None:
    numbers = (np.random.default_rng(0).normal(size=70_000) * 50).astype(dtype)
    code = np.dtype(dtype).char
    expected = numbers.astype("float64").mean(), numbers.astype("float64").std()
    assert mean_and_std(numbers.tobytes(), dtype) == pytest.approx(expected, rel=1e-12)
    assert _plainly(numbers.tobytes(), code) == pytest.approx(expected, rel=1e-9)
    assert mean_and_std(b"", dtype) is None
    assert mean_and_std(b"\0", "quint4") is None
