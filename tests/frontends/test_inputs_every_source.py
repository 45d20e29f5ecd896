"""One table of inputs for every kind of source: the same answer, and the same message for an invalid input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import opcost
from opcost.errors import OpcostError

SHAPE = (2, 3, 32, 32)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return self.conv(data)


def make_torch(folder: Path, dumps: Path) -> Any:
    return Net()


def make_mxnet(folder: Path, dumps: Path) -> Any:
    nodes = [
        {"op": "null", "name": "data", "inputs": []},
        {"op": "null", "name": "conv_weight", "inputs": []},
        {
            "op": "Convolution",
            "name": "conv",
            "attrs": {"kernel": "(3, 3)", "num_filter": "4", "no_bias": "True"},
            "inputs": [[0, 0, 0], [1, 0, 0]],
        },
    ]
    path = folder / "net-symbol.json"
    path.write_text(json.dumps({"nodes": nodes, "heads": [[2, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}))
    return path


def make_megengine(folder: Path, dumps: Path) -> Any:
    return dumps / "dwnet_nogn.v2.mge"


def make_pt2(folder: Path, dumps: Path) -> Any:
    program = torch.export.export(
        Net(), (torch.rand(4, 3, 32, 32),), dynamic_shapes={"data": {0: torch.export.Dim.AUTO}}
    )
    torch.export.save(program, folder / "net.pt2")
    return folder / "net.pt2"


@pytest.fixture(
    scope="module", params=[make_torch, make_mxnet, make_megengine, make_pt2], ids=lambda make: make.__name__
)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model with one input, `data`, of float32 images."""
    dumps = Path(__file__).parents[1] / "data" / "megengine" / "mge"
    return request.param(tmp_path_factory.mktemp("source"), dumps)


def seen(report: opcost.Report) -> list[tuple[str, Any, str]]:
    return [(name, spec.shape, spec.dtype) for name, spec in report.inputs]


@pytest.mark.parametrize(
    "shapes",
    [
        SHAPE,
        list(SHAPE),
        torch.Size(SHAPE),
        [SHAPE],
        (list(SHAPE),),
        {"data": SHAPE},
        {"data": list(SHAPE)},
        "2x3x32x32",
        "2,3,32,32",
        "data:2x3x32x32",
        "2x3x32x32:f32",
        "data:2x3x32x32:float32",
        ["2x3x32x32"],
        ["data:2x3x32x32:fp32"],
        {"data": "2x3x32x32"},
        {"data": "2x3x32x32:float"},
    ],
    ids=str,
)
def test_every_way_to_write_a_shape_is_understood(source: Any, shapes: Any) -> None:
    assert seen(opcost.count(source, shapes=shapes)) == [("data", SHAPE, "float32")]


@pytest.mark.parametrize(
    "dtypes",
    [
        "float32",
        "f32",
        "torch.float32",
        torch.float32,
        np.float32,
        np.dtype("float32"),
        ["float"],
        [None],
        {"data": "fp32"},
    ],
    ids=str,
)
@pytest.mark.parametrize("shapes", [SHAPE, {"data": SHAPE}], ids=["in order", "by name"])
def test_every_way_to_write_a_type_is_understood(source: Any, shapes: Any, dtypes: Any) -> None:
    assert seen(opcost.count(source, shapes=shapes, dtypes=dtypes)) == [("data", SHAPE, "float32")]


def test_arrays_of_any_framework_are_inputs_in_order_and_by_name(source: Any) -> None:
    for array in (torch.zeros(SHAPE), np.zeros(SHAPE, "float32")):
        if isinstance(source, nn.Module) and isinstance(array, np.ndarray):
            continue  # a live model is called with what it takes
        for given in (
            {"inputs": array},
            {"inputs": (array,)},
            {"inputs": {"data": array}},
            {"kwargs": {"data": array}},
        ):
            assert seen(opcost.count(source, **given)) == [("data", SHAPE, "float32")]


