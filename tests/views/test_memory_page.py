"""The page of `--memory`: the peak by its parts and holders, where it is, and the curve."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import opcost
from opcost.core.report import Report


@pytest.fixture(scope="module")
def step() -> Report:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
    return opcost.count(model, torch.zeros(32, 64), optimizer="SGD")


def test_the_parts_add_up_to_the_peak_in_the_first_table(step: Report) -> None:
    lines = step.render("memory", width=80, exact=True).splitlines()
    begin, end, *_ = (place for place, line in enumerate(lines) if line.startswith("─"))
    parts = {line.split()[0]: int(line.split()[1].replace(",", "")) for line in lines[begin + 1 : end]}
    assert parts == dict(step.memory.parts)
    peak = lines[end + 1].split()
    assert peak[0] == "peak"
    assert int(peak[1].replace(",", "")) == step.peak_bytes == sum(parts.values())


def test_it_says_where_the_peak_is_and_how_the_lifetimes_were_found(step: Report) -> None:
    text = step.render("memory", width=120)
    op = step.rows[step.memory.at].op
    assert f"the peak is reached in {op.raw}" in text
    assert f"operator {step.memory.at + 1} of {len(step.rows)}, {op.phase}" in text
    assert "until Python and autograd let go of it" in text


def test_modules_beyond_the_first_are_added_up(step: Report) -> None:
    assert len(step.memory.holders) > 1
    text = step.render("memory", width=80, top=1)
    rest = sum(holder.bytes for holder in step.memory.holders[1:])
    assert f"{len(step.memory.holders) - 1} more modules" in text
    exact = step.render("memory", width=80, top=1, exact=True)
    assert f"{rest:,}" in exact


@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_line_fits(step: Report, width: int) -> None:
    assert max(map(len, step.render("memory", width=width).splitlines())) <= width


def test_it_can_be_drawn_in_ascii(step: Report) -> None:
    assert step.render("memory", ascii=True).isascii()


def test_a_model_without_operators_has_no_curve() -> None:
    text = opcost.count(nn.Identity(), torch.zeros(2)).render("memory")
    assert "over the execution" not in text
    assert "peak memory" in text
