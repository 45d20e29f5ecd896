"""Dimensions that a program leaves open take the sizes that are given; all others are what they were at export."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from torch import nn
from torch.export import Dim

import opcost
from opcost.core.parsing import Bad
from opcost.errors import InputError, UnknownName
from opcost.frontends.pt2.sizes import UnknownSymbol, evaluate


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(3, 4, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.layer(x).flatten(1).sum() + y.sum()


@pytest.fixture(scope="module")
def open_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    batch, length = Dim("batch", max=64), Dim("length", min=4, max=512)
    shapes = {"x": {0: batch, 2: 2 * length}, "y": {0: batch}}
    path = tmp_path_factory.mktemp("open") / "program.pt2"
    torch.export.save(
        torch.export.export(Pair(), (torch.rand(2, 3, 16), torch.rand(2, 5)), dynamic_shapes=shapes), path
    )
    return path


def macs(batch: int, length: int) -> int:
    return batch * 4 * ((length - 1) // 2 + 1) * 3 * 3


def test_without_shapes_the_sizes_of_export_are_counted(open_program: Path) -> None:
    report = opcost.count(open_program)
    assert report.totals.macs == macs(2, 16)
    assert [spec.shape for _, spec in report.inputs] == [(2, 3, 16), (2, 5)]


@pytest.mark.parametrize(
    "shapes", [{"x": (7, 3, 40)}, {"x": (7, 3, 40), "y": (7, 5)}, [(7, 3, 40), (7, 5)], [(7, 3, 40)], (7, 3, 40)]
)
def test_shapes_bind_the_open_dimensions(open_program: Path, shapes: Any) -> None:
    report = opcost.count(open_program, shapes=shapes)
    assert report.totals.macs == macs(7, 40)
    assert [spec.shape for _, spec in report.inputs] == [(7, 3, 40), (7, 5)]


@pytest.mark.parametrize("dims", ["batch=7,x[2]=40", ["x[0]=7", "x[2]=40"], "y[0]=7,x[2]=40"])
def test_open_dimensions_are_set_by_name(open_program: Path, dims: Any) -> None:
    """The file keeps none of the names of torch.export.Dim: the first dimension is a batch, others are named by their place."""
    report = opcost.count(open_program, options={"dim": dims})
    assert report.totals.macs == macs(7, 40)


def test_names_of_dimensions_are_checked(open_program: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'batch'"):
        opcost.count(open_program, options={"dim": "bacth=7"})
    with pytest.raises(InputError, match=r"the dimension x\[2\] cannot be 41"):
        opcost.count(open_program, options={"dim": "x[2]=41"})
    with pytest.raises(InputError, match="the dimension batch cannot be 8: other dimensions make it 7"):
        opcost.count(open_program, shapes={"x": (7, 3, 40)}, options={"dim": "batch=8"})
    with pytest.raises(InputError, match="at most 64"):
        opcost.count(open_program, options={"dim": "batch=65"})


def test_arrays_of_any_framework_bind_them_too(open_program: Path) -> None:
    assert opcost.count(open_program, (torch.rand(7, 3, 40), torch.rand(7, 5))).totals.macs == macs(7, 40)
    inputs = {"y": torch.rand(7, 5), "x": torch.rand(7, 3, 40)}
    assert opcost.count(open_program, kwargs=inputs).totals.macs == macs(7, 40)
    assert opcost.count(open_program, inputs).totals.macs == macs(7, 40)


def test_what_is_counted_at_another_size_is_what_the_model_costs_there(open_program: Path) -> None:
    args = (torch.rand(7, 3, 40), torch.rand(7, 5))
    assert opcost.count(open_program, args).totals == opcost.count(Pair(), args).totals


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (7, 4, 40)}, "dimension 1 of the input 'x' is fixed at 3 in the program, not 4"),
        ({"x": (7, 3, 41)}, "dimension 2 of the input 'x' cannot be 41"),
        ({"x": (7, 3, 40), "y": (8, 5)}, "dimension 0 of the input 'y' cannot be 8: other dimensions make it 7"),
        ({"x": (65, 3, 40)}, "a dimension of 65 was given where the program takes .*at most 64"),
        ({"x": (7, 40)}, "has 3 dimensions in the program, not 2"),
        ({"x": (7, -3, 40)}, "negative extent"),
        ({"x": "big"}, "not understood"),
        ([(7, 3, 40), (7, 5), (1,)], "3 shapes were given, and the model has 2 inputs: x, y"),
    ],
)
def test_shapes_that_do_not_fit_are_reported_by_dimension(open_program: Path, shapes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        opcost.count(open_program, shapes=shapes)


def test_the_error_says_how_to_leave_a_dimension_open(open_program: Path) -> None:
    with pytest.raises(InputError) as caught:
        opcost.count(open_program, shapes={"x": (7, 4, 40)})
    assert "dynamic_shapes" in caught.value.hint


def test_names_and_types_that_are_not_those_of_the_program_are_refused(open_program: Path) -> None:
    with pytest.raises(UnknownName, match="unknown input 'z'"):
        opcost.count(open_program, shapes={"z": (1,)})
    with pytest.raises(InputError, match="is float32 in the program, not float16"):
        opcost.count(open_program, dtypes={"x": "float16"})
    with pytest.raises(InputError, match="is float32 in the program, not float64"):
        opcost.count(open_program, (torch.rand(7, 3, 40), torch.rand(7, 5, dtype=torch.float64)))
    with pytest.raises(InputError, match="1 inputs were given, and the program takes 2: x, y"):
        opcost.count(open_program, torch.rand(7, 3, 40))
    assert opcost.count(open_program, dtypes="float32").totals.macs == macs(2, 16)


def test_a_size_that_the_file_does_not_give_is_required(open_program: Path, in_model: Callable[..., Path]) -> None:
    def change(model: dict[str, Any]) -> None:
        for tensor in model["graph_module"]["graph"]["tensor_values"].values():
            for size in tensor["sizes"]:
                if "as_expr" in size:
                    size["as_expr"]["hint"] = None

    path = in_model(open_program, change)
    with pytest.raises(InputError, match="leaves a dimension of its input 'x' open") as caught:
        opcost.count(path)
    assert "--input x:" in caught.value.hint
    assert opcost.count(path, shapes=(7, 3, 40)).totals.macs == macs(7, 40)


def test_the_layout_of_earlier_versions_is_read(open_program: Path, tmp_path: Path) -> None:
    """Up to torch 2.7 the same description lay at the archive's root."""
    path = tmp_path / "old.pt2"
    with ZipFile(open_program) as new, ZipFile(path, "w") as old:
        name = next(name for name in new.namelist() if name.endswith("models/model.json"))
        old.writestr("version", "8.4")
        old.writestr(
            "serialized_exported_program.json", json.dumps({**json.loads(new.read(name)), "torch_version": "2.6.0"})
        )
        old.writestr("serialized_state_dict.pt", b"\x80\x02}q\x00.")
    assert opcost.count(path).totals == opcost.count(open_program).totals


