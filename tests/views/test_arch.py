from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from opcost.core.graph import Module
from opcost.core.report import Report
from opcost.errors import UnknownName
from opcost.views.tree import arch_text

LINEAR = "in_features=10, out_features=10, bias=True"
MODULES = (
    Module(path="", type="TestNet"),
    Module(path="fc1", type="Linear", extra=LINEAR),
    Module(path="fc2", type="Linear", extra=LINEAR),
    Module(path="inner", type="InnerNet"),
    Module(path="inner.fc1", type="Linear", extra=LINEAR),
    Module(path="inner.fc2", type="Linear", extra=LINEAR),
)
STATISTICS = {
    "": "#params: 0.44K, #flops: 0.4K, #acts: 40",
    "fc1": "#params: 0.11K, #flops: 100, #acts: 10",
    "fc2": "#params: 0.11K, #flops: 100, #acts: 10",
    "inner": "#params: 0.22K, #flops: 0.2K, #acts: 20",
    "inner.fc1": "#params: 0.11K, #flops: 100, #acts: 10",
    "inner.fc2": "#params: 0.11K, #flops: 100, #acts: 10",
}

# The architecture that mmengine's documentation of get_model_complexity_info prints for its first example.
DOCUMENTED = """\
TestNet(
  #params: 0.44K, #flops: 0.4K, #acts: 40
  (fc1): Linear(
    in_features=10, out_features=10, bias=True
    #params: 0.11K, #flops: 100, #acts: 10
  )
  (fc2): Linear(
    in_features=10, out_features=10, bias=True
    #params: 0.11K, #flops: 100, #acts: 10
  )
  (inner): InnerNet(
    #params: 0.22K, #flops: 0.2K, #acts: 20
    (fc1): Linear(
      in_features=10, out_features=10, bias=True
      #params: 0.11K, #flops: 100, #acts: 10
    )
    (fc2): Linear(
      in_features=10, out_features=10, bias=True
      #params: 0.11K, #flops: 100, #acts: 10
    )
  )
)"""


def test_the_documented_architecture_is_drawn_to_the_letter() -> None:
    assert arch_text(MODULES, STATISTICS.__getitem__) == DOCUMENTED


def test_without_statistics_it_is_the_repr_of_the_modules() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Identity()))
    modules = [
        Module(path=path, type=type(module).__name__, extra=module.extra_repr())
        for path, module in model.named_modules()
    ]
    assert arch_text(modules, lambda path: "") == repr(model)


def test_a_module_with_one_line_of_text_and_no_children_stays_on_one_line() -> None:
    modules = (
        Module(path="", type="Net"),
        Module(path="act", type="ReLU"),
        Module(path="drop", type="Dropout", extra="p=0.5"),
    )
    said = {"": "", "act": "#acts: 3", "drop": ""}
    assert arch_text(modules, said.__getitem__) == "Net(\n  (act): ReLU(#acts: 3)\n  (drop): Dropout(p=0.5)\n)"


def test_arguments_of_several_lines_are_indented_line_by_line() -> None:
    modules = (Module(path="", type="Net"), Module(path="a", type="Long", extra="one\ntwo"))
    assert arch_text(modules, lambda path: "") == "Net(\n  (a): Long(\n    one\n    two\n  )\n)"


def test_a_very_deep_tree_is_drawn() -> None:
    paths = [".".join(["x"] * depth) for depth in range(3000)]
    text = arch_text([Module(path=path, type="M") for path in paths], lambda path: "")
    assert text.count("M(") == 3000


@pytest.mark.parametrize("name", ["plain", "odd"])
def test_picture_of_the_architecture(name: str, request: pytest.FixtureRequest, picture: SnapshotAssertion) -> None:
    assert request.getfixturevalue(name).arch() == picture


def test_macs_and_flops_are_both_named_and_exact_when_wanted(plain: Report) -> None:
    first = plain.arch(exact=True).splitlines()[1]
    totals = plain.totals
    params, macs, flops, acts = f"{totals.params:,}", f"{totals.macs:,}", f"{totals.flops:,}", f"{totals.activations:,}"
    assert first == f"  #params: {params}, #macs: {macs}, #flops: {flops}, #acts: {acts}"


def test_the_unknown_is_not_zero_and_a_second_name_says_whose_it_is(odd: Report) -> None:
    lines = odd.arch(exact=True).splitlines()
    assert f"#macs: ≥{odd.totals.macs:,}, #flops: ≥{odd.totals.flops:,}" in lines[1]
    twisted = odd.module("twister").total.activations
    assert f"  (twister): Twist(#params: 0, #macs: ?, #flops: ?, #acts: ≥{twisted})" in lines
    assert "  (again): Linear(= fc)" in lines


def test_a_misspelt_option_is_an_error(plain: Report) -> None:
    with pytest.raises(UnknownName, match="option of the arch view"):
        plain.arch(depth=2)