NOT_UNDERSTOOD = "the input {!r} is not understood"
BAD = [
    ({"shapes": 5}, "5 is not a shape"),
    ({"shapes": (1.5, 4)}, "(1.5, 4) is not a shape"),
    ({"shapes": (True, 4)}, "(True, 4) is not a shape"),
    ({"shapes": {"data": 5}}, "5 is not a shape"),
    ({"shapes": [SHAPE, 5]}, f"[{SHAPE}, 5] is not a shape"),
    ({"shapes": (-2, 3, 32, 32)}, "the shape (-2, 3, 32, 32) of data has a negative extent"),
    ({"shapes": "2x"}, NOT_UNDERSTOOD.format("2x")),
    ({"shapes": {"data": "big"}}, NOT_UNDERSTOOD.format("big")),
    ({"shapes": ["data:2x3x32x32", "2x3x32x32"]}, "some inputs have a name and some have none"),
    ({"shapes": ["data:2x3x32x32"] * 2}, "two inputs have the same name"),
    ({"shapes": {"data": "date:2x3x32x32"}}, "the input 'data' is called 'date' in its text"),
    ({"shapes": "2x3x32x32:f32", "dtypes": "f32"}, "element types were given with the shapes and in dtypes too"),
    ({"shapes": SHAPE, "dtypes": "flaot32"}, "unknown element type 'flaot32'; did you mean 'float32'"),
    ({"shapes": "2x3x32x32:flaot32"}, "unknown element type 'flaot32'; did you mean 'float32'"),
    ({"shapes": SHAPE, "dtypes": ["f32", "f32"]}, "2 element types were given for 1 inputs"),
    ({"shapes": SHAPE, "dtypes": {"date": "f32"}}, "unknown input to give an element type 'date'; did you mean 'data'"),
    ({"shapes": SHAPE, "inputs": torch.zeros(SHAPE)}, "both inputs and shapes were given"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD, ids=[message for _, message in BAD])
def test_an_invalid_input_has_the_same_message_for_every_source(source: Any, options: Any, message: str) -> None:
    with pytest.raises(OpcostError) as caught:
        opcost.count(source, **options)
    assert caught.value.message.startswith(message)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["2x3x32x32"], ""),
        (["data:2x3x32x32:f32"], ""),
        (["2x"], NOT_UNDERSTOOD.format("2x")),
        (["data:2x3x32x32", "2x3x32x32"], "some inputs have a name and some have none"),
        (["2x3x32x32:flaot32"], "unknown element type 'flaot32'; did you mean 'float32'"),
    ],
)
def test_the_command_line_answers_as_python_does(
    source: Any, texts: list[str], message: str, opcost_command: Any, tmp_path: Path
) -> None:
    if isinstance(source, nn.Module):
        source = f"{__file__}:Net"
    words = [word for text in texts for word in ("--input", text)]
    done = opcost_command("count", source, *words, "-o", tmp_path / "report.json")
    if message:
        assert done.code == 2
        assert message in done.err
    else:
        assert seen(opcost.load_report(tmp_path / "report.json")) == [("data", SHAPE, "float32")]


def test_a_batch_may_be_requested_where_the_source_gives_its_shapes(source: Any) -> None:
    """A dump and a program hold shapes, this module has a layer that reads an image; this symbol has neither, and says so."""
    if isinstance(source, nn.Module):
        assert seen(opcost.count(source, batch=2)) == [("data", (2, 3, 224, 224), "float32")]
        return
    if source.suffix == ".json":
        with pytest.raises(OpcostError, match="can be changed"):
            opcost.count(source, batch=2)
        return
    assert seen(opcost.count(source, batch=2)) == [("data", SHAPE, "float32")]
    with pytest.raises(OpcostError, match="no input of the file has a size for tokens"):
        opcost.count(source, tokens=7)


def test_a_size_and_a_shape_together_are_refused_everywhere(source: Any) -> None:
    with pytest.raises(OpcostError, match="was given, and inputs too"):
        opcost.count(source, shapes=SHAPE, batch=2)


def test_a_model_is_counted_in_another_type_whatever_it_comes_from(source: Any) -> None:
    given = {"shapes": SHAPE} if isinstance(source, nn.Module) or source.suffix == ".json" else {}
    plain, report = opcost.count(source, **given), opcost.count(source, **given, dtype="bf16")
    assert [dtype for *_, dtype in seen(report)] == ["bfloat16"]
    assert report.totals.macs == plain.totals.macs
    assert report.totals.param_bytes * 2 == plain.totals.param_bytes  # two bytes an element for four
    assert report.totals.bytes_read * 2 == plain.totals.bytes_read
    noted = [note.text for note in report.notes if note.code == "retyped"]
    assert bool(noted) != isinstance(source, nn.Module)
    with pytest.raises(OpcostError, match="cannot compute in int8"):
        opcost.count(source, **given, dtype="int8")