# -- sizes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("s0", 6),
        ("s0*2 + 1", 13),
        ("2*s0//4 - -1", 4),
        ("(s0 - 1)//2", 2),
        ("-s0**2", -36),
        ("2**-1", Fraction(1, 2)),
        ("s0/4*2", 3),
        ("7 % 4", 3),
        ("Mod(s0, 4)", 2),
        ("FloorDiv(s0 + 1, 2)", 3),
        ("CeilDiv(s0, 4)", 2),
        ("Max(1, s0, u1)", 9),
        ("Min(1, s0)", 1),
        ("Mul(Integer(4), Symbol('s0', positive=True, integer=True))", 24),
        ("Add(Integer(-1), Pow(Symbol('s0', integer=True), Integer(2)))", 35),
        ("Mul(Rational(1, 2), Symbol('s0'))", 3),
        ("TruncToInt(IntTrueDiv(s0, 4))", 1),
        ("CeilToInt(ToFloat(s0)*0.3)", 2),
        ("ModularIndexing(s0, 2, 2)", 1),
        ("Piecewise((1, s0 < 3), (2, True))", 2),
        (
            "Piecewise(ExprCondPair(Integer(1), StrictLessThan(Symbol('s0'), Integer(3))), ExprCondPair(Integer(5), true))",
            5,
        ),
        ("Where(Eq(s0, 6), 3, 4)", 3),
        ("s0 > 3", True),
        ("(s0 > 3) & (u1 < 3)", False),
        ("Or(s0 > 3, u1 < 3)", True),
        ("LShift(1, 4) + RShift(8, 1)", 20),
        ("Float('0.5', precision=53)*s0", 3),
    ],
)
def test_sizes_are_worked_out(text: str, value: Any) -> None:
    assert evaluate(text, {"s0": 6, "u1": 9}) == value


def test_a_symbol_without_a_value_is_named() -> None:
    with pytest.raises(UnknownSymbol, match="u0"):
        evaluate("2*u0 + s0", {"s0": 1})
    with pytest.raises(UnknownSymbol, match="u0"):
        evaluate("1 // (u0 - 2)", {})
    with pytest.raises(Bad, match="not an expression"):
        evaluate("u0 +", {})
