"""Training steps estimated for an H200 against what one ran and allocated (benchmarks/measure_gpu.py wrote it there)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "benchmarks"))
from predict import estimated_step, measured_operators  # noqa: E402 - the folder is named first

DATA = json.loads((ROOT / "tests/data/h200_steps.json").read_text())
ONCE = [row for row in DATA["rows"] if row["accumulate"] == 1 and row["zero_grad"] == "none"]
OTHERWISE = [row for row in DATA["rows"] if row not in ONCE and row["precision"] == "bf16-mixed"]


@pytest.mark.parametrize(
    "row", sampled([*ONCE, *OTHERWISE], every=2), ids=lambda row: "-".join(str(part) for part in list(row.values())[:5])
)
def test_a_step_runs_the_operators_of_a_real_gpu_and_allocates_its_bytes(row: dict[str, Any]) -> None:
    added, ops = estimated_step(row)
    assert ops == measured_operators(row, DATA["ops"])
    # They were measured with cudnn.benchmark, where cuDNN chooses among kernels by timing, and takes other workspaces.
    off = {"float32": 0.05, "bfloat16": 0.02}.get(row["precision"], 0.01) if row["name"] == "convolutions" else 0.01
    assert added == pytest.approx(row["peak"] - row["base"], rel=off)
