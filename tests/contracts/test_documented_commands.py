"""Every command and every piece of Python in the documents runs as it is written, with files of the names that it takes.

Blocks below `<!-- run -->` run in `test_readme.py`, which also compares what they print.
"""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from marked_blocks import MARKED
from named_files import write_named_files
from sampling import sampled

from opcost.cli.main import COMMANDS as KNOWN

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), ROOT / "src/opcost/cli/examples.txt")
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
LINE = re.compile(rf"^ *(opcost (?:{'|'.join(KNOWN)})\b.*)$", re.MULTILINE)
QUOTED = re.compile(rf"`(opcost (?:{'|'.join(KNOWN)}) [^-`][^`]*)`")  # `opcost count -o page.html` names an option
NOT_RUN = {
    "--serve": "runs until it is interrupted: tests/browser/test_served.py",
    "calibrate": "times the operators of a GPU: tests/recorders/test_calibrate.py",
    "--calibration": "takes what calibrate wrote: tests/cli/test_predict.py",
    "--scheduler": "needs a cluster: tests/traces/test_ranks.py",
}
INSTEAD = {
    "--device cuda --cold-l2": "", "--device cuda": "", "--seconds 10": "--repeat 1", "--seconds 2": "--repeat 1",
    "--repeat 50": "--repeat 1", "--batch 8 -o profile.json": "--batch 8 --repeat 1 -o profile.json",
    "--backward -o step.json": "--backward --repeat 1 -o step.json",
    "<(cat report.json)": "report.json", "SOURCE": "report.json",
}  # fmt: skip
"""What runs without a GPU, in little time, and without a shell."""
MAY_FIND = ("check", "compare")  # exit code 1: a limit is exceeded, or a difference was found


def commands(text: str, suffix: str) -> Iterator[str]:
    """Commands on lines of their own, and those in the text that have arguments."""
    text = MARKED.sub("", text)
    blocks = [found[3] for found in FENCED.finditer(text)] if suffix == ".md" else [text]
    for block in blocks:
        yield from (re.split(r"\s{3,}|\s#\s| \| ", found[1])[0].strip() for found in LINE.finditer(block))
    if suffix == ".md":
        yield from (found[1] for found in QUOTED.finditer(FENCED.sub("", text)))


COMMANDS = sorted({command for page in PAGES for command in commands(page.read_text(encoding="utf-8"), page.suffix)})
RUN = [command for command in COMMANDS if not any(words in command for words in NOT_RUN)]


def test_commands_are_found_and_few_are_not_run() -> None:
    assert len(RUN) >= 60
    assert len(COMMANDS) - len(RUN) <= 10
    assert all(any(words in command for command in COMMANDS) for words in NOT_RUN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("named")
    write_named_files(made)
    return made


@pytest.mark.parametrize("command", sampled(RUN, every=3))
def test_a_documented_command_runs(
    command: str, folder: Path, opcost_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("BROWSER", "true")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    for written, run in INSTEAD.items():
        command = command.replace(written, run)
    words = [word for each in shlex.split(command)[1:] for word in _expanded(each, folder)]
    done = opcost_command(*words)
    assert done.code == 0 or (done.code == 1 and words[0] in MAY_FIND), done.err
    assert done.out or done.err or "-o" in words


def _expanded(word: str, folder: Path) -> list[str]:
    """The files that a pattern matches, as a shell would name them."""
    matches = sorted(str(path.relative_to(folder)) for path in folder.glob(word)) if "*" in word and "/" in word else []
    return matches or [word]


PYTHON = [
    pytest.param(found[3], id=f"{page.stem}-{number}")
    for page in PAGES
    for number, found in enumerate(FENCED.finditer(MARKED.sub("", page.read_text(encoding="utf-8"))))
    if found[2] == "python"
]


@pytest.mark.parametrize("code", PYTHON)
def test_documented_python_runs(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    import opcost

    monkeypatch.chdir(folder)
    monkeypatch.setattr(opcost.StepMeter, "for_lightning", lambda _: None)  # Lightning is not installed with the tests
    net = runpy.run_path(str(folder / "net.py"))["Net"]
    image = torch.ones(1, 3, 224, 224)
    trainer = SimpleNamespace(Trainer=lambda *_, **__: None)  # training is no part of what is shown
    names: dict[str, Any] = {
        "opcost": opcost, "torch": torch, "Net": net, "model": net(), "inputs": image, "image": image, "mask": image,
        "tokens": torch.ones(1, 128, dtype=torch.int64), "loss": torch.sum, "loader": [image, image],
        "train_step": net(), "transformers": trainer, "lightning": trainer,
    }  # fmt: skip
    exec(compile(code, "documented", "exec"), names)
    for name, test in names.items():
        if name.startswith("test_"):
            test(opcost)
