"""Dumps of single operators and of packed, quantized and half-precision nets, made with MegEngine 1.13.0.

Each is there in both formats. FBS v2 stores what MegEngine inferred; opcost must infer the same from the inputs alone.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import opcost
from opcost.analysis.costing import cost_graph
from opcost.core.report import Report
from opcost.frontends.megengine.load import build_graph
from opcost.frontends.megengine.model import Model, parse_model
from opcost.frontends.megengine.walk import DumpWalk
from opcost.frontends.options import CountOptions
from opcost.rules import default_rules

ARCHIVE = Path(__file__).parents[2] / "data" / "megengine" / "operators.zip"
NAMES = sorted(zipfile.ZipFile(ARCHIVE).namelist())
STORED = [name for name in NAMES if ".v2" in name]
PAIRED = [name for name in STORED if name.replace(".v2", ".v1") in NAMES]

DEPENDS_ON_DATA = ("condtake", "nms")


@cache
def model(name: str) -> Model:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return parse_model(archive.read(name), name)


def report(name: str) -> Report:
    return cost_graph(build_graph(model(name), CountOptions()), default_rules())


@pytest.mark.parametrize("name", STORED)
def test_inferred_shapes_and_types_are_those_stored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = model(name)
    monkeypatch.setattr(DumpWalk, "known", staticmethod(lambda ours, theirs: ours))
    found = DumpWalk(read).run()
    for op in read.operators:
        for variable in op.outputs:
            stored = read.variables[variable]
            if op.type == "MultiHeadAttn" and variable not in op.outputs[:2]:
                continue  # stores for a backward pass, whose size is the kernel's own matter
            if stored.shape is not None:
                assert found.tensor(variable).shape == stored.shape, f"{op.type} {op.name}"
            if stored.dtype is not None:
                assert found.tensor(variable).dtype == stored.dtype.name, f"{op.type} {op.name}"


@pytest.mark.parametrize("name", PAIRED)
def test_both_formats_give_the_same_outputs_and_macs(name: str) -> None:
    stored, inferred = report(name), report(name.replace(".v2", ".v1"))
    assert [spec.shape for spec in inferred.outputs] == [spec.shape for spec in stored.outputs]
    assert [spec.dtype for spec in inferred.outputs] == [spec.dtype for spec in stored.outputs]
    assert inferred.totals.macs == stored.totals.macs


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_counted_but_what_depends_on_data(name: str) -> None:
    uncounted = report(name).coverage.uncounted
    if not name.startswith(DEPENDS_ON_DATA):
        assert not uncounted


@pytest.mark.parametrize("form", ["nchw44", "nchw88"])
def test_a_packed_net_counts_what_the_plain_one_counts(form: str, dump: Callable[[str], Path]) -> None:
    plain, packed = opcost.count(dump("dwnet_nogn.v2")), report(f"dw_enable_{form}.v2.mge")
    assert packed.totals.macs == plain.totals.macs
    assert packed.totals.params == plain.totals.params
    assert {row.op.native["format"] for row in packed.rows if row.op.raw == "mge::ConvBias"} == {form.upper()}


PACKED = ("chwn4", "nchw32", "nchw4", "nchw44", "nchw44_dot", "nchw64")


@pytest.mark.parametrize("form", PACKED)
def test_every_packed_layout_of_a_quantized_net_counts_the_same(form: str) -> None:
    """Three convolutions, 4 to 32 to 64 to 64 channels, on 8x8."""
    expected = 8 * 8 * (32 * 4 * 9 + 64 * 32 * 9 + 64 * 64)
    assert report(f"q32_enable_{form}.v2.mge").totals.macs == expected
    assert report(f"q32_enable_{form}.v1.mge").totals.macs == expected


def test_half_precision_halves_the_bytes_of_the_weights(dump: Callable[[str], Path]) -> None:
    plain, half = opcost.count(dump("dwnet_nogn.v2")), report("dw_enable_ioc16.v2.mge")
    assert half.totals.macs == plain.totals.macs
    assert half.totals.param_bytes * 2 == plain.totals.param_bytes
    convolutions = [row for row in half.rows if row.op.kind == "conv"]
    assert {row.outs[0].dtype for row in convolutions} == {"float16"}


def test_a_quantized_net_counts_what_it_counts_in_floats() -> None:
    """Packed in fours, the first layer computes a fourth input channel that is filled with zeros."""
    image, kernel, channels = 8, 3, 8
    floats, quantized = report("qat.v2.mge"), report("qint8.v2.mge")
    assert quantized.totals.macs == floats.totals.macs
    assert report("q_enable_nchw44.v2.mge").totals.macs == floats.totals.macs
    filled = image * image * channels * kernel * kernel
    assert report("q_enable_nchw4.v2.mge").totals.macs == floats.totals.macs + filled
    assert floats.totals.buffers > 0  # the scales


def test_recurrent_layers_count_their_gates() -> None:
    """Five steps of three sequences, 6 features, 8 hidden units, two layers."""
    steps, first, second = 5 * 3, 6 + 8, 8 + 8
    assert report("lstm.v2.mge").totals.macs == steps * 4 * 8 * (first + second)
    assert report("lstm_bi.v2.mge").totals.macs == steps * 2 * 4 * 8 * (first + (2 * 8 + 8))
    assert report("rnn.v2.mge").totals.macs == steps * 8 * (first + second)
    assert report("lstmcell2.v2.mge").totals.macs == 3 * 4 * 8 * first


def test_a_transformer_counts_its_products() -> None:
    batch, length, size, heads, hidden, layers, classes, features = 2, 7, 32, 4, 64, 2, 5, 24
    rows = batch * length
    block = rows * (4 * size * size + 2 * size * hidden) + 2 * batch * heads * length * length * (size // heads)
    expected = rows * features * size + layers * block + batch * size * classes
    assert report("transformer.v2.mge").totals.macs == expected
    assert report("transformer_nc.v1.mge").totals.macs == expected


def test_attention_in_one_operator_counts_its_projections_and_products() -> None:
    batch, length, size = 2, 5, 8
    expected = 4 * batch * length * size * size + 2 * batch * length * length * size
    for form in ("v1", "v2"):
        found = report(f"mha.{form}.mge")
        assert found.totals.macs == expected
        assert not found.notes


@pytest.mark.parametrize("form", ["v1", "v2"])
def test_a_test_case_that_megengine_made_is_read(form: str) -> None:
    """It compares its outputs with stored ones; its products are those of the net."""
    found = report(f"testcase.{form}.mge")
    assert model(f"testcase.{form}.mge").testcases == 1
    assert found.totals.macs == 8 * 8 * 8 * (3 + 8) * 9 + 4 * 4 * 16 * 4 * 9 + 256 * 10
    assert [note.code for note in found.notes] == ["testcase"]
