"""Words on the command line that no file, number or name can be: refused briefly, whatever their length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text("from torch import nn\ndef net(width=8):\n    return nn.Linear(width, 8)\n")
    return f"{path}:net"


def assert_refused(done: Any, most: int) -> None:
    assert done.code == 2, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    assert "should not happen" not in done.err
    assert len(done.err) < most


LONG = "x" * 5000


@pytest.mark.parametrize(
    "source",
    [
        LONG,
        f"{LONG}.py",
        f"{LONG}.py:Net",
        f"a/{LONG}:Net",
        f"{LONG}:Net",
        f"hf:{LONG}",
        f"hf:{LONG}/config.json",
        f"timm:{LONG}",
        f"torchvision:{LONG}",
        f"tim:{LONG}",
        f"opcost.api:{LONG}",
        "x\0y",
        "x\0y.py:Net",
        "hf:x\0y",
        "timm:x\0y",
        "opcost.api:x\0y",
        "\ud800",
        "\ud800.py:Net",
        "hf:\ud800",
        "timm:\ud800",
        "odd-\udcff",
        "hf:\udcff/config.json",
        ":",
        "hf:",
        "timm::",
        "..:Net",
        ".:Net",
    ],
)
def test_a_name_that_no_file_has_is_refused_briefly(opcost_command: Command, source: str) -> None:
    assert_refused(opcost_command("count", source), 1200)


@pytest.mark.parametrize(
    "words",
    [
        ("-i", "9" * 100_000),
        ("-i", "1x" + "9" * 100_000),
        ("-i", "9" * 20),
        ("-i", "x" * 100_000),
        ("-i", "x" * 100_000 + ":1x3"),
        ("-i", "1x3:" + "x" * 100_000),
        ("-i", "x" * 100_000 + ":1x3:float32"),
        ("-i", "1x" * 100_000 + "1"),
        ("--set", "9" * 100_000),
        ("--set", "x" * 100_000 + "=1"),
        ("--set", "width=" + "9" * 100_000),
        ("--set", "width=" + "[" * 100_000),
        ("--arg", "9" * 100_000),
        ("--arg", "x" * 100_000 + "=1"),
        ("--depth", "9" * 100_000),
        ("--top", "9" * 100_000),
        ("--width", "9" * 100_000),
        ("--epoch", "9" * 100_000),
        ("--view", "x" * 100_000),
        ("--sort", "x" * 100_000),
        ("--columns", "x" * 100_000),
        ("-o", "x" * 5000 + ".json"),
        ("-o", "x\0y.json"),
        ("-o", "x." + "y" * 5000),
        ("--optimizer", "x" * 100_000),
    ],
)
def test_long_words_are_refused_briefly(
    opcost_command: Command, net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = () if words[0] == "-i" else ("-i", "1x8")
    assert_refused(opcost_command("count", net, *inputs, *words), 2500)
