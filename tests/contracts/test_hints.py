"""Every hint can be followed: an option that a message names is one of the command in which the message appears."""

from __future__ import annotations

import ast
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opcost.cli.main import COMMANDS, app, run

SOURCES = Path(__file__).resolve().parents[2] / "src" / "opcost"
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z_-]*[a-z]")
COMMAND = re.compile(r"\bopcost (\w+)")
EVERYWHERE = {"--debug", "--help", "--install-completion"}
FOREIGN = re.compile(r"tensorboard |nsys |load_and_run ")
"""Programs of others, whose options are theirs."""


def flags_of(command: str) -> set[str]:
    return {name for argument in app()[command].assemble_argument_collection() for name in argument.names}


FLAGS = {command: flags_of(command) | EVERYWHERE for command in COMMANDS}
COUNTING = frozenset(command for command in COMMANDS if {"--input", "--set", "--optimizer", "--real"} <= FLAGS[command])
"""Commands that count a SOURCE as it is."""
RUNNING = COUNTING | {"profile", "plan"}
"""Those that read the inputs of a model."""
SPREADING = frozenset(command for command in COMMANDS if "--tp-plan" in FLAGS[command])
"""Those that spread it over ranks."""
READING = frozenset({"analyze", "view", "compare"})
"""Commands that read a trace."""
APPEARS: tuple[tuple[str, frozenset[str]], ...] = (
    ("cli/main.py", frozenset()),  # headings of the tables that a command's own help has
    ("cli/", frozenset(COMMANDS)),
    ("options.py", frozenset(COMMANDS)),
    ("core/option.py", COUNTING),
    ("core/workers.py", frozenset({"analyze", "plan"})),
    ("frontends/varying.py", frozenset({"fit", "sweep"})),
    ("frontends/inputs.py", RUNNING),
    ("frontends/python.py", RUNNING),
    ("frontends/source.py", RUNNING),
    ("frontends/zoo.py", RUNNING),
    ("frontends/identify.py", frozenset(COMMANDS)),
    ("frontends/torch/sharding/", SPREADING),
    ("frontends/", COUNTING),
    ("recorders/", frozenset({"profile"})),
    ("traces/ranks/", frozenset({"analyze"})),
    ("traces/", READING),
    ("analysis/", frozenset({"analyze"})),
    ("views/profile.py", frozenset({"analyze"})),
    ("views/savings.py", frozenset({"analyze"})),
    ("views/comparison.py", frozenset({"compare", "view"})),
    ("views/report.py", frozenset({"count"})),
    ("views/sizing.py", frozenset({"fit", "sweep", "check"})),
    ("advising.py", frozenset({"advise"})),
    ("planning.py", frozenset({"plan"})),
    ("predicting.py", frozenset({"predict", "advise", "sweep", "check"})),
    ("profiles.py", frozenset({"predict"})),
    ("sizing.py", frozenset({"fit"})),
    ("utilizing.py", frozenset({"mfu"})),
    ("compat/visualizing.py", frozenset({"visualize"})),
    ("", frozenset(COMMANDS)),
)
"""In which commands the messages of a file appear; the first that fits a path."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every text in code that is no docstring, with `{}` in the place of what is put into it."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # a docstring
            inside.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            inside.update(id(part) for part in node.values)
            words = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(words)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def faults(text: str, commands: frozenset[str], *, anywhere: bool = False) -> Iterator[str]:
    """What a message names that is not there; an option after `opcost NAME` is one of that command.

    A message that appears `anywhere` names an option that at least one of the commands has.
    """
    for clause in re.split(r"[;`]|, then ", text):
        named = COMMAND.search(clause)
        if named is not None and named[1] not in COMMANDS:
            continue  # a word after the name of the package
        if FOREIGN.search(clause):
            continue
        for flag in FLAG.findall(clause):
            lacking = sorted(name for name in ({named[1]} if named else commands) if flag not in FLAGS[name])
            if lacking and not (anywhere and named is None and len(lacking) < len(commands)):
                yield f"{flag} is no option of {', '.join(lacking)}"


def commands_in(tree: ast.Module) -> dict[int, str]:
    """The lines of a module of the command line that belong to one command."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in COMMANDS:
            found |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node.name)
    return found


