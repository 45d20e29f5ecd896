"""A recorded profile in the user's hands: printed, saved, read again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import opcost
from opcost.profiles import Profile

STEPS = 3


@pytest.fixture(scope="module")
def profile() -> Profile:
    return opcost.profile(nn.Sequential(nn.Linear(4, 8), nn.ReLU()).eval(), torch.ones(2, 4), repeat=STEPS, warmup=1)


def test_it_prints_one_line_for_each_operator_however_often_it_ran(profile: Profile) -> None:
    lines = [line.split() for line in str(profile).splitlines()]
    assert f"{STEPS} runs, per run" in str(profile)
    assert [words[2] for words in lines if words[:2] == ["0.linear", "aten::linear"]] == ["1"]
    assert [words[2] for words in lines if words[:2] == ["1.relu", "aten::relu"]] == ["1"]


def test_it_is_the_same_after_it_was_saved(profile: Profile, tmp_path: Path) -> None:
    profile.save(tmp_path / "profile.json")
    assert opcost.read_profile(tmp_path / "profile.json") == profile
