"""`opcost.sweep` and `opcost sweep`: the numbers of sizes that were not counted are those of a count."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opcost
from opcost.core.limits import amounts_of
from opcost.core.results import Point, Sweep
from opcost.errors import InputError, UnknownName

INS, OUTS = 10, 4
Command = Callable[..., Any]


class Attends(nn.Module):
    """Every token looks at every other."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(INS, OUTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = self.project(x)
        return torch.softmax(keys @ keys.transpose(1, 2), -1) @ keys


@pytest.fixture
def linear() -> nn.Linear:
    return nn.Linear(INS, OUTS)


def test_amounts_are_those_of_a_linear_layer(linear: nn.Linear) -> None:
    found = opcost.sweep(linear, torch.ones(3, INS), vary={"batch": "1..256"})
    assert [point.sizes for point in found.points] == [(2**power,) for power in range(9)]
    for point in found.points:
        (batch,) = point.sizes
        assert point.amounts["macs"] == batch * INS * OUTS
        assert point.amounts["peak_bytes"] == 4 * (INS * OUTS + OUTS + batch * (INS + OUTS))
        assert point.amounts["params"] == INS * OUTS + OUTS
        assert (point.latency_ns, point.band_ns) == (None, None)
    assert sum(point.counted for point in found.points) == 4
    assert repr(found) == "<Sweep Linear: by batch, 9 points, 4 counted>"


@pytest.mark.parametrize("options", [{}, {"backward": True, "optimizer": "adam"}])
def test_numbers_between_are_those_of_a_count(options: Any) -> None:
    model = Attends()
    found = opcost.sweep(model, shapes=(2, 3, INS), vary={"batch": "1,2,3..6", "x=1": [1, 2, 5, 9, 20, 40]}, **options)
    assert (found.variables, len(found.points)) == (("batch", "x=1"), 36)
    assert not all(point.counted for point in found.points)
    for point in found.points:
        assert point.amounts == amounts_of(opcost.count(model, shapes=(*point.sizes, INS), **options)), point.sizes


def test_sizes_at_which_a_model_does_not_run_are_reported(linear: nn.Linear) -> None:
    norm = nn.BatchNorm1d(INS)
    found = opcost.sweep(norm, shapes=(3, INS), vary="batch=1,2,3", mode="train")
    assert [bool(point.amounts) for point in found.points] == [False, True, True]
    assert found.notes[0].startswith("the model does not run at 1: ")
    with pytest.raises(InputError, match="runs at none of these sizes: the model does not run at 1"):
        opcost.sweep(norm, shapes=(3, INS), vary="batch=1", mode="train")


def test_with_a_device_every_point_has_its_latency_and_band(linear: nn.Linear) -> None:
    found = opcost.sweep(linear, shapes=(3, INS), vary="batch=1..16", device="h200")
    assert all(point.counted for point in found.points)
    for point in found.points:
        alone = opcost.predict(linear, shapes=(point.sizes[0], INS), device="h200")
        assert (point.latency_ns, point.band_ns) == (alone.latency_ns, alone.band_ns)
    assert found.device == "h200"
    assert any("calibration: NVIDIA H200" in note for note in found.notes)


