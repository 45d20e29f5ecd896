"""Calibrations as files: what was written is read back, and anything else is one clear error."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.analysis.prediction.speeds import fit_laws
from opcost.core.graph import TensorSpec
from opcost.devices.calibration import DOCUMENT, SHIPPED, Calibration, Measured, dumps, packed, shipped, unpacked
from opcost.errors import InputError, SourceError
from opcost.rules import default_rules

X = TensorSpec((2, 3), "bfloat16")
ROWS = (
    Measured("matmul", "aten::mm", {"depth": 3}, (X, X), (X,), 2_000, 5_000, 64),
    Measured("elementwise", "aten::relu", {"fn": "relu"}, (X,), (X,), 1_700, 4_000),
)
MADE = Calibration(device="h200", meta={"product": "NVIDIA H200", "torch": "2.11"}, position=3, rows=ROWS)


def test_what_was_written_is_read_back() -> None:
    assert DOCUMENT.loads(dumps(MADE)) == MADE


BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def calibration(device: str) -> Calibration:
    return DOCUMENT.loads(gzip.decompress((BENCHMARKS / f"{device}_calibration.json.gz").read_bytes()).decode())


@pytest.mark.parametrize("device", SHIPPED)
def test_the_laws_that_come_with_the_package_are_those_of_the_calibration(device: str) -> None:
    found, fitted = shipped(device), fit_laws(calibration(device), default_rules())
    for name in ("home", "operators", "host_ns", "laws", "workspaces"):
        assert getattr(found, name) == getattr(fitted, name), f"{name} differs: run python benchmarks/fit_laws.py"
    assert dict(found.meta) == dict(fitted.meta)
    assert unpacked(packed(found)) == found


@pytest.mark.parametrize("device", SHIPPED)
def test_the_calibration_of_the_shipped_laws_is_whole(device: str) -> None:
    found = calibration(device)
    assert found.device == device
    assert len(found.rows) > 5_000
    assert (
        min(row.device_ns for row in found.rows) > 500
    )  # no kernel of any device starts and ends within half a microsecond
    assert {"product", "made", "torch", "cudnn", "tf32_convolutions", "tf32_products"} <= found.meta.keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(schema="opcost.calibration/9"), "opcost.calibration/9"),
        (lambda data: data["rows"].update(device_ns=[1]), "differ in length"),
        (lambda data: data["rows"].update(kind=[0, 99]), "entry 99"),
        (lambda data: data["rows"].update(host_ns=[1, -1]), "damaged"),
        (lambda data: data["specs"][0].update(shape=[-2, 3]), "not a shape"),
        (lambda data: data.pop("position"), "position"),
    ],
)
def test_a_damaged_file_is_refused(change: Callable[[Any], None], message: str, tmp_path: Path) -> None:
    data = json.loads(dumps(MADE))
    change(data)
    path = tmp_path / "c.json"
    path.write_text(json.dumps(data))
    with pytest.raises(SourceError, match=message):
        opcost.predict("timm:resnet18", device="h200", calibration=path)


def test_a_calibration_of_another_device_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(dumps(MADE))
    with pytest.raises(InputError, match="is of 'h200', not of 'a100'"):
        opcost.predict("timm:resnet18", device="a100", calibration=path)


def test_a_calibration_of_a_few_operators_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(dumps(MADE))
    with pytest.raises(InputError, match="has 2 operators, and 100 are needed"):
        opcost.predict("timm:resnet18", device="h200", calibration=path)


def test_a_processor_is_predicted_only_from_its_own_calibration() -> None:
    with pytest.raises(InputError, match="no calibration of a CPU is shipped"):
        opcost.predict("timm:resnet18", device="cpu")
