from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import opcost
from opcost.compat.megengine import visualize

DATA = Path(__file__).resolve().parents[1] / "data/megengine"
MLP = DATA / "mge/mlp.v2.mge"
Command = Callable[..., Any]


def printed_by(capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    """What the function of the same name prints."""
    capsys.readouterr()
    visualize(MLP, None, **options)
    return capsys.readouterr().out


def test_the_summary_is_opcosts_report(opcost_command: Command) -> None:
    code, out, err = opcost_command("visualize", MLP)
    report = opcost.count(MLP)
    assert (code, err) == (0, "")
    assert out.startswith("summary\n")
    assert f"total_flops       {report.totals.flops / 1000:.3f} KOPs\n" in out
    assert f"total_macs        {report.totals.macs / 1000:.3f} KMACs\n" in out
    assert f"#ops              {len(report.rows)}\n" in out


def test_megengines_rules_are_one_option_away(opcost_command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    expected = printed_by(capsys, convention="megengine")
    assert "total_flops       109.386 KOPs" in expected
    words = ("--cal_flops", "--cal_params", "--cal_activations", "--logging_to_stdout", "--convention", "megengine")
    assert opcost_command("visualize", MLP, *words).out == expected


def test_options_have_both_spellings(opcost_command: Command, tmp_path: Path) -> None:
    names = ("log_path", "cal_flops", "cal_params", "cal_activations", "logging_to_stdout", "bar_length_max")
    values = {"log_path": [tmp_path], "bar_length_max": ["7"]}
    outputs = []
    for spell in (str, lambda name: name.replace("_", "-")):
        words = [word for name in names for word in (f"--{spell(name)}", *values.get(name, []))]
        outputs.append(opcost_command("visualize", MLP, *words).out.partition("log:")[0])
    assert outputs[0] == outputs[1]
    assert "#######\n" in outputs[0]
    assert "########" not in outputs[0]


def test_single_statistics_can_be_chosen(opcost_command: Command) -> None:
    out = opcost_command("visualize", MLP, "--cal_params", "--logging_to_stdout").out
    assert "param stats" in out
    assert "flops stats" not in out
    assert "total_flops" not in out


def test_all_writes_a_log_beside_every_table(
    opcost_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = opcost_command("visualize", MLP, "--all").out
    assert all(f"{part} stats: " in out for part in ("param", "flops", "activations"))
    assert "tensorboard --logdir ./log" in out
    graph = EventAccumulator(str(tmp_path / "log")).Reload().Graph()
    assert "fc1/MatrixMul" in {node.name for node in graph.node}


def test_any_source_is_visualized(opcost_command: Command, root: Path, tmp_path: Path) -> None:
    source = f"{root / 'examples/resnet18.py'}:ResNet18"
    done = opcost_command("visualize", source, "--input", "1x3x64x64", "--log_path", tmp_path)
    assert done.code == 0
    assert f"total_param_dims  {opcost.count(source, shapes=(1, 3, 64, 64)).totals.params / 1e6:.3f} M" in done.out
    assert EventAccumulator(str(tmp_path)).Reload().Graph().node


@pytest.mark.parametrize("convention", ["opcost", "megengine"])
@pytest.mark.parametrize("kind", ["npy", "npz", "pkl"])
def test_input_data_sets_the_shapes(kind: str, convention: str, opcost_command: Command, tmp_path: Path) -> None:
    images = np.zeros((4, 1, 28, 28), "float32")
    path = tmp_path / f"data.{kind}"
    if kind == "npy":
        np.save(path, images)
    elif kind == "npz":
        np.savez(path, data=images)
    else:
        path.write_bytes(pickle.dumps({"data": images}))
    words = ("visualize", MLP, "--convention", convention)
    loaded = opcost_command(*words, "--load_input_data", path)
    assert loaded.code == 0
    assert loaded.out == opcost_command(*words, "--input", "data:4x1x28x28").out
    assert loaded.out != opcost_command(*words).out


def test_integers_of_input_data_stay_integers(opcost_command: Command, tmp_path: Path, root: Path) -> None:
    np.save(tmp_path / "data.npy", np.zeros((1, 16), "int64"))
    source = f"{root / 'examples/transformer.py'}:Decoder"
    assert opcost_command("visualize", source, "--load_input_data", tmp_path / "data.npy").code == 0


class Payload:
    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.proof}",)


def test_hostile_input_data_is_refused_and_runs_nothing(opcost_command: Command, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    (tmp_path / "data.pkl").write_bytes(pickle.dumps({"data": Payload(proof)}))
    code, out, err = opcost_command("visualize", MLP, "--load_input_data", tmp_path / "data.pkl")
    assert (code, out) == (2, "")
    assert "asks for posix.system" in err
    assert "hint:" in err
    assert not proof.exists()


def test_data_and_shapes_together_are_refused(opcost_command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", np.zeros((1, 1, 28, 28)))
    done = opcost_command("visualize", MLP, "--load_input_data", tmp_path / "data.npy", "--input", "1x1x28x28")
    assert done.code == 2
    assert "--load_input_data or --input" in done.err


def test_unknown_operators_are_reported(opcost_command: Command) -> None:
    assert "#unknown" in opcost_command("visualize", DATA / "mge/op_condtake.v2.mge").out
