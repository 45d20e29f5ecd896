"""Budgets in pytest, pre-commit and GitHub Actions, each as it is declared in the repository."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from onnx_making import helper, tensor, weight

import opcost
from opcost.errors import BudgetExceeded, InputError

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
WIDTH, CLASSES = 8, 5
MACS = WIDTH * CLASSES


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a model and its budget."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [tensor("x", 1, WIDTH)],
        [tensor("y", 1, CLASSES)],
        [weight("w", WIDTH, CLASSES)],
    )
    (tmp_path / "net.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    allow(tmp_path, MACS)
    return tmp_path


def allow(folder: Path, macs: int) -> None:
    (folder / "opcost.toml").write_text(f'[models.net]\nsource = "net.onnx"\nlimits = {{ macs = {macs} }}\n')


def run(words: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return subprocess.run(
        words, cwd=folder, env={**os.environ, "PATH": path, **more}, capture_output=True, text=True, check=False
    )


# -- Python ------------------------------------------------------------------------------------------------------------


def test_a_budget_is_checked_from_python(here: Path) -> None:
    verdict = opcost.check(here / "net.onnx", macs=MACS, params="<=40")
    assert verdict
    assert [line.word for line in verdict.lines] == ["ok", "ok"]
    with pytest.raises(BudgetExceeded, match=f"MACs {MACS}, and <{MACS} is allowed") as raised:
        opcost.check(opcost.count(here / "net.onnx"), macs=f"<{MACS}", params=40)
    assert "params" not in str(raised.value)


def test_a_change_is_checked_against_a_report_from_python(here: Path) -> None:
    opcost.count(here / "net.onnx", shapes=(1, WIDTH)).save(here / "before.json")
    assert opcost.check(here / "net.onnx", shapes=(1, WIDTH), baseline=here / "before.json", macs="<=+0%")
    with pytest.raises(BudgetExceeded, match="it was 40"):
        opcost.check(here / "net.onnx", shapes=(2, WIDTH), baseline=here / "before.json", macs="<+100%")
    with pytest.raises(InputError, match="about a change"):
        opcost.check(here / "net.onnx", macs="<+1%")
    with pytest.raises(InputError, match="do not apply to saved reports"):
        opcost.check(opcost.load_report(here / "before.json"), shapes=(2, WIDTH), macs=1)
    with pytest.raises(InputError, match="no limit is given"):
        opcost.check(here / "net.onnx")


# -- pytest ------------------------------------------------------------------------------------------------------------

TESTS = f"""
def test_kept(opcost):
    opcost.check("net.onnx", macs="<={MACS}")

def test_exceeded(opcost):
    opcost.check("net.onnx", macs="<{MACS}")
"""


def test_the_fixture_fails_a_test_whose_model_costs_too_much(here: Path) -> None:
    (here / "test_budgets.py").write_text(TESTS)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(here), "test_budgets.py"]
    done = run([*words, *_plugin()], here)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert f"MACs {MACS}, and <{MACS} is allowed" in done.stdout


def _plugin() -> list[str]:
    """The plug-in, where the package that is installed here does not yet declare it."""
    from importlib.metadata import entry_points

    return [] if "opcost" in entry_points(group="pytest11").names else ["-p", "opcost.pytest_plugin"]


def test_the_package_declares_the_plugin() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points.pytest11]\nopcost = "opcost.pytest_plugin"\n' in declared


def test_the_plugin_costs_pytest_two_modules() -> None:
    """It is loaded in every run of every project beside which opcost is installed."""
    code = "import pytest, sys; before = {*sys.modules}; import opcost.pytest_plugin; print(*sorted({*sys.modules} - before))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found == ["opcost", "opcost.pytest_plugin", "opcost.version"]


# -- pre-commit --------------------------------------------------------------------------------------------------------


def test_the_declared_hook_runs(here: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {"id", "name", "entry", "language"} <= set(hook)
    assert hook["pass_filenames"] is False
    words = shlex.split(hook["entry"])
    assert run(words, here).returncode == 0
    allow(here, MACS - 1)
    done = run(words, here)
    assert done.returncode == 1
    assert f"MACs {MACS}, and <={MACS - 1} is allowed" in done.stdout


# -- GitHub Actions ----------------------------------------------------------------------------------------------------


def steps() -> dict[str, Any]:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert action["runs"]["using"] == "composite"
    given = set(action["inputs"])
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash"
        for value in step["env"].values():
            # What a caller writes reaches the script as a variable, never as a part of the script.
            assert value.removeprefix("${{ inputs.").removesuffix(" }}") in given
        assert "${{" not in step["run"]
    return {step["name"]: step for step in action["runs"]["steps"]}


def play(step: dict[str, Any], folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the script of a step as a runner does."""
    script = folder / "step.sh"
    script.write_text(step["run"])
    empty = dict.fromkeys(step["env"], "")
    places = {"RUNNER_TEMP": str(folder), "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    return run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)], folder, **places, **{**empty, **inputs}
    )


def test_the_action_checks_and_writes_the_summary(here: Path) -> None:
    check = steps()["check"]
    assert play(check, here).returncode == 0
    assert "within the budget: 1 limit" in (here / "summary.md").read_text()
    allow(here, MACS - 1)
    done = play(check, here, MODELS="net", CONFIG="opcost.toml")
    assert done.returncode == 1
    summary = (here / "summary.md").read_text()
    assert summary.count("within the budget") == 2  # the summary of the job grows
    assert f"| EXCEEDED | MACs | {MACS} | &lt;={MACS - 1} |" in summary


def test_the_action_hands_on_what_went_wrong(here: Path) -> None:
    check = steps()["check"]
    done = play(check, here, MODELS="nte")
    assert done.returncode == 2
    assert "did you mean 'net'" in done.stderr
    assert not (here / "summary.md").exists()
    assert play(check, here, BASELINE="nowhere.json").returncode == 2


def test_the_action_installs_what_its_input_names(here: Path) -> None:
    (here / "python").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    (here / "python").chmod(0o755)
    done = play(
        steps()["install"], here, INSTALL="opcost 'torch; rm x'", PATH=f"{here}{os.pathsep}{os.environ['PATH']}"
    )
    assert done.stdout == "-m|pip|install|opcost|'torch;|rm|x'|", done.stderr


def test_the_action_takes_all_lines(here: Path) -> None:
    (here / "python").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    (here / "python").chmod(0o755)
    path = f"{here}{os.pathsep}{os.environ['PATH']}"
    done = play(steps()["install"], here, INSTALL="opcost\ntorch timm\n", PATH=path)
    assert done.stdout == "-m|pip|install|opcost|torch|timm|", done.stderr
    done = play(steps()["check"], here, MODELS="net\nnte\n")
    assert done.returncode == 2
    assert "did you mean 'net'" in done.stderr
