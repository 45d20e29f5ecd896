"""opcost.compat.torchstat beside torchstat itself: the same print where it is right, the right number where not."""

from __future__ import annotations

import copy
import json
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from opcost.compat import torchstat as ours

ORACLE = Path(__file__).with_name("torchstat_oracle.py")
NETS = runpy.run_path(str(ORACLE))["NETS"]
SIZE = runpy.run_path(str(ORACLE))["SIZE"]
FLOAT = 4


@pytest.fixture(scope="module")
def originals() -> dict[str, str]:
    if find_spec("torchstat") is None or find_spec("pandas") is None:
        pytest.skip("torchstat and pandas are not installed")
    done = subprocess.run([sys.executable, "-W", "ignore", str(ORACLE)], capture_output=True, text=True, check=True)
    texts: dict[str, str] = json.loads(done.stdout)
    return texts


def printed(capsys: pytest.CaptureFixture[str], model: nn.Module, *args: Any) -> str:
    capsys.readouterr()
    ours.stat(model, *args)
    return capsys.readouterr().out


def without_times(text: str) -> str:
    """Shares of a measured time differ from run to run."""
    return re.sub(r" *\d+\.\d\d%", lambda share: "%".rjust(len(share.group())), text)


def summed_traffic(text: str) -> str:
    """torchstat's total row with the sums of the two columns in which it repeats the last row."""
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith("total"))
    ends = [lines[0].index(title) + len(title) for title in ("MemRead(B)", "MemWrite(B)")]
    for end in ends:
        cells = [re.search(r"\S+$", line[:end]) for line in lines[1:at]]
        total = f"{sum(float(cell.group()) for cell in cells if cell)}"
        lines[at] = lines[at][: end - len(total)] + total + lines[at][end:]
    return "\n".join(lines)


@pytest.mark.parametrize("name", NETS)
def test_the_print_is_torchstats_to_the_character(
    capsys: pytest.CaptureFixture[str], originals: dict[str, str], name: str
) -> None:
    assert without_times(printed(capsys, NETS[name](), SIZE)) == without_times(summed_traffic(originals[name]))


def test_the_oracle_still_repeats_the_last_row(originals: dict[str, str]) -> None:
    """Else the sums above would repair nothing."""
    assert summed_traffic(originals["plain"]) != originals["plain"]
    assert summed_traffic(originals["one layer"]) == originals["one layer"]


def test_the_shares_of_the_time_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 64, 9))
    lines = printed(capsys, model, (3, 64, 64)).splitlines()
    small, large, total = (float(re.search(r"([\d.]+)%", lines[i]).group(1)) for i in (1, 2, 3))  # type: ignore[union-attr]
    assert small < large
    assert small + large == pytest.approx(total, abs=0.02)
    assert total == pytest.approx(100, abs=0.1)


def nodes(model: nn.Module, size: tuple[int, ...], granularity: int = 1) -> dict[str, ours.StatNode]:
    return {f"{n.name}{n.mark}": n for n in ours.ModelStat(model, size, granularity)._analyze_model()}


