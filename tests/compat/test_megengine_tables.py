"""The text and the dictionaries of MegEngine's statistics, against what MegEngine itself printed and returned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opcost.compat.megengine.tables import (
    Records,
    StatsOptions,
    human,
    layout,
    print_stats,
)
from opcost.core.graph import TensorSpec

DATA = Path(__file__).resolve().parents[1] / "data/megengine/module_stats"
RUNS = {
    "mlp": StatsOptions(),
    "qconvnet_float": StatsOptions(values=True),
    "resnet18_slim_bar10": StatsOptions(bar_length_max=10, values=True),
    "resnet18_slim_only_flops": StatsOptions(cal_params=False, cal_activations=False),
    "layer_relu": StatsOptions(),
}


def tupled(value: Any) -> Any:
    return tuple(map(tupled, value)) if isinstance(value, list) else value


def records_of(golden: dict[str, Any]) -> Records:
    """What MegEngine measured, without what it worked out from it."""
    details = {part: [line for line in lines if line["name"] != "total"] for part, lines in golden["details"].items()}
    records = Records()
    for p in details["params"]:
        records.add_param(p["name"], TensorSpec(tupled(p["shape"]), p["dtype"]), float(p["mean"]), float(p["std"]))
    for f in details["flops"]:
        shapes = tupled(f["input_shapes"]), tupled(f["output_shapes"])
        records.add_operation(f["name"], f["class_name"], *shapes, int(f["flops_num"]))
    for a in details["activations"]:
        values = (float(a[name]) for name in ("mean", "std") if name in a)
        records.add_activation(a["name"], a["class_name"], TensorSpec(tupled(a["shape"]), a["dtype"]), *values)
    return records


@pytest.mark.parametrize("name", RUNS)
def test_the_text_is_the_one_that_megengine_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    golden = json.loads((DATA / f"{name}.json").read_text())
    print_stats(records_of(golden), RUNS[name])
    printed, errors = capsys.readouterr()
    assert printed.rstrip("\n") == (DATA / f"{name}.txt").read_text().rstrip("\n")
    assert not errors


@pytest.mark.parametrize("name", RUNS)
def test_totals_and_lines_are_those_that_megengine_returns(name: str) -> None:
    golden = json.loads((DATA / f"{name}.json").read_text())
    totals, details = print_stats(records_of(golden), RUNS[name])
    assert totals._asdict() == golden["total_stats"]
    assert type(totals).__name__ == "total_stats"
    assert type(details).__name__ == "module_stats"
    for part, lines in golden["details"].items():
        ours = getattr(details, part)
        assert [json.loads(json.dumps(line)) for line in ours] == lines


def test_the_text_is_the_summary_alone_where_details_are_not_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    golden = json.loads((DATA / "mlp.json").read_text())
    print_stats(records_of(golden), StatsOptions(logging_to_stdout=False))
    assert capsys.readouterr().out == "summary\n" + (DATA / "mlp.txt").read_text().partition("summary\n")[2]


def test_unknown_numbers_are_marked_and_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    shape = (None, 3)
    records = Records()
    records.add_call("a", "A", [TensorSpec((2, 3))], [TensorSpec(shape)], None)
    records.add_call("b", "B", [TensorSpec((2, 3))], [TensorSpec((2, 3))], 6)
    totals, details = print_stats(records, StatsOptions())
    assert (totals.flops, totals.act_dims, totals.act_size) == (6, 6, 24)
    assert details.flops[0]["flops"] == details.activations[0]["act_dim"] == details.activations[0]["size"] == "?"
    assert "#unknown          2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "suffix", "text"),
    [
        (0, "B", "0.000 B"), (1023, "B", "1023.000 B"), (1024, "B", "1.000 KiB"), (5 * 2**80, "B", "5.000 YiB"),
        (2**100, "B", "1048576.000 YiB"), (999, "OPs", "999.000 OPs"), (1000, "OPs", "1.000 KOPs"), (12345, "", "12.345 K"),
        (202, "", "202.000 "),
    ],
)  # fmt: skip
def test_numbers_have_three_decimals_and_a_unit(number: int, suffix: str, text: str) -> None:
    assert human(number, suffix) == text


def test_a_table_is_as_tabulate_lays_it_out() -> None:
    tabulate = pytest.importorskip("tabulate")
    rows = [("name", "value"), ("a", 1), ("longer name", (1, 2)), ("", "12.345 K"), ("end ", "")]
    assert layout(rows) == tabulate.tabulate(rows)
