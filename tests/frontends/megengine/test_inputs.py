"""Other input shapes than those of the dump, from Python and from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import opcost
from opcost.errors import InputError, UnknownName

Dump = Callable[[str], Path]
BATCHED = ("dwnet_nogn.v1", "dwnet_nogn.v2", "dwnet_nogn.v2_fuse", "dwnet_nogn.v2_nokeep", "qnet_qint8.v2")


@pytest.mark.parametrize("name", BATCHED)
def test_another_batch_size_multiplies_the_macs(name: str, dump: Dump) -> None:
    stored = opcost.count(dump(name))
    (input_name, spec), *_ = stored.inputs
    batch = 5
    larger = opcost.count(dump(name), shapes={input_name: (batch, *spec.dims[1:])})
    assert larger.totals.macs == batch * stored.totals.macs
    assert larger.totals.params == stored.totals.params
    assert larger.outputs[0].dims == (batch, *stored.outputs[0].dims[1:])
    assert larger.inputs[0][1].dims == (batch, *spec.dims[1:])


@pytest.mark.parametrize("shapes", [(2, 3, 64, 64), [(2, 3, 64, 64)], {"data": (2, 3, 64, 64)}])
def test_shapes_may_be_one_several_or_named(shapes: Any, dump: Dump) -> None:
    """Four times the area: four times the convolutions, and one fully connected layer behind a global pooling."""
    stored = opcost.count(dump("dwnet_nogn.v2"))
    larger = opcost.count(dump("dwnet_nogn.v2"), shapes=shapes)
    fc = 16 * 10
    assert larger.totals.macs == 2 * (4 * (stored.totals.macs - fc) + fc)


def test_arrays_lend_their_shapes(dump: Dump) -> None:
    array = SimpleNamespace(shape=(3, 3, 32, 32), dtype="float32")
    expected = opcost.count(dump("dwnet_nogn.v2"), shapes=(3, 3, 32, 32)).totals
    assert opcost.count(dump("dwnet_nogn.v2"), array).totals == expected
    assert opcost.count(dump("dwnet_nogn.v2"), (array,)).totals == expected
    assert opcost.count(dump("dwnet_nogn.v2"), kwargs={"data": array}).totals == expected


def test_the_stored_shape_given_as_an_option_changes_nothing(dump: Dump) -> None:
    assert opcost.count(dump("op_nms.v2"), shapes={"x0": (2, 4)}).totals == opcost.count(dump("op_nms.v2")).totals


def test_a_shape_that_the_dump_cannot_take_is_refused_with_the_operator(dump: Dump) -> None:
    with pytest.raises(InputError, match=r"MatrixMul .* cannot take inputs of 1x\d+, 10x256") as caught:
        opcost.count(dump("qnet_float.v2_names"), shapes=(1, 3, 48, 48))
    assert "dump the model again" in str(caught.value)


def test_channels_that_do_not_fit_are_refused(dump: Dump) -> None:
    with pytest.raises(InputError, match="a filter for 3 channels does not fit 4 channels"):
        opcost.count(dump("dwnet_nogn.v2"), shapes=(1, 4, 32, 32))


def test_a_misspelt_input_is_corrected(dump: Dump) -> None:
    with pytest.raises(UnknownName, match="did you mean 'data'"):
        opcost.count(dump("dwnet_nogn.v2"), shapes={"date": (1, 3, 32, 32)})


def test_too_many_shapes_are_refused(dump: Dump) -> None:
    with pytest.raises(InputError, match="2 shapes were given, and the model has 1 inputs: data"):
        opcost.count(dump("dwnet_nogn.v2"), shapes=[(1, 3, 32, 32), (1, 3, 32, 32)])


def test_another_rank_is_refused(dump: Dump) -> None:
    with pytest.raises(InputError, match="has 4 axes"):
        opcost.count(dump("dwnet_nogn.v2"), shapes=(1, 3, 32))


def test_the_type_of_an_input_is_fixed(dump: Dump) -> None:
    same = opcost.count(dump("dwnet_nogn.v2"), shapes=(1, 3, 32, 32), dtypes="float32")
    assert same.totals == opcost.count(dump("dwnet_nogn.v2")).totals
    with pytest.raises(InputError, match="holds float32"):
        opcost.count(dump("dwnet_nogn.v2"), shapes=(1, 3, 32, 32), dtypes={"data": "float16"})


@pytest.mark.parametrize("options", [{"backward": True}, {"mode": "train"}, {"real": True}])
def test_options_that_need_a_run_are_refused_for_a_dump(options: dict[str, Any], dump: Dump) -> None:
    with pytest.raises(InputError, match="dump of the forward pass"):
        opcost.count(dump("two_io.v2"), **options)


def test_two_inputs_are_known_by_name(dump: Dump) -> None:
    report = opcost.count(dump("two_io.v2"))
    assert len(report.inputs) == 2
    assert len(report.outputs) == 2


def test_the_command_line_takes_a_shape_by_name(dump: Dump, opcost_command: Any, tmp_path: Path) -> None:
    path = dump("dwnet_nogn.v2")
    assert opcost_command("count", path, "-o", tmp_path / "stored.json").code == 0
    assert opcost_command("count", path, "--input", "data:4x3x32x32", "-o", tmp_path / "larger.json").code == 0
    stored, larger = (opcost.load_report(tmp_path / f"{name}.json") for name in ("stored", "larger"))
    assert larger.totals.macs == 4 * stored.totals.macs