# -- where torchstat is wrong -----------------------------------------------------------------------------------------


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.w = nn.Parameter(torch.rand(5, 4, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(self.conv(x), self.w)


def test_functional_calls_and_bare_parameters_have_a_row() -> None:
    own = nodes(Functional(), (3, 8, 8))["(own)"]
    out, macs = 5 * 8 * 8, 4 * 5 * 8 * 8
    assert own.MAdd == 2 * macs - out
    assert own.Flops == macs
    assert own.Memory == ((4 * 8 * 8 + 5 * 4) * FLOAT, out * FLOAT)
    assert own.parameter_quantity == 5 * 4


def test_a_residual_addition_has_a_row() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.conv(x)

    own = nodes(nn.Sequential(Residual()), (3, 8, 8))["0 (own)"]
    elements = 3 * 8 * 8
    assert (own.MAdd, own.Flops, own.Memory) == (elements, elements, (2 * elements * FLOAT, elements * FLOAT))


def test_a_layer_that_is_called_twice_costs_twice_and_is_marked() -> None:
    layer = nn.Conv2d(3, 3, 1)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    row = nodes(model, (3, 8, 8))["0 (x2)"]
    macs, elements = 3 * 3 * 64, 3 * 64
    assert (row.MAdd, row.Flops) == (2 * 2 * macs, 2 * (macs + elements))
    assert row.parameter_quantity == 3 * 3 + 3
    assert row.inference_memory == 2 * elements * FLOAT / 1024**2


def test_a_layer_that_is_not_called_keeps_its_parameters_and_is_marked() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Conv2d(3, 3, 1), nn.Linear(7, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    row = nodes(Spare(), (3, 8, 8))["spare (unused)"]
    assert (row.parameter_quantity, row.MAdd, row.Flops, row.Memory) == (7 * 5 + 5, 0, 0, (0, 0))


def test_weights_that_two_layers_share_count_once_and_are_marked() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight, model[1].bias = model[0].weight, model[0].bias
    found = nodes(model, (4,))
    assert [row.parameter_quantity for row in found.values()] == [4 * 4 + 4, 0]
    assert list(found) == ["0", "1 (shared)"]


def test_layers_without_a_formula_of_torchstats_are_counted() -> None:
    found = nodes(nn.Sequential(nn.ConvTranspose2d(3, 4, 2, stride=2), nn.Sigmoid(), nn.Conv2d(4, 2, 1)), (3, 5, 5))
    transposed, sigmoid, _ = found.values()
    out, macs = 4 * 10 * 10, 5 * 5 * 3 * 4 * 2 * 2
    assert transposed.MAdd == 2 * macs - out + out, "products, sums, bias"
    assert transposed.Flops == macs + out
    assert transposed.Memory == ((3 * 25 + 3 * 4 * 4 + 4) * FLOAT, out * FLOAT)
    assert sigmoid.MAdd > 0
    assert sigmoid.Flops > 0


def test_linear_counts_every_position_of_its_input() -> None:
    row = nodes(nn.Sequential(nn.Linear(8, 16)), (5, 8))["0"]
    assert row.MAdd == 5 * 16 * (8 + 7)
    assert row.Flops == 5 * 16 * 8


def test_recurrent_layers_do_not_stop_it() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 6, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0][:, -1]

    row = nodes(Last(), (5, 4))["lstm"]
    assert row.Flops >= 5 * 4 * 6 * (4 + 6)
    assert row.output_shape == (5, 6)
    assert row.parameter_quantity == 4 * 6 * (4 + 6) + 2 * 4 * 6


def test_frozen_weights_are_read_too() -> None:
    trained, frozen = nn.Sequential(nn.Conv2d(3, 4, 3)), nn.Sequential(nn.Conv2d(3, 4, 3)).requires_grad_(False)
    assert nodes(trained, (3, 8, 8))["0"].Memory == nodes(frozen, (3, 8, 8))["0"].Memory


@pytest.mark.parametrize("granularity", [1, 2, 3, 4, 9])
def test_every_granularity_has_the_same_totals(granularity: int) -> None:
    whole = nodes(NETS["named"](), SIZE)
    cut = nodes(NETS["named"](), SIZE, granularity)
    for name in ("parameter_quantity", "MAdd", "Flops", "Memory", "inference_memory"):
        totals = [[getattr(row, name) for row in rows.values()] for rows in (whole, cut)]
        if name == "Memory":
            totals = [[read + written for read, written in values] for values in totals]
        assert sum(totals[0]) == sum(totals[1])


def test_a_granularity_puts_layers_together_from_the_bottom() -> None:
    assert list(nodes(NETS["named"](), SIZE)) == ["0.0.a_layer_with_a_long_name", "0.0.norm", "0.1", "1"]
    assert list(nodes(NETS["named"](), SIZE, 2)) == ["0.0", "0.1", "1"]
    assert list(nodes(NETS["named"](), SIZE, 3)) == ["0", "1"]
    assert list(nodes(NETS["named"](), SIZE, 4)) == ["root"]


def test_numbers_that_are_too_long_turn_to_exponents_as_in_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    for values in ([3, 999_999_999], [3, 1_000_000_000], [0, 12]):
        node = ours.StatNode("x")
        rows = []
        for value in values:
            row = copy.copy(node)
            row.own_parameters = value
            rows.append(row)
        frame = pandas.DataFrame({"params": [float(value) for value in (*values, sum(values))]})
        expected = [line.split()[-1] for line in str(frame).splitlines()]
        column = [line.split() for line in ours.report_format(rows).splitlines()[1 : len(values) + 2]]
        assert [cells[8] if cells[0] != "total" else cells[1] for cells in column] == expected[1:]


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout()).train()
    before = copy.deepcopy(model.state_dict())
    generator = torch.get_rng_state()
    ours.ModelStat(model, (3, 8, 8)).show_report()
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), generator)
    assert nn.Conv2d.__call__ is nn.Module.__call__


def test_a_model_without_data_has_no_times(capsys: pytest.CaptureFixture[str]) -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(3, 4, 3))
    assert "0.00%" in printed(capsys, model, (3, 8, 8))
