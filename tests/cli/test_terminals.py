"""Terminals that do not have our characters, and whether there is colour: the same for every command."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.cli.main import COMMANDS, run
from opcost.cli.printing import escape_unknown, use_color
from opcost.core.escaping import ASCII, shows_unicode

ENCODINGS = ["cp1252", "latin-1", "cp932", "ascii"]
OURS = {chr(code) for code in ASCII}
DATA = Path(__file__).resolve().parents[1] / "data"
ROOT = DATA.parents[1]
TRACE = str(DATA / "traces/kineto/cuda_fwd_stack.json.gz")
CASES = {
    "count": ["count", "examples/resnet18.py:ResNet18", "--input", "1x3x64x64"],
    "arch": ["count", "REPORT", "--view", "arch"],
    "memory": ["count", "REPORT", "--view", "memory"],
    "md": ["count", "REPORT", "--format", "md"],
    "op": ["count", "REPORT", "--by", "op", "--width", "200"],
    "show": ["count", "REPORT"],
    "compiled": ["count", "REPORT", "--compiled"],
    "scan": ["scan", "WEIGHTS"],
    "check": ["check", "REPORT", "--max-macs", "1"],
    "compare": ["compare", "REPORT", "REPORT"],
    "diff": ["compare", "--changes", "REPORT", "REPORT"],
    "predict": ["predict", "REPORT"],
    "plan": (
        "plan examples/transformer.py:Decoder --input 2x16:int64 --gpus 2 --cluster dgx-h100 --global-batch 4 --fix replicate=2 "
        "--checkpoint none --batch 2"
    ).split(),
    "mfu": ["mfu", "REPORT", "--step-time", "3ms", "--device", "h200", "--inference"],
    "profile": ["profile", "examples/resnet18.py:ResNet18", "--input", "1x3x32x32", "--repeat", "1", "--warmup", "0"],
    "analyze": ["analyze", "PROFILE"],
    "breakdown": ["analyze", TRACE, "--view", "breakdown"],
    "communication": ["analyze", TRACE, "--view", "communication"],
    "memory of a trace": ["analyze", TRACE, "--view", "memory"],
    "critical path": ["analyze", TRACE, "--view", "critical-path"],
    "launches": ["analyze", TRACE, "--view", "launches"],
    "diff of traces": ["compare", "--changes", TRACE, TRACE, "--by", "kind"],
    "diff of modules": ["compare", "--changes", "REPORT", "OTHER", "--by", "module"],
    "visualize": ["visualize", "REPORT"],
    "badge": ["count", "REPORT", "--view", "badge"],
    "what fits onto a device": ["fit", "examples/resnet18.py:ResNet18", "--input", "1x3x32x32", "--device", "h200"],
    "advise": ["advise", "examples/resnet18.py:ResNet18", "--input", "1x3x32x32", "--device", "h200"],
    "sweep of a device": [
        "sweep",
        "examples/resnet18.py:ResNet18",
        "--input",
        "1x3x32x32",
        "--vary",
        "batch=1,2",
        "--device",
        "h200",
    ],
    "fit": ["fit", "examples/resnet18.py:ResNet18", "--input", "1x3x32x32", "--memory", "1GiB", "--no-advise"],
    "sweep": ["sweep", "examples/resnet18.py:ResNet18", "--input", "1x3x32x32", "--vary", "batch=1,2"],
    "view": ["view", "REPORT", "-o", "PAGE"],
    "rules": ["rules"],
    "doctor": ["doctor"],
    "calibrate": ["calibrate", "-o", "/nowhere/x.json"],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    import torch

    folder = tmp_path_factory.mktemp("files")
    net = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
    opcost.count(net, shapes=(2, 8)).save(folder / "report.json")
    opcost.count(net[:2], shapes=(2, 8)).save(folder / "other.json")
    opcost.predict(opcost.load_report(folder / "report.json")).save(folder / "profile.json")
    torch.save(net.state_dict(), folder / "weights.pt")
    page = {"PAGE": str(folder / "page.html")}
    return page | {
        name.upper(): str(next(folder.glob(f"{name}.*"))) for name in ("report", "other", "profile", "weights")
    }


def said(monkeypatch: pytest.MonkeyPatch, encoding: str, words: list[str]) -> tuple[int, str, str]:
    """What a command leaves on a terminal of this encoding."""
    streams = [io.BytesIO(), io.BytesIO()]
    for name, buffer in zip(("stdout", "stderr"), streams, strict=True):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(buffer, encoding=encoding, write_through=True))
    escape_unknown()
    monkeypatch.chdir(ROOT)
    code = run(words)
    out, err = (buffer.getvalue().decode(encoding) for buffer in streams)
    return code, out, err


def test_every_command_is_tried() -> None:
    assert {words[0] for words in CASES.values()} == set(COMMANDS)


SLOW = ("profile", "what fits onto a device", "advise")
"""Seconds each: tried on one terminal."""


def in_turn(index: int) -> list[str]:
    """A terminal that lacks all of our letters, and one of those that have some of them."""
    return ["ascii", ENCODINGS[index % 3]]


@pytest.mark.parametrize(
    ("case", "encoding"),
    [(case, name) for index, case in enumerate(CASES) for name in in_turn(index)[case in SLOW :]],
)
def test_a_terminal_of_few_letters_gets_ascii(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str], case: str, encoding: str
) -> None:
    monkeypatch.setattr("opcost.installed.LIBRARIES", ("rich",))  # a new process imports each of them
    code, out, err = said(monkeypatch, encoding, [files.get(word, word) for word in CASES[case]])
    assert code in (0, 1) if case != "calibrate" else code == 2
    for text in (out, err):
        assert not OURS & set(text)
        assert "\\u" not in text


@pytest.mark.parametrize(
    ("command", "encoding"),
    [(name, encoding) for index, name in enumerate(["", *COMMANDS]) for encoding in in_turn(index)],
)
def test_help_is_shown_anywhere(monkeypatch: pytest.MonkeyPatch, command: str, encoding: str) -> None:
    code, out, _ = said(monkeypatch, encoding, [*filter(None, [command]), "--help"])
    assert code == 0
    assert "\\u" not in out


def test_columns_stay_where_they_are(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    _, unicode, _ = said(monkeypatch, "utf-8", ["count", files["REPORT"]])
    _, ascii_, _ = said(monkeypatch, "ascii", ["count", files["REPORT"]])
    assert [len(line) for line in unicode.splitlines()] == [len(line) for line in ascii_.splitlines()]
    assert "├─" in unicode
    assert "|-" in ascii_


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_json_comes_back_whatever_the_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, encoding: str) -> None:
    import torch

    report = opcost.count(torch.nn.Linear(2, 2), shapes=(1, 2))
    name = "é…×卷\U0001f600"
    replace(report, meta={**report.meta, "source": name}).save(tmp_path / "net.json")
    code, out, _ = said(monkeypatch, encoding, ["count", str(tmp_path / "net.json"), "--format", "json"])
    assert code == 0
    assert json.loads(out)["meta"]["source"] == name


@pytest.mark.parametrize(
    ("encoding", "shown"), [("utf-8", True), ("UTF8", True), ("utf-16", True), ("cp1252", False), ("no such", False)]
)
def test_only_unicode_shows_everything(encoding: str, shown: bool) -> None:
    class Stream:
        pass

    stream: Any = Stream()
    stream.encoding = encoding
    assert shows_unicode(stream) is shown
    assert shows_unicode(io.StringIO())


@pytest.mark.parametrize(
    ("environment", "terminal", "wanted"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, True, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
    ],
)
def test_colour(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], terminal: bool, wanted: bool) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    assert use_color(stream) is wanted


def test_forced_colour_reaches_a_pipe(files: dict[str, str]) -> None:
    for forced in ("1", "0"):
        done = subprocess.run(
            [sys.executable, "-m", "opcost", "count", files["REPORT"]],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": "", "PYTHONPATH": str(ROOT / "src"), "FORCE_COLOR": forced},
        )
        assert ("\x1b[" in done.stdout) is (forced == "1")
