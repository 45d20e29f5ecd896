"""`opcost predict`."""

import json
from pathlib import Path

import pytest

import opcost
from opcost.cli.main import run

MEASURED_MS = {"bfloat16": 2.408, "float32": 2.997}
"""timm's resnet50d on 16 images of 224x224, replayed as a CUDA graph on an H200 (benchmarks/predict.py)."""


@pytest.mark.parametrize("dtype", MEASURED_MS)
def test_a_network_that_was_measured_lies_in_its_band(dtype: str) -> None:
    found = opcost.predict("timm:resnet50d", shapes=(16, 3, 224, 224), dtype=dtype, device="h200")
    assert found.band_ns[0] / 1e6 <= MEASURED_MS[dtype] <= found.band_ns[1] / 1e6
    assert found.ideal_ns < found.kernel_ns < found.latency_ns


def test_the_command_tells_the_latency_its_band_and_what_it_comes_from(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "p.json"
    assert run(["predict", "timm:resnet18", "--dtype", "bf16", "--batch", "8", "-o", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    told = {line.split()[0]: line for line in lines if line and not line.startswith(" ")}
    assert "aten::convolution" in told
    assert "four of five between" in told["latency"]
    assert "NVIDIA H200" in told["calibration"]
    assert max(map(len, lines)) <= 80
    saved = opcost.read_profile(path)
    assert saved.meta["format"] == "prediction"
    assert json.loads(path.read_text())["schema"] == "opcost.profile/1"


def test_a_device_that_nobody_knows_is_an_error_that_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "timm:resnet18", "--device", "h20000"]) == 2
    assert "h200" in capsys.readouterr().err