def messages() -> list[tuple[str, str, frozenset[str]]]:
    """Each message with its place in the source and the commands in which it appears."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        place = path.relative_to(SOURCES).as_posix()
        commands = next(names for prefix, names in APPEARS if place.startswith(prefix))
        source = path.read_text(encoding="utf-8")
        if "--" not in source:
            continue
        tree = ast.parse(source)
        inside = commands_in(tree) if place.startswith("cli/") else {}
        for line, text in texts(tree):
            if FLAG.search(text) and " " in text.strip():
                found.append((f"{place}:{line}", text, frozenset({inside[line]}) if line in inside else commands))
    return found


def test_an_option_that_a_message_names_is_one_of_its_command() -> None:
    found = messages()
    assert len(found) > 80
    shared = [place.startswith(("cli/", "options.py")) and len(commands) > 1 for place, _, commands in found]
    wrong = [
        f"{place}: {text}: {fault}"
        for (place, text, commands), anywhere in zip(found, shared, strict=True)
        for fault in faults(text, commands, anywhere=anywhere)
    ]
    assert wrong == []


def test_a_message_that_names_the_option_of_another_command_is_found() -> None:
    assert list(faults("measured peaks can be given: --peak-flops", COUNTING))
    assert list(faults("see `opcost count --peak-flops 1T`", frozenset({"analyze"})))
    assert not list(faults("`opcost analyze --peak-flops 1T` takes them", COUNTING))


# -- the messages themselves -------------------------------------------------------------------------------------------

CODE = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
    def forward(self, x):
        return self.layer(x)
class Any(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, 4))
    def forward(self, *args):
        return args and args[0] @ self.weight.T
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import torch

    (tmp_path / "net.py").write_text(CODE)
    with gzip.open(tmp_path / "trace.json.gz", "wt") as file:
        file.write('{"traceEvents": []}')
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    torch.save({"weight": torch.zeros(3)}, tmp_path / "pytorch_model.bin")
    torch.save({"weight": torch.zeros(3)}, tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("count", "net.py:Net", "--device", "rtx5091"), "opcost predict --help"),
        (("analyze", "trace.json", "--device", "rtx5091"), "--peak-flops"),
        (("count", "net.py:Net", "--input", "2x4:float16"), "--dtype float16"),
        (("count", "net.py:Any"), "--input"),
        (("count", "trace.json.gz"), "`opcost analyze`"),
        (("count", "trace.json"), "`opcost analyze`"),
        (("count", "pytorch_model.bin"), "`opcost scan`"),
        (("count", "old.bin"), "`opcost scan`"),
        (("count", "resnet50"), "timm:resnet50 or torchvision:resnet50"),
        (("count", "meta-llama/Llama-3.1-8B"), "hf:meta-llama/Llama-3.1-8B"),
        (("count", "net.py"), "net.py:Net"),
        (("view", "trace.json.gz", "-o", "page.html"), ""),
    ],
    ids=lambda words: " ".join(words[:2]) if isinstance(words, tuple) else "",
)
def test_a_hint_names_what_its_command_has(folder: Path, words: Any, expected: str, capsys: Any) -> None:
    code = run(list(words))
    said = capsys.readouterr().err
    assert code == 2
    assert expected in said
    assert not list(faults(said, frozenset(words[:1])))


def test_a_command_that_a_message_names_exists() -> None:
    named = {
        (path.name, word)
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for word in re.findall(r"`opcost ([a-z]+)", node.value)
    }
    assert len(named) > 10
    assert {(file, word) for file, word in named if word not in COMMANDS} == set()
