"""Recording an ONNX model with ONNX Runtime."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.errors import InputError, MissingFramework, OpcostError, SourceError, UnknownName

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


def test_the_cost_of_the_product_is_that_of_the_recorded_shapes(model: Path) -> None:
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


def test_a_sessions_own_settings_are_used_and_stay(model: Path) -> None:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
    profile = opcost.profile(session, repeat=1)
    assert (profile.meta["threads"], profile.meta["optimization"]) == ("1", "ORT_DISABLE_ALL")
    assert [row.type for row in profile.rows] == ["MatMul", "Add", "Relu"]  # nothing is fused
    assert not session.get_session_options().enable_profiling


def test_the_rows_add_up_to_the_sessions_own_nodes(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from opcost.traces.onnxruntime import OnnxRuntimeReader

    read, raw = OnnxRuntimeReader.read, []

    def kept(reader: Any, file: Any) -> Any:
        raw.extend(json.loads(file.path.read_text(encoding="utf-8")))
        return read(reader, file)

    monkeypatch.setattr(OnnxRuntimeReader, "read", kept)
    profile = opcost.profile(model, repeat=4, warmup=2)
    runs = sorted(event["ts"] for event in raw if event["name"] == "model_run")
    assert len(runs) == 2 + 1 + 4  # warm-up, the profiler's own first run, and what is kept
    nodes = [event for event in raw if event["cat"] == "Node" and event["name"].endswith("_kernel_time")]
    kept_ns = sum(1000 * event["dur"] for event in nodes if event["ts"] >= runs[-4])
    assert sum(row.host_self_ns or 0 for row in profile.rows) == kept_ns


def test_inputs_that_the_model_does_not_take_are_refused(model: Path) -> None:
    data = np.ones((ROWS, DEPTH), np.float32)
    for given in ({"inputs": (data, data)}, {"shapes": [(ROWS, DEPTH), (1,)]}, {"dtypes": "float16"}):
        with pytest.raises(InputError):
            opcost.profile(model, repeat=1, **given)  # type: ignore[arg-type]
    for wrong in (data.astype(np.float64), data[:, 1:]):
        with pytest.raises(OpcostError, match="cannot run the model on these inputs"):
            opcost.profile(model, wrong, repeat=1)


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
    for option, value in (("backward", True), ("cold_l2", True), ("mode", "train")):
        with pytest.raises(OpcostError, match=option):
            opcost.profile(model, repeat=1, **{option: value})  # type: ignore[arg-type]


def test_a_missing_runtime_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingFramework, match="needs onnxruntime") as caught:
        opcost.profile(model)
    assert caught.value.hint == "pip install onnxruntime"


def test_the_command_takes_an_onnx_file(model: Path, tmp_path: Path, opcost_command: Callable[..., Any]) -> None:
    outcome = opcost_command("profile", model, "-o", tmp_path / "profile.json", "--repeat", "2")
    assert outcome.code == 0, outcome.err
    assert "2 runs" in outcome.out


def test_an_open_extent_is_given_by_its_name_or_as_the_batch(tmp_path: Path) -> None:
    path = write(tmp_path / "open.onnx", rows="n")
    for options in ({"options": {"dim": "n=7"}}, {"batch": 7}):
        profile = opcost.profile(path, repeat=1, warmup=0, **options)  # type: ignore[arg-type]
        assert {row.cost.macs for row in profile.rows if row.cost is not None and row.cost.macs} == {
            7 * DEPTH * COLUMNS
        }
    with pytest.raises(InputError, match="n is given as 7 and as 8"):
        opcost.profile(path, batch=8, options={"dim": "n=7"})
    with pytest.raises(UnknownName, match="unknown dimension 'm'"):
        opcost.profile(path, options={"dim": "m=7"})
    with pytest.raises(InputError, match="element type of the whole model"):
        opcost.profile(path, dtype="bf16")
