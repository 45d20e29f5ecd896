"""Every command that the documents show is one that the command line understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from opcost.cli.main import COMMANDS as KNOWN
from opcost.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), ROOT / "Makefile", *sorted(ROOT.glob("examples/*.py")))
LINE = re.compile(rf"^\s*(?:\$\(BIN\)/)?(opcost (?:{'|'.join(KNOWN)})\b.*)$", re.MULTILINE)
COMMANDS = sorted({found[1].strip() for page in PAGES for found in LINE.finditer(page.read_text())})


def test_commands_are_found() -> None:
    assert len(COMMANDS) >= 15


@pytest.mark.parametrize("line", COMMANDS)
def test_a_documented_command_can_be_parsed(line: str) -> None:
    words = shlex.split(re.split(r"\s{3,}| \| ", line)[0], comments=True)[1:]  # without remarks, and what reads it
    command, bound, ignored = app().parse_args(words, exit_on_error=False, print_error=False)
    assert command.__name__ == words[0]
    assert bound is not None
    assert not ignored
