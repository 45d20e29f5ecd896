"""Recording an ONNX model with ONNX Runtime."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.errors import InputError, OpcostError, SourceError, UnknownName

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
np = pytest.importorskip("numpy")
sys.path.insert(0, str(Path(__file__).parent))

from onnx_model import COLUMNS, DEPTH, ROWS, write  # noqa: E402 - found by the path above


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "small.onnx")


def test_every_run_is_a_step_and_warm_up_runs_are_none(model: Path) -> None:
    profile = opcost.profile(model, repeat=3, warmup=2)
    per_step = [[row.type for row in profile.rows if row.step == step] for step in range(3)]
    assert per_step[0]
    assert per_step == [per_step[0]] * 3
    assert {row.step for row in profile.rows} == {0, 1, 2}
    assert len(profile.timed_ns) == 3
    assert profile.meta["onnxruntime"] == onnxruntime.__version__


def test_the_last_operator_makes_the_output(model: Path) -> None:
    profile = opcost.profile(model, repeat=1)
    assert profile.rows[-1].outs[0].dims == (ROWS, COLUMNS)
    assert profile.rows[0].ins[0].dims == (ROWS, DEPTH)


def test_the_product_is_priced_from_the_recorded_shapes(model: Path) -> None:
    profile = opcost.profile(model, repeat=1)
    assert sum(row.cost.macs for row in profile.rows if row.cost is not None) == ROWS * DEPTH * COLUMNS


def test_an_open_extent_is_given_by_shape_or_by_data(tmp_path: Path) -> None:
    path = write(tmp_path / "open.onnx", rows="batch")
    with pytest.raises(InputError, match="batch"):
        opcost.profile(path, repeat=1)
    for given in (
        {"shapes": (7, DEPTH)},
        {"shapes": {"x": (7, DEPTH)}},
        {"inputs": np.ones((7, DEPTH), np.float32)},
        {"inputs": {"x": np.ones((7, DEPTH), np.float32)}},
    ):
        profile = opcost.profile(path, repeat=1, warmup=0, **given)  # type: ignore[arg-type]
        assert profile.rows[-1].outs[0].dims == (7, COLUMNS)


def test_a_session_is_profiled_as_it_is(model: Path) -> None:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    profile = opcost.profile(session, repeat=1)
    assert profile.meta["providers"] == "CPUExecutionProvider"


def test_nothing_is_left_in_the_working_folder(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    opcost.profile(model, repeat=1)
    assert not list(folder.iterdir())


def test_a_misspelt_input_is_named(model: Path) -> None:
    with pytest.raises(UnknownName, match="xx"):
        opcost.profile(model, shapes={"xx": (ROWS, DEPTH)}, repeat=1)


def test_a_file_that_is_no_model_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"nothing")
    with pytest.raises(SourceError, match=r"cannot run .*bad\.onnx"):
        opcost.profile(path, repeat=1)
    with pytest.raises(SourceError, match="no file"):
        opcost.profile(tmp_path / "missing.onnx", repeat=1)


def test_what_the_runtime_cannot_do_is_refused(model: Path) -> None:
    for option in ("backward", "cold_l2"):
        with pytest.raises(OpcostError, match=option):
            opcost.profile(model, repeat=1, **{option: True})  # type: ignore[arg-type]


def test_the_command_takes_an_onnx_file(model: Path, tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    outcome = opcost_command("profile", model, "-o", tmp_path / "profile.json", "--repeat", "2")
    assert outcome.code == 0, outcome.err
    assert "2 runs" in outcome.out
