"""Measuring writes nothing to stderr but what the model writes, and the user's own profiler stays as it was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

CODE = """
import os, sys
import torch, opcost
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        os.write(2, b"of the model\\n")  # as compiled code writes
        return x.relu()

def own():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        torch.ones(2)

if "before" in sys.argv:
    own()
os.write(2, b"opcost\\n")
opcost.profile(Net(), torch.ones(2), repeat=2)
os.write(2, b"own\\n")
own()
"""


@pytest.mark.parametrize("words", [[], ["before"]])
def test_the_profiler_says_nothing_of_its_start_and_stop(words: list[str]) -> None:
    env = {name: value for name, value in os.environ.items() if name != "KINETO_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-c", CODE, *words], env=env, capture_output=True, text=True, check=True)
    before, _, after = done.stderr.partition("opcost\n")
    measured, _, own = after.partition("own\n")
    assert set(measured.splitlines()) == {"of the model"}
    if words:  # what a profile of the user's own writes is the same before and after
        assert before.count("profiler_start") == own.count("profiler_start")