class Embeds(nn.Module):
    """A table of ten words."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.table(input_ids)


@pytest.mark.parametrize(
    ("model", "shape", "item", "each"),
    [
        (Embeds(), (1, 7), "token", 7),
        (nn.Conv2d(3, 4, 3), (1, 3, 8, 8), "image", 1),
        (nn.Linear(8, 4), (1, 8), "sample", 1),
    ],
)
def test_throughput_is_that_of_what_the_inputs_are(
    model: nn.Module, shape: tuple[int, ...], item: str, each: int
) -> None:
    dtype = "int64" if item == "token" else "float32"
    found = opcost.sweep(model, shapes=shape, dtypes=dtype, vary="batch=1,2,64", device="h200")
    assert [(point.item, point.items) for point in found.points] == [(item, each), (item, 2 * each), (item, 64 * each)]
    rates = [
        batch * each / (point.latency_ns or 0) * 1e9 for batch, point in zip((1, 2, 64), found.points, strict=True)
    ]
    assert [point.items_per_second for point in found.points] == pytest.approx(rates, rel=1e-12)
    assert found.to_dict()["items_per_second"] == pytest.approx(rates, rel=1e-12)
    data = json.loads(found.render("json"))
    assert [point["items_per_second"] for point in data["points"]] == pytest.approx(rates, rel=1e-12)
    for view in ("table", "md", "html"):
        shown = found.render(view)
        assert f"{item}s/s" in shown
        assert f"{rates[0]:,.0f}" in shown.replace(f"{rates[0]:.0f}", f"{rates[0]:,.0f}")  # a page has plain numbers
    assert "/s" not in opcost.sweep(model, shapes=shape, dtypes=dtype, vary="batch=1,2").render("md")


def test_what_does_not_fit_has_no_throughput() -> None:
    """As below, 16 GiB do not fit into a T4."""
    found = opcost.sweep(Adds(), shapes=(1, 1 << 28), vary="batch=1,8", device="t4")
    assert [point.items_per_second is None for point in found.points] == [False, True]


def test_passes_between_two_updates_count_all() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    report = opcost.count(model, shapes=(2, 3, 8, 8), optimizer="sgd", accumulate=5)
    assert report.processed == ("image", 10)


class Adds(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def test_points_that_do_not_fit_the_device_are_marked_in_every_form() -> None:
    """Input and output are 1 GiB each for one of the batch, and a T4 has 15 GiB: 8 of the batch are too many."""
    options: Any = {"shapes": (1, 1 << 28), "vary": "batch=1,2,4,8"}
    found = opcost.sweep(Adds(), **options, device="t4")
    assert [point.fits for point in found.points] == [True, True, True, False]
    assert all(point.latency_ns for point in found.points)
    assert found.notes[0] == "1 of 4 points do not fit on t4: their latency assumes enough memory"
    for view in ("table", "md", "html"):
        shown = found.render(view)
        assert "fits on t4" in shown
        assert "1 of 4 points do not fit on t4" in " ".join(shown.split())
    assert [point["fits"] for point in json.loads(found.render("json"))["points"]] == [True, True, True, False]
    lines = list(csv.DictReader(io.StringIO(found.render("csv"))))
    assert [line["fits"] for line in lines] == ["yes", "yes", "yes", "no"]
    plain = opcost.sweep(Adds(), **options)
    assert {point.fits for point in plain.points} == {None}
    assert "fits on" not in str(plain)


@pytest.mark.parametrize(
    ("vary", "error", "said"),
    [
        ({}, InputError, "0 sizes vary"),
        ({"batch": "1", "x=0": "1", "x=1": "2"}, InputError, "3 sizes vary"),
        ("1..8", InputError, "does not say what varies"),
        ("btach=1..8", UnknownName, "did you mean 'batch'"),
        (["batch=1", "batch=2"], InputError, "varies twice"),
        ("batch=4..1", InputError, "not above"),
        ({"batch": range(1, 1000), "input=1": range(1, 1000)}, InputError, "998,001 combinations"),
        ("tokens=1..8", InputError, "inputs were given"),
    ],
)
def test_what_is_not_understood(linear: nn.Linear, vary: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        opcost.sweep(linear, shapes=(3, INS), vary=vary)


def test_a_way_to_run_needs_a_device(linear: nn.Linear) -> None:
    with pytest.raises(InputError, match="need a device"):
        opcost.sweep(linear, shapes=(3, INS), vary="batch=1,2", execution="eager")


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(f"from torch import nn\n\ndef net():\n    return nn.Linear({INS}, {OUTS})\n")
    return f"{tmp_path / 'net.py'}:net"


def test_the_command_says_the_same_in_every_form(opcost_command: Command, source: str) -> None:
    words = ("sweep", source, "-i", f"1x3x{INS}", "--vary", "batch=1,2,4..64", "--vary", "input=1=10,20..50")
    done = opcost_command(*words)
    assert done.code == 0
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert ["64", "50"] in [line.split()[:2] for line in lines]
    assert "15 of 35 were counted" not in done.out
    assert "12 of 35 were counted; polynomials give the others" in lines
    data = json.loads(opcost_command(*words, "--format", "json").out)
    assert data["schema"] == "opcost.sweep/1"
    swept = opcost.sweep(source, shapes=[(1, 3, INS)], vary=["batch=1,2,4..64", "input=1=10,20..50"])
    assert data == json.loads(swept.render("json"))
    assert swept.to_dict()["batch"] == [point["sizes"][0] for point in data["points"]]
    rows = list(csv.DictReader(io.StringIO(opcost_command(*words, "--format", "csv").out)))
    assert [int(row["macs"]) for row in rows] == [int(row["batch"]) * int(row["input=1"]) * INS * OUTS for row in rows]
    assert {row["counted"] for row in rows} == {"yes", "no"}
    assert "| batch | input=1 |" in opcost_command(*words, "--format", "md").out
    assert len(opcost_command(*words, "--top", "3").out.splitlines()) < len(lines)


def test_the_plot_is_as_long_as_what_it_shows(opcost_command: Command, source: str) -> None:
    out = opcost_command("sweep", source, "-i", f"1x{INS}", "--vary", "batch=100..400").out
    bars = [line.count("█") for line in out.partition("FLOPs by batch")[2].splitlines() if "█" in line]
    assert bars == [10, 20, 40]


def test_a_terminal_without_the_characters_gets_others(
    opcost_command: Command, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opcost.core.escaping.shows_unicode", lambda stream: False)
    for further in ((), ("--vary", "input=1=2..8")):
        out = opcost_command("sweep", source, "-i", f"1x3x{INS}", "--vary", "batch=1..8", *further).out
        assert out.isascii()
        assert "#" in out
        assert "?" not in out


def test_an_interrupt_leaves_what_was_done(
    opcost_command: Command, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, done = opcost.count, []

    @wraps(usual)
    def count(*args: Any, **options: Any) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(options)
        return usual(*args, **options)

    monkeypatch.setattr("opcost.sizing.count", count)
    found = opcost_command("sweep", source, "-i", f"1x{INS}", "--vary", "batch=1,2,3,4")
    assert found.code == 130
    assert "interrupted: 2 of 4 points were counted" in found.err
    rows = found.out.partition("──\n")[2].splitlines()
    assert [row.split()[:3] for row in rows[:2]] == [
        ["1", str(INS * OUTS), str(INS * OUTS * 2 + OUTS)],
        ["2", "80", "168"],
    ]
    done[:] = [1, 2]
    found = opcost_command("sweep", source, "-i", f"1x{INS}", "--vary", "batch=1,2,3,4")
    assert (found.code, found.out) == (130, "")


@pytest.mark.parametrize("vary", ["batch", "batch=", "batch=1..", "batch=4,3"])
def test_nonsense_is_refused_before_anything_is_counted(opcost_command: Command, vary: str) -> None:
    done = opcost_command("sweep", "no-such-file.py:Net", "--vary", vary)
    assert done.code == 2
    assert "no-such-file" not in done.err


def test_lower_bounds_are_marked() -> None:
    point = Point((1,), {"macs": 5, "flops": 10, "bytes": 3, "peak_bytes": 7, "uncounted": 1})
    lines = str(Sweep(source="net", variables=("batch",), points=(point,))).splitlines()
    assert lines[-1].split() == ["1", "≥5", "≥10", "≥3", "B", "≥7", "B"]
