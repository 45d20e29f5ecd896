"""The module tree that names give, and what belongs to which module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import opcost
from opcost.core.report import Report
from opcost.frontends.megengine.scopes import scope_of

Dump = Callable[[str], Path]


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("layer4.1.RELU[1]", "layer4.1"),
        ("fc.MatrixMul", "fc"),
        ("bn.BatchNorm:o5", "bn"),
        ("Split[4]:o3", ""),
        ("Reshape", ""),
        ("conv(layer4.1.RELU[0],fuse[2585]@2586)[3229]", None),
        ("const<0.5>[2]", None),
        ("const{1,64,1,1}[2596]", None),
        ("0.5", None),
        ("0.Convolution", "0"),
        ("1.0.weight", "1.0"),
        ("2", None),
        ("a." * 1000 + "RELU", None),
        ("", None),
    ],
)
def test_a_name_gives_its_module_or_nothing(name: str, scope: str | None) -> None:
    assert scope_of(name) == scope


def paths(report: Report) -> list[str]:
    return [module.path for module in report.modules]


def test_layers_are_modules_with_their_own_weights(dump: Dump) -> None:
    report = opcost.count(dump("qnet_qint8.v2"))
    tree = {module.path: module for module in report.modules}
    assert set(tree) == {"", "quant", "c1", "c2", "add", "c3", "fc", "dequant"}
    assert tree["c3"].own.macs == 16 * 4 * 4 * (8 // 2) * 3 * 3
    assert tree["c3"].own.params == 16 * (8 // 2) * 3 * 3 + 16
    assert tree["c3"].type == "ConvBias"
    assert tree["c1"].inputs[0].dims == (1, 3, 16, 16)
    assert tree["c1"].outputs[0].dims == (1, 8, 8, 8)


def test_a_sequence_at_the_root_has_its_numbers_as_modules() -> None:
    report = opcost.count(Path(__file__).parents[2] / "data/megengine/parity/mlp.plain.mge")
    tree = {module.path: module for module in report.modules}
    assert list(tree) == ["", "0", "1", "2"]
    assert tree["0"].own.params == 20 * 32 + 32
    assert tree["2"].own.macs == 4 * 32 * 10
    assert {parameter.name for parameter in report.parameters} == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_every_parent_is_there_and_the_totals_add_up(dump: Dump) -> None:
    report = opcost.count(dump("resnet18_slim.v2_noopt"))
    assert {"layer1", "layer1.0", "layer1.0.conv1", "layer4.0.downsample", "layer4.0.downsample.0"} <= set(
        paths(report)
    )
    assert sum(module.own.macs for module in report.modules) == report.totals.macs
    assert sum(module.own.params for module in report.modules) == report.totals.params


def test_what_the_optimizer_made_belongs_to_the_block_that_uses_it(dump: Dump) -> None:
    """A folded batch norm takes the convolution's name away; its result is still used inside its block."""
    plain = {m.path: m.total.macs for m in opcost.count(dump("resnet18_slim.v2_noopt")).modules}
    folded = {m.path: m.total.macs for m in opcost.count(dump("resnet18_slim.v1_fuse")).modules}
    assert folded[""] == plain[""]
    named = opcost.count(dump("dwnet_nogn.v2"))
    tree = {module.path: module for module in named.modules}
    grouped = 16 * 16 * 32 * (32 // 4) * 3 * 3
    assert tree[""].own.macs == grouped  # folded: it lost its name, and its user is another layer
    assert tree["pw"].own.macs == 16 * 16 * 32 * 16
    assert tree["avg"].own.macs == 0


def test_without_names_there_is_one_module(dump: Dump) -> None:
    report = opcost.count(dump("dwnet_nogn.v2_nokeep"))
    assert paths(report) == [""]
    assert report.totals.params > 0
    assert len({parameter.name for parameter in report.parameters}) == len(report.parameters)


def test_the_report_is_the_same_with_and_without_names(dump: Dump) -> None:
    named, unnamed = opcost.count(dump("dwnet_nogn.v2_names")), opcost.count(dump("dwnet_nogn.v2_nokeep"))
    assert named.totals == unnamed.totals
    assert named.peak_bytes == unnamed.peak_bytes


def test_running_statistics_are_buffers() -> None:
    """Of `BatchNorm`'s inputs the last two; a constant that is also a weight stays one."""
    from opcost.core.graph import Value
    from opcost.frontends.megengine.load import build_graph
    from opcost.frontends.megengine.model import DumpedTensor, FileOperator, Model, Variable
    from opcost.frontends.megengine.schema import DType, ParamFields
    from opcost.frontends.options import CountOptions

    dtype = DType("float32")
    shape = (1, 4, 1, 1)
    empty = ParamFields()
    operators = [
        FileOperator(0, "Host2DeviceCopy", "", empty, (), (0,), (DumpedTensor("x", (1, 4, 5, 5), dtype, 0, 0),))
    ]
    for index in range(1, 5):
        tensor = DumpedTensor("", shape, dtype, 64 * index, 16)
        operators.append(FileOperator(index, "ImmutableTensor", "", empty, (), (index,), (tensor,)))
    param = ParamFields({"fwd_mode": "INFERENCE"})
    operators.append(FileOperator(5, "BatchNorm", "", param, (0, 1, 2, 3, 1), (5, 6, 7, 8), ()))
    names = ("x", "bn.weight", "bn.bias", "bn.running_mean", "unused", "", "", "", "bn.y")
    model = Model(
        path="bn.mge", format="FBS v2", version="1.13.0", operators=tuple(operators),
        variables=tuple(Variable(name) for name in names), outputs=(8,),
    )  # fmt: skip
    values: tuple[Value, ...] = build_graph(model, CountOptions()).values
    assert [value.role for value in values[:5]] == ["input", "param", "param", "buffer", "param"]


def test_every_operator_keeps_its_name_and_settings(dump: Dump) -> None:
    report = opcost.count(dump("dwnet_nogn.v2_noopt"))
    stem = next(row for row in report.rows if row.op.raw == "mge::Convolution")
    assert stem.op.native["stride_h"] == 2
    assert stem.op.native["format"] == "NCHW"
    assert stem.op.module == "stem"


def test_shape_arithmetic_is_free(dump: Dump) -> None:
    """What only works out shapes is known before anything runs."""
    report = opcost.count(dump("op_gather.v2"))
    arithmetic = [row for row in report.rows if row.op.raw == "mge::Elemwise" and row.outs[0].dtype == "int32"]
    assert arithmetic
    assert all(row.op.kind == "view" and row.cost is not None and row.cost.flops == 0 for row in arithmetic)


def test_what_depends_on_data_is_said_once(dump: Dump) -> None:
    report = opcost.count(dump("op_condtake.v2"))
    (note,) = report.notes
    assert note.code == "dynamic"
    assert "CondTake" in note.text
    assert {u.raw for u in report.coverage.uncounted} == {"mge::CondTake", "mge::Elemwise"}
    boxes = opcost.count(dump("op_nms.v2"))
    assert any("how many pairs of boxes" in note.text for note in boxes.notes)


def test_every_graph_is_consistent(any_dump: Path) -> None:
    from opcost.frontends.megengine.load import load
    from opcost.frontends.options import CountOptions

    load(any_dump, CountOptions()).check()
