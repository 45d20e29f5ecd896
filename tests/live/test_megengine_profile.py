"""Live: MegEngine's own `profile_analyze` reads the profiles that opcost wrote in its layout, and says the same as opcost.

Needs a Python that has MegEngine, named in OPCOST_MEGENGINE_PYTHON, or only the tool's two files out of MegEngine's wheel, in the
folder named in OPCOST_MEGENGINE_TOOL: they are plain Python and run on every processor. `make test-frameworks` makes either.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opcost
from opcost.core.graph import Cost, TensorSpec
from opcost.core.profile import Kernel, Profile, ProfileRow
from opcost.recorders.layouts import megengine_json

PYTHON = os.environ.get("OPCOST_MEGENGINE_PYTHON", "")
TOOL = os.environ.get("OPCOST_MEGENGINE_TOOL", "")
pytestmark = pytest.mark.skipif(
    not PYTHON and not TOOL, reason="MegEngine's tool is not named; run `make test-frameworks`"
)

BATCH, CHANNELS, SIDE = 2, 8, 4


def run(command: list[str], **environment: str) -> str:
    outcome = subprocess.run(
        command, check=True, capture_output=True, text=True, encoding="utf-8", env={**os.environ, **environment}
    )
    return outcome.stdout


def theirs(path: Path, *options: str) -> str:
    tool = ["-m", "megengine.tools.profile_analyze", str(path), *options]
    if TOOL:
        return run([sys.executable, *tool], PYTHONPATH=TOOL, PYTHONIOENCODING="utf-8")
    return run([*shlex.split(PYTHON), *tool], PYTHONIOENCODING="utf-8")


def ours(path: Path, *options: str) -> str:
    tool = ["-m", "opcost.compat.megengine.profile_analyze", str(path), *options]
    return run([sys.executable, *tool], PYTHONIOENCODING="utf-8")


def totals(text: str) -> dict[str, str]:
    return {line[:17].rstrip(): line[17:].strip() for line in text.splitlines() if line.startswith("total ")}


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(CHANNELS * SIDE * SIDE, 10)
    )


def torch_profile(**options: Any) -> Profile:
    return opcost.profile(network(), torch.ones(BATCH, 3, SIDE, SIDE), repeat=2, warmup=1, **options)


def gpu_profile() -> Profile:
    """Two operators of two kernels each and a kernel without an operator, as a GPU would have run them."""
    tensor = TensorSpec((2, 3), "float16")
    rows = tuple(
        ProfileRow(
            id=number,
            name=f"fc.{number}",
            type="aten::linear",
            module="fc",
            device="gpu:0",
            step=0,
            host_start_ns=1_000_000 * number,
            host_ns=40_000,
            host_self_ns=30_000,
            device_ns=310_000 + number,
            kernels=(
                Kernel("memset", "gpu:0", "7", 1_000_000 * number + 50_000, 10_000),
                Kernel("gemm", "gpu:0", "7", 1_000_000 * number + 70_000, 300_000 + number),
            ),
            ins=(tensor,),
            outs=(tensor,),
            cost=Cost(12, 24, 24, 16),
        )
        for number in range(2)
    )
    return Profile(meta={}, rows=rows, unattributed=(Kernel("stray", "gpu:0", "8", 1_500_000, 5_000),))


PROFILES: dict[str, Callable[[], Profile]] = {
    "forward": torch_profile,
    "backward": lambda: torch_profile(backward=True, mode="train"),
    "gpu": gpu_profile,
}

QUESTIONS = [
    "",
    "-t 0 --show-host",
    "-t 0 --aggregate-by type --aggregate sum",
    "--aggregate mean",
    "--opr-name .*l -t 0 --order-by +time",
    "--order-by memory",
    "--input-dtype Float32 -t 0",
    "--min-time 0.0000001 --max-time 1 -t 5",
    "--print-only summary",
    "--print-only host --show-host",
    "--confluence -t 2",
]


@pytest.fixture(scope="module", params=PROFILES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Profile, Path]:
    profile = PROFILES[request.param]()
    path = tmp_path_factory.mktemp("megengine") / f"{request.param}.json"
    path.write_text(megengine_json(profile), encoding="utf-8")
    return profile, path


def test_megengines_totals_are_ours(written: tuple[Profile, Path]) -> None:
    profile, path = written
    last = max(row.step or 0 for row in profile.rows)
    rows = [row for row in profile.rows if row.step == last]
    host = sum(row.host_self_ns or 0 for row in rows)
    kernels = [kernel.duration_ns for row in rows for kernel in row.kernels]
    kernels += [kernel.duration_ns for kernel in profile.unattributed]
    device = sum(kernels) if kernels else host  # on the CPU the host is the device
    found = totals(theirs(path))
    assert found == {"total device time": f"{device / 1e9:g}", "total host time": f"{host / 1e9:g}"}


def test_megengines_answers_are_ours(written: tuple[Profile, Path]) -> None:
    _, path = written
    for question in QUESTIONS:
        options = shlex.split(question)
        assert theirs(path, *options) == ours(path, *options), question


def test_megengines_tool_sees_costs_and_shapes(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(megengine_json(torch_profile()), encoding="utf-8")
    convolution = theirs(path, "--type", "aten::conv2d")
    outputs = BATCH * CHANNELS * SIDE * SIDE
    flops = 2 * outputs * 3 * 3 * 3 + outputs
    assert f"{flops / 1000:.2f}" in convolution
    assert f"{{{BATCH},3,{SIDE},{SIDE}}}" in convolution
    assert "0.conv2d" in convolution


def test_a_profile_of_the_host_alone_has_no_device_time(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text(megengine_json(torch_profile(host_only=True)), encoding="utf-8")
    found = totals(theirs(path, "--print-only", "summary"))
    assert found["total device time"] == "N/A"
    assert float(found["total host time"]) > 0


def test_an_onnx_profile_is_read_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "recorders")
    from onnx_model import write

    profile = opcost.profile(write(tmp_path / "small.onnx"), repeat=2)
    path = tmp_path / "onnx.json"
    path.write_text(megengine_json(profile), encoding="utf-8")
    host = sum(row.host_self_ns or row.host_ns or 0 for row in profile.rows if row.step == 1)
    assert totals(theirs(path))["total host time"] == f"{host / 1e9:g}"
