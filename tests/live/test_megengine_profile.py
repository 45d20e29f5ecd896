"""Live: MegEngine's own `profile_analyze` reads the profile that opcost wrote in its layout.

Needs a Python that has MegEngine, named in OPCOST_MEGENGINE_PYTHON; `make test-frameworks` makes one.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from torch import nn

import opcost
from opcost.recorders.layout_megengine import dumps

PYTHON = os.environ.get("OPCOST_MEGENGINE_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="MegEngine's Python is not named; run `make test-frameworks`")


def analyze(path: Path, *options: str) -> str:
    command = [*shlex.split(PYTHON), "-m", "megengine.tools.profile_analyze", str(path), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_megengines_tool_reads_times_costs_and_shapes(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 10)).eval()
    profile = opcost.profile(model, shapes=(2, 3, 4, 4), repeat=2)
    path = tmp_path / "profile.json"
    path.write_text(dumps(profile))
    last = [row for row in profile.rows if row.step == 1]
    total = re.search(r"total device time\s+([\d.e-]+)", analyze(path))
    assert total is not None
    assert float(total[1]) == pytest.approx(sum(row.host_self_ns or 0 for row in last) / 1e9, rel=1e-4)
    convolution = analyze(path, "--type", "aten::conv2d", "--show-host")
    flops = 2 * (2 * 8 * 4 * 4) * 3 * 3 * 3 + 2 * 8 * 4 * 4
    assert f"{flops / 1000:.2f}" in convolution
    assert "{2,3,4,4}" in convolution
    assert "0.conv2d" in convolution
    assert "aten::linear" in analyze(path, "--aggregate-by", "type", "--aggregate", "sum", "-t", "0")
    assert "0.conv2d" in analyze(path, "--input-dtype", "Float32", "-t", "0")
