"""The example of a plug-in installs, and every part of it works from the command line; opcost itself needs no installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

ROWS, WIDTHS = 3, (8, 16, 4)
MACS = ROWS * sum(wide * narrow for wide, narrow in pairwise(WIDTHS))
FLOPS = 2 * MACS + 3 * ROWS * sum(WIDTHS[1:])  # a squash of every product: 3 per element

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def installed(root_of_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the example is installed into."""
    pytest.importorskip("setuptools")
    work = tmp_path_factory.mktemp("plugin")
    shutil.copytree(root_of_project / "examples" / "plugin", work / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(work / "target")]
    done = subprocess.run([*pip, *offline, str(work / "source")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return work / "target"


@pytest.fixture(scope="module")
def root_of_project() -> Path:
    return Path(__file__).resolve().parents[2]


@pytest.fixture
def run(installed: Path, root_of_project: Path, tmp_path: Path) -> Run:
    (tmp_path / "net.dense").write_text(f"dense {' '.join(map(str, WIDTHS))}\n")
    (tmp_path / "run.txt").write_text("dense trace\nfirst dense::product 700\nsecond dense::squash 300\n")
    path = os.pathsep.join((str(installed), str(root_of_project / "src")))

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "opcost", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def test_its_front_end_its_option_its_rule_and_its_view_count_a_model(run: Run, tmp_path: Path) -> None:
    done = run(
        "count", "net.dense", "--rows", str(ROWS), "--view", "brief", "--exact", "-o", "net.json", "-o", "n.brief"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"net.dense: {FLOPS:,} FLOPs\n"
    assert (tmp_path / "n.brief").read_text() == done.stdout
    import opcost

    totals = opcost.load_report(tmp_path / "net.json").totals
    assert (totals.macs, totals.flops, totals.uncounted) == (MACS, FLOPS, 0)


def test_its_reader_reads_a_trace(run: Run) -> None:
    done = run("analyze", "run.txt", "--format", "csv", "--aggregate-by", "type", "--order-by", "time")
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines = (line.split(",") for line in done.stdout.splitlines())
    found = [(line[head.index("type")], line[head.index("time_ns")]) for line in lines if line[0] == "row"]
    assert found == [("dense::product", "700"), ("dense::squash", "300")]


def test_its_parts_are_listed_by_help_rules_and_doctor(run: Run) -> None:
    assert "The rows of the input of a .dense file" in " ".join(run("count", "--help").stdout.replace("│", "").split())
    assert "3 FLOPs per element" in run("rules", "dense::squash").stdout
    doctor = run("doctor")
    assert doctor.returncode == 0, doctor.stdout
    for part in ("rule:add", "frontend:FRONTEND", "trace:READER", "view:VIEW"):
        assert f"opcost_dense.{part}" in doctor.stdout


def test_a_misspelt_option_of_its_front_end_is_corrected(run: Run) -> None:
    assert "Did you mean --rows?" in run("count", "net.dense", "--row", "2").stderr


WITHOUT_ENTRY_POINTS = """
import sys
from opcost.core import plugin
plugin._entries = lambda group: ()
from opcost.cli.main import main
assert ".zip" in plugin.__file__
main()
"""


def test_a_zipped_copy_of_the_source_counts_without_any_entry_point(root_of_project: Path, tmp_path: Path) -> None:
    words = ("count", "net.py:net", "-i", "1x8", "-o", "x.md")
    (tmp_path / "net.py").write_text("from torch import nn\ndef net():\n    return nn.Linear(8, 4)\n")
    archive = shutil.make_archive(str(tmp_path / "opcost"), "zip", root_of_project / "src")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ENTRY_POINTS, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": archive},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Linear" in done.stdout
    assert "Linear" in (tmp_path / "x.md").read_text()
