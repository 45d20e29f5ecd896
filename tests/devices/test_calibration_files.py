"""Calibrations as files: what was written is read back, and anything else is one clear error."""

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import opcost
from opcost.analysis.prediction import speeds as speeds_module
from opcost.analysis.prediction.speeds import Speeds, fit_laws
from opcost.analysis.prediction.work import Work
from opcost.analysis.prediction.workspaces import fit_workspaces
from opcost.core.graph import TensorSpec
from opcost.devices import neighbours
from opcost.devices.calibration import (
    DOCUMENT,
    SHIPPED,
    Calibration,
    Measured,
    dumps,
    kernels,
    packed,
    shipped,
    shipped_workspaces,
    unpacked,
)
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
    for name in ("home", "operators", "host_ns", "laws"):
        assert getattr(found, name) == getattr(fitted, name), f"{name} differs: run python benchmarks/fit_laws.py"
    assert dict(found.meta) == dict(fitted.meta)
    assert unpacked(packed(found)) == found


def test_the_workspaces_that_come_with_the_package_are_the_measured_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from fit_laws import taking_memory

    fitted = fit_workspaces((row for row, _ in taking_memory(SHIPPED[0])), default_rules())
    assert shipped_workspaces() == fitted, "run python benchmarks/fit_laws.py"


def test_a_prediction_unpacks_only_the_families_of_its_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked_families = []
    unpack = neighbours._unpacked
    monkeypatch.setattr(neighbours, "_unpacked", lambda packed: unpacked_families.append(packed) or unpack(packed))
    laws = unpacked(packed(shipped(SHIPPED[0])))
    unpacked_families.clear()
    speeds = Speeds(laws)
    for size in (512, 1024):
        speeds.time(Work("mm", "bfloat16", 2 * size**3, 6 * size**2, (0.0, 9.0, 9.0, 6.3, 4.5, 1.5, 0.75, 4.0)))
    assert unpacked_families == [laws.laws["mm", "bfloat16"].near._packed]


def test_a_file_is_fitted_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = []
    fit = speeds_module.fit_laws
    monkeypatch.setattr(speeds_module, "fit_laws", lambda *given: fitted.append(1) or fit(*given))
    monkeypatch.setattr("opcost.predicting.FEWEST", 2)
    report = opcost.count(torch.nn.ReLU(), torch.zeros(2, 3))
    path = tmp_path / "c.json"
    path.write_text(dumps(MADE))
    times = [opcost.predict(report, device="h200", calibration=path).latency_ns for _ in range(2)]
    assert len(fitted) == 1
    # The operator takes a microsecond more.
    path.write_text(dumps(replace(MADE, rows=(ROWS[0], ROWS[1]._replace(device_ns=2_700)))))
    os.utime(path, ns=(0, 0))  # a clock may be too coarse to tell both writings apart
    times.append(opcost.predict(report, device="h200", calibration=path).latency_ns)
    assert len(fitted) == 2
    assert times[0] == times[1] < times[2]


def test_the_laws_of_compiled_models_are_those_of_the_measured_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from fit_laws import calibrated, compiled_models, fitted_kernels

    device = SHIPPED[0]
    fitted = fitted_kernels(shipped(device), calibrated(device), compiled_models(device))
    assert kernels() == fitted, "run python benchmarks/fit_laws.py"


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


# -- several files, and busy machines


def file_of(path: Path, found: Calibration) -> Path:
    path.write_text(dumps(found))
    return path


def test_merged_files_have_every_operator_once_with_the_median_of_its_times_and_where_all_come_from(
    tmp_path: Path,
) -> None:
    def taken(number: int, *times: int) -> Path:
        rows = tuple(row._replace(device_ns=time) for row, time in zip(ROWS, times, strict=False))
        meta = {**MADE.meta, "driver": f"58{number}"}
        return file_of(tmp_path / f"{number}.json", replace(MADE, meta=meta, rows=rows, host={"aten::add": times[0]}))

    files = taken(1, 1_000), taken(2, 3_000, 500), taken(3, 8_000, 700)
    found = opcost.calibrate(tmp_path / "all.json", merge=files)
    assert [(row.raw, row.device_ns) for row in found.rows] == [("aten::mm", 3_000), ("aten::relu", 600)]
    assert found.host == {"aten::add": 3_000}
    assert found.meta == {"product": "NVIDIA H200", "torch": "2.11", "driver": "581, 582, 583"}
    assert [meta["driver"] for meta in found.merged] == ["581", "582", "583"]
    again = opcost.calibrate(tmp_path / "more.json", merge=[tmp_path / "all.json", files[0]])
    assert [meta["driver"] for meta in again.merged] == ["581", "582", "583", "581"]
    assert DOCUMENT.load(tmp_path / "more.json") == again


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(MADE, device="a100"), "of 'h200' and of 'a100' cannot be merged"),
        (replace(MADE, meta={**MADE.meta, "tf32_products": "on"}), "tf32_products None and on"),
    ],
)
def test_what_differs_too_much_is_not_merged(other: Calibration, message: str, tmp_path: Path) -> None:
    files = file_of(tmp_path / "a.json", MADE), file_of(tmp_path / "b.json", other)
    with pytest.raises(InputError, match=message):
        opcost.calibrate(tmp_path / "c.json", merge=files)
    assert not (tmp_path / "c.json").exists()


def repeating(device: str, *, device_ns: int, host_ns: int) -> Calibration:
    """One whose repeated calls took 1 µs at the start, and these times at the end."""
    repeats = {"mm": (1000, device_ns), "relu": (1000, device_ns), "softmax": (1000, 9000), "host": (1000, host_ns)}
    return replace(MADE, device=device, repeats=repeats)


@pytest.mark.parametrize(
    ("found", "busy"),
    [
        (repeating("h200", device_ns=1090, host_ns=1000), False),  # one call alone may be off
        (repeating("h200", device_ns=1110, host_ns=1000), True),
        (repeating("cpu", device_ns=1110, host_ns=1390), False),
        (repeating("h200", device_ns=1000, host_ns=1410), True),
        (repeating("cpu", device_ns=1410, host_ns=1000), True),
    ],
)
def test_repeated_calls_tell_whether_something_else_ran(found: Calibration, *, busy: bool, tmp_path: Path) -> None:
    assert found.is_busy == busy
    path = file_of(tmp_path / "c.json", found)
    if busy:
        with pytest.raises(InputError, match="on a busy machine: the same operators took up to"):
            opcost.calibrate(tmp_path / "all.json", merge=[path, path])
    else:
        assert not opcost.calibrate(tmp_path / "all.json", merge=[path, path]).is_busy
    accepted = replace(found, meta={**found.meta, "accepted": "busy"})
    assert not accepted.is_busy


def test_a_calibration_of_a_busy_machine_is_refused_with_advice(tmp_path: Path) -> None:
    found = repeating("h200", device_ns=1500, host_ns=1000)
    path = file_of(tmp_path / "c.json", replace(found, meta={**found.meta, "gpu_processes": "3"}))
    with pytest.raises(InputError, match=r"up to 50% longer .*; 3 processes used the GPU") as caught:
        opcost.predict("timm:resnet18", device="h200", calibration=path)
    assert "--force" in caught.value.hint
