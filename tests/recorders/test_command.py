"""`opcost profile` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import opcost
from opcost.recorders.measure import overhead

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.fc = nn.Linear(width, 2 * width)

    def forward(self, x):
        return self.fc(x).relu()
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(NET, encoding="utf-8")
    return f"{path}:Net"


def test_the_file_holds_both_kinds_of_runs_and_what_lies_between(
    net: str, tmp_path: Path, opcost_command: Callable[..., Any]
) -> None:
    path = tmp_path / "profile.json"
    outcome = opcost_command("profile", net, "--input", "3x4", "-o", path, "--repeat", "4", "--warmup", "1")
    assert outcome.code == 0, outcome.err
    profile = opcost.read_profile(path)
    recorded = json.loads(path.read_text(encoding="utf-8"))["extra"]["recorded_ns"]
    assert (len(profile.timed_ns), len(recorded), profile.meta["steps"]) == (4, 4, "4")
    assert profile.meta["overhead"] == overhead(profile.timed_ns, recorded)
    assert [(row.module, row.type) for row in profile.rows if row.step == 3] == [
        ("fc", "aten::linear"),
        ("", "aten::relu"),
    ]
    assert "p10" in outcome.out
    assert "p90" in outcome.out


def test_the_options_reach_the_profile(net: str, tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    path = tmp_path / "profile.json"
    options = ("--set", "width=6", "--backward", "--profile-host", "--cold-l2", "--seconds", "0.01")
    outcome = opcost_command("profile", net, "--input", "3x6", "-o", path, *options)
    assert outcome.code == 0, outcome.err
    profile = opcost.read_profile(path)
    meta = profile.meta
    assert (meta["backward"], meta["host_only"], meta["cold_l2"], meta["mode"]) == ("True", "True", "True", "train")
    assert {row.phase for row in profile.rows} == {"forward", "backward"}
    assert profile.rows[0].ins[0].dims == (3, 6)
    assert len(profile.timed_ns) >= 3


@pytest.mark.parametrize("layout", ["megengine", "chrome"])
def test_other_layouts_are_read_back(layout: str, net: str, tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    path = tmp_path / "profile.json"
    outcome = opcost_command("profile", net, "--input", "3x4", "-o", path, "--repeat", "1", "--layout", layout)
    assert outcome.code == 0, outcome.err
    assert [row.name for row in opcost.read_profile(path).rows] == ["fc.linear", "relu"]


def test_where_to_write_is_checked_before_anything_runs(
    net: str, tmp_path: Path, opcost_command: Callable[..., Any]
) -> None:
    for path, said in ((tmp_path / "no" / "profile.json", "no folder"), (tmp_path, "is a folder")):
        outcome = opcost_command("profile", net, "--input", "3x4", "-o", path)
        assert outcome.code != 0
        assert said in outcome.err
        assert "should not happen" not in outcome.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="a device is there")
def test_a_device_that_is_not_there_is_named(net: str, tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    outcome = opcost_command("profile", net, "--input", "3x4", "-o", tmp_path / "p.json", "--device", "cuda")
    assert outcome.code != 0
    assert "cannot be moved to cuda" in outcome.err
